"""What drafts are worth, offline: the real answers of a model are replayed through a drafter.

At every step the drafter proposes up to 15 tokens, and those that equal the answer are kept, as verification would.
The peer is prompt lookup: the last place of the longest of the last 8, 5, 3 or 2 tokens. Answers are greedy and are
recorded once per model, with the engine in this process:

    python -m benchmarks.gears.replay gemma-3-270m --answers FOLDER
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.gears.turns import KINDS, CodingTurn, coding_turns
from gearshift.caller import LOCAL
from gearshift.conversation import Conversation, Message, RawText
from gearshift.engine.local.download import model_path
from gearshift.engine.local.drafting import NO_DRAFT, Draft, Drafter, RecentOutputs, TurnDrafts
from gearshift.engine.local.load import EngineOptions, open_model, serve
from gearshift.engine.protocol import Delta, Generation, Sampling

MOST = 15
"""Drafted tokens per step: a full tile with the known token."""

MakeDrafter = Callable[[Sequence[int]], Drafter]


@dataclass(frozen=True, slots=True)
class Answer:
    """A real answer and the prompt that it was given to, as token ids."""

    name: str
    kind: str
    prompt: array[int]
    ids: array[int]


@dataclass(slots=True)
class Replayed:
    """What became of one or more answers."""

    steps: int = 0
    tokens: int = 0
    drafted: int = 0
    kept: int = 0
    examined: int = 0
    seconds: tuple[float, ...] = ()

    def __iadd__(self, other: Replayed) -> Replayed:
        self.steps += other.steps
        self.tokens += other.tokens
        self.drafted += other.drafted
        self.kept += other.kept
        self.examined = max(self.examined, other.examined)
        self.seconds += other.seconds
        return self


class PromptLookup:
    """The peer: the last place where the longest of a few fixed lengths occurred before."""

    LENGTHS = (8, 5, 3, 2)

    def __init__(self, prompt: Sequence[int]) -> None:
        self._tokens: list[int] = []
        self._last: dict[tuple[int, ...], int] = {}
        self.append(prompt)

    def append(self, tokens: Sequence[int]) -> None:
        """The sequence grew; runs that end at its very end are entered later, or they would find themselves."""
        for token in tokens:
            for length in self.LENGTHS:
                if len(self._tokens) >= length:
                    self._last[tuple(self._tokens[-length:])] = len(self._tokens)
            self._tokens.append(token)

    def propose(self, most: int) -> Draft:
        """The tokens behind the match."""
        for length in self.LENGTHS:
            place = self._last.get(tuple(self._tokens[-length:]))
            if place is not None:
                return Draft(self._tokens[place : place + most], 0.5)
        return NO_DRAFT

    def learn(self, proposed: int, kept: int) -> None:
        """It does not."""


def replay(answer: Answer, make: MakeDrafter) -> Replayed:
    """Run one answer through a drafter."""
    drafter = make(answer.prompt)
    drafter.append(answer.ids[:1])
    done, result, seconds = 1, Replayed(tokens=len(answer.ids)), list[float]()
    while done < len(answer.ids):
        start = time.perf_counter()
        draft = drafter.propose(min(MOST, len(answer.ids) - done - 1)).tokens
        seconds.append(time.perf_counter() - start)
        kept = 0
        while kept < len(draft) and draft[kept] == answer.ids[done + kept]:
            kept += 1
        drafter.learn(len(draft), kept)
        drafter.append(answer.ids[done : done + kept + 1])
        done += kept + 1
        result.steps += 1
        result.drafted += len(draft)
        result.kept += kept
        result.examined = max(result.examined, getattr(drafter, "examined", 0))
    result.seconds = tuple(seconds)
    return result


async def record(model: str, chat: bool) -> list[Answer]:
    """The greedy answers of a model to all turns."""
    opened = open_model(model, model_path(model))
    engine = serve([opened], EngineOptions())

    async def answer(turn: CodingTurn) -> Answer:
        prompt = Conversation((Message("user", turn.prompt),)) if chat else RawText(turn.prompt)
        sampling = Sampling(max_tokens=turn.most_tokens, temperature=0.0, stop=(turn.stop,))
        ids = array("i")
        async for events in engine.generate(Generation(turn.name, model, prompt, sampling, LOCAL)):
            for event in events:
                if isinstance(event, Delta):
                    ids.extend(event.token_ids)
        return Answer(turn.name, turn.kind, opened.renderer.encode(prompt), ids)

    try:
        return list(await asyncio.gather(*map(answer, coding_turns())))
    finally:
        await engine.close()


def answers_of(model: str, chat: bool, folder: Path) -> list[Answer]:
    """The recorded answers of a model; recorded now when there are none yet."""
    path = folder / f"{model}{'-chat' if chat else ''}.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        recorded = asyncio.run(record(model, chat))
        path.write_text(json.dumps([[a.name, a.kind, list(a.prompt), list(a.ids)] for a in recorded]), "utf-8")
    rows: list[tuple[str, str, list[int], list[int]]] = json.loads(path.read_text("utf-8"))
    return [Answer(name, kind, array("i", prompt), array("i", ids)) for name, kind, prompt, ids in rows]


def table(answers: Sequence[Answer], makers: dict[str, MakeDrafter]) -> Iterable[str]:
    """One line per kind, and for every drafter tokens per step and drafted tokens that were not kept per token."""
    yield "| kind | answers, tokens | " + " | ".join(f"{name}: tokens/step, wasted/token" for name in makers) + " |"
    yield "| --- " * (len(makers) + 2) + "|"
    total = {name: Replayed() for name in makers}
    for kind, title in KINDS.items():
        of_kind = [answer for answer in answers if answer.kind == kind and len(answer.ids) > 1]
        cells: list[str] = []
        for name, make in makers.items():
            result = Replayed()
            for answer in of_kind:
                result += replay(answer, make)
            total[name] += result
            wasted = (result.drafted - result.kept) / max(result.tokens, 1)
            cells.append(f"{result.tokens / max(result.steps, 1):.2f}, {wasted:.2f}")
        yield f"| {title} | {len(of_kind)}, {sum(len(a.ids) for a in of_kind)} | {' | '.join(cells)} |"
    for name, result in total.items():
        micro = sorted(1e6 * seconds for seconds in result.seconds)
        yield (
            f"\n{name}: {median(micro):.1f} us per proposal (median; 99 in 100 below "
            f"{micro[len(micro) * 99 // 100]:.0f}), "
            f"{result.examined} places looked at in one at most"
        )


def warm(answers: Sequence[Answer]) -> MakeDrafter:
    """A drafter that has seen all answers but the one it is asked for, as one caller's recent outputs."""

    def make(prompt: Sequence[int]) -> Drafter:
        recent = RecentOutputs()
        for answer in answers:
            if answer.prompt is not prompt:
                recent.add("caller", answer.ids)
        return TurnDrafts(prompt, (), recent.view("caller"))

    return make


def main() -> None:
    """Record the answers of a model unless they are there, replay them and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model that the catalogue knows")
    parser.add_argument("--chat", action="store_true", help="ask in the model's chat form instead of as raw text")
    parser.add_argument("--answers", type=Path, required=True, help="folder that keeps the recorded answers")
    arguments = parser.parse_args()
    answers = answers_of(arguments.model, arguments.chat, arguments.answers)
    for line in table(answers, {"prompt lookup": PromptLookup, "cold": TurnDrafts, "warm": warm(answers)}):
        print(line)


if __name__ == "__main__":
    main()
