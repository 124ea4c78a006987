"""From model files to a running engine: maps the packed weights, makes caches and kernel threads, starts the loop.

All models of an engine share one team of kernel threads and one memory budget. What became resident is told in
`LocalEngine.resident`; printing it is the server's business.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gearshift import _kernel
from gearshift.catalog import GEARS, Gear, GearName, ModelEntry
from gearshift.catalog.sources import SOURCES
from gearshift.engine.local.batch import Batch, Chosen, Forward
from gearshift.engine.local.constraints import Grammars
from gearshift.engine.local.cost import SteadyMeter
from gearshift.engine.local.download import Accept, model_path, refuse
from gearshift.engine.local.engine import LocalEngine, Resident, ServedModel
from gearshift.engine.local.gguf import Gguf
from gearshift.engine.local.home import Progress, silent
from gearshift.engine.local.lane import Lane, LaneLimits
from gearshift.engine.local.renderer import Renderer
from gearshift.engine.local.scheduler import BLOCK_TOKENS, blocks_for
from gearshift.engine.local.sequence import Vocabulary
from gearshift.engine.local.shape import ModelShape, shape_of
from gearshift.engine.local.tokenizer import Tokenizer
from gearshift.engine.local.weights import load_weights

MOST_THREADS = 16
"""Kernel threads by default: a step of a small model is too short to share among more."""

CACHE_SHARE_OF_FREE_MEMORY = 0.25
CACHE_TOKENS_PER_STREAM = 4096
"""The default cache holds so many tokens for every stream, if a quarter of the free memory allows."""


class DoesNotFit(ValueError):
    """Models and cache do not fit into memory as configured."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine is set up.

    Attributes:
        max_streams: sequences of one model that run at once; more wait.
        max_waiting: sequences that may wait, over all models; beyond that a turn is told to come back later.
        cache_tokens: tokens that the cache of each model holds; None chooses from free memory.
        threads: kernel threads; None takes the usable cores, MOST_THREADS at most.
        step_rows: most rows of one step: what a prompt is cut into when nothing else runs.
        stall_s: while streams run, prompts are cut so that a step takes about this long at most.
        isa: path of the kernel; None takes GEARSHIFT_ISA, and without it the best one that the machine grants.
        gears: lookahead, share and seats of each gear.
        measured: the scheduler goes by what steps really cost here; else by an assumed curve, for comparisons in which
            the same drafts shall be tried on every machine.
    """

    max_streams: int = 64
    max_waiting: int = 512
    cache_tokens: int | None = None
    threads: int | None = None
    step_rows: int = 512
    stall_s: float = 0.1
    isa: str | None = None
    gears: Mapping[GearName, Gear] = field(default_factory=lambda: GEARS)
    measured: bool = True


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A model file, opened and mapped: everything that does not depend on how it will be served."""

    name: str
    path: Path
    sha256: str
    shape: ModelShape
    tokenizer: Tokenizer
    renderer: Renderer
    kernel: _kernel.Model
    weights_bytes: int

    def vocabulary(self) -> Vocabulary:
        """What the engine needs to know of the tokens; ids that only pad the head have no text."""
        tokenizer = self.tokenizer
        padding = self.shape.vocab - tokenizer.vocab_size
        return Vocabulary([*tokenizer.all_bytes, *[b""] * padding], tokenizer.ends)


def load(
    models: Sequence[str],
    options: EngineOptions | None = None,
    progress: Progress = silent,
    accept: Accept = refuse,
) -> LocalEngine:
    """An engine that serves `models`: names known to the catalogue, or paths of GGUF files.

    Raises:
        BadModelFile, CacheProblem, DownloadFailed, UnknownModel: a model cannot be brought or does not run here.
        DoesNotFit: too little memory for the caches.
        ValueError: an option is out of range.
    """
    options = options or EngineOptions()
    opened = [open_model(name, model_path(name, progress, accept), options.isa, progress) for name in models]
    return serve(opened, options)


