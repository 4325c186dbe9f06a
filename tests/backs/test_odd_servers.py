"""Real servers with bad habits behind a URL and as programs: each failure has its answer, and the next call works."""

import asyncio
import contextlib
import functools
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import pytest

from limpet import McpError, Process, Remote
from limpet.client import Client
from limpet.engine.caller import Caller
from limpet.errors import INTERNAL_ERROR, INVALID_REQUEST, OUTCOME_UNKNOWN
from limpet.options import ProxyOptions
from limpet.testing import NotingObserver
from limpet.transports.loops import new_loop
from limpet.upstream.settings import ClientLimits, ClientTimes
from tests.backs.odd_http import OddHttp
from tests.duplex import DuplexClient
from tests.support import BOUND, async_test, until

ODD: Final = [sys.executable, str(Path(__file__).parent / "odd.py")]
BACKS: Final = ("program", "url")
ERAS: Final = ("sessions", "sessionless")
ANSWERED: Final = f"answered {INVALID_REQUEST}"
QUICK: Final = ClientTimes(backoff=(0.01, 0.05), probe=2.0)
Test = Callable[[Process | Remote], Awaitable[None]]


@contextlib.asynccontextmanager
async def odd(back: str, **options: Any) -> AsyncIterator[Process | Remote]:
    """Yield the odd server behind this back."""
    limits = ClientLimits(message=options.pop("message", 1_000_000))
    given: dict[str, Any] = {"limits": limits, "times": QUICK, **options}
    if back == "program":
        yield Process(ODD, **given)
        return
    async with OddHttp() as url:
        yield Remote(url, **given)


def over(test: Callable[..., Any]) -> Any:
    """Run a test over each back."""

    @pytest.mark.parametrize("back", BACKS)
    def run(back: str) -> None:
        @async_test
        async def inner() -> None:
            await test(back)

        inner()

    run.__name__ = test.__name__
    return run


async def received(client: Client) -> list[str]:
    said: list[str] = json.loads((await client.call_tool("received")).text)
    return said


@over
async def test_a_silent_server_costs_one_error_and_its_late_answer_is_dropped(back: str) -> None:
    options = ProxyOptions(call_seconds=1.0)
    async with odd(back, options=options) as server, Client(server, protocol_version="sessions") as client:
        for _ in range(2):
            with pytest.raises(McpError, match="silent for 1 s") as failed:
                await client.call_tool("silent")
            assert failed.value.code == OUTCOME_UNKNOWN
            assert (await client.call_tool("say")).text == "said"
        await until(lambda: _has(client, "notifications/cancelled"))
        assert (await client.call_tool("say")).text == "said"


async def _has(client: Client, method: str) -> bool:
    return method in await received(client)


@over
async def test_a_late_answer_after_the_cancellation_of_the_client_is_dropped(back: str) -> None:
    async with odd(back) as server, Client(server, protocol_version="sessions") as client:
        call = asyncio.ensure_future(client.call_tool("silent"))

        async def runs() -> bool:
            return (await received(client)).count("tools/call") >= 2

        await until(runs)
        call.cancel()
        await until(lambda: _has(client, "notifications/cancelled"))
        assert call.cancelled()
        for _ in range(3):
            assert (await client.call_tool("say")).text == "said"


@pytest.mark.parametrize(("back", "tool"), [("program", "big"), ("url", "big"), ("url", "big_body")])
@async_test
async def test_a_response_over_the_limit_ends_its_own_call_at_once_and_no_other(back: str, tool: str) -> None:
    async with odd(back, message=20_000) as server, Client(server, protocol_version="sessions") as client:
        other = asyncio.ensure_future(client.call_tool("silent"))
        await until(lambda: _has(client, "tools/call"))
        with pytest.raises(McpError, match="cannot be read") as failed:
            await client.call_tool(tool, {"size": 100_000})
        assert failed.value.code == INTERNAL_ERROR
        assert len((await client.call_tool(tool, {"size": 10_000})).text) == 10_000
        assert not other.done()
        other.cancel()


@async_test
async def test_a_program_that_does_not_read_its_input_costs_one_error_for_each_call_and_is_stopped() -> None:
    async with odd("program", options=ProxyOptions(call_seconds=2.0)) as server:
        async with Client(server, protocol_version="sessions") as client:
            pid = int((await client.call_tool("pid")).text)
            assert (await client.call_tool("deaf")).text == "deaf from now on"
            calls = [client.call_tool("say", {"pad": "x" * 100_000}) for _ in range(10)]
            failures = await asyncio.gather(*calls, return_exceptions=True)
            assert {getattr(failure, "code", failure) for failure in failures} == {OUTCOME_UNKNOWN}
        await until(lambda: not Path(f"/proc/{pid}").exists())


