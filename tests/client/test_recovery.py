"""Recovery from lost sessions, restarts, refusals, redirects and changes of era, each alone, on real sockets."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, Final

import pytest
from msgspec.structs import replace

from limpet import Client
from limpet.client import ClientTimes
from limpet.errors import HttpRefused, McpError, NotSent, OutcomeUnknown, Unauthorized, VersionRefused
from limpet.upstream.negotiation import EraMemory
from tests.client.servers import SERVE, has_begun, listening, peer_command
from tests.client.torture import (
    Exchange,
    Mischief,
    Torture,
    busy,
    cut_after,
    cut_and_resume,
    cut_before,
    half_open,
    plain,
)
from tests.support import BOUND, async_test, until
from tools.ports import free_port

TIMES: Final = ClientTimes(patience=10.0, settle=BOUND, backoff=(0.005, 0.1))


@asynccontextmanager
async def against(
    *, is_modern: bool = False, times: ClientTimes = TIMES, **options: Any
) -> AsyncIterator[tuple[Torture, Client]]:
    server = Torture(1, is_modern=is_modern, mischief=0.0)
    client = Client(await server.start(), times=times, timeout=BOUND, eras=EraMemory(), **options)
    try:
        async with client:
            yield server, client
    finally:
        await server.aclose()


async def say(client: Client, token: str, **options: Any) -> str:
    return (await client.call_tool("echo", {"token": token}, **options)).text


@async_test
async def test_a_lost_session_is_opened_again_once_for_all_calls_with_its_log_level_and_subscriptions() -> (
    None
):
    async with against() as (server, client):
        await client.set_log_level("warning")
        async with client.listen(resources=["a://b"]) as changes:
            server.sessions.clear()
            texts = await asyncio.gather(*(say(client, str(number)) for number in range(20)))
            assert texts == [str(number) for number in range(20)]
            assert server.opened == 2
            restored = {method for session, method in server.heard if session == "session-2"}
            assert restored == {"logging/setLevel", "resources/subscribe"}
            assert (await anext(changes)).missed
        assert set(server.executed.values()) == {1}


@async_test
async def test_a_call_in_flight_when_the_session_is_lost_raises_outcome_unknown() -> None:
    """Trap 46: it is not sent again in the new session."""
    async with against(times=replace(TIMES, settle=0.1)) as (server, client):
        server.script.append(half_open)
        under_way = asyncio.create_task(say(client, "under way"))
        await until(lambda: bool(server.executed))
        server.sessions.clear()
        assert await say(client, "next") == "next"
        with pytest.raises(OutcomeUnknown, match="It is unknown whether tools/call was executed"):
            await under_way
        assert server.executed == {"under way": 1, "next": 1}


@pytest.mark.parametrize("is_modern", [False, True])
@async_test
async def test_a_call_whose_outcome_is_unknown_is_repeated_only_if_it_may_be(is_modern: bool) -> None:
    async with against(is_modern=is_modern, repeat_safe=True) as (server, client):
        server.script.extend([cut_after, cut_after, plain, cut_after, plain, cut_after])
        with pytest.raises(OutcomeUnknown):
            await say(client, "once")
        assert await say(client, "marked", idempotent=True) == "marked"
        await client.list_tools()
        assert (await client.call_tool("look", {"token": "annotated"})).text == "annotated"
        with pytest.raises(OutcomeUnknown):
            await client.call_tool("echo", {"token": "not annotated"})
    assert server.executed == {"once": 1, "marked": 2, "annotated": 2, "not annotated": 1}


@async_test
async def test_annotations_alone_do_not_allow_a_repeat() -> None:
    async with against() as (server, client):
        server.script.append(cut_after)
        await client.list_tools()
        with pytest.raises(OutcomeUnknown):
            await client.call_tool("look", {"token": "read only"})
        assert server.executed["read only"] == 1


@async_test
async def test_one_calls_failure_ends_that_call_only() -> None:
    async with against() as (server, client):
        server.script.extend([cut_before, cut_and_resume, plain, plain])
        ends = await asyncio.gather(*(say(client, str(n)) for n in range(4)), return_exceptions=True)
        assert sorted(type(end).__name__ for end in ends) == ["OutcomeUnknown", "str", "str", "str"]
        assert server.opened == 1


@async_test
async def test_a_server_that_is_down_for_a_moment_is_waited_for_and_one_that_stays_down_is_not() -> None:
    port = free_port()
    command = [*peer_command("mcp2"), str(port)]
    with listening(command, port) as url:
        patient = Client(
            url, times=ClientTimes(patience=BOUND, backoff=(0.05, 0.2)), protocol_version="sessions"
        )
        hasty = Client(url, times=ClientTimes(patience=0.3, backoff=(0.05, 0.2)), protocol_version="sessions")
        await patient.__aenter__()
        await hasty.__aenter__()
        assert (await patient.call_tool("echo", {"text": "before"})).text == "before"
    try:
        with pytest.raises(NotSent, match="cannot connect"):
            await hasty.call_tool("echo", {"text": "down"}, idempotent=True)
        waiting = asyncio.create_task(patient.call_tool("echo", {"text": "again"}, idempotent=True))
        await asyncio.sleep(0.3)  # real time is the subject: several attempts to connect must fail
        with listening(command, port):
            assert (await waiting).text == "again"
    finally:
        await patient.aclose()
        await hasty.aclose()


@async_test
async def test_a_busy_server_is_given_the_time_it_asks_for() -> None:
    async def later(exchange: Exchange) -> None:
        await exchange.send(503, retry_after="1", limpet_refused="not-executed")

    async with against() as (server, client):
        server.script.extend([busy, later])
        started = time.monotonic()
        assert await say(client, "patient") == "patient"
        assert 1.0 <= time.monotonic() - started < 20
        assert server.executed["patient"] == 1


def executed_and_then(status: int, **headers: str) -> Mischief:
    """The server executes the call and dies before its answer; the balancer in front of it says so."""

    async def reset(exchange: Exchange) -> None:
        _ = exchange.answer
        await exchange.send(status, b"upstream connect error or disconnect/reset before headers", **headers)

    return reset


@pytest.mark.parametrize("status", [429, 502, 503, 504])
@pytest.mark.parametrize("is_modern", [False, True])
@async_test
async def test_a_balancers_refusal_does_not_say_that_a_call_was_not_executed(
    status: int, is_modern: bool
) -> None:
    async with against(is_modern=is_modern) as (server, client):
        server.script.append(executed_and_then(status, retry_after="0"))
        with pytest.raises(OutcomeUnknown, match=f"HTTP {status}"):
            await say(client, "transfer")
        assert server.executed["transfer"] == 1
        server.script.append(executed_and_then(status, retry_after="0"))
        assert await say(client, "safe", idempotent=True) == "safe"
        assert server.executed["safe"] == 2


@async_test
async def test_a_repeatable_request_waits_for_a_balancer_as_long_as_for_our_own_server() -> None:
    async with against() as (server, client):
        server.script.extend([executed_and_then(503, retry_after="0")] * 6)
        assert await say(client, "safe", idempotent=True) == "safe"
        assert server.executed["safe"] == 7


@async_test
async def test_one_attempt_in_doubt_makes_the_whole_call_doubtful() -> None:
    async def later(exchange: Exchange) -> None:
        await exchange.send(503, retry_after="60", limpet_refused="not-executed")

    async with against() as (server, client):
        server.script.extend([cut_after, later])
        with pytest.raises(OutcomeUnknown) as unknown:
            await say(client, "safe", idempotent=True)
        assert server.executed["safe"] == 1
        assert unknown.value.__cause__ is not None, (
            "`mask_errors` hides the texts of errors that have a cause"
        )


@async_test
async def test_a_probe_that_a_balancer_refuses_does_not_decide_the_servers_era() -> None:
    server = Torture(1, is_modern=True, mischief=0.0)
    server.probe = replying(503, b"no healthy upstream")
    url, eras = await server.start(), EraMemory()
    with pytest.raises(NotSent, match="HTTP 503"):
        await Client(url, eras=eras, times=TIMES).__aenter__()
    assert not server.opened
    server.probe = None
    async with aclosing(server), Client(url, eras=eras, times=TIMES) as client:
        assert client.agreed.is_sessionless


@async_test
async def test_a_refused_token_is_asked_for_again_once() -> None:
    tokens = iter(["old", "new", "new", "new", "new", "new"])
    server = Torture(1, is_modern=True, mischief=0.0)
    server.token = "new"
    async with aclosing(server):
        url = await server.start()
        async with Client(url, auth=lambda: next(tokens), eras=EraMemory()) as client:
            assert await say(client, "in") == "in"
        with pytest.raises(Unauthorized) as refused:
            await Client(url, auth="wrong", eras=EraMemory()).__aenter__()
        assert refused.value.status == 401
        assert server.executed == {"in": 1}


@pytest.mark.parametrize(
    ("status", "where", "auth", "is_followed"),
    [
        (307, "/mcp", None, True),
        (308, "/mcp", None, True),
        (307, "/mcp", "secret", False),
        (302, "/mcp", None, False),
        (307, "http://127.0.0.2:1/mcp", None, False),
    ],
)
@async_test
async def test_a_redirect_is_followed_only_to_the_same_origin_and_without_credentials(
    status: int, where: str, auth: str | None, is_followed: bool
) -> None:
    async def moved(exchange: Exchange) -> None:
        await exchange.send(status, location=where)

    async with against(auth=auth) as (server, client):
        server.script.append(moved)
        if is_followed:
            assert await say(client, "moved") == "moved"
        else:
            with pytest.raises(HttpRefused, match="redirects to"):
                await say(client, "moved")
        assert server.executed["moved"] == is_followed


@async_test
async def test_a_list_is_asked_for_again_only_when_its_hint_has_run_out_or_it_changed() -> None:
    async with against(is_modern=True) as (server, client):
        for fresh in (False, False, True):
            assert [tool.name for tool in await client.list_tools(fresh=fresh)] == ["echo", "look"]
        assert [method for _, method in server.heard] == ["tools/list", "tools/list"]


# Eras


def replying(status: int, body: bytes = b"") -> Mischief:
    async def reply(exchange: Exchange) -> None:
        await exchange.send(status, body.replace(b"ID", str(exchange.message["id"]).encode()))

    return reply


def error(code: int, data: bytes = b"null", id_: bytes = b"ID") -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"error":{"code":%d,"message":"no","data":%b}}' % (id_, code, data)


LEGACY_ANSWERS: Final = {
    "400 and no body": replying(400),
    "400 and text": replying(400, b"Bad Request: Server not initialized"),
    "400 and -32600": replying(400, error(-32600)),
    "400 and -32000 without an id": replying(400, error(-32000, id_=b"null")),
    "404": replying(404),
    "404 and -32601": replying(404, error(-32601)),
    "405": replying(405),
    "406": replying(406),
    "415": replying(415),
    "422 and JSON": replying(422, b'{"detail":"nope"}'),
    "500": replying(500),
    "200 and -32601": replying(200, error(-32601)),
    "200 and -32602": replying(200, error(-32602)),
    "200 and a page": replying(200, b"<html></html>"),
    "200 and an empty result": replying(200, b'{"jsonrpc":"2.0","id":ID,"result":{}}'),
    "202": replying(202),
    "a cut": cut_before,
    "only our older versions": replying(400, error(-32022, b'{"supported":["2025-11-25"]}')),
}


@pytest.mark.parametrize("answer", LEGACY_ANSWERS)
@async_test
async def test_every_answer_that_is_not_from_a_2026_server_makes_the_client_send_initialize(
    answer: str,
) -> None:
    server = Torture(1, is_modern=False, mischief=0.0)
    server.probe = LEGACY_ANSWERS[answer]
    eras = EraMemory()
    url = await server.start()
    async with Client(url, eras=eras, times=TIMES) as client:
        assert client.agreed.version == "2025-11-25"
        assert await say(client, "old") == "old"
    server.probe = replying(500, b"not asked again")
    async with aclosing(server), Client(url, eras=eras, times=TIMES) as client:
        assert client.agreed.version == "2025-11-25"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (error(-32022, b'{"supported":["1999-01-01"]}'), VersionRefused),
        (error(-32020), McpError),
        (error(-32021, b'{"requiredCapabilities":{}}'), McpError),
    ],
)
@async_test
async def test_a_modern_servers_refusal_is_not_treated_as_an_old_server(
    body: bytes, kind: type[Exception]
) -> None:
    server = Torture(1, is_modern=False, mischief=0.0)
    server.probe = replying(400, body)
    async with aclosing(server):
        with pytest.raises(kind):
            await Client(await server.start(), eras=EraMemory()).__aenter__()
        assert server.opened == 0


@async_test
async def test_a_pinned_era_is_the_only_one_tried() -> None:
    server = Torture(1, is_modern=False, mischief=0.0)
    async with aclosing(server):
        url = await server.start()
        with pytest.raises(VersionRefused):
            await Client(url, protocol_version="sessionless").__aenter__()
        assert server.opened == 0
        with pytest.raises(VersionRefused):
            await Client(url, protocol_version="2025-03-26").__aenter__()


# Against Limpet itself


@pytest.mark.parametrize("era", ["sessions", "sessionless"])
@async_test
async def test_a_subscription_continues_after_the_server_was_killed_and_started_again(era: str) -> None:
    port = free_port()
    command = [*SERVE, "--http", f"127.0.0.1:{port}"]
    times = ClientTimes(patience=20.0, backoff=(0.02, 0.2))
    async with AsyncExitStack() as opened:
        with listening(command, port) as url:
            client = await opened.enter_async_context(Client(url, protocol_version=era, times=times))
            changes = client.listen(tools=True, resources=["small://thing"])
            await opened.enter_async_context(aclosing(changes))
            await changes.start()
        with listening(command, port):
            # Twice: a call may meet a connection that died with the server.
            await client.call_tool("echo", {"text": "again"}, idempotent=True)
            missed = {await anext(changes), await anext(changes)}
            assert {(change.kind, change.missed) for change in missed} == {
                ("tools", True),
                ("resource", True),
            }
            seen: set[str] = set()
            while seen != {"tools", "resource"}:
                await client.call_tool("change")
                async with asyncio.timeout(BOUND):
                    change = await anext(changes)
                if not change.missed:
                    seen.add(change.kind)


@async_test
async def test_a_child_that_died_is_started_again_and_its_calls_end_with_its_stderr() -> None:
    async with Client([*SERVE, "--stdio"], times=TIMES, protocol_version="sessions") as client:
        assert (await client.call_tool("echo", {"text": "one"})).text == "one"
        waiting = asyncio.create_task(client.call_tool("wait", {"name": "x", "seconds": 60}))
        await has_begun(client, "x")
        child = client._connector.child  # type: ignore[attr-defined]
        assert child is not None
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(OutcomeUnknown, match="closed the connection during tools/call"):
            await waiting
        assert (await client.call_tool("echo", {"text": "two"})).text == "two"
