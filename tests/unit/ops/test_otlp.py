"""The metrics of a process in the form of OpenTelemetry, pushed to an exporter."""

import asyncio
from typing import Any

from opentelemetry.sdk.metrics.export import Gauge, Histogram, Metric, MetricsData, Sum
from opentelemetry.sdk.resources import Resource

from limpet.ops.figures import BOUNDS, Durations
from limpet.ops.metrics import families
from limpet.ops.metrics.otlp import Pusher, metrics_data
from limpet.ops.metrics.samples import Sample, histogram, number
from limpet.ports import SystemClock
from limpet.testing import NotingObserver
from tests.support import async_test, until


def samples() -> list[Sample]:
    durations = Durations()
    durations.add(0.0015)
    calls = histogram(families.CALLS, durations, "shop", "tools/call", "search", "", "session", "ok", "")
    return [
        calls,
        number(families.STREAMS, 3, "shop"),
        number(families.EXCHANGES, 2, "shop", "running"),
        number(families.EXCHANGES, 1, "shop", "queued"),
        number(families.LOG_BYTES, 700, "shop"),
    ]


def named(data: MetricsData) -> dict[str, Metric]:
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    return {metric.name: metric for metric in scope.metrics}


def test_names_and_units_are_those_from_which_prometheus_makes_ours() -> None:
    found = named(metrics_data(samples(), Resource({}), 1, 2))
    assert {name: metric.unit for name, metric in found.items()} == {
        "mcp.server.operation.duration": "s",
        "limpet.streams": "",
        "limpet.exchanges": "",
        "limpet.store.log": "By",
    }
    calls, streams, exchanges = (
        found[name].data for name in ("mcp.server.operation.duration", "limpet.streams", "limpet.exchanges")
    )
    assert isinstance(calls, Histogram)
    (point,) = calls.data_points
    assert (point.count, point.sum, sum(point.bucket_counts)) == (1, 0.0015, 1)
    assert point.bucket_counts[1] == 1
    assert tuple(point.explicit_bounds) == BOUNDS
    assert dict(point.attributes or {}) == {
        "server": "shop",
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "search",
        "era": "session",
        "outcome": "ok",
    }
    assert isinstance(streams, Sum)
    assert (streams.is_monotonic, streams.data_points[0].value) == (True, 3)
    assert isinstance(exchanges, Gauge)
    assert [one.value for one in exchanges.data_points] == [2, 1]


class Exporter:
    """Keeps the names of what it gets."""

    def __init__(self) -> None:
        self.pushes: list[set[str]] = []
        self.is_shut = False

    def export(self, metrics_data: MetricsData, timeout_millis: float = 0) -> Any:
        assert timeout_millis > 0
        self.pushes.append(set(named(metrics_data)))
        if len(self.pushes) == 1:
            raise OSError("a collector that is away")

    def shutdown(self, timeout_millis: float = 0) -> None:
        self.is_shut = True


class Source:
    async def metrics(self) -> list[Sample]:
        return samples()


@async_test
async def test_metrics_are_pushed_again_and_again_and_once_at_the_end() -> None:
    exporter, observer = Exporter(), NotingObserver()
    pusher = Pusher(exporter, Resource({}), seconds=0.01, timeout=5.0, clock=SystemClock())
    async with pusher.pushing(Source(), observer):
        await until(lambda: len(exporter.pushes) >= 3)
        assert observer.named("loop.failed"), "an exporter that raises is reported, and used again"
    pushed = len(exporter.pushes)
    assert exporter.pushes[-1] == exporter.pushes[0]
    assert exporter.is_shut
    await asyncio.sleep(0.05)  # real time is the subject: nothing more is pushed
    assert len(exporter.pushes) == pushed
