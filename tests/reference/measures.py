"""How far two runs of a model are apart: relative logit error, top-1 agreement, perplexity; fed chunk by chunk."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, sqrt

import numpy as np
from numpy.typing import NDArray

from tests.reference.weights import F32


@dataclass(slots=True)
class Comparison:
    """Sums over all rows added so far, of a run under test against the reference."""

    rows: int = 0
    agreeing: int = 0
    predicted: int = 0
    error_square: float = 0.0
    norm_square: float = 0.0
    worst_row: float = 0.0
    loss: float = 0.0
    reference_loss: float = 0.0

    def add(self, logits: F32, reference: F32, following: NDArray[np.int64]) -> None:
        """Rows of logits [rows, vocab] of both, and the token that follows each; -1 where there is none."""
        difference = np.square(logits - reference).sum(axis=1, dtype=np.float64)
        norm = np.square(reference).sum(axis=1, dtype=np.float64)
        relative = np.sqrt(difference / norm)
        self.rows += len(logits)
        self.agreeing += int(np.count_nonzero(logits.argmax(axis=1) == reference.argmax(axis=1)))
        self.error_square += float(difference.sum())
        self.norm_square += float(norm.sum())
        self.worst_row = max(self.worst_row, float(relative.max()))
        known = np.flatnonzero(following >= 0)
        self.predicted += len(known)
        self.loss += _loss(logits, known, following)
        self.reference_loss += _loss(reference, known, following)

    @property
    def error(self) -> float:
        """||a - b|| / ||b|| over all rows together."""
        return sqrt(self.error_square / self.norm_square)

    @property
    def top1(self) -> float:
        """Share of rows whose best token is the reference's."""
        return self.agreeing / self.rows

    @property
    def perplexity(self) -> float:
        return exp(self.loss / self.predicted)

    @property
    def reference_perplexity(self) -> float:
        return exp(self.reference_loss / self.predicted)

    @property
    def perplexity_change(self) -> float:
        """Relative; positive when the run under test predicts worse."""
        return self.perplexity / self.reference_perplexity - 1

    def __str__(self) -> str:
        return (
            f"{self.rows} rows: logit error {self.error:.3%} (worst row {self.worst_row:.1%}), top-1 {self.top1:.2%}, "
            f"perplexity {self.perplexity:.3f} against {self.reference_perplexity:.3f} ({self.perplexity_change:+.3%})"
        )


def _loss(logits: F32, known: NDArray[np.intp], following: NDArray[np.int64]) -> float:
    if len(known) == 0:
        return 0.0
    rows = logits[known].astype(np.float64)
    top = rows.max(axis=1)
    total = top + np.log(np.exp(rows - top[:, None]).sum(axis=1))
    return float((total - rows[np.arange(len(known)), following[known]]).sum())
