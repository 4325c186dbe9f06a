"""Faults that are caused on purpose, with real processes: each is recognised in the log, in the metrics and in the state of the dashboard."""

import asyncio
import contextlib
import json
import re
import signal
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.browser.product import TOKEN, admin_url, operated
from tests.http.client import Client, Cut, Response, call, http_test, sessionless
from tests.messages import metadata
from tests.redis_server import RedisServer, redis_server
from tests.support import BOUND, until
from tests.workers.fleet import Fleet

APP: Final = str(Path(__file__).with_name("app.py")) + ":server"
ERAS: Final = pytest.mark.parametrize("era", ["sessions", "sessionless"])
ASKABLE: Final[dict[str, Any]] = {"elicitation": {}}
fault_test = http_test


class Operators:
    """The view of operators on a process."""

    def __init__(self, process: Fleet) -> None:
        self.process = process
        self.url = admin_url(process)

    def lines(self, event: str, **facts: str) -> list[dict[str, Any]]:
        """Return the lines of the log with this event and these facts."""
        found = []
        for line in self.process.output().splitlines():
            with contextlib.suppress(ValueError):
                said = json.loads(line)
                if said.get("event") == event and said.items() >= facts.items():
                    found.append(said)
        return found

    async def line(self, event: str, **facts: str) -> dict[str, Any]:
        """Return the last of these lines, when there is one: a thread writes the log."""
        await until(lambda: bool(self.lines(event, **facts)))
        return self.lines(event, **facts)[-1]

    def _read(self, path: str) -> bytes:
        asked = urllib.request.Request(
            self.url.rstrip("/") + path, headers={"Authorization": f"Bearer {TOKEN}"}
        )
        with urllib.request.urlopen(asked, timeout=BOUND) as answer:
            body: bytes = answer.read()
        return body

    async def state(self) -> Any:
        """Return the state that the dashboard shows."""
        return json.loads(await asyncio.to_thread(self._read, "/api/state"))

    async def found(self, correlation: str) -> Any:
        """Return the events of a correlation id."""
        return json.loads(await asyncio.to_thread(self._read, f"/api/find/{correlation}"))

    async def metric(self, name: str, **labels: str) -> float:
        """Return a metric: the sum of the samples with these labels."""
        text = (await asyncio.to_thread(self._read, "/metrics")).decode()
        total = 0.0
        for said, number in re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", text, re.MULTILINE):
            if all(f'{label}="{value}"' in said for label, value in labels.items()):
                total += float(number)
        return total

    async def calls(self, tool: str) -> list[Any]:
        """Return the calls of a tool on the dashboard."""
        return [one for one in (await self.state())["calls"] if one["name"] == tool]


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(scope="module")
def replicas(redis: RedisServer) -> Iterator[list[Operators]]:
    with contextlib.ExitStack() as stack:
        options = ("--store", redis.url)
        yield [Operators(stack.enter_context(operated(*options, target=APP))) for _ in range(2)]


async def started(
    operators: Operators, era: str, tool: str, **options: Any
) -> tuple[Client | None, Response | None]:
    """Begin a call that does not end soon."""
    port = operators.process.port
    if era == "sessions":
        client = await Client.opened(port, capabilities=ASKABLE, name="raw")
        return client, await client.start(tool)
    params = {"name": tool, "arguments": {}}
    task = asyncio.create_task(sessionless(port, "tools/call", params, capabilities=ASKABLE, **options))
    _TASKS.add(task)
    task.add_done_callback(lambda _: task.cancelled() or task.exception())
    return None, None


_TASKS: set[asyncio.Task[Any]] = set()
"""Requests whose responses have not begun. The end of the test cuts their connections."""


@contextlib.asynccontextmanager
async def recognised(
    operators: Operators, era: str, event: str, tool: str, waits_for: str
) -> AsyncIterator[tuple[Any, Any]]:
    """Begin a call, wait for its warning, and find the same call on the dashboard; yield both."""
    before = len(operators.lines(event))
    client, response = await started(operators, era, tool)
    await until(lambda: len(operators.lines(event)) > before)
    line = operators.lines(event)[-1]
    assert (line["tool"], line["waits_for"]) == (tool, waits_for)
    (shown,) = await operators.calls(tool)
    assert (shown["waits_for"], shown["id"]) == (waits_for, line["call"])
    yield line, shown
    await end(operators, client, response, tool)


@ERAS
@fault_test
async def test_a_hung_call(era: str, replicas: list[Operators]) -> None:
    operators = replicas[0]
    async with recognised(operators, era, "call.slow", "hang", "handler") as (line, shown):
        assert line["client"] == "raw"
        assert shown["age"] >= 1
        assert await operators.metric("limpet_exchange_oldest_seconds", waits_for="handler") >= 1


@ERAS
@fault_test
async def test_an_unanswered_ask(era: str, replicas: list[Operators]) -> None:
    operators = replicas[0]
    async with recognised(operators, era, "ask.unanswered", "interview", "ask"):
        assert await operators.metric("limpet_asks") >= 1
        assert await operators.metric("limpet_exchanges_waiting", waits_for="ask") >= 1


