"""What a proof found: counts by pass, the first difference, what it did not get to see, and the verdict. As text for a
person and as plain data for a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

Verdict = Literal["identical", "different", "nothing proven", "interrupted"]

EXIT_CODES: dict[Verdict, int] = {"different": 1, "interrupted": 130, "nothing proven": 2, "identical": 0}
"""By verdict, the gravest first: of several proofs the gravest decides."""


class PassCounts(msgspec.Struct):
    """What one pass did.

    Attributes:
        tokens: of all answers; each was compared with the anchor's.
        cached: prompt tokens that were found in the cache.
        steps, rows, drafted, kept: the work for the answers (see `caller.Work`).
        preempted: times that a sequence, of a case or of its company, lost its blocks and computed them again.
    """

    name: str
    gears: list[str]
    drafts: str
    at_once: int
    others: int
    turns: int = 0
    tokens: int = 0
    cached: int = 0
    steps: int = 0
    rows: int = 0
    drafted: int = 0
    kept: int = 0
    preempted: int = 0
    seconds: float = 0.0


class Difference(msgspec.Struct):
    """Where an answer left the anchor's.

    Attributes:
        at: index of the first token that differs; for another kind of difference, of the last one.
        expected, found: what the anchor had there, and what this pass had.
    """

    case: str
    in_pass: str
    gear: str
    turn: int
    choice: int
    what: str
    at: int
    expected: str
    found: str

    def __str__(self) -> str:
        return (
            f"{self.in_pass}: {self.case}, turn {self.turn + 1}, choice {self.choice}, in gear {self.gear}: "
            f"{self.what} {self.at} is {self.found}, but {self.expected} in the anchor"
        )


class Subject(msgspec.Struct):
    """What was examined.

    Attributes:
        model_sha256: of the model file.
        kernel: the kernel's path, as the engine names it.
        kernel_sha256: of the compiled kernel.
        cases_sha256: of the cases (see `cases.digest`).
    """

    model: str
    model_sha256: str
    kernel: str
    kernel_sha256: str
    threads: int
    version: str
    seed: int
    cases: int
    cases_sha256: str


class Report(msgspec.Struct):
    """A proof, complete or as far as it came.

    Attributes:
        differences: how many answers differ from the anchor's.
        first: the first of them.
    """

    subject: Subject
    date: str
    passes: list[PassCounts] = msgspec.field(default_factory=list[PassCounts])
    compared_answers: int = 0
    compared_tokens: int = 0
    differences: int = 0
    first: Difference | None = None
    complete: bool = False

    @property
    def kept(self) -> int:
        """Drafted tokens that were kept."""
        return sum(one.kept for one in self.passes)

    @property
    def rejected(self) -> int:
        """Drafted tokens that were not."""
        return sum(one.drafted - one.kept for one in self.passes)

    @property
    def verdict(self) -> Verdict:
        """A difference counts whenever it was found; equality only over all cases, and only with drafts at work."""
        if self.differences:
            return "different"
        if not self.complete:
            return "interrupted"
        return "identical" if self.kept and self.rejected else "nothing proven"

    def unseen(self) -> list[str]:
        """What the product has and this proof did not meet."""
        lacks: list[str] = []
        if not self.kept:
            lacks.append("no drafted token was kept")
        if not self.rejected:
            lacks.append("no drafted token was rejected")
        if not any(one.cached for one in self.passes):
            lacks.append("no prompt was found in the cache")
        if not any(one.preempted for one in self.passes):
            lacks.append("no sequence was preempted")
        return lacks

    def __str__(self) -> str:
        subject = self.subject
        lines = [
            f"model     {subject.model}, sha256 {subject.model_sha256}",
            f"kernel    {subject.kernel}, {subject.threads} threads, sha256 {subject.kernel_sha256}",
            f"gearshift {subject.version}, {self.date}",
            f"cases     {subject.cases}, seed {subject.seed}, sha256 {subject.cases_sha256}",
            "",
            *_table(self.passes),
            "",
            f"compared with the anchor: {self.compared_answers:,} answers, {self.compared_tokens:,} tokens",
            f"drafted tokens: {self.kept:,} kept, {self.rejected:,} rejected",
        ]
        if self.complete:
            lines += [f"not seen: {lack}" for lack in self.unseen()]
        if self.first is not None:
            lines += [f"answers that differ: {self.differences}", f"first difference: {self.first}"]
        return "\n".join([*lines, f"verdict: {self._sentence()}"])

    def _sentence(self) -> str:
        match self.verdict:
            case "identical":
                return "identical"
            case "different":
                return "DIFFERENT"
            case "interrupted":
                return "none, interrupted before the end; what was compared so far is identical"
            case "nothing proven":
                return (
                    "nothing proven: the answers are identical, but drafts were not both kept and rejected, so the "
                    "gears did the same work. Give more prompts (--prompts)."
                )


def _table(passes: Sequence[PassCounts]) -> list[str]:
    heads = ("pass", "drafts", "turns", "tokens", "cached", "steps", "rows", "drafted", "kept", "preempted", "seconds")
    rows = [
        (
            one.name,
            one.drafts,
            *(f"{n:,}" for n in (one.turns, one.tokens, one.cached, one.steps, one.rows, one.drafted, one.kept)),
            f"{one.preempted:,}",
            f"{one.seconds:.1f}",
        )
        for one in passes
    ]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    texts = 2
    return [
        "  ".join(
            cell.ljust(width) if at < texts else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in (heads, *rows)
    ]
