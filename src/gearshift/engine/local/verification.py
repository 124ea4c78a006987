"""What a step chose, read off in the order of its rows, and how far a draft was what the model would have chosen."""

from __future__ import annotations

from collections.abc import Sequence

from gearshift.engine.local.batch import Chosen
from gearshift.engine.local.sequence import Vocabulary
from gearshift.engine.protocol import TokenLogprob


class Results:
    """The tokens of a step. Every sequence takes its own, in the order in which the step has them."""

    def __init__(self, chosen: Chosen, vocabulary: Vocabulary) -> None:
        self._chosen = chosen
        self._pieces = vocabulary.pieces
        self._ids: list[int] = chosen.ids.tolist()
        self._at = 0

    def take(self, rows: int, draft: Sequence[int]) -> tuple[int, list[int]]:
        """The first of the next `rows` rows, and the tokens that they chose up to the first draft that was wrong.

        A row after a right draft chose what the model would have chosen there anyway; a row after a wrong one chose
        for a text that is not the answer.
        """
        first = self._at
        self._at += rows
        ids = self._ids[first : self._at]
        right = 1
        while right < rows and draft[right - 1] == ids[right - 1]:
            right += 1
        return first, ids[:right]

    def logprob(self, row: int, wanted: int) -> TokenLogprob:
        """The log-probability of a row's token, with so many alternatives."""
        chosen, pieces, token = self._chosen, self._pieces, self._ids[row]
        ids: list[int] = chosen.top_ids[row, :wanted].tolist()
        logprobs: list[float] = chosen.top_logprobs[row, :wanted].tolist()
        top = tuple(TokenLogprob(i, pieces[i], p) for i, p in zip(ids, logprobs, strict=True) if i >= 0)
        return TokenLogprob(token, pieces[token], float(chosen.logprobs[row]), top)
