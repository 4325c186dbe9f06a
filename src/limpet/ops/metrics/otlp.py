"""Sends the metrics of this process to a collector, with an exporter of OpenTelemetry.

Only a process that does so imports this.

The samples are those of `/metrics`. A collector that passes them on to Prometheus makes the same names of them again
(`limpet.streams` is `limpet_streams_total`, `mcp.server.operation.duration` in seconds is
`mcp_server_operation_duration_seconds`), so the alert rules and the Grafana dashboard fit both ways.

Numbers are cumulative since the start of the process, and each process is an instance of its own.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final, Protocol

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from limpet import __version__
from limpet.ops.figures import BOUNDS
from limpet.ops.metrics.families import FAMILIES, Family
from limpet.ops.metrics.samples import Sample
from limpet.ports import Clock, Observer
from limpet.supervision import supervise

_UNITS: Final = {"_seconds": "s", "_bytes": "By"}
_ATTRIBUTES: Final = {
    "mcp_method_name": "mcp.method.name",
    "gen_ai_tool_name": "gen_ai.tool.name",
    "gen_ai_prompt_name": "gen_ai.prompt.name",
    "error_type": "error.type",
}
"""The labels that have a name in the conventions of OpenTelemetry."""
_LAST_SECONDS: Final = 3.0
"""For the last push, when the process stops."""


class Exporter(Protocol):
    """An exporter of the SDK."""

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000) -> Any:
        """Send the metrics; it blocks, and logs its own failures."""

    def shutdown(self, timeout_millis: float = 30_000) -> None:
        """Close the connection."""


class Metrics(Protocol):
    """A source of samples."""

    async def metrics(self) -> list[Sample]:
        """Return the metrics of this process."""


class Pusher:
    """Sends samples to an exporter."""

    def __init__(
        self, exporter: Exporter, resource: Resource, *, seconds: float, timeout: float, clock: Clock
    ) -> None:
        """Push every so many seconds; `timeout`: the seconds that one push may take."""
        self._exporter = exporter
        self._resource = resource
        self._seconds = seconds
        self._timeout = timeout
        self._clock = clock
        self._began = _nanoseconds(clock.wall())

    @contextlib.asynccontextmanager
    async def pushing(self, source: Metrics, observer: Observer) -> AsyncIterator[None]:
        """Push while the block runs, and once at its end."""

        async def run() -> None:
            while True:
                await asyncio.sleep(self._seconds)
                await self.push(source, self._timeout)

        task = supervise("metrics", run, observer)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_SECONDS):
                    await self.push(source, min(self._timeout, _LAST_SECONDS))
                    await asyncio.to_thread(self._exporter.shutdown)

    async def push(self, source: Metrics, timeout: float) -> None:
        """Send the metrics once, in a thread: an exporter blocks."""
        samples = await source.metrics()
        data = metrics_data(samples, self._resource, self._began, _nanoseconds(self._clock.wall()))
        await asyncio.to_thread(self._exporter.export, data, timeout * 1_000)


def metrics_data(samples: Iterable[Sample], resource: Resource, began: int, now: int) -> MetricsData:
    """Return merged samples in the form of OpenTelemetry; times are nanoseconds since 1970."""
    by_family: dict[str, list[Sample]] = {}
    for sample in samples:
        by_family.setdefault(sample.family, []).append(sample)
    metrics = [_metric(FAMILIES[name], found, began, now) for name, found in by_family.items()]
    scope = ScopeMetrics(InstrumentationScope("limpet", __version__), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metric(family: Family, samples: list[Sample], began: int, now: int) -> Metric:
    name, unit = _named(family)
    data: Sum | Gauge | Histogram
    if family.kind == "histogram":
        points = [_histogram(family, sample, began, now) for sample in samples]
        data = Histogram(points, AggregationTemporality.CUMULATIVE)
    else:
        numbers = [
            NumberDataPoint(_attributes(family, sample), began, now, float(sample.value))
            for sample in samples
        ]
        is_sum = family.kind == "counter"
        data = (
            Sum(numbers, AggregationTemporality.CUMULATIVE, is_monotonic=True) if is_sum else Gauge(numbers)
        )
    return Metric(name, family.help, unit, data)


def _named(family: Family) -> tuple[str, str]:
    """Return the name of a metric without the endings that Prometheus wants, and its unit."""
    name = family.name.removesuffix("_total")
    for ending, unit in _UNITS.items():
        if name.endswith(ending):
            return name.removesuffix(ending).replace("_", "."), unit
    return name.replace("_", "."), ""


def _histogram(family: Family, sample: Sample, began: int, now: int) -> HistogramDataPoint:
    return HistogramDataPoint(
        attributes=_attributes(family, sample),
        start_time_unix_nano=began,
        time_unix_nano=now,
        count=sum(sample.counts),
        sum=sample.value,
        bucket_counts=list(sample.counts),
        explicit_bounds=list(BOUNDS),
        # The smallest and the largest value are optional in OTLP, and not known here.
        min=None,  # type: ignore[arg-type]
        max=None,  # type: ignore[arg-type]
    )


def _attributes(family: Family, sample: Sample) -> Mapping[str, str]:
    pairs = zip(family.labels, sample.labels, strict=True)
    return {_ATTRIBUTES.get(label, label): value for label, value in pairs if value}


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
