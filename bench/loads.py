"""The loads: each drives one server for a moment, checks every answer, and returns its figures.

Figures have fixed names: `per_second`, `cpu_us` (processor time of the server for one unit of the load), `p50_us`, `p99_us`,
`bytes`, `ms`, `cpu_ms`. A load with a wrong answer raises `WrongAnswer`.
"""

import asyncio
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import redis
import uvloop

from bench.connection import Connection, WrongAnswer, expect, text_of, tool_call
from bench.contestants import HERE, LOAD_CORE, Contestant
from bench.running import Running

Figures = dict[str, float]
_RESULT: Final = re.compile(r"RESULT (\{.*\})")
_numbers: Final = itertools.count(1)
_LONGEST: Final = 16
"""Seconds of a slice: a server that answers no request in its time gets twice the time, up to this."""
_WARM: Final = 100
"""Sessions that are opened before memory is measured."""


def check_programs() -> None:
    """Refuse to start without the programs that the loads need."""
    for program in ("wrk", "taskset"):
        if shutil.which(program) is None:
            raise RuntimeError(f"{program} is missing: tools/install-system.sh installs it")


# Plain requests, by wrk


def echo(server: Running, *, seconds: int, connections: int, sessions: int = 1) -> Figures:
    """Call echo on sessions in turn, or without a session."""
    if server.modern:
        return _wrk(server, seconds, connections, "sessionless")
    with tempfile.NamedTemporaryFile("w", encoding="ascii") as file:
        file.write("\n".join(server.sessions(sessions)) + "\n")
        file.flush()
        return _wrk(server, seconds, connections, "call", file.name)


def stored_echo(server: Running, *, seconds: int, connections: int, sessions: int = 1) -> Figures:
    """Call echo; with Redis also return the time of its scripts, its processor time and its scripts for one request."""
    url = next((part for part in server.contestant.command if part.startswith("redis://")), None)
    if url is None:
        return echo(server, seconds=seconds, connections=connections, sessions=sessions)
    before = _redis_totals(url)
    found = echo(server, seconds=seconds, connections=connections, sessions=sessions)
    requests = found["per_second"] * seconds
    spent = (after - start for after, start in zip(_redis_totals(url), before, strict=True))
    names = ("redis_scripts", "redis_us", "redis_cpu_us")
    return {**found, **{name: value / requests for name, value in zip(names, spent, strict=True)}}


def _redis_totals(url: str) -> tuple[float, float, float]:
    """Return the scripts that a Redis has run, their microseconds, and the microseconds of its processor time."""
    with redis.Redis.from_url(url) as connection:
        commands: dict[str, Any] = connection.info("commandstats")
        processor: dict[str, Any] = connection.info("cpu")
    scripts = [some for name, some in commands.items() if name.startswith(("cmdstat_eval", "cmdstat_fcall"))]
    used = processor["used_cpu_user"] + processor["used_cpu_sys"]
    return sum(some["calls"] for some in scripts), sum(some["usec"] for some in scripts), used * 1e6


def create(server: Running, *, seconds: int, connections: int) -> Figures:
    """Open sessions, as many as possible."""
    return _wrk(server, seconds, connections, "create")


