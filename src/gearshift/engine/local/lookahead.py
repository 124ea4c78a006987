"""The drafts of a lane's sequences: asked for before a step, learned from after it.

Where they come from is a drafter's business, whether they take rows the scheduler's, and what is kept of them the
model's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gearshift.engine.local.constraints import Matcher
from gearshift.engine.local.drafting import Draft, Drafter, RecentOutputs, TurnDrafts
from gearshift.engine.local.sequence import Choice

DrafterOf = Callable[[Choice], Drafter]
"""A drafter for a choice that may have drafts, made when it is first asked for one."""

_FORCED_ODDS = 0.99
"""A token that must follow is kept, unless the model cuts the same text into other tokens."""


class Lookahead:
    """Drafts for the sequences of one model. Belongs to the loop thread."""

    def __init__(self, drafter_of: DrafterOf | None = None) -> None:
        self._drafter_of = drafter_of or self._turn_drafts
        self._recent = RecentOutputs()

    def draft(self, choices: Iterable[Choice]) -> None:
        """Ask for a draft where a gear pays for the rows, once for every state of a sequence."""
        for choice in choices:
            if choice.lookahead == 1 or choice.drafted_at == choice.wanted:
                continue
            if choice.drafter is None:
                choice.drafter = self._drafter_of(choice)
            most = min(choice.lookahead, choice.turn.limit - choice.produced) - 1
            if choice.wanted - choice.computed > 1:  # still a prompt: nothing to draft, but something to prepare
                choice.drafter.propose(0)
                continue
            draft = choice.drafter.propose(most)
            if choice.matcher is not None and most > 0:
                draft, choice.guessed = _fitted(draft, choice.matcher, most)
            choice.draft, choice.drafts, choice.odds = draft.tokens, len(draft.tokens), draft.odds
            choice.drafted_at = choice.wanted

    def verified(self, choice: Choice, rows: int, tokens: Sequence[int]) -> None:
        """In `rows` rows, a sequence took these tokens: the first, and as many drafts."""
        if choice.drafter is not None:
            if choice.guessed:
                choice.drafter.learn(rows - 1, len(tokens) - 1)
            choice.drafter.append(tokens)
        if choice.reason is not None and choice.turn.drafts == "warm":
            self._recent.add(choice.turn.scope, choice.tokens[len(choice.turn.prompt) :])

    def _turn_drafts(self, choice: Choice) -> Drafter:
        turn = choice.turn
        recent = self._recent.view(turn.scope) if turn.drafts == "warm" else None
        drafter = TurnDrafts(turn.prompt, turn.prediction, recent)
        drafter.append(choice.tokens[len(turn.prompt) :])
        return drafter


def _fitted(draft: Draft, matcher: Matcher, most: int) -> tuple[Draft, bool]:
    """A draft as far as a grammar allows it, or what the grammar forces if that is longer; and whether it is the first:
    a token that is forbidden needs no row, since the mask of its place would refuse it anyway."""
    fits, forced = draft.tokens[: matcher.fitting(draft.tokens)], matcher.forced()[:most]
    return (Draft(fits, draft.odds), True) if len(fits) >= len(forced) else (Draft(forced, _FORCED_ODDS), False)