def on_the_loop_of_serve(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test on the event loop of `limpet serve`, which starts programs in another way than asyncio."""

    @functools.wraps(test)
    def run() -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(asyncio.wait_for(test(), BOUND))

    return run


@on_the_loop_of_serve
async def test_a_program_that_closes_its_output_and_lives_on_costs_its_calls_and_is_started_again() -> None:
    async with odd("program") as server, Client(server, protocol_version="sessions") as client:
        pid = int((await client.call_tool("pid")).text)
        calls = [client.call_tool("silent"), client.call_tool("close_output")]
        for failure in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(failure, McpError)
            assert failure.code == OUTCOME_UNKNOWN
            assert "the server closed the connection during tools/call" in failure.message
        assert (await client.call_tool("say")).text == "said"
        assert not Path(f"/proc/{pid}").exists()


@on_the_loop_of_serve
async def test_a_program_that_closes_its_input_and_lives_on_costs_one_call_and_is_started_again() -> None:
    async with odd("program") as server, Client(server, protocol_version="sessions") as client:
        pid = int((await client.call_tool("pid")).text)
        assert (await client.call_tool("close_input")).text == "closed"
        with pytest.raises(McpError, match="no longer reads") as failed:
            await client.call_tool("say")
        assert failed.value.code == OUTCOME_UNKNOWN
        assert (await client.call_tool("say")).text == "said"
        assert not Path(f"/proc/{pid}").exists()


async def _flood(server: Process | Remote, number: int) -> list[Any]:
    """Return the messages of a flood that a client receives if it reads late."""
    await server.engine.ensure_started()
    client = DuplexClient(server.engine, Caller(""))
    await client.open()
    client.reading.clear()
    arguments = {"n": number, "size": 100}
    flood = asyncio.ensure_future(client.say("tools/call", 1, name="flood", arguments=arguments))
    await until(lambda: client.writes_waiting > 0)
    await asyncio.wait(
        {flood}, timeout=0.3
    )  # real time is the subject: the flood continues while no message is read
    client.reading.set()
    await client.answer(1)
    await server.engine.aclose()
    return [message for message in client.received if message.get("id") != 0]


@async_test
async def test_a_flood_of_a_program_is_bounded_and_the_client_reads_how_many_messages_are_missing() -> None:
    async with odd("program") as server:
        *logs, result = await _flood(server, 6_000)
    data = [message["params"]["data"] for message in logs]
    numbers = [int(text.split()[0]) for text in data if not text.endswith("than this client reads")]
    missing = sum(int(text.split()[0]) for text in data if text.endswith("than this client reads"))
    assert result["result"]["content"][0]["text"] == "flooded"
    assert numbers == sorted(set(numbers))
    assert missing > 0
    assert len(numbers) + missing == 6_000


@async_test
async def test_a_flood_behind_a_url_waits_for_the_client_and_loses_nothing() -> None:
    async with odd("url") as server:
        *logs, result = await _flood(server, 6_000)
    assert [int(message["params"]["data"].split()[0]) for message in logs] == list(range(6_000))
    assert result["result"]["content"][0]["text"] == "flooded"


def accept(_asked: object) -> dict[str, Any]:
    return {"action": "accept", "content": {}}


@async_test
async def test_a_question_of_a_program_outside_of_any_call_is_refused_for_a_client_without_a_session() -> (
    None
):
    notes = NotingObserver()
    server = Process(ODD, observer=notes)
    async with Client(server, protocol_version="sessionless", elicitation=accept) as client:
        assert (await client.call_tool("ask_later")).text == "asked"
        # No call may follow before the question has come: it would be the only one that the question can belong to.
        await until(lambda: [facts["line"] for facts in notes.named("upstream.stderr")] == [ANSWERED])


@async_test
async def test_a_question_on_the_standalone_stream_is_refused_for_a_client_without_a_session() -> None:
    asking = OddHttp()
    async with (
        asking as url,
        Client(Remote(url), protocol_version="sessionless", elicitation=accept) as client,
    ):
        assert (await client.call_tool("say")).text == "said"
        asking.ask()
        await until(lambda: str(INVALID_REQUEST) in asking.received)


@async_test
async def test_a_question_of_a_url_server_ends_with_its_call() -> None:
    asking, asked = OddHttp(), asyncio.Event()

    async def never(_asked: object) -> dict[str, Any]:
        asked.set()
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async with (
        asking as url,
        Client(Remote(url), protocol_version="sessions", elicitation=never) as client,
    ):
        call = asyncio.create_task(client.call_tool("ask"))
        await asked.wait()
        call.cancel()
        await until(lambda: str(INVALID_REQUEST) in asking.received)


@async_test
async def test_an_invalid_request_of_a_url_server_is_refused_on_each_kind_of_stream() -> None:
    asking = OddHttp()
    async with (
        asking as url,
        Client(Remote(url), protocol_version="sessions", elicitation=accept) as client,
    ):
        assert (await client.call_tool("ask_wrongly")).text == str(INVALID_REQUEST)
        asking.standalone.put_nowait({"id": "odd", "method": "elicitation/create"})
        await until(lambda: asking.received.count(str(INVALID_REQUEST)) == 2)


@async_test
async def test_a_stream_that_is_cut_before_the_answer_and_cannot_be_resumed_is_one_error() -> None:
    for era in ERAS:
        async with odd("url") as server, Client(server, protocol_version=era) as client:
            with pytest.raises(McpError) as failed:
                await client.call_tool("cut")
            assert failed.value.code == OUTCOME_UNKNOWN
            assert (await client.call_tool("say")).text == "said"


@async_test
async def test_two_sessions_of_a_shared_program_that_subscribe_to_one_uri_send_one_subscription() -> None:
    async with odd("program", shared=True) as server, aclosing(server.engine):
        await server.engine.ensure_started()
        async with (
            Client(server, protocol_version="sessions") as one,
            Client(server, protocol_version="sessions") as two,
        ):
            async with one.listen(resources=["odd://one"]), two.listen(resources=["odd://one"]):
                assert (await received(one)).count("resources/subscribe") == 1
            assert (await received(two)).count("resources/unsubscribe") == 1


@async_test
async def test_a_starter_that_crashes_leaves_no_process_also_if_no_other_call_comes() -> None:
    logs: list[str] = []
    async with (
        odd("program") as server,
        Client(
            server, protocol_version="sessions", on_log=lambda message: logs.append(message["data"])
        ) as client,
    ):
        with pytest.raises(McpError, match="left"):
            await client.call_tool("leave")
        await until(lambda: bool(logs))
        await until(lambda: not _is_alive(int(logs[0])))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
