"""The charge for messages: by session, caller and process, from their first byte to the end of their handler."""

import asyncio
import gc
from typing import Any, Final

import pytest

from limpet.config import Limits, Settings
from limpet.core.ledger import encoded
from limpet.engine.exchange import Exchange
from limpet.errors import UpstreamUnavailable
from tests.asgi import Call, Peer
from tests.messages import LATEST, initialize, metadata, notification, request
from tests.support import until
from tests.unit.fronts.http.bench import OLDEST, Bench, bench, front_test
from tests.unit.fronts.http.test_auth import Tokens

BIG: Final = 400_000
SMALL: Final = Settings(limits=Limits(memory=5_200_000))
"""Room for two big calls in a session, three of a caller, five in all: each takes its text, and its decoded text."""
KEPT: Final = 50_000
"""More than the sessions of a test take."""
META: Final = metadata(capabilities={"roots": {}})


async def opened(b: Bench, version: str = LATEST, **options: Any) -> Peer:
    """Return a client with a session."""
    peer = b.peer(**options)
    assert (await peer.initialize(version)).status == 200
    return peer


def big(peer: Peer, request_id: int, tool: str = "held", size: int = BIG, **options: Any) -> Call:
    """Begin a call with a big argument."""
    return peer.post(
        request(request_id, "tools/call", {"name": tool, "arguments": {"text": "x" * size}}), **options
    )


def sessionless(peer: Peer, request_id: int, tool: str = "held", size: int = BIG, **more: Any) -> Call:
    """Begin a call of 2026-07-28 with a big argument."""
    params = {"name": tool, "arguments": {"text": "x" * size}, "_meta": META, **more}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool}
    return peer.post(request(request_id, "tools/call", params), headers=headers)


async def running(b: Bench, *calls: Call) -> None:
    """Let calls begin."""
    wanted = len(b.runs) + len(calls)
    await until(lambda: len(b.runs) >= wanted)


async def ended(b: Bench, *calls: Call, kept: int = KEPT) -> None:
    """Let everything end, and see that only sessions and kept answers are charged any more."""
    b.release.set()
    for call in calls:
        assert (await call.done()).status == 200
    await asyncio.sleep(0.001)
    b.back.handled.clear()
    assert b.engine.runtime.load.ledger.used < kept


def refused(call: Call, request_id: int | None = None) -> None:
    """See that a call was refused as busy."""
    assert (call.status, call.headers["retry-after"], call.json["error"]["code"]) == (429, "1", -31001)
    assert call.json.get("id") == request_id
    assert "too large together" in call.json["error"]["message"]


@front_test
async def test_a_session_has_a_share_and_small_calls_fit_beside_it() -> None:
    async with bench(SMALL) as b:
        p = await opened(b)
        calls = [big(p, 1), big(p, 2)]
        await running(b, *calls)
        refused(await big(p, 3).done(), 3)
        assert (await p.call(4).done()).status == 200, "there is room for a small one"
        other = await opened(b)
        calls.append(big(other, 3))
        await running(b, calls[-1])
        await ended(b, *calls)
        assert (await big(p, 5, "quick").done()).status == 200


@front_test
async def test_a_caller_has_a_budget_and_anonymous_ones_count_by_address() -> None:
    async with bench(SMALL, allow_anonymous=True) as b:
        here = [await opened(b) for _ in range(4)]
        calls = [big(peer, 1) for peer in here[:3]]
        await running(b, *calls)
        refused(await big(here[3], 1).done(), 1)
        there = await opened(b, client="10.0.0.7")
        calls.append(big(there, 1))
        await running(b, calls[-1])
        await ended(b, *calls)


@front_test
async def test_a_principal_has_one_budget_at_all_its_addresses() -> None:
    async with bench(SMALL, verifier=Tokens()) as b:
        ann = [await opened(b, token="ann", client=f"10.0.0.{number}") for number in range(4)]
        calls = [big(peer, 1) for peer in ann[:3]]
        await running(b, *calls)
        refused(await big(ann[3], 1).done(), 1)
        refused(await sessionless(b.peer(token="ann"), 1).done(), 1)
        calls.append(sessionless(b.peer(token="bob"), 1))
        await running(b, calls[-1])
        await ended(b, *calls)


@front_test
async def test_a_process_has_a_budget_for_all() -> None:
    async with bench(SMALL, allow_anonymous=True) as b:
        calls = [sessionless(b.peer(client=f"10.0.0.{number}"), 1) for number in range(5)]
        await running(b, *calls)
        refused(await sessionless(b.peer(client="10.0.0.9"), 1).done(), 1)
        await ended(b, *calls)


