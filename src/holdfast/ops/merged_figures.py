"""The figures of several processes as those of one: numbers, charts and tools."""

from collections.abc import Iterable, Iterator
from typing import Final

from holdfast.ops.history import Point
from holdfast.ops.process import Live, recent_view
from holdfast.ops.recent import Recent
from holdfast.ops.schema import CallView, FiguresView, ToolView
from holdfast.stores.base import Totals

MOST_TOOLS: Final = 500


def merged_figures(lives: list[Live], processes: Iterable[Live], totals: list[Totals]) -> FiguresView:
    """Return the sums. The median of all replicas is the mean of their medians, weighted by their rates."""
    figures = [live.figures for live in lives]
    rated = [live.figures for live in processes]
    rate = sum(one.calls_per_second for one in rated)
    detached = sum(one.detached for one in totals)
    return FiguresView(
        attached=sum(one.sessions for one in totals) - detached,
        detached=detached,
        running=sum(one.running for one in figures),
        queued=sum(one.queued for one in figures),
        parked=sum(one.parked for one in figures),
        handed_over=sum(one.handed_over for one in figures),
        asks=sum(one.asks for one in figures),
        streams=sum(one.streams for one in figures),
        log_bytes=sum(one.log_bytes for one in totals),
        calls_per_second=rate,
        p50=sum(one.p50 * one.calls_per_second for one in rated) / rate if rate else 0.0,
        p95=max((one.p95 for one in rated), default=0.0),
        loop_delay=max((one.loop_delay for one in rated), default=0.0),
        loop_delay_max=max((one.loop_delay_max for one in rated), default=0.0),
    )


def merged_tools(lives: Iterable[tuple[str, Live]]) -> list[ToolView]:
    """Return the tools of all servers and replicas, the busiest first. A tool that runs for the first time is among them."""
    recent: dict[tuple[str, str], Recent] = {}
    running: dict[tuple[str, str], list[CallView]] = {}
    for server, live in lives:
        for method, name, found in live.tools:
            key = server, name or method
            recent[key] = recent.get(key, Recent()).plus(found)
        for call in live.calls:
            running.setdefault((server, call.name or call.method), []).append(call)
    views = [
        ToolView(
            name, server, recent_view(recent.get((server, name), Recent()), running.get((server, name), ()))
        )
        for server, name in {**recent, **running}
    ]
    return sorted(views, key=lambda view: (-view.recent.calls, view.name))[:MOST_TOOLS]


def merged_history(processes: Iterable[Live]) -> list[Point]:
    """Merge the charts of all processes; their newest points are of about the same second."""
    return [_point(points) for points in _together([live.history for live in processes])]


def _together(histories: list[list[Point]]) -> Iterator[list[Point]]:
    longest = max(map(len, histories), default=0)
    for back in range(longest, 0, -1):
        yield [points[-back] for points in histories if len(points) >= back]


def _point(points: list[Point]) -> Point:
    rate = sum(point[0] for point in points)
    median = sum(point[0] * point[1] for point in points) / rate if rate else 0.0
    failed, refused = (sum(point[column] for point in points) for column in (3, 4))
    return rate, median, max(point[2] for point in points), failed, refused
