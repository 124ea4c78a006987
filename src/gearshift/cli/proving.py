"""`gearshift prove`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gearshift.cli.shown import AcceptTerms, ShownProgress, acceptance, fail

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from gearshift.engine.local.load import OpenModel
    from gearshift.proof.examine import Plan
    from gearshift.proof.prove import Proof
    from gearshift.proof.report import Report


def prove(
    model: Annotated[
        list[str] | None,
        typer.Option(envvar="GEARSHIFT_MODEL", help="A known name or a GGUF file; repeat it to prove several."),
    ] = None,
    prompts: Annotated[int | None, typer.Option(min=1, help="Prompts to run in every pass.")] = None,
    full: Annotated[bool, typer.Option("--full", help="1,000 prompts, and the whole window; takes hours.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Another seed makes other prompts.")] = 0,
    threads: Annotated[
        int | None, typer.Option(envvar="GEARSHIFT_THREADS", min=1, help="Kernel threads; by default by cores.")
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Write the signed report here; one file for each model."),
    ] = None,
    verify: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Prove nothing: check the signature of a report.")
    ] = None,
    accept_terms: AcceptTerms = False,
) -> None:
    """Show that gears change speed and nothing else: run prompts in all gears, alone and under load, and compare every
    token. Ends with 0 when all are identical, 1 on any difference, 2 when drafts were never at work, so that equality
    would say nothing, and 130 when it was interrupted.
    """
    from gearshift.catalog.sources import DEFAULT_MODEL
    from gearshift.engine.local.download import DownloadFailed, UnknownModel, model_path
    from gearshift.engine.local.gguf_values import BadModelFile
    from gearshift.engine.local.home import CacheProblem
    from gearshift.engine.local.load import open_model
    from gearshift.engine.protocol import EngineFailure
    from gearshift.proof.examine import DEFAULT_PROMPTS, FULL_PROMPTS, Plan
    from gearshift.proof.report import EXIT_CODES
    from gearshift.proof.signing import BadKey, BadProof

    if verify is not None:
        try:
            _verify(verify)
        except (BadProof, OSError) as error:
            fail(f"{verify}: {error}")
        return
    if json is not None and not json.parent.is_dir():
        fail(f"{json}: there is no folder {json.parent}; make it, or write elsewhere")
    plan = Plan(prompts or (FULL_PROMPTS if full else DEFAULT_PROMPTS), seed, whole_window=full, threads=threads)
    names = model or [DEFAULT_MODEL]
    verdicts: set[str] = set()
    shown = ShownProgress()
    try:
        for name in names:
            opened = open_model(name, model_path(name, shown, acceptance(accept_terms)), progress=shown)
            shown.close()
            report = _examined(opened, plan)
            _tell(report, json.with_stem(f"{json.stem}-{opened.path.stem}") if json and len(names) > 1 else json)
            verdicts.add(report.verdict)
            if not report.complete:
                break
    except (
        BadKey,
        BadModelFile,
        CacheProblem,
        DownloadFailed,
        EngineFailure,
        UnknownModel,
        OSError,
        ValueError,
    ) as error:
        shown.close()
        fail(error)
    raise typer.Exit(next(code for verdict, code in EXIT_CODES.items() if verdict in verdicts))


def _examined(model: OpenModel, plan: Plan) -> Report:
    """The proof about one model; interrupted, as far as it came."""
    from gearshift.proof.examine import examine

    proofs: list[Proof] = []
    with _ShownCases() as shown:
        try:
            return asyncio.run(examine(model, plan, shown, proofs.append))
        except KeyboardInterrupt:
            if not proofs:
                raise
            return proofs[0].report


def _tell(report: Report, file: Path | None) -> None:
    from gearshift.proof.signing import sign, to_json

    signed = sign(report)
    print(report)
    print(f"signed by {signed.fingerprint}")
    if file is not None:
        file.write_bytes(to_json(signed))
        print(f"written to {file}; check it with: gearshift prove --verify {file}")


def _verify(file: Path) -> None:
    from gearshift.proof.signing import verified

    report, signed = verified(file.read_bytes())
    print(report)
    print(f"the signature is right; the key is {signed.fingerprint}")


class _ShownCases:
    """Progress over all passes: a bar on a terminal, else a line for every pass."""

    def __init__(self) -> None:
        self._bars: Bars | None = None
        self._last = ""

    def __enter__(self) -> _ShownCases:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bars = Progress(*columns, console=Console(stderr=True))
            self._bars.start()
            self._bars.add_task("anchor", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, where: str, done: int, total: int) -> None:
        if self._bars is not None:
            self._bars.update(self._bars.task_ids[0], description=where, completed=done, total=total)
        elif where != self._last:
            self._last = where
            print(f"{where} ({done - 1} of {total} done)", file=sys.stderr, flush=True)
