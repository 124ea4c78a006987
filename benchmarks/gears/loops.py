"""Does an answer end in a loop? Small models often do, and a loop drafts itself: its speed says nothing of a gear."""

from __future__ import annotations

from collections.abc import Sequence

LOOP_SHARE = 0.3
"""An answer is a loop when more than this part of it is one n-gram, repeated up to the end."""
_CUT_OFF = 4
"""Tokens after the last repetition that do not save an answer: a loop may be left by its stop text."""


def looped_share(ids: Sequence[int]) -> float:
    """The largest part of an answer that is the same n-gram again and again, at least twice, up to its end."""
    if not ids:
        return 0.0
    return max(_covered(ids[: len(ids) - cut]) for cut in range(min(_CUT_OFF, len(ids) - 1) + 1)) / len(ids)


def is_loop(ids: Sequence[int]) -> bool:
    """Whether an answer does not count."""
    return looped_share(ids) > LOOP_SHARE


def _covered(ids: Sequence[int]) -> int:
    """Tokens of the longest repetition that ends with the last one."""
    most = 0
    for period in range(1, len(ids) // 2 + 1):
        same = 0
        while same + period < len(ids) and ids[-1 - same] == ids[-1 - same - period]:
            same += 1
        if same >= period:
            most = max(most, same + period)
    return most
