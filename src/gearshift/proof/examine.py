"""From a model's name to a proof about it: opens the model once, serves it by two engines, one of them with hardly any
cache, and runs the passes over the cases.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gearshift import __version__, _kernel
from gearshift.engine.local.load import EngineOptions, OpenModel, serve
from gearshift.proof.answers import Runner
from gearshift.proof.cases import cases, digest
from gearshift.proof.prove import Progress, Proof
from gearshift.proof.report import Report, Subject

SMALL_CACHE_TOKENS = 512
"""Two or three conversations fill it, and eight run at once."""
FULL_PROMPTS = 1000
DEFAULT_PROMPTS = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is proven.

    Attributes:
        prompts: cases.
        whole_window: fill the model's whole window too, which takes long.
    """

    prompts: int = DEFAULT_PROMPTS
    seed: int = 0
    whole_window: bool = False
    threads: int | None = None


async def examine(model: OpenModel, plan: Plan, progress: Progress, made: Callable[[Proof], None]) -> Report:
    """Prove, for one open model.

    made: given the proof before it runs, to have its report when it is interrupted.

    Raises:
        DoesNotFit: too little memory.
        EngineFailure: an engine broke on the way.
    """
    engine = serve([model], EngineOptions(threads=plan.threads, measured=False))
    small = serve([model], EngineOptions(threads=plan.threads, cache_tokens=SMALL_CACHE_TOKENS, measured=False))
    try:
        entry, resident = engine.models()[0], engine.resident[0]
        windows = [SMALL_CACHE_TOKENS, *([entry.context_window] if plan.whole_window else [])]
        chosen = await cases(plan.prompts, plan.seed, lambda prompt: engine.count_tokens(entry.id, prompt), windows)
        subject = Subject(
            model=entry.id,
            model_sha256=model.sha256,
            kernel=resident.isa,
            kernel_sha256=hashlib.sha256(Path(_kernel.__file__).read_bytes()).hexdigest(),
            threads=resident.threads,
            version=__version__,
            seed=plan.seed,
            cases=len(chosen),
            cases_sha256=digest(chosen),
        )
        report = Report(subject, datetime.now(UTC).isoformat(timespec="seconds"))
        proof = Proof(Runner(engine, entry.id), Runner(small, entry.id), SMALL_CACHE_TOKENS, chosen, report, progress)
        made(proof)
        return await proof.run()
    finally:
        await engine.close()
        await small.close()
