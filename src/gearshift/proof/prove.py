"""The proof itself: the same cases pass by pass, every answer compared with the anchor's as soon as it is there.

`Proof.report` holds what was found so far, whenever somebody asks: a proof that is interrupted has found something too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from gearshift.proof.answers import ChoiceAnswer, Runner, TurnAnswer
from gearshift.proof.cases import Case
from gearshift.proof.passes import ANCHOR, PASSES, Pass
from gearshift.proof.report import Difference, PassCounts, Report


class Progress(Protocol):
    """Told about every case that was run; `where` names the pass."""

    def __call__(self, where: str, done: int, total: int) -> None: ...


class Proof:
    """One run over all passes.

    Args:
        runner: on an engine with room for everything.
        small: on an engine whose cache holds `small_window` tokens; its window is no longer than that.
        report: with its subject; the rest is filled in here.
    """

    def __init__(
        self,
        runner: Runner,
        small: Runner,
        small_window: int,
        cases: Sequence[Case],
        report: Report,
        progress: Progress,
        passes: Sequence[Pass] = PASSES,
    ) -> None:
        assert passes[0] == ANCHOR
        self.report = report
        self._runner, self._small, self._small_window = runner, small, small_window
        self._cases = cases
        self._passes = passes
        self._progress = progress
        self._expected: dict[int, list[TurnAnswer]] = {}
        self._done = 0
        self._total = sum(len(self._of(how)) for how in passes)

    async def run(self) -> Report:
        """Run all passes. Raises what an engine raises when it fails."""
        for number, how in enumerate(self._passes):
            counts = PassCounts(how.name, list(how.gears), how.drafts, how.at_once, how.others)
            self.report.passes.append(counts)
            runner = self._small if how.small else self._runner
            preempted = runner.engine.status().preempted
            began = time.perf_counter()
            try:
                async with runner.company(how.others, self.report.subject.seed + number):
                    await self._run_pass(runner, how, counts)
            finally:
                counts.seconds = round(time.perf_counter() - began, 3)
                counts.preempted = runner.engine.status().preempted - preempted
        self.report.complete = True
        return self.report

    async def _run_pass(self, runner: Runner, how: Pass, counts: PassCounts) -> None:
        left = iter(self._of(how))

        async def take_in_turn() -> None:
            for number, case in left:
                self._take(case, number, how, await runner.run(case, number, how), counts)

        workers = [asyncio.create_task(take_in_turn()) for _ in range(how.at_once)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()

    def _of(self, how: Pass) -> list[tuple[int, Case]]:
        """The cases of a pass: in a small window only those that it can hold."""
        return [(at, case) for at, case in enumerate(self._cases) if not how.small or case.tokens <= self._small_window]

    def _take(self, case: Case, number: int, how: Pass, answers: list[TurnAnswer], counts: PassCounts) -> None:
        for answer in answers:
            counts.turns += 1
            counts.tokens += sum(len(choice.token_ids) for choice in answer.choices)
            counts.cached += answer.cached_tokens
            counts.steps += answer.work.steps
            counts.rows += answer.work.rows
            counts.drafted += answer.work.drafted
            counts.kept += answer.work.kept
        if how is ANCHOR:
            self._expected[number] = answers
        else:
            self._compare(case, number, how, answers)
        self._done += 1
        self._progress(how.name, self._done, self._total)

    def _compare(self, case: Case, number: int, how: Pass, answers: list[TurnAnswer]) -> None:
        report = self.report
        for at, (expected, found) in enumerate(zip(self._expected[number], answers, strict=True)):
            asked = how.gears[(number + at) % len(how.gears)]
            report.compared_answers += len(found.choices)
            report.compared_tokens += sum(len(choice.token_ids) for choice in found.choices)
            wrong = [
                Difference(case.name, how.name, asked, at, index, *difference)
                for index, (one, other) in enumerate(zip(expected.choices, found.choices, strict=True))
                if (difference := first_difference(one, other)) is not None
            ]
            if found.gear != asked:
                wrong.append(Difference(case.name, how.name, asked, at, 0, "the gear of turn", at, asked, found.gear))
            report.differences += len(wrong)
            if wrong:
                report.first = report.first or wrong[0]
                return  # the turns after it were asked something else


def first_difference(expected: ChoiceAnswer, found: ChoiceAnswer) -> tuple[str, int, str, str] | None:
    """What differs first, where, and both values; None when nothing does. Log-probabilities must agree to the bit."""
    for what, ours, theirs in (
        ("token", expected.token_ids, found.token_ids),
        ("the log-probability of token", expected.logprobs, found.logprobs),
    ):
        for at, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            if one != other:
                return what, at, repr(one), repr(other)
        if len(ours) != len(theirs):
            return "the number of tokens, here", min(len(ours), len(theirs)), str(len(ours)), str(len(theirs))
    last = len(expected.token_ids) - 1
    if expected.text != found.text:
        return "the text up to token", last, repr(expected.text), repr(found.text)
    if expected.ending != found.ending:
        return "the ending after token", last, repr(expected.ending), repr(found.ending)
    return None
