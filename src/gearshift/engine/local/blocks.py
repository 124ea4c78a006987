"""The pool of cache blocks of one model, and how full blocks are found again by what they hold.

A full block of accepted tokens is known by a SHA-256 digest chained over model, format, cache scope and all tokens
up to its end, so equal digests mean equal keys and values, and no caller meets another's blocks. The pool counts
references, keeps unreferenced blocks until their room is needed (least recently used goes first), and records which
blocks some sequence is about to compute. It holds no keys or values itself: those are the kernel's.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from gearshift.engine.local.scheduler import BLOCK_TOKENS

Digest = bytes


def chain_root(model_sha256: str, format_version: int, cache_scope: str) -> Digest:
    """The parent digest of a sequence's first block."""
    scope = cache_scope.encode("utf-8", "surrogatepass")
    head = f"gearshift cache block\n{model_sha256}\n{format_version}\n{len(scope)}\n".encode()
    return hashlib.sha256(head + scope).digest()


def chain(parent: Digest, tokens: array[int]) -> Digest:
    """The digest of a full block: BLOCK_TOKENS token ids after everything that `parent` stands for."""
    return hashlib.sha256(parent + tokens.tobytes()).digest()


def extend_chain(digests: list[Digest], root: Digest, tokens: array[int]) -> None:
    """Append the digests of the full blocks of `tokens` that `digests` does not have yet."""
    parent = digests[-1] if digests else root
    for start in range(len(digests) * BLOCK_TOKENS, len(tokens) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        parent = chain(parent, tokens[start : start + BLOCK_TOKENS])
        digests.append(parent)


class BlockPool:
    """Blocks 0 to `total` - 1. Every block is free, referenced, or kept: unreferenced but still findable."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._unused = list(range(total - 1, -1, -1))
        self._references = [0] * total
        self._digest_of: dict[int, Digest] = {}
        self._block_of: dict[Digest, int] = {}
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._promises: dict[Digest, tuple[int, int]] = {}

    @property
    def free(self) -> int:
        """Blocks that `take` can give: unused ones and kept ones."""
        return len(self._unused) + len(self._kept)

    def take(self) -> int:
        """An empty block, referenced once. Raises IndexError when there is none: ask `free` before."""
        if self._unused:
            block = self._unused.pop()
        elif self._kept:
            block, _ = self._kept.popitem(last=False)
            del self._block_of[self._digest_of.pop(block)]
        else:
            raise IndexError(f"all {self.total} cache blocks are in use")
        self._references[block] = 1
        return block

    def find(self, digest: Digest) -> int | None:
        """The block with this content, referenced once more; None when there is none."""
        block = self._block_of.get(digest)
        if block is not None:
            if self._references[block] == 0:
                del self._kept[block]
            self._references[block] += 1
        return block

    def count_in_use(self, digests: Iterable[Digest]) -> int:
        """How many leading digests are found in blocks that others reference now."""
        count = 0
        for digest in digests:
            block = self._block_of.get(digest)
            if block is None or self._references[block] == 0:
                break
            count += 1
        return count

    def publish(self, block: int, digest: Digest) -> None:
        """A referenced block is full: it can be found from now on. When an equal one already can, it stays private."""
        if digest not in self._block_of:
            self._block_of[digest] = block
            self._digest_of[block] = digest
        self._promises.pop(digest, None)

    def give_back(self, blocks: Sequence[int]) -> None:
        """Drop one reference of each. The last of them ages first: a prefix is of use to more than its ends."""
        for block in reversed(blocks):
            self._references[block] -= 1
            if self._references[block] == 0:
                if block in self._digest_of:
                    self._kept[block] = None
                else:
                    self._unused.append(block)
            elif self._references[block] < 0:
                raise AssertionError(f"cache block {block} was given back more often than taken")

    def promised_to_other(self, digest: Digest, number: int, rank: int) -> bool:
        """Whether a sequence other than `number`, of the same gear or a higher one, is about to compute this block."""
        promise = self._promises.get(digest)
        return promise is not None and promise[0] != number and promise[1] >= rank

    def promise(self, digests: Iterable[Digest], number: int, rank: int) -> None:
        """Sequence `number` is about to compute these blocks, up to the first that another one is computing."""
        for digest in digests:
            if self.promised_to_other(digest, number, rank):
                break
            self._promises[digest] = (number, rank)

    def withdraw(self, digests: Iterable[Digest], number: int) -> None:
        """Sequence `number` will not compute them after all: whoever waits for them takes over."""
        for digest in digests:
            promise = self._promises.get(digest)
            if promise is not None and promise[0] == number:
                del self._promises[digest]

    def audit(self) -> None:
        """Check that every block is in exactly one state and every index agrees; for tests."""
        unused, kept = set(self._unused), set(self._kept)
        referenced = {block for block, count in enumerate(self._references) if count > 0}
        assert len(unused) == len(self._unused), "a block is twice in the free list"
        assert unused | kept | referenced == set(range(self.total)), "a block was lost"
        assert len(unused) + len(kept) + len(referenced) == self.total, "a block has two states"
        assert {block: digest for digest, block in self._block_of.items()} == self._digest_of, "the indexes disagree"
        assert kept <= set(self._digest_of), "a kept block cannot be found"
        assert not unused & set(self._digest_of), "a free block can be found"
