"""Merging and subtracting half-open intervals of integers."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator


class IntervalSet:
    """A sorted list of disjoint intervals [begin, end)."""

    def __init__(self, intervals: Iterable[tuple[int, int]] = ()) -> None:
        self._items: list[tuple[int, int]] = []
        for begin, end in intervals:
            self.add(begin, end)

    def add(self, begin: int, end: int) -> None:
        if begin >= end:
            raise ValueError(f"empty interval [{begin}, {end})")
        index = bisect_left(self._items, (begin, begin))
        if index > 0 and self._items[index - 1][1] >= begin:
            index -= 1
            begin = self._items[index][0]
        last = index
        while last < len(self._items) and self._items[last][0] <= end:
            end = max(end, self._items[last][1])
            last += 1
        self._items[index:last] = [(begin, end)]

    def remove(self, begin: int, end: int) -> None:
        kept: list[tuple[int, int]] = []
        for low, high in self._items:
            if high <= begin or low >= end:
                kept.append((low, high))
                continue
            if low < begin:
                kept.append((low, begin))
            if high > end:
                kept.append((end, high))
        self._items = kept

    def __contains__(self, value: int) -> bool:
        index = bisect_left(self._items, (value + 1, value + 1)) - 1
        return index >= 0 and self._items[index][0] <= value < self._items[index][1]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._items)

    def __len__(self) -> int:
        return sum(end - begin for begin, end in self._items)


def test_neighbours_join() -> None:
    found = IntervalSet([(0, 3), (5, 8)])
    found.add(3, 5)
    assert list(found) == [(0, 8)]
    found.remove(2, 6)
    assert list(found) == [(0, 2), (6, 8)]
    assert 1 in found and 2 not in found and 7 in found
    assert len(found) == 4

