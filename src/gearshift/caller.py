"""The caller of a turn and the hook that settles it.

A caller is an account with a cache scope: prompts of one scope never speed up, or show themselves to,
another. `settle` is called exactly once per turn, however the turn ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gearshift.catalog import GearName


@dataclass(frozen=True, slots=True)
class Caller:
    """An account as the engine sees it.

    Attributes:
        account: the account's id, `local` when the server is open.
        cache_scope: prompts are found in the cache only by callers of the same scope.
    """

    account: str
    cache_scope: str


LOCAL = Caller(account="local", cache_scope="local")


@dataclass(frozen=True, slots=True)
class Work:
    """What the engine did for the tokens of a turn: by this its speed can be explained.

    Attributes:
        steps: steps in which it had rows that chose a token.
        rows: rows of those steps that chose, drafts included.
        drafted: drafted tokens that took rows.
        kept: those of them that the model itself chose too.
    """

    steps: int = 0
    rows: int = 0
    drafted: int = 0
    kept: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.steps + other.steps,
            self.rows + other.rows,
            self.drafted + other.drafted,
            self.kept + other.kept,
        )


NO_WORK = Work()


@dataclass(frozen=True, slots=True)
class Usage:
    """Exact token counts of one turn.

    Attributes:
        prompt_tokens: all tokens of the prompt, cached ones included, counted once whatever `n` is.
        cached_tokens: those of them that were found in the cache.
        completion_tokens: tokens produced over all choices, the end-of-text token included if produced.
        ending: how the turn ended.
        work: exact for choices that ended. Of a running choice only the drafts that were kept are known.
        gear: the gear that served; the one asked for while none has.
        predicted: whether the turn came with a prediction.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    ending: Literal["finished", "cancelled", "failed"]
    work: Work = NO_WORK
    gear: GearName = "standard"
    predicted: bool = False


Settle = Callable[[str, Caller, Usage], None]
"""`settle(turn_id, caller, usage)`."""