def open_model(name: str, path: Path, isa: str | None = None, progress: Progress = silent) -> OpenModel:
    """Open a model file and map its packed weights, packing them first when that was never done.

    Raises:
        BadModelFile: the file is damaged, or of a kind that does not run here.
        CacheProblem: the cache folder cannot be written.
    """
    with Gguf.open(path) as gguf:
        shape = shape_of(gguf)
        tokenizer = Tokenizer(gguf)
        renderer = Renderer(gguf, tokenizer)
        weights = load_weights(gguf, progress)
    isa = os.environ.get("GEARSHIFT_ISA", "") if isa is None else isa
    kernel = _kernel.Model(weights.mapping, shape.config(), weights.tensors, isa)
    return OpenModel(name, path, weights.sha256, shape, tokenizer, renderer, kernel, weights.mapping.nbytes)


def serve(opened: Sequence[OpenModel], options: EngineOptions) -> LocalEngine:
    """An engine over open models. Raises DoesNotFit, and ValueError for an option out of range."""
    if _kernel.BLOCK_TOKENS != BLOCK_TOKENS:
        raise AssertionError(f"the kernel has blocks of {_kernel.BLOCK_TOKENS} tokens, the scheduler of {BLOCK_TOKENS}")
    for option in ("max_streams", "max_waiting", "step_rows"):
        if getattr(options, option) < 1:
            raise ValueError(f"{option} must be at least 1, but is {getattr(options, option)}")
    threads = _kernel.Threads(options.threads or min(len(os.sched_getaffinity(0)), MOST_THREADS))
    budget = int(free_memory_bytes() * CACHE_SHARE_OF_FREE_MEMORY) // len(opened)
    served: list[ServedModel] = []
    resident: list[Resident] = []
    for model in opened:
        blocks = blocks_for(options.cache_tokens or _default_cache_tokens(model, options, budget))
        cache = _kernel.Cache(model.kernel, blocks)
        limits = LaneLimits(
            seats=options.max_streams,
            blocks=blocks,
            context=min(model.shape.context, blocks * BLOCK_TOKENS),
            rows=max(options.step_rows, options.max_streams),
            stall_s=options.stall_s,
        )
        entry = _entry(model, limits.context)
        vocabulary = model.vocabulary()
        forward = forward_of(model.kernel, cache, threads)
        lane = Lane(entry.id, forward, vocabulary, limits, gears=options.gears)
        if options.measured:
            lane.warm_up()
        else:
            lane.meter = SteadyMeter()
        grammars = Grammars(vocabulary.pieces, vocabulary.ends, model.renderer.encode_behind)
        served.append(ServedModel(entry, model.sha256, _kernel.FORMAT_VERSION, model.renderer, lane, grammars))
        resident.append(
            Resident(entry.id, model.kernel.isa, threads.count, model.weights_bytes, cache.bytes, blocks * BLOCK_TOKENS)
        )
    return LocalEngine(served, options.max_waiting, resident)


def forward_of(model: _kernel.Model, cache: _kernel.Cache, threads: _kernel.Threads) -> Forward:
    """Runs a lane's batches through the kernel."""
    step = model.step

    def forward(batch: Batch) -> Chosen:
        return Chosen(*step(cache, threads, **batch.arguments, top_logprobs=batch.top_logprobs))

    return forward


def _entry(model: OpenModel, context: int) -> ModelEntry:
    """The catalogue's entry. A file outside the catalogue answers to its own name without the ending."""
    id = model.name if model.name in SOURCES else model.path.stem.lower()
    return ModelEntry(id, context, model.renderer.chat, int(model.path.stat().st_mtime), owner="local")


def _default_cache_tokens(model: OpenModel, options: EngineOptions, budget: int) -> int:
    """Enough for all streams at once, and for one full window, as far as the budget goes."""
    per_token = model.kernel.cache_bytes_per_token
    wanted = options.max_streams * min(model.shape.context, CACHE_TOKENS_PER_STREAM)
    tokens = min(max(wanted, model.shape.context), budget // per_token)
    if tokens < BLOCK_TOKENS:
        raise DoesNotFit(
            f"{model.name}: a quarter of the free memory, divided among the models, is {budget} bytes, but one cache "
            f"block takes {per_token * BLOCK_TOKENS}. Free some memory or set the cache size."
        )
    return tokens


def free_memory_bytes() -> int:
    """Memory that can be used without swapping, by the system's estimate and the container's limit."""
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(fields["MemAvailable"].split()[0]) * 1024
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        free = min(free, limit - int(Path("/sys/fs/cgroup/memory.current").read_text()))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        pass
    return free