def _wrk(server: Running, seconds: int, connections: int, *arguments: str) -> Figures:
    wrk = ["taskset", "-c", LOAD_CORE, "wrk", "-t1", "--timeout", "20s", f"-c{connections}", f"-d{seconds}s"]
    before = server.cpu_seconds()
    done = subprocess.run(
        [*wrk, "-s", str(HERE / "load.lua"), server.url, "--", *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    used = server.cpu_seconds() - before
    found = _RESULT.search(done.stdout)
    if found is None:
        raise WrongAnswer(f"{server.name}: wrk wrote {(done.stdout + done.stderr)[-500:]}")
    result = json.loads(found[1])
    # wrk leaves at the end of its time: up to one request of each connection has no answer then.
    if result["bad"] or result["errors"]:
        raise WrongAnswer(f"{server.name}: {result}")
    if not result["good"]:
        if seconds >= _LONGEST:
            raise WrongAnswer(f"{server.name}: no answer in {seconds} s")
        return _wrk(server, 2 * seconds, connections, *arguments)
    return {
        "per_second": result["requests"] / result["seconds"],
        "cpu_us": used / result["requests"] * 1e6,
        "p50_us": result["p50"],
        "p99_us": result["p99"],
    }


# Conversations, by a client of our own


def _timed(
    server: Running, seconds: float, workers: int, turn: Callable[[Connection], Awaitable[int]]
) -> Figures:
    """Repeat a turn on several connections; a turn returns its number of units."""

    async def worker(session: str | None, until: float, times: list[float]) -> int:
        units = 0
        async with Connection(server.port, session) as connection:
            while (began := time.perf_counter()) < until:
                units += await turn(connection)
                times.append(time.perf_counter() - began)
        return units

    async def run() -> Figures:
        sessions: list[str | None] = [*opened] or [None] * workers
        times: list[float] = []
        began, before = time.perf_counter(), server.cpu_seconds()
        counts = await asyncio.gather(*(worker(session, began + seconds, times) for session in sessions))
        took, used, units = time.perf_counter() - began, server.cpu_seconds() - before, sum(counts)
        return {
            "per_second": units / took,
            "cpu_us": used / units * 1e6,
            "p50_us": statistics.median(times) * 1e6,
            "p99_us": sorted(times)[int(len(times) * 0.99)] * 1e6,
        }

    opened = server.sessions(workers)
    return uvloop.run(run())


def events(server: Running, *, seconds: float, streams: int, count: int) -> Figures:
    """Read the events of several calls at the same time; the unit is one event."""

    async def turn(connection: Connection) -> int:
        number = next(_numbers)
        found = await connection.call(tool_call(number, "events", {"count": count}))
        _check_progress(found[:-1], number, range(1, count + 1))
        expect(text_of(found[-1], number) == str(count), found[-1])
        return count

    return _timed(server, seconds, streams, turn)


def _check_progress(found: list[Any], token: int, numbers: range) -> None:
    expect(len(found) == len(numbers), f"{len(found)} events instead of {len(numbers)}")
    for message, number in zip(found, numbers, strict=True):
        params = message.get("params", {})
        expect(params.get("progressToken") == token and params.get("progress") == number, message)


def asks(server: Running, *, seconds: float, calls: int, count: int) -> Figures:
    """Answer the questions of several calls at the same time; the unit is one question."""

    async def turn(connection: Connection) -> int:
        number = next(_numbers)
        rounds = _answer_by_retry if server.modern else _answer_by_post
        text = await rounds(connection, number, count)
        expect(text == ",".join(f"{number}:{place}" for place in range(count)), text)
        return count

    return _timed(server, seconds, calls, turn)


def _answer(number: int, params: dict[str, Any]) -> dict[str, Any]:
    place = params["message"].removeprefix("question ")
    return {"action": "accept", "content": {"value": f"{number}:{place}"}}


async def _answer_by_post(connection: Connection, number: int, count: int) -> str:
    async with Connection(connection.port, connection.session) as back:
        await connection.send(tool_call(number, "asks", {"count": count}))
        last: Any = None
        async for message in connection.messages():
            last = message
            if message.get("method") == "elicitation/create":
                result = _answer(number, message["params"])
                await back.call({"jsonrpc": "2.0", "id": message["id"], "result": result})
        return text_of(last, number)


async def _answer_by_retry(connection: Connection, number: int, count: int) -> str:
    more: dict[str, Any] = {}
    while True:
        last = (await connection.call(tool_call(number, "asks", {"count": count}, **more)))[-1]
        result = last.get("result", {})
        if result.get("resultType") != "input_required":
            return text_of(last, number)
        answers = {key: _answer(number, ask["params"]) for key, ask in result["inputRequests"].items()}
        more = {"inputResponses": answers, "requestState": result["requestState"]}


def resume(server: Running, *, seconds: float, count: int) -> Figures:
    """Cut a call after its first event, wait until it has ended, and read the rest; the unit is one event.

    Only the second connection is measured, which reads from the log.
    """

    async def one(session: str) -> tuple[float, float]:
        number = next(_numbers)
        async with Connection(server.port, session) as other, Connection(server.port, session) as first:
            ended = int(text_of((await other.call(tool_call("f", "finished", {})))[-1], "f"))
            await first.send(tool_call(number, "events", {"count": count}))
            seen, position = 0, ""
            async for position, data in first.events():  # noqa: B007 - the last position counts
                if data:
                    seen = int(json.loads(data)["params"]["progress"])
                    break
            first.cut()
            while int(text_of((await other.call(tool_call("f", "finished", {})))[-1], "f")) == ended:
                await asyncio.sleep(0.005)
        async with Connection(server.port, session) as second:
            began, before = time.perf_counter(), server.cpu_seconds()
            await second.get(position)
            found = []
            async for message in second.messages():
                found.append(message)
                if "result" in message:
                    break
            took, used = time.perf_counter() - began, server.cpu_seconds() - before
        _check_progress(found[:-1], number, range(seen + 1, count + 1))
        expect(text_of(found[-1], number) == str(count), found[-1])
        return took, used

    async def run() -> Figures:
        (session,), until = opened, time.perf_counter() + seconds
        found: list[tuple[float, float]] = []
        while not found or time.perf_counter() < until:
            found.append(await one(session))
        took, used = (statistics.median(column) for column in zip(*found, strict=True))
        return {"per_second": count / took, "cpu_us": used / count * 1e6, "ms": took * 1e3}

    opened = server.sessions(1)
    return uvloop.run(run())


# Memory


def idle_sessions(contestant: Contestant, *, count: int) -> Figures:
    """Return the memory of one session that was opened and not used. A slow server gets fewer of them: ten seconds."""
    with Running(contestant) as server:
        server.sessions(_WARM)
        before, until, opened = server.resident_bytes(), time.monotonic() + 10, _WARM
        while opened < count and time.monotonic() < until:
            opened = min(opened + 500, count)
            server.sessions(opened)
        return {"bytes": (server.resident_bytes() - before) / (opened - _WARM), "sessions": opened}


def left_sessions(contestant: Contestant, *, count: int) -> Figures:
    """Return the memory of a session that is left after six calls; the third and the sixth one were streams, read whole."""

    async def use(sessions: list[str]) -> None:
        remaining = iter(sessions)

        async def worker() -> None:
            for session in remaining:
                async with Connection(server.port, session) as connection:
                    for number in (1, 2, 4, 5):
                        await connection.echo(number)
                        if number in {2, 5}:
                            found = await connection.call(tool_call(number + 1, "events", {"count": 5}))
                            _check_progress(found[:-1], number + 1, range(1, 6))
                            expect(text_of(found[-1], number + 1) == "5", found)

        await asyncio.gather(*(worker() for _ in range(8)))

    with Running(contestant) as server:
        uvloop.run(use(server.sessions(_WARM)))
        before = server.resident_bytes()
        uvloop.run(use(server.sessions(_WARM + count)[_WARM:]))
        return {"bytes": (server.resident_bytes() - before) / count}


def idle_connections(contestant: Contestant, *, count: int) -> Figures:
    """Return the memory of one connection that waits after its first call; all of them use one session."""

    async def run() -> float:
        async with idle(server, _WARM):
            before = server.resident_bytes()
            async with idle(server, count):
                return (server.resident_bytes() - before) / count

    with Running(contestant) as server:
        server.sessions(1)
        return {"bytes": uvloop.run(run())}


@asynccontextmanager
async def idle(server: Running, count: int) -> AsyncIterator[None]:
    """Keep connections open, each after one call."""
    session = next(iter(server.sessions(1)), None)
    connections = [Connection(server.port, session) for _ in range(count)]
    numbered = iter(enumerate(connections, 1))

    async def opener() -> None:
        for number, connection in numbered:
            await connection.__aenter__()
            await connection.echo(number)

    try:
        await asyncio.gather(*(opener() for _ in range(16)))
        yield
    finally:
        for connection in connections:
            connection.cut()


def crowded_echo(server: Running, *, seconds: int, connections: int, beside: int) -> Figures:
    """Call echo in one session while other connections are open and idle."""

    async def run() -> Figures:
        async with idle(server, beside):
            return await asyncio.to_thread(echo, server, seconds=seconds, connections=connections)

    server.sessions(1)
    return uvloop.run(run())


def open_streams(contestant: Contestant, *, count: int) -> Figures:
    """Return the memory of one open GET stream; its session is not counted."""

    async def run() -> float:
        connections = [Connection(server.port, session) for session in sessions]
        try:
            for connection in connections[:20]:
                await _open(connection)
            before = server.resident_bytes()
            for connection in connections[20:]:
                await _open(connection)
            return (server.resident_bytes() - before) / count
        finally:
            for connection in connections:
                connection.cut()

    async def _open(connection: Connection) -> None:
        await connection.__aenter__()
        await connection.get()
        kind = connection.headers.get("content-type", "")
        expect(connection.status == 200 and kind.startswith("text/event-stream"), connection.headers)

    with Running(contestant) as server:
        sessions = server.sessions(20 + count)
        return {"bytes": uvloop.run(run())}


# Start


def first_call(server: Running) -> None:
    """Call echo once, with no time limit: a back may have to start something first."""

    async def run() -> None:
        async with Connection(server.port) as connection:
            if not server.modern:
                server.opened(await connection.initialize())
            await connection.echo(2)

    uvloop.run(run())


def start(contestant: Contestant) -> Figures:
    """Return the time from the start of the process to the answer of a first call."""
    began = time.perf_counter()
    with Running(contestant) as server:
        first_call(server)
        return {"ms": (time.perf_counter() - began) * 1e3, "cpu_ms": server.cpu_seconds() * 1e3}


def import_time(contestant: Contestant) -> Figures:
    """Return the time of a process that only imports."""
    began = time.perf_counter()
    process = subprocess.Popen(["taskset", "-c", contestant.core, *contestant.command])
    _pid, process.returncode, usage = os.wait4(process.pid, 0)
    if process.returncode:
        raise RuntimeError(f"{contestant.name}: the import failed")
    return {"ms": (time.perf_counter() - began) * 1e3, "cpu_ms": (usage.ru_utime + usage.ru_stime) * 1e3}


# Clients


def client(contestant: Contestant, *, in_flight: int, calls: int) -> Figures:
    """Return the figures of a client's process, which checks the answers itself."""
    command = ["taskset", "-c", contestant.core, *contestant.command, str(in_flight), str(calls)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WrongAnswer(f"{contestant.name}: {done.stderr[-500:]}")
    figures: Figures = json.loads(done.stdout)
    return figures
