"""The samples of this process: read from the counts and from the live objects, when an operator asks.

Counters of known things exist from the start, with 0: Prometheus does not see the first event of a counter that
appears with it.
"""

import asyncio
import os
import platform
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from limpet import __version__
from limpet.engine.audit import ACTS, REASONS
from limpet.engine.engine import Engine
from limpet.errors import StoreError
from limpet.ops.figures import Figures
from limpet.ops.health import FAILED, Health
from limpet.ops.loop_delay import LoopDelay
from limpet.ops.metrics import families
from limpet.ops.metrics.samples import Sample, histogram, merged, number
from limpet.ops.operated import Operated
from limpet.ops.waits import LIVE_STATES, WAITS, live_state, waits_for

STORE_SECONDS: Final = 2.0
"""How long a scrape waits for the store."""
_OF_PARTS: Final = ("upstream.ended", "client.reconnected", "upstream.unreachable")
"""The events of one of several servers behind that are counted by its name."""


async def samples_of(
    servers: Iterable[tuple[str, Engine, Operated]], loop_delay: LoopDelay | None = None
) -> list[Sample]:
    """Return the samples of this process. A server is its name, its engine and its `Operated`."""
    servers = list(servers)
    found = list(samples_of_process())
    if loop_delay is not None:
        found += (
            histogram(families.LOOP_DELAYS, loop_delay.durations),
            number(families.LOOP_DELAY_MAX, loop_delay.largest),
        )
    for name, engine, operated in servers:
        if operated.figures is not None:
            found += _counted(name, operated.figures)
            found += _behind(name, operated)
        found += _calls(name, engine, operated)
        found += _live(name, engine)
    for part in await asyncio.gather(*(_stored(name, engine) for name, engine, _ in servers)):
        found += part
    return merged([found])


def _counted(server: str, figures: Figures) -> Iterator[Sample]:
    """Yield the counts."""
    for (method, name, era, outcome), durations in figures.calls():
        tool, prompt = (name if method == one else "" for one in ("tools/call", "prompts/get"))
        error = "" if outcome == "ok" else outcome
        yield histogram(families.CALLS, durations, server, method, tool, prompt, era, outcome, error)
    yield histogram(families.SESSION_SECONDS, figures.sessions, server)
    events = figures.events
    for event, (family, label) in families.FROM_EVENTS.items():
        yield number(family, events[event], *((server, label) if label else (server,)))
    for event, count in list(events.items()):
        yield number(families.EVENTS, count, server, event)
    store = figures.store
    yield number(families.ASKED, store.asks, server)
    yield number(families.ANSWERED, store.answers, server)
    yield number(families.STREAMS, store.streams, server)
    yield number(families.STREAM_EVENTS, store.events, server)
    yield number(families.STREAM_BYTES, store.bytes, server)
    yield number(families.RESUMES, store.resumes, server)
    yield number(families.GAPS, store.gaps, server)
    for part, durations in store.durations.items():
        yield histogram(families.STORE_SECONDS, durations, server, part)
        yield number(families.STORE_ERRORS, store.errors[part, "unavailable"], server, part, "unavailable")
    for (part, kind), count in list(store.errors.items()):
        if kind != "unavailable":
            yield number(families.STORE_ERRORS, count, server, part, kind)


def _behind(server: str, operated: Operated) -> Iterator[Sample]:
    """Yield the health of the server behind, if there is one; of several, those of each."""
    if hasattr(operated.back, "upstreams"):
        yield from _health(server, operated.health)
    for name, part in operated.parts.items():
        label, events = f"{server}/{name}", {} if part.figures is None else part.figures.events
        yield from _health(label, part.health)
        for event in _OF_PARTS:
            yield number(families.FROM_EVENTS[event][0], events.get(event, 0), label)


def _health(server: str, health: Health) -> Iterator[Sample]:
    yield number(families.UPSTREAM_WORKED, health.worked_at, server)
    for kind in sorted(set(FAILED.values())):
        at = health.failed_at if health.kind == kind else 0.0
        yield number(families.UPSTREAM_FAILED, at, server, kind)


