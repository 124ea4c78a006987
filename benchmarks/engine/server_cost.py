"""What the server costs: the engine in process against the same engine behind HTTP, in turns, on the same cores."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict

from benchmarks.engine.bars import SERVER_COST
from benchmarks.engine.plans import CONTEXT, Plan, decode_key
from benchmarks.engine.rounds import Arm, Rounds
from benchmarks.engine.run import Run, Section
from benchmarks.engine.samples import Slice, idle_share, paired_ratios, spread, values_of, without_slow
from benchmarks.engine.tables import NOTHING, dropped_line, pretty, table, verdict

INSIDE = "inside the process"
HTTP = "over HTTP"


def plans(quick: bool) -> list[Plan]:
    """One plan per stream count that has a bar. Slices stay long when quick: the differences are small."""
    new = {1: 192, 32: 32} if quick else {1: 512, 32: 96}
    return [
        Plan(decode_key(n), "decode", {"streams": n, "context": CONTEXT, "new": new[n], "warmup": 4})
        for n in SERVER_COST
    ]


def measure_server(run: Run) -> list[Section]:
    """The section on server cost."""
    with ExitStack() as stack:
        inside = stack.enter_context(run.our_worker("engine"))
        client = stack.enter_context(run.our_worker("http_client"))
        arms = [Arm(INSIDE, inside, {"model": "model"}), Arm(HTTP, client, {"model": "model"})]
        for arm in arms:
            arm.worker.call("load", name="model", path=str(run.model_file(run.model)), threads=run.threads)
        rounds = Rounds(run.probe, [inside, client])
        for number in range(run.rounds):
            for plan in plans(run.quick):
                rounds.palindrome(plan, arms, number)
        client.call("stop", model="model")
    return [Section("server", _section(rounds.slices), [asdict(each) for each in rounds.slices])]


def _section(slices: list[Slice]) -> str:
    counted = without_slow(slices)
    rows: list[list[str]] = []
    for streams, most in SERVER_COST.items():
        measure = decode_key(streams)
        costs = spread([1 - ratio for ratio in paired_ratios(counted, measure, HTTP, INSIDE)])
        over_http = [each for each in counted if each.arm == HTTP and each.plan == measure]
        client = spread([each.notes["client_cpu_share"] for each in over_http])
        server = spread([each.notes["server_cpu_share"] for each in over_http])
        rows.append(
            [
                f"{streams}",
                pretty(spread(values_of(counted, INSIDE, measure)), 1, 0),
                pretty(spread(values_of(counted, HTTP, measure)), 1, 0),
                f"{pretty(costs, 100, 1)} %",
                f"< {most:.0%}",
                verdict(costs.median < most) if costs else NOTHING,
                pretty(client, 1, 2),
                pretty(server, 1, 2),
            ]
        )
    header = [
        "streams",
        "tokens/s inside",
        "tokens/s over HTTP",
        "cost",
        "bar",
        "met",
        "client, cores",
        "server, cores",
    ]
    return "\n\n".join(
        [
            "### Server cost",
            table(header, rows),
            "Cost is (inside - over HTTP) / inside in paired slices. "
            "Client and server share the cores with the kernel. "
            f"{dropped_line(slices, counted)} The waiting side took at most {idle_share(counted):.1%} of a core.",
        ]
    )
