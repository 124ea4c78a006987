"""The block pool as a state machine against a simple model: counts conserved, nothing lost, found or shared wrongly."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import pytest
from hypothesis import settings, stateful
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gearshift.engine.local.blocks import BlockPool, chain, chain_root, extend_chain
from gearshift.engine.local.scheduler import BLOCK_TOKENS

TOTAL = 8


@dataclass(eq=False)
class Holder:
    """A sequence as the pool meets it: full blocks of known content, and perhaps a partial one at the end."""

    number: int
    scope: str
    letters: str
    digests: list[bytes]
    blocks: list[int] = field(default_factory=list[int])
    partial: int | None = None


class PoolMachine(RuleBasedStateMachine):
    """Sequences over a tiny alphabet of block contents, in two scopes, come, grow and go in any order.

    `truth` says what the keys and values of each block would really be: scope and letters up to it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(TOTAL)
        self.holders: list[Holder] = []
        self.truth: dict[int, tuple[str, str]] = {}
        self.born = 0

    @rule(scope=st.sampled_from("xy"), letters=st.text("ab", max_size=4))
    def come(self, scope: str, letters: str) -> None:
        tokens = array("i", [ord(letter) for letter in letters for _ in range(BLOCK_TOKENS)])
        digests: list[bytes] = []
        extend_chain(digests, chain_root("model", 1, scope), tokens)
        self.holders.append(Holder(self.born, scope, letters, digests))
        self.born += 1

    @rule(index=st.integers(0, 20), rank=st.integers(0, 1))
    def grow(self, index: int, rank: int) -> None:
        if not self.holders or self.holders[index % len(self.holders)].partial is not None:
            return
        holder = self.holders[index % len(self.holders)]
        at = len(holder.blocks)
        if at == len(holder.letters):
            holder.partial = self._take() if self.pool.free else None
            return
        digest, truth = holder.digests[at], (holder.scope, holder.letters[: at + 1])
        block = self.pool.find(digest)
        if block is not None:
            assert self.truth[block] == truth, "a block with other content was found"
        else:
            assert not any(self.truth.get(b) == truth for h in self.holders for b in h.blocks), "not found, but in use"
            if self.pool.promised_to_other(digest, holder.number, rank):
                return
            self.pool.promise(holder.digests[at:], holder.number, rank)
            if not self.pool.free:
                return
            block = self._take()
            self.truth[block] = truth
            self.pool.publish(block, digest)
        holder.blocks.append(block)

    @rule(index=st.integers(0, 20))
    def go(self, index: int) -> None:
        if not self.holders:
            return
        holder = self.holders.pop(index % len(self.holders))
        self.pool.withdraw(holder.digests, holder.number)
        self.pool.give_back(holder.blocks + ([] if holder.partial is None else [holder.partial]))

    def _take(self) -> int:
        block = self.pool.take()
        in_use = {b for h in self.holders for b in [*h.blocks, h.partial]}
        assert block not in in_use, "a block in use was handed out"
        self.truth.pop(block, None)
        return block

    @invariant()
    def conserved(self) -> None:
        self.pool.audit()
        in_use = {b for h in self.holders for b in h.blocks} | {
            h.partial for h in self.holders if h.partial is not None
        }
        assert self.pool.free == TOTAL - len(in_use)

    @invariant()
    def partial_blocks_are_private(self) -> None:
        partial = [h.partial for h in self.holders if h.partial is not None]
        assert len(set(partial)) == len(partial)
        assert not set(partial) & {b for h in self.holders for b in h.blocks}

    @invariant()
    def scopes_never_share(self) -> None:
        x, y = ({b for h in self.holders if h.scope == scope for b in h.blocks} for scope in "xy")
        assert not x & y

    @invariant()
    def promises_belong_to_the_living(self) -> None:
        living = {h.number for h in self.holders}
        digests = {digest for h in self.holders for digest in h.digests}
        for digest in digests:
            if self.pool.promised_to_other(digest, number=-1, rank=0):
                assert any(not self.pool.promised_to_other(digest, number, 0) for number in living)


@pytest.mark.parametrize("examples", [40, pytest.param(2000, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_the_pool_under_any_sequence_of_uses(examples: int) -> None:
    stateful.run_state_machine_as_test(  # pyright: ignore[reportUnknownMemberType]
        PoolMachine, settings=settings(max_examples=examples, stateful_step_count=40, deadline=None)
    )


def test_the_least_recently_used_end_of_a_prefix_goes_first() -> None:
    pool = BlockPool(3)
    old, recent = [pool.take(), pool.take()], [pool.take()]
    for block, digest in zip([*old, *recent], [b"old 0", b"old 1", b"recent"], strict=True):
        pool.publish(block, digest)
    pool.give_back(old)
    pool.give_back(recent)
    assert pool.free == 3
    pool.take()
    assert pool.find(b"old 1") is None
    assert pool.find(b"old 0") == old[0]
    pool.take()
    assert pool.find(b"recent") is None


def test_a_promise_is_taken_over_by_a_higher_gear_and_when_withdrawn() -> None:
    pool = BlockPool(1)
    pool.promise([b"a", b"b"], number=1, rank=0)
    assert pool.promised_to_other(b"a", number=2, rank=0)
    assert not pool.promised_to_other(b"a", number=1, rank=0)
    assert not pool.promised_to_other(b"a", number=3, rank=1)
    pool.promise([b"a"], number=3, rank=1)
    assert pool.promised_to_other(b"a", number=1, rank=0)
    pool.withdraw([b"a", b"b"], number=1)
    assert pool.promised_to_other(b"a", number=1, rank=0)
    assert not pool.promised_to_other(b"b", number=2, rank=0)


def test_giving_back_twice_is_noticed() -> None:
    pool = BlockPool(2)
    block = pool.take()
    pool.give_back([block])
    with pytest.raises(AssertionError, match="more often"):
        pool.give_back([block])


def test_digests_differ_by_model_format_scope_position_and_tokens() -> None:
    block = array("i", range(BLOCK_TOKENS))
    roots = {chain_root("m", 1, "s"), chain_root("n", 1, "s"), chain_root("m", 2, "s"), chain_root("m", 1, "t")}
    roots |= {chain_root("m", 1, ""), chain_root("m", 1, "\n1\n"), chain_root("m", 1, "\ud800")}
    assert len({chain(root, block) for root in roots}) == 7
    digests: list[bytes] = []
    extend_chain(digests, min(roots), block + block + block[:-1])
    assert len(set(digests)) == 2
    assert digests == [first := chain(min(roots), block), chain(first, block)]
