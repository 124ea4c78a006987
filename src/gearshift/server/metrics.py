"""What /metrics shows: requests and the times that clients feel, counted here; steps, rows and the cache, asked of the
engines at every scrape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.registry import Collector

from gearshift.caller import Caller, Usage
from gearshift.catalog import GEARS, GearName
from gearshift.engine.protocol import Engine, EngineStatus

# One more line for each counter, that says when it was made.
disable_created_metrics()

_FIRST_TOKEN = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_BETWEEN = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 1)
_STEP = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 1)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_BULK = 1024

CLIENT_LEFT = 499
"""Status under which a turn counts whose client went away before it was answered."""


class Bins:
    """Counts by size of values that come in bulk: one for every token and step, it must cost next to nothing."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = np.asarray(bounds, dtype=np.float64)
        self._counts = np.zeros(len(bounds) + 1, dtype=np.int64)
        self._sum = 0.0
        self._fresh: list[float] = []

    def observe(self, value: float) -> None:
        """Count one value; event loop only."""
        self._fresh.append(value)
        if len(self._fresh) >= _BULK:
            self._sort_in()

    def observe_all(self, values: Sequence[float]) -> None:
        """Count these values; event loop only."""
        self._fresh.extend(values)
        self._sort_in()

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        """Show them in a metric under these values of its labels."""
        self._sort_in()
        bounds = [*(repr(float(bound)) for bound in self._bounds), "+Inf"]
        family.add_metric(labels, list(zip(bounds, np.cumsum(self._counts).tolist(), strict=True)), self._sum)

    def _sort_in(self) -> None:
        if self._fresh:
            fresh = np.asarray(self._fresh, dtype=np.float64)
            self._counts += np.bincount(np.searchsorted(self._bounds, fresh), minlength=len(self._counts))
            self._sum += float(fresh.sum())
            self._fresh.clear()


class _Histogram(Collector):
    """A metric made of bins, as the registry asks for it."""

    def __init__(self, name: str, documentation: str, label: str | None, bins: Mapping[str, Bins]) -> None:
        self._name, self._documentation = name, documentation
        self._label = label
        self._bins = bins

    def collect(self) -> Iterator[HistogramMetricFamily]:
        labels = [] if self._label is None else [self._label]
        family = HistogramMetricFamily(self._name, self._documentation, labels=labels)
        for value, bins in self._bins.items():
            bins.add_to(family, [value] * len(labels))
        yield family


class Metrics:
    """The metrics of one server."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, engines: Iterable[Engine]) -> None:
        self._engines: Sequence[Engine] = tuple(engines)
        self._registry = CollectorRegistry()
        registry = self._registry
        self._requests = Counter("gearshift_requests", "Requests answered.", ["endpoint", "status"], registry=registry)
        self._turns = Counter("gearshift_turns", "Turns settled.", ["ending", "gear"], registry=registry)
        self._tokens = Counter("gearshift_tokens", "Tokens of ended turns.", ["kind"], registry=registry)
        self._drafted = Counter("gearshift_drafted_tokens", "Drafts that took rows.", ["gear"], registry=registry)
        self._kept = Counter("gearshift_kept_tokens", "Drafts that the model chose too.", ["gear"], registry=registry)
        self.first_token: dict[GearName, Bins] = {gear: Bins(_FIRST_TOKEN) for gear in GEARS}
        registry.register(
            _Histogram(
                "gearshift_time_to_first_token_seconds",
                "From the arrival of a request to the first write that holds a token.",
                "gear",
                {str(gear): bins for gear, bins in self.first_token.items()},
            )
        )
        self.between_tokens = self._bins(
            "gearshift_inter_token_seconds", "Time per token between two writes of a turn.", _BETWEEN
        )
        self._steps = self._bins("gearshift_step_seconds", "Durations of engine steps.", _STEP)
        self._rows = self._bins("gearshift_step_rows", "Rows per engine step.", _ROWS)
        self._running = Gauge("gearshift_running", "Sequences that hold cache blocks.", registry=registry)
        self._waiting = Gauge("gearshift_waiting", "Sequences that wait for their first step.", registry=registry)
        self._cache_used = Gauge("gearshift_cache_tokens_used", "Cache in use, in tokens.", registry=registry)
        self._cache_total = Gauge("gearshift_cache_tokens_total", "Cache altogether, in tokens.", registry=registry)

    def answered(self, endpoint: str, status: int) -> None:
        """One request has its answer."""
        self._requests.labels(endpoint, str(status)).inc()

    def settle(self, turn_id: str, caller: Caller, usage: Usage) -> None:
        """A turn ended with these counts: a settlement hook for the service."""
        self._turns.labels(usage.ending, usage.gear).inc()
        self._tokens.labels("prompt").inc(usage.prompt_tokens)
        self._tokens.labels("cached").inc(usage.cached_tokens)
        self._tokens.labels("completion").inc(usage.completion_tokens)
        self._drafted.labels(usage.gear).inc(usage.work.drafted)
        self._kept.labels(usage.gear).inc(usage.work.kept)

    def exposition(self) -> bytes:
        """The text that Prometheus reads."""
        statuses = [engine.status() for engine in self._engines]
        self._take(statuses)
        return generate_latest(self._registry)

    def _bins(self, name: str, documentation: str, bounds: Sequence[float]) -> Bins:
        bins = Bins(bounds)
        self._registry.register(_Histogram(name, documentation, None, {"": bins}))
        return bins

    def _take(self, statuses: Sequence[EngineStatus]) -> None:
        for status in statuses:
            self._steps.observe_all(status.step_seconds)
            self._rows.observe_all(status.step_rows)
        self._running.set(sum(status.running for status in statuses))
        self._waiting.set(sum(status.waiting for status in statuses))
        self._cache_used.set(sum(status.cache_tokens_used for status in statuses))
        self._cache_total.set(sum(status.cache_tokens_total for status in statuses))