@ERAS
@fault_test
async def test_a_stalled_reader(era: str, replicas: list[Operators]) -> None:
    operators = replicas[0]
    before = len(operators.lines("reader.slow"))
    params = {"name": "flood", "arguments": {}, "_meta": {"progressToken": 1}}
    client: Client | None = None
    if era == "sessions":
        client = await Client.opened(operators.process.port, name="raw")
        response = await client.post({**call(1, "flood"), "params": params})
    else:
        meta = {**metadata(), "progressToken": 1}
        response = await sessionless(
            operators.process.port, "tools/call", {**params, "_meta": meta}, receive_buffer=4_096
        )
    response.connection.stop_reading()
    await until(lambda: len(operators.lines("reader.slow")) > before)
    line = operators.lines("reader.slow")[-1]
    assert (line["tool"], line["waits_for"]) == ("flood", "reader")
    (shown,) = await operators.calls("flood")
    assert (shown["waits_for"], shown["id"]) == ("reader", line["call"])
    assert await operators.metric("limpet_exchanges_waiting", waits_for="reader") == 1
    await end(operators, client, response, "flood")


@fault_test
async def test_a_full_queue(replicas: list[Operators]) -> None:
    operators = replicas[0]
    client = await Client.opened(operators.process.port, name="raw")
    waiting = [asyncio.create_task(client.start("hang")) for _ in range(3)]
    line = await operators.line("queue.full")
    assert (line["running"], line["queued"], line["client"]) == (2, 1, "raw")
    refused = await client.start("hang")
    assert refused.status == 429
    error = (await refused.json())["error"]
    joined = await operators.line("audit.refused", reason="busy")
    assert error["data"]["correlation"] == joined["correlation"]
    (event,) = (await operators.found(joined["correlation"]))["events"]
    assert event["event"] == "audit.refused"

    async def is_shown() -> bool:
        shown = sorted(one["state"] for one in await operators.calls("hang"))
        return shown == ["queued", "running", "running"]

    await until(is_shown)
    assert await operators.metric("limpet_exchanges", state="queued") == 1
    assert await operators.metric("limpet_refusals_total", reason="busy") >= 1
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    await client.delete()


@fault_test
async def test_a_dead_replica(replicas: list[Operators]) -> None:
    living, dead = replicas
    client = await Client.opened(dead.process.port, name="raw")
    response = await client.start("hang")
    assert response.is_stream
    await until(lambda: both_live(living))
    (name,) = {one["name"] for one in (await living.state())["replicas"]} - {
        (await living.state())["replica"]
    }
    dead.process.tell(signal.SIGKILL)
    with contextlib.suppress(Cut):
        await response.answer()
    await until(lambda: bool(living.lines("replica.gone")) and bool(living.lines("exchange.reaped")))
    assert (await living.line("replica.gone"))["name"] == name
    shown = {one["name"]: one["state"] for one in (await living.state())["replicas"]}
    assert shown[name] != "live"
    assert await living.metric("limpet_replicas") == 1
    assert await living.metric("limpet_exchanges_reaped_total") == 1
    # The client finds the end of its call at the other replica, with the id that the log has.
    client.port = living.process.port
    assert response.last_id, "the call had no event: nothing can be resumed"
    resumed = await client.get(response.last_id)
    error = (await resumed.answer())["error"]
    assert error["code"] == -31002
    assert error["data"]["correlation"] == (await living.line("exchange.reaped"))["correlation"]


async def both_live(operators: Operators) -> bool:
    return [one["state"] for one in (await operators.state())["replicas"]] == ["live", "live"]


@fault_test
async def test_a_lost_store(replicas: list[Operators], redis: RedisServer) -> None:
    operators = replicas[0]
    client = await Client.opened(operators.process.port, name="raw")
    redis.stop()
    refused = await client.start("echo", text="x")
    assert refused.status == 503
    error = (await refused.json())["error"]
    await until(lambda: bool(operators.lines("store.unreachable")))
    joined = await operators.line("audit.refused", reason="store")
    assert error["data"]["correlation"] == joined["correlation"]
    assert await operators.metric("limpet_store_unreachable") == 1
    assert await operators.metric("limpet_store_errors_total", error="unavailable") >= 1
    state = await operators.state()
    assert state["counts"]["store failures"] >= 1
    assert [happened for happened in state["events"] if happened["event"] == "store.unreachable"]
    redis.start()


async def end(operators: Operators, client: Client | None, response: Response | None, tool: str) -> None:
    """Cancel a call as an operator does, and wait until it is gone."""
    (shown,) = await operators.calls(tool)
    asked = urllib.request.Request(
        f"{operators.url.rstrip('/')}/api/calls/{shown['id']}/cancel",
        method="POST",
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    await asyncio.to_thread(lambda: urllib.request.urlopen(asked, timeout=BOUND).close())
    if response is not None:
        response.connection.cut()

    async def is_gone() -> bool:
        return not await operators.calls(tool)

    await until(is_gone)
    if client is not None:
        await client.delete()