def _calls(server: str, engine: Engine, operated: Operated) -> Iterator[Sample]:
    """Yield how many requests are in which state, why they wait, and how old the oldest ones are."""
    states, waiting, oldest = Counter[str](), Counter[str](), dict[str, float]()
    watch = operated.watch
    for exchange in engine.live_exchanges():
        waits = waits_for(exchange)
        states[live_state(exchange) or "ending"] += 1
        waiting[waits] += 1
        oldest[waits] = max(oldest.get(waits, 0.0), 0.0 if watch is None else watch.age(exchange) or 0.0)
    for state in (*dict.fromkeys(LIVE_STATES.values()), "ending"):
        yield number(families.EXCHANGES, states[state], server, state)
    for waits in WAITS:
        yield number(families.WAITING, waiting[waits], server, waits)
        yield number(families.OLDEST, oldest.get(waits, 0.0), server, waits)


def _live(server: str, engine: Engine) -> Iterator[Sample]:
    """Yield the numbers of the live objects of an engine."""
    sessions = engine.live_sessions()
    yield number(families.LOCAL_SESSIONS, len(sessions), server)
    yield number(families.READERS, sum(map(len, (r for s in sessions for r in s.readers.values()))), server)
    yield number(families.ASKS, sum(session.asks for session in sessions), server, "session")
    yield number(families.ASKS, engine.sessionless.asks(), server, "sessionless")
    yield number(families.LISTENERS, len(engine.listening), server)
    parking = engine.sessionless.parking.statistics()
    for event in ("parked", "resumed", "expired", "refused"):
        yield number(families.PARKED, getattr(parking, event), server, event)
    for client, count in engine.quirks.duplicates().items():
        yield number(families.DUPLICATES, count, server, client)
    for reason in REASONS:
        yield number(families.REFUSALS, engine.audit.counts[reason], server, reason)
    for act in ACTS:
        yield number(families.ACTS, engine.audit.counts[act], server, act)
    ledger = engine.load.ledger
    yield number(families.MEMORY, ledger.used, server)
    yield number(families.MEMORY_LIMIT, ledger.total, server)


async def _stored(server: str, engine: Engine) -> list[Sample]:
    """Return the numbers of the store."""
    if not engine.started:
        return []
    store = engine.store
    try:
        async with asyncio.timeout(STORE_SECONDS):
            totals, replicas = await store.totals(), await store.replicas()
    except (StoreError, TimeoutError):
        return [number(families.STORE_AWAY, 1, server)]
    found = [
        number(families.STORE_AWAY, 0, server),
        number(families.SESSIONS, totals.sessions - totals.detached, server, "attached"),
        number(families.SESSIONS, totals.detached, server, "detached"),
        number(families.LOG_BYTES, totals.log_bytes, server),
        number(families.STATE_BYTES, totals.kept_bytes, server),
    ]
    return [*found, number(families.REPLICAS, len(replicas), server)] if store.is_shared else found


# Processor time, memory and files of this process, from /proc. Where there is no /proc, there are no such samples


_PROC: Final = Path("/proc")
_AFTER_NAME: Final = 3
"""The number of the first field of `stat` after the name of the program, which may contain spaces."""
_USER, _SYSTEM, _STARTED, _VIRTUAL, _RESIDENT = 14, 15, 22, 23, 24


def samples_of_process() -> Iterator[Sample]:
    """Yield the samples of this process."""
    yield number(families.PROCESSES, 1)
    yield number(families.BUILD, 1, __version__, platform.python_version())
    try:
        yield from _read(_PROC)
    except (OSError, ValueError, IndexError):
        return


def _read(proc: Path) -> list[Sample]:
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    fields = (proc / "self/stat").read_text(errors="replace").rpartition(")")[2].split()
    stat = {
        number: int(fields[number - _AFTER_NAME])
        for number in (_USER, _SYSTEM, _STARTED, _VIRTUAL, _RESIDENT)
    }
    booted = next(
        int(line.split()[1]) for line in (proc / "stat").read_text().splitlines() if line.startswith("btime ")
    )
    limits = (proc / "self/limits").read_text().splitlines()
    files = next((line.split()[3] for line in limits if line.startswith("Max open files")), "")
    found = [
        number(families.CPU, (stat[_USER] + stat[_SYSTEM]) / ticks),
        number(families.RESIDENT, stat[_RESIDENT] * page),
        number(families.VIRTUAL, stat[_VIRTUAL]),
        number(families.START_TIME, booted + stat[_STARTED] / ticks),
        number(families.OPEN_FDS, len(list((proc / "self/fd").iterdir()))),
    ]
    return [*found, number(families.MAX_FDS, int(files))] if files.isdecimal() else found
