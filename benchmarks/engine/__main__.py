"""`python -m benchmarks.engine`: measure Gearshift beside its peers and print the table as Markdown.

Progress goes to stderr, the table to stdout, and everything that was measured, slow slices included, to a JSON file.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.engine.long_context import measure_long
from benchmarks.engine.machine import describe
from benchmarks.engine.paths import compare_paths
from benchmarks.engine.probe import Probe
from benchmarks.engine.resident import measure_memory
from benchmarks.engine.results import document, write_results
from benchmarks.engine.run import OUR_ARMS, Run, Section
from benchmarks.engine.server_cost import measure_server

ROOT = Path(__file__).parents[2]
SECTIONS = {
    "compare": compare_paths,
    "server": measure_server,
    "memory": measure_memory,
    "long": measure_long,
}
DEFAULT_SECTIONS = ("compare", "server", "memory")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="short slices, one round: a first look in about two minutes"
    )
    parser.add_argument("--rounds", type=int, help="rounds of A B B A (5, or 1 with --quick)")
    parser.add_argument(
        "--section",
        action="append",
        choices=list(SECTIONS),
        help=f"what to measure, may be repeated (default: {', '.join(DEFAULT_SECTIONS)})",
    )
    parser.add_argument("--long", action="store_true", help="the same as adding --section long")
    parser.add_argument(
        "--isa", action="append", help="paths to compare, may be repeated (default: all the machine has)"
    )
    parser.add_argument("--arm", action="append", choices=OUR_ARMS, help="our arms to compare (default: both)")
    parser.add_argument("--threads", type=int, default=2, help="threads of every engine (2)")
    parser.add_argument("--model", default="smollm2-135m-instruct", help="catalogue name or GGUF file")
    parser.add_argument("--long-model", default="gemma-3-270m", help="catalogue name or GGUF file for --long")
    parser.add_argument("--llama-python", type=Path, help="Python that has llama_cpp, instead of building one")
    parser.add_argument("--no-peers", action="store_true", help="measure Gearshift alone")
    parser.add_argument("--peers", type=Path, default=ROOT / ".venv-bench", help="folder of the peers' environments")
    parser.add_argument("--cache", type=Path, default=ROOT / ".venv-bench" / "cache", help="folder for derived files")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results", help="folder for the JSON file")
    return parser.parse_args(arguments)


def main() -> None:
    """Measure, print, write."""
    options = parse()
    wanted: list[str] = options.section or list(DEFAULT_SECTIONS)
    if options.long and "long" not in wanted:
        wanted.append("long")
    machine = describe(ROOT)
    run = Run(
        root=ROOT,
        machine=machine,
        probe=Probe(options.cache, options.threads),
        threads=options.threads,
        quick=options.quick,
        rounds=options.rounds or (1 if options.quick else 5),
        isa=options.isa,
        arms=options.arm or OUR_ARMS,
        model=options.model,
        long_model=options.long_model,
        llama_python=options.llama_python,
        with_peers=not options.no_peers,
        peers=options.peers,
        cache=options.cache,
    )
    parts: list[Section] = []
    for name in wanted:
        print(f"Measuring: {name}", file=sys.stderr, flush=True)
        parts += SECTIONS[name](run)
    print(document(run, parts))
    print(f"Raw results: {write_results(options.output, run, parts)}", file=sys.stderr)


if __name__ == "__main__":
    main()
