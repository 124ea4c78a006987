"""Asking the engine in this process for one answer, with the moments at which its tokens arrived."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from benchmarks.engine.arms.timeline import Timeline
from benchmarks.gears.turns import CodingTurn
from gearshift.caller import NO_WORK, Caller, Work
from gearshift.catalog import GearName
from gearshift.conversation import Prompt
from gearshift.engine.local.engine import LocalEngine
from gearshift.engine.protocol import ChoiceEnd, Delta, Drafts, Generation, Sampling

_numbers = count(1)


@dataclass(slots=True)
class Answer:
    """What came back and when.

    Attributes:
        asked, ended: moments in seconds.
        timeline: arrivals of tokens.
    """

    asked: float
    ended: float = 0.0
    ids: list[int] = field(default_factory=list[int])
    timeline: Timeline = field(default_factory=Timeline)
    work: Work = NO_WORK

    @property
    def first_token_s(self) -> float:
        """From the question to the first token."""
        return self.timeline.moments[0] - self.asked

    @property
    def output_s(self) -> float:
        """From the first token to the last."""
        return self.timeline.moments[-1] - self.timeline.moments[0]


def new_scope() -> Caller:
    """A caller nobody has been before: neither its prompts nor its answers are known."""
    return Caller("benchmark", f"benchmark-{next(_numbers)}")


KNOWN = Caller("benchmark", "benchmark-known")
"""Whose prompts may lie in the cache: where only the rate after the first token counts."""


def greedy(turn: CodingTurn) -> Sampling:
    """How a turn's tokens are chosen unless it is said otherwise."""
    return Sampling(max_tokens=turn.most_tokens, temperature=0.0, stop=(turn.stop,))


async def ask(
    engine: LocalEngine,
    prompt: Prompt,
    sampling: Sampling,
    gear: GearName,
    drafts: Drafts = "cold",
    caller: Caller | None = None,
) -> Answer:
    """One answer. Without a caller it is asked by a new one, so that nothing is known beforehand."""
    generation = Generation(
        turn_id=f"benchmark-{next(_numbers)}",
        model=engine.models()[0].id,
        prompt=prompt,
        sampling=sampling,
        caller=caller or new_scope(),
        gear=gear,
        drafts=drafts,
    )
    answer = Answer(time.perf_counter())
    async for batch in engine.generate(generation):
        now, arrived = time.perf_counter(), 0
        for event in batch:
            if isinstance(event, Delta):
                arrived += len(event.token_ids)
                answer.ids += event.token_ids
            elif isinstance(event, ChoiceEnd):
                answer.work += event.work
        if arrived:
            answer.timeline.arrived(now, arrived)
    answer.ended = time.perf_counter()
    return answer


def work_values(answers: Sequence[Answer]) -> dict[str, float]:
    """Tokens and rows per step of answers together."""
    work = sum((answer.work for answer in answers), NO_WORK)
    tokens = sum(len(answer.ids) for answer in answers)
    return {"tokens_per_step": tokens / work.steps, "rows_per_step": work.rows / work.steps} if work.steps else {}