@front_test
async def test_a_message_of_many_values_is_charged_by_its_decoded_size() -> None:
    async with bench(SMALL) as b:
        p = await opened(b)
        values = p.post(request(1, "tools/call", {"name": "held", "arguments": {"a": [0] * 17_000}}))
        await running(b, values)
        assert b.engine.runtime.load.ledger.used > 17_000 * 90
        refused(await big(p, 2).done(), 2)
        await ended(b, values)


@front_test
async def test_an_answer_passes_when_no_call_does() -> None:
    async with bench(SMALL) as b:
        p = await opened(b)
        asking = big(p, 1, "ask")
        calls = [asking, big(p, 2)]
        await running(b, *calls)
        [ask] = (await asking.until(1)).messages
        roots = {"roots": [{"uri": "file:///" + "x" * BIG}]}
        refused(await big(p, 3).done(), 3)
        answer = await p.post({"jsonrpc": "2.0", "id": ask["id"], "result": roots}).done()
        assert answer.status == 202
        assert (await asking.done()).messages[-1]["result"]["answer"] == roots
        told = notification("notifications/cancelled", {"requestId": 2, "reason": "x" * (BIG // 4)})
        assert (await p.post(told).done()).status == 202
        assert (await calls[1].done()).json["error"]["code"] == -32800
        await ended(b, kept=KEPT + encoded(BIG))


@front_test
async def test_control_traffic_has_a_bound_too() -> None:
    async with bench(SMALL) as b:
        p = await opened(b)
        calls = [big(p, 1), big(p, 2)]
        await running(b, *calls)
        load = b.engine.runtime.load
        slow = p.send("POST", b"{" + b" " * BIG, 5.0, b"}")
        await asyncio.sleep(1.0)
        assert load.ledger.used >= 5 * BIG
        refused(await p.post(notification("notifications/other", {"x": "y" * BIG})).done())
        assert (await slow.done()).status == 400
        assert (await p.post(notification("notifications/other", {"x": "y" * BIG})).done()).status == 202
        await ended(b, *calls)


@front_test
async def test_a_body_is_charged_while_it_comes() -> None:
    async with bench(SMALL) as b:
        p = await opened(b)
        parts = [b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"held","a":"', b"x" * BIG]
        coming = p.send("POST", *parts, 5.0, b'"}}')
        await asyncio.sleep(1.0)
        assert b.engine.runtime.load.ledger.used >= BIG
        await running(b, coming)
        await ended(b, coming)


@pytest.mark.parametrize("body", [b'{"jsonrpc":' + b" " * BIG, b"[" * BIG, b"\xff" * BIG])
@front_test
async def test_an_invalid_message_is_not_charged_for_long(body: bytes) -> None:
    # Before it is decoded, each bracket counts as a value.
    async with bench(Settings(limits=Limits(memory=40_000_000))) as b:
        p = await opened(b)
        for _ in range(5):
            assert (await p.send("POST", body).done()).status == 400
        await ended(b)


@front_test
async def test_a_batch_is_charged_once_and_until_its_last_call_has_ended() -> None:
    async with bench(SMALL) as b:
        p = await opened(b, OLDEST)
        one = request(1, "tools/call", {"name": "held", "arguments": {"text": "x" * BIG}})
        batch = p.post([one, request(2, "tools/call", {"name": "quick"})])
        await running(b, batch, batch)
        assert 2 * BIG < b.engine.runtime.load.ledger.used < 3 * BIG
        second = big(p, 3)
        await running(b, second)
        over = await p.post([request(4, "tools/call", {"name": "quick", "a": "x" * BIG})]).done()
        refused(over)
        await ended(b, batch, second)


@front_test
async def test_a_batch_whose_stream_was_cut_is_charged_no_longer_than_its_handlers_run() -> None:
    async with bench(SMALL) as b:
        p = await opened(b, OLDEST)
        one = request(1, "tools/call", {"name": "held", "arguments": {"text": "x" * BIG}})
        batch = p.post([one, request(2, "tools/call", {"name": "held"})])
        gc.disable()
        try:
            await asyncio.sleep(1)
            assert batch.is_stream
            await batch.cut()
            b.release.set()
            await asyncio.sleep(1)
            b.back.handled.clear()
            assert b.engine.runtime.load.ledger.used < KEPT, "nothing waits for the garbage collector"
        finally:
            gc.enable()


@front_test
async def test_a_call_whose_connection_was_cut_is_charged_until_its_handler_has_ended() -> None:
    async with bench(SMALL) as b:
        p = await opened(b)
        calls = [big(p, 1), big(p, 2)]
        await running(b, *calls)
        for call in calls:
            await call.cut()
        assert b.engine.runtime.load.ledger.used > 4 * BIG
        refused(await big(p, 3).done(), 3)
        await ended(b)


@front_test
async def test_a_cancelled_call_is_charged_until_its_handler_has_really_ended() -> None:
    cleaned = asyncio.Event()

    async def slow(_exchange: object) -> object:
        try:
            await asyncio.Event().wait()
        finally:
            await cleaned.wait()
        return {}

    async with bench(SMALL) as b:
        b._slow = slow  # type: ignore[attr-defined]
        p = await opened(b)
        call = big(p, 1, "slow")
        await running(b, call)
        await p.post(notification("notifications/cancelled", {"requestId": 1})).done()
        assert (await call.done()).json["error"]["code"] == -32800
        assert b.engine.runtime.load.ledger.used > BIG
        cleaned.set()
        await ended(b)


@front_test
async def test_a_parked_call_is_charged_and_its_retry_passes() -> None:
    async with bench(SMALL) as b:
        p = b.peer()
        calls = [sessionless(p, number) for number in (1, 2)]
        asking = sessionless(p, 3, "ask")
        await running(b, *calls, asking)
        parked = (await asking.done()).json["result"]
        load = b.engine.runtime.load
        assert load.ledger.used > 6 * BIG, "its arguments are kept while it waits"
        refused(await sessionless(p, 4).done(), 4)
        answers = {key: {"roots": [{"uri": "file:///x"}]} for key in parked["inputRequests"]}
        retry = sessionless(p, 5, "ask", requestState=parked["requestState"], inputResponses=answers)
        assert (await retry.done()).json["result"]["tool"] == "ask"
        del asking, retry
        await asyncio.sleep(0.001)
        assert load.ledger.used < 5 * BIG, "and free when it has ended, although its result is kept"
        await ended(b, *calls)


@front_test
async def test_a_call_that_continues_after_its_retry_is_charged_for_its_first_request() -> None:
    async with bench(SMALL) as b:

        async def twice(exchange: Exchange) -> object:
            await exchange.ask("roots/list", {})
            await exchange.ask("roots/list", {})
            await b.release.wait()
            return {"tool": "twice"}

        b._twice = twice  # type: ignore[attr-defined]
        p, load = b.peer(), b.engine.runtime.load
        asking = await sessionless(p, 1, "twice").done()
        others = [sessionless(p, number) for number in (2, 3)]
        await running(b, *others)
        for number in (4, 5):
            parked = asking.json["result"]
            answers: dict[str, Any] = {key: {"roots": []} for key in parked["inputRequests"]}
            retry = {"requestState": parked["requestState"], "inputResponses": answers}
            asking = sessionless(p, number, "twice", **retry)
            if number == 4:
                await asking.done()
                assert load.ledger.used < 7 * BIG, "the message of a retry is free when its call waits again"
        await asyncio.sleep(0.001)
        assert load.ledger.used > 6 * BIG
        await ended(b, asking, *others)


@front_test
async def test_a_request_of_2026_with_too_large_client_info_is_refused() -> None:
    async with bench(SMALL) as b:
        meta = {**META, "io.modelcontextprotocol/clientInfo": {"name": "x" * 20_000}}
        params = {"name": "quick", "_meta": meta}
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "quick"}
        call = await b.peer().post(request(1, "tools/call", params), headers=headers).done()
        assert (call.status, call.json["error"]["code"]) == (400, -32602)
        await ended(b)


@front_test
async def test_a_refused_session_is_not_charged_while_something_keeps_its_error() -> None:
    kept = UpstreamUnavailable("Busy: the server behind this one cannot be reached")

    async def refuse(*_: object) -> Any:
        raise kept

    async with bench() as b:
        await opened(b)
        before = b.engine.load.ledger.used
        b.back.initialize = refuse  # type: ignore[assignment, method-assign]
        params = {**initialize(), "capabilities": {"experimental": {"text": {"x": "x" * 10_000}}}}
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                call = await b.peer().post(request(1, "initialize", params)).done()
                assert call.status == 503
                del call
            await asyncio.sleep(1)
            assert b.engine.load.ledger.used == before
        finally:
            gc.enable()
