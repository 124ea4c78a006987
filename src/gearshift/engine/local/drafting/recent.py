"""Recent outputs by cache scope: what a caller was told lately, as a source of drafts for the next turns.

An agent repeats itself: the same file, the same command, the same JSON. Memory is bounded in tokens, per scope and
in all, and a scope sees its own outputs only.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

from gearshift.engine.local.drafting.places import Places

MOST_OUTPUTS = 12
"""Outputs kept per scope: each costs a lookup in every proposal."""


class Recent:
    """The recent outputs of one scope, as a turn sees them: those that were complete when it began."""

    __slots__ = ("outputs",)

    def __init__(self, outputs: Sequence[Places]) -> None:
        self.outputs = tuple(outputs)


class RecentOutputs:
    """Outputs of all scopes. The scopes that were used last stay, and in each the outputs that came last.

    For one thread, the engine's loop: outputs are indexed by the turns that look into them. A token takes 100 to 350
    bytes with its index, so that the default is at most some 20 MB.
    """

    def __init__(self, per_scope: int = 16384, in_all: int = 65536) -> None:
        if not 0 < per_scope <= in_all:
            raise ValueError(f"per_scope must be from 1 to in_all ({in_all}), but is {per_scope}")
        self._per_scope = per_scope
        self._in_all = in_all
        self._scopes: OrderedDict[str, deque[Places]] = OrderedDict()
        self._held: dict[str, int] = {}
        self.tokens = 0
        """Tokens held, over all scopes."""

    def add(self, scope: str, ids: Sequence[int]) -> None:
        """An output of this scope is complete. Of one that is too long for a scope, the end is kept."""
        if not ids:
            return
        output = Places(ids[-self._per_scope :])
        outputs = self._scopes.setdefault(scope, deque())
        self._scopes.move_to_end(scope)
        outputs.appendleft(output)
        self._count(scope, len(output.tokens))
        while self._held[scope] > self._per_scope or len(outputs) > MOST_OUTPUTS:
            self._count(scope, -len(outputs.pop().tokens))
        while self.tokens > self._in_all:
            oldest, outputs = next(iter(self._scopes.items()))
            self._count(oldest, -len(outputs.pop().tokens))
            if not outputs:
                del self._scopes[oldest], self._held[oldest]

    def view(self, scope: str) -> Recent:
        """What a turn of this scope may draft from, the latest output first."""
        outputs = self._scopes.get(scope)
        if outputs is None:
            return Recent(())
        self._scopes.move_to_end(scope)
        return Recent(tuple(outputs))

    @property
    def entries(self) -> int:
        """Index entries held, over all scopes."""
        return sum(output.entries for outputs in self._scopes.values() for output in outputs)

    def _count(self, scope: str, tokens: int) -> None:
        self.tokens += tokens
        self._held[scope] = self._held.get(scope, 0) + tokens
