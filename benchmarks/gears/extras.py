"""What is measured beside the rates: first tokens in a full server, sampled answers, warm drafts, lookahead for all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from benchmarks.gears.answers import KNOWN, ask, greedy, new_scope
from benchmarks.gears.background import Background, made_up
from benchmarks.gears.loops import is_loop
from benchmarks.gears.measuring import LEAST_TOKENS, Bench, answer_values, beside, sampled
from benchmarks.gears.rates import first_difference, total_within
from benchmarks.gears.turns import CodingTurn
from gearshift.catalog import GEARS
from gearshift.conversation import Prompt, RawText
from gearshift.engine.local.load import EngineOptions
from gearshift.engine.protocol import Drafts

_SEED = 7
NEW_TEXT, EDITS = "new text, temperature 1", "edits"
LOOKAHEAD = "lookahead "
"""How the plans of lookahead for all begin; streams and text follow."""
_LOADS = (1, 8)
"""Streams, besides those of the load."""


async def first_tokens(bench: Bench, rounds: int) -> None:
    """An ultrafast turn arrives where all seats are taken, and where nobody is."""
    collected = bench.collected
    async with bench.sibling(EngineOptions(max_streams=bench.settings.load)) as full:
        await full.warm_up()
        for round_number in range(rounds):
            for name in bench.some() if bench.settings.quick else collected.one_of_each_kind():
                turn, at = collected.turns[name], collected.number(name)
                short = replace(greedy(turn), max_tokens=2)
                with full.slice("first-token", "idle", round_number, at) as values:
                    answer = await ask(full.engine, RawText(turn.prompt), short, "ultrafast")
                    values["first_token_s"] = answer.first_token_s
                with full.slice("first-token", "full", round_number, at) as values:
                    async with Background(full.engine, bench.settings.load) as others:
                        alone = await others.window(0.4)
                        answer = await ask(full.engine, RawText(turn.prompt), short, "ultrafast")
                    values["first_token_s"] = answer.first_token_s
                    values["step_s"] = beside(others, [answer], [alone]).get("step_s", 0.0)


async def sampled_answers(bench: Bench, rounds: int) -> None:
    """The same turns greedy and sampled; sampled answers, too, are those of standard without drafts."""
    collected = bench.collected
    for round_number in range(rounds):
        for name in bench.some() if bench.settings.quick else collected.one_of_each_kind():
            turn, at = collected.turns[name], collected.number(name)
            sampling = sampled(turn, _SEED + round_number)
            expected = await ask(bench.engine, RawText(turn.prompt), sampling, "standard", "off", KNOWN)
            if len(expected.ids) < LEAST_TOKENS or is_loop(expected.ids):
                continue
            await bench.idle(name, "ultrafast", round_number, "greedy")
            with bench.slice("sampled", "ultrafast", round_number, at) as values:
                answer = await ask(bench.engine, RawText(turn.prompt), sampling, "ultrafast", "cold", KNOWN)
                values |= answer_values([answer])
            bench.differs(name, first_difference(expected.ids, answer.ids), "ultrafast, sampled")


async def warm_drafts(bench: Bench, rounds: int) -> None:
    """The second run of a turn whose first answer may be drafted from: apart from all comparisons between gears."""
    collected = bench.collected
    for round_number in range(rounds):
        for name in bench.some() if bench.settings.quick else collected.one_of_each_kind():
            turn, caller = collected.turns[name], new_scope()
            prompt = RawText(turn.prompt)
            await ask(bench.engine, prompt, greedy(turn), "ultrafast", "warm", caller)
            with bench.slice("warm", "ultrafast", round_number, collected.number(name)) as values:
                answer = await ask(bench.engine, prompt, greedy(turn), "ultrafast", "warm", caller)
                values |= answer_values([answer])
            collected.check(name, answer.ids, "ultrafast, warm")


async def lookahead_for_all(bench: Bench, rounds: int) -> None:
    """Streams of one gear that may all use drafts whenever the scheduler finds that they pay, against never."""
    standard = replace(GEARS["standard"], lookahead=16)
    seconds = 1.0 if bench.settings.quick else 2.0
    most = bench.settings.load
    loads = [most] if bench.settings.quick else [*(count for count in _LOADS if count < most), most]
    texts: dict[str, tuple[Callable[[int], Prompt], float]] = {
        NEW_TEXT: (made_up, 1.0),
        EDITS: (_numbered([turn for turn in bench.collected.turns.values() if turn.kind in ("hints", "fix")]), 0.0),
    }
    drafts: tuple[Drafts, ...] = ("off", "cold")
    async with bench.sibling(EngineOptions(gears={**GEARS, "standard": standard})) as other:
        await other.warm_up()
        for round_number in range(rounds):
            for text, (prompt_of, temperature) in list(texts.items())[: 1 if bench.settings.quick else None]:
                for streams in loads:
                    for mode in drafts if round_number % 2 == 0 else drafts[::-1]:
                        with other.slice(f"{LOOKAHEAD}{streams} {text}", mode, round_number, 0) as values:
                            async with Background(
                                other.engine, streams, "standard", mode, temperature, prompt_of
                            ) as load:
                                window = await load.window(seconds)
                            values["total"] = total_within(load.timelines, [window])


def _numbered(turns: list[CodingTurn]) -> Callable[[int], Prompt]:
    """Prompts of measured turns that differ from the first token on."""
    return lambda key: RawText(f"{key}\n{turns[key % len(turns)].prompt}")
