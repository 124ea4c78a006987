"""`gearshift simulate`: what a machine will do with a load, and how it is measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from gearshift.cli.shown import ShownProgress, acceptance, fail

if TYPE_CHECKING:
    from gearshift.catalog import GearName
    from gearshift.plan.calibration import Calibration
    from gearshift.plan.simulate import Result
    from gearshift.plan.trace import TracedTurn


def simulate(
    trace: Annotated[
        Path | None, typer.Argument(help="Turns as JSON lines: arrives_s, gear, prompt, output, and more.")
    ] = None,
    synthetic: Annotated[
        str | None, typer.Option(help="Instead of a trace: callers by gear, such as standard=16,ultrafast=1.")
    ] = None,
    prompt: Annotated[int, typer.Option(min=1, help="Synthetic: tokens of a prompt.")] = 512,
    output: Annotated[int, typer.Option(min=1, help="Synthetic: tokens of an answer.")] = 256,
    odds: Annotated[float, typer.Option(min=0, max=1, help="Synthetic: how likely a drafted token is kept.")] = 0.7,
    turns: Annotated[int, typer.Option(min=1, help="Synthetic: turns of a caller, one after the other.")] = 20,
    cost: Annotated[Path | None, typer.Option(help="Calibration file: read, or written with --calibrate.")] = None,
    calibrate: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Measure this machine with a model first; takes minutes.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Kernel threads while calibrating.")] = None,
    seats: Annotated[int, typer.Option(min=1, help="Sequences that run at once.")] = 64,
    cache_tokens: Annotated[int, typer.Option(min=32, help="Tokens that the cache holds.")] = 262_144,
    shares: Annotated[str | None, typer.Option(help="Other shares, such as priority=0.2,ultrafast=0.5.")] = None,
    until: Annotated[float | None, typer.Option(min=0, help="Stop after so many seconds of virtual time.")] = None,
    frontier: Annotated[bool, typer.Option("--frontier", help="Throughput against speed, over shares.")] = False,
    seed: Annotated[int, typer.Option(help="Of the draws that decide which drafts are kept.")] = 0,
) -> None:
    """Predict speeds and waiting times of a load, gear by gear, with the scheduler of the engine."""
    from gearshift.engine.local.download import DownloadFailed, UnknownModel
    from gearshift.engine.local.gguf_values import BadModelFile
    from gearshift.engine.local.home import CacheProblem
    from gearshift.engine.local.scheduler import blocks_for
    from gearshift.plan.calibration import read_calibration, write_calibration
    from gearshift.plan.frontier import frontier as over_shares
    from gearshift.plan.frontier import with_shares
    from gearshift.plan.simulate import Machine
    from gearshift.plan.simulate import simulate as run

    try:
        only_measure = calibrate is not None and trace is None and synthetic is None
        turns_of_trace = [] if only_measure else _turns(trace, synthetic, prompt, output, odds, turns)
        if calibrate is not None:
            measured = _measure(calibrate, threads)
            print(f"{measured.model}, {measured.isa}, {measured.threads} threads")
            for rows, seconds in measured.engine.points:
                print(f"  {rows:4.0f} rows {seconds * 1e3:8.2f} ms")
            if cost is not None:
                write_calibration(cost, measured)
            if only_measure:
                return
        elif cost is not None:
            measured = read_calibration(cost)
        else:
            raise ValueError("what steps cost is not known; give --cost FILE, or --calibrate MODEL to measure it")
        machine = Machine(measured.cost, measured.wall, seats, blocks_for(cache_tokens))
        gears = with_shares(dict(_by_gear(shares, "--shares")) if shares else {})
        if frontier:
            print("share  tokens/s  fast:standard  ultrafast tokens/s  standard tokens/s")
            for point in over_shares(turns_of_trace, machine, gears, seed, until):
                _print_point(point.share, point.result)
        else:
            _print_result(run(turns_of_trace, machine, gears, seed, until))
    except (BadModelFile, CacheProblem, DownloadFailed, UnknownModel, OSError, ValueError) as error:
        fail(error)


def _measure(model: str, threads: int | None) -> Calibration:
    from gearshift.engine.local.download import model_path
    from gearshift.engine.local.load import open_model
    from gearshift.plan.calibrate import calibrate

    shown = ShownProgress()
    try:
        opened = open_model(model, model_path(model, shown, acceptance(False)), progress=shown)
        return calibrate(opened, threads, progress=shown)
    finally:
        shown.close()


def _turns(
    trace: Path | None, synthetic: str | None, prompt: int, output: int, odds: float, turns: int
) -> list[TracedTurn]:
    from gearshift.plan.trace import Load, read_trace
    from gearshift.plan.trace import synthetic as made_up

    if (trace is None) == (synthetic is None):
        raise ValueError("give either a trace or --synthetic")
    if trace is not None:
        return read_trace(trace)
    loads = _by_gear(synthetic or "", "--synthetic")
    if any(count != int(count) or count < 1 for _, count in loads):
        raise ValueError(f"--synthetic takes whole numbers of callers, but is {synthetic!r}")
    return made_up([Load(gear, int(count), prompt, output, odds) for gear, count in loads], turns)


def _by_gear(text: str, option: str) -> list[tuple[GearName, float]]:
    """Numbers by gear, as `standard=16,ultrafast=1`."""
    import msgspec

    from gearshift.catalog import GearName

    found: list[tuple[GearName, float]] = []
    for part in text.split(","):
        name, _, number = part.strip().partition("=")
        try:
            found.append((msgspec.convert(name, GearName), float(number)))
        except (msgspec.ValidationError, ValueError) as error:
            raise ValueError(
                f"{option} is {text!r}, but must be like standard=16,ultrafast=1; gears are "
                f"{', '.join(get_args(GearName))}"
            ) from error
    return found


def _print_result(result: Result) -> None:
    print("gear       turns  tokens  tokens/s  first token s  (95%)  part of the time")
    for name, gear in result.gears.items():
        print(
            f"{name:10} {gear.turns:5} {gear.tokens:7} {_number(gear.stream_rate, 9, 1)} "
            f"{_number(gear.first_token_s, 14, 3)} {_number(gear.slow_first_token_s, 6, 2)} {gear.credit:17.2f}"
        )
    print(
        f"{result.tokens_per_s:.1f} tokens/s over {result.seconds:.1f} s, {result.steps} steps of "
        f"{result.rows_per_step:.1f} rows, {result.preempted} preempted"
    )
    if ratio := result.ratio():
        print(f"an ultrafast stream is {ratio:.2f} times as fast as a standard one")


def _print_point(share: float, result: Result) -> None:
    fast, slow = (result.gears[g].stream_rate if g in result.gears else None for g in ("ultrafast", "standard"))
    print(
        f"{share:5.1f} {result.tokens_per_s:9.1f} {_number(result.ratio(), 14, 2)} {_number(fast, 19, 1)} "
        f"{_number(slow, 18, 1)}"
    )


def _number(value: float | None, width: int, digits: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:{width}.{digits}f}"
