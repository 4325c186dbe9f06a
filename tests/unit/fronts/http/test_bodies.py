"""The body of a POST: its size, its speed, and its messages."""

import asyncio

import pytest

from limpet.config import Limits, Settings
from limpet.testing.store.limits import tight
from tests.asgi import Peer
from tests.messages import LATEST, notification, request
from tests.unit.fronts.http.bench import MIDDLE, Bench, bench, front_test

SMALL = Settings(limits=Limits(body=1_000, body_seconds=30.0, depth=10))


async def opened(b: Bench, version: str = LATEST) -> Peer:
    """Return a client with a session."""
    peer = b.peer()
    assert (await peer.initialize(version)).status == 200
    return peer


def padded(size: int) -> bytes:
    """Return a ping of exactly so many bytes."""
    start = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"pad":"'
    return start + b"x" * (size - len(start) - 3) + b'"}}'


@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize(("size", "status"), [(1_000, 200), (1_001, 413)])
@front_test
async def test_a_body_over_the_limit_gets_413_in_any_framing(size: int, status: int, parts: int) -> None:
    async with bench(SMALL) as b:
        p = await opened(b)
        body = padded(size)
        step = -(-size // parts)
        call = await p.send("POST", *(body[start : start + step] for start in range(0, size, step))).done()
        assert call.status == status
        if status == 413:
            assert "1000 bytes" in call.json["error"]["message"]
            assert "id" not in call.json


@pytest.mark.parametrize("length", ["1001", "9" * 40])
@front_test
async def test_a_body_whose_content_length_is_too_large_is_not_read(length: str) -> None:
    async with bench(SMALL) as b:
        p = await opened(b)
        call = await p.send("POST", 1_000.0, b"", headers={"content-length": length}).done()
        assert call.status == 413
        assert asyncio.get_running_loop().time() < 1


@front_test
async def test_a_length_at_the_limit_is_fine() -> None:
    async with bench(SMALL) as b:
        p = await opened(b)
        assert (await p.send("POST", padded(1_000), headers={"content-length": "1000"}).done()).status == 200


@front_test
async def test_a_body_whose_first_byte_never_arrives_gets_408() -> None:
    async with bench(SMALL) as b:
        p = await opened(b)
        before = asyncio.get_running_loop().time()
        call = await p.send("POST", 1_000.0, b"{").done()
        assert call.status == 408
        assert asyncio.get_running_loop().time() - before == pytest.approx(30)


@front_test
async def test_a_body_that_drips_gets_408() -> None:
    async with bench(SMALL) as b:
        p = await opened(b)
        parts: list[bytes | float] = [b"{"]
        for _ in range(100):
            parts += [1.0, b" "]
        before = asyncio.get_running_loop().time()
        call = await p.send("POST", *parts).done()
        assert call.status == 408
        assert asyncio.get_running_loop().time() - before == pytest.approx(30)
        assert "30 s" in call.json["error"]["message"]


@front_test
async def test_a_body_that_comes_slowly_but_in_time_is_served() -> None:
    async with bench(SMALL) as b:
        p = await opened(b)
        body = padded(200)
        assert (await p.send("POST", body[:50], 14.0, body[50:99], 14.0, body[99:]).done()).status == 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}', -32700),
        (b"{}", -32600),
        (b"null", -32600),
        (b'"ping"', -32600),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"METHOD":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":18446744073709551616,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 11 + b"]" * 11 + b"}", -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
    ],
)
@front_test
async def test_an_invalid_message_gets_400_and_a_code(body: bytes, code: int) -> None:
    async with bench(SMALL) as b:
        p = await opened(b)
        call = await p.send("POST", body).done()
        assert (call.status, call.json["error"]["code"]) == (400, code)
        assert "Traceback" not in call.body.decode()


@front_test
async def test_the_id_of_a_malformed_request_is_echoed_where_it_can_be_read() -> None:
    async with bench() as b:
        p = await opened(b)
        assert (await p.send("POST", b'{"jsonrpc":"1.0","id":"a","method":"ping"}').done()).json["id"] == "a"
        assert "id" not in (await p.send("POST", b"{").done()).json


# Control traffic


@front_test
async def test_notifications_get_202_without_a_body_and_reach_the_back() -> None:
    async with bench() as b:
        p = await opened(b)
        call = await p.post(notification("notifications/roots/list_changed", {"a": 1})).done()
        assert (call.status, call.body) == (202, b"")
        await asyncio.sleep(0)
        assert b.back.notified == [("notifications/roots/list_changed", {"a": 1})]


@front_test
async def test_a_different_second_answer_is_refused_and_one_that_is_late_unknown_or_foreign_is_dropped() -> (
    None
):
    async with bench() as b:
        p, other = await opened(b), await opened(b)
        call = await p.call(1, "ask").until(1)
        ask = call.messages[0]["id"]
        answer = {"jsonrpc": "2.0", "id": ask, "result": {"roots": [1]}}
        assert (await other.post({**answer, "result": {"roots": [3]}}).done()).status == 202
        assert not call.task.done()
        first, again = p.post(answer), p.post(answer)
        different = p.post({**answer, "result": {"roots": [2]}})
        assert [(await sent.done()).status for sent in (first, again, different)] == [202, 202, 400]
        assert different.json["error"]["code"] == -32600
        await call.done()
        assert call.messages[-1]["result"]["answer"] == {"roots": [1]}
        late, other_late = p.post(answer), p.post({**answer, "result": {"roots": [2]}})
        assert [(await sent.done()).status for sent in (late, other_late)] == [202, 400]
        unknown = await p.post({**answer, "id": "never.asked"}).done()
        assert (unknown.status, unknown.body) == (202, b"")
        unreadable = {"jsonrpc": "2.0", "id": ask, "result": {}, "error": {"code": 1, "message": "m"}}
        assert (await p.post(unreadable).done()).status == 400, "a malformed answer"


@front_test
async def test_an_error_is_an_answer_too() -> None:
    async with bench() as b:
        p = await opened(b)
        call = await p.call(1, "ask").until(1)
        refusal = {"jsonrpc": "2.0", "id": call.messages[0]["id"], "error": {"code": -1, "message": "no"}}
        assert (await p.post(refusal).done()).status == 202
        assert (await call.done()).messages[-1]["error"]["code"] == -32603
        [note] = b.observer.named("handler.failed")
        assert "refused roots/list: no" in str(note["error"])


@front_test
async def test_control_traffic_passes_while_every_slot_is_taken() -> None:
    async with bench(Settings(limits=Limits(running=1, queued=1))) as b:
        p = await opened(b)
        call = await p.call(1, "ask").until(1)
        queued = p.call(2)
        await asyncio.sleep(1)
        assert (await p.post(request(3, "ping")).done()).json["result"] == {}
        answer = {"jsonrpc": "2.0", "id": call.messages[0]["id"], "result": {}}
        assert (await p.post(answer).done()).status == 202
        await call.done()
        assert (await queued.done()).json["id"] == 2


@front_test
async def test_an_ask_without_a_reader_reaches_one_that_attaches_before_its_deadline() -> None:
    async with bench() as b:
        p = await opened(b)
        call = await p.call(1, "ask").until(1)
        await call.cut()
        await asyncio.sleep(300)
        resumed = await p.get(call.ids[0]).until(1)
        answer = {"jsonrpc": "2.0", "id": resumed.messages[0]["id"], "result": {"late": True}}
        assert (await p.post(answer).done()).status == 202
        await resumed.done()
        assert resumed.messages[-1]["result"]["answer"] == {"late": True}


@front_test
async def test_an_ask_without_an_answer_fails_at_its_deadline_and_is_withdrawn() -> None:
    async with bench(Settings(limits=Limits(ask_seconds=600))) as b:
        p = await opened(b, MIDDLE)
        call = p.call(1, "ask")
        await call.done()
        assert asyncio.get_running_loop().time() == pytest.approx(600)
        ask, cancelled, end = call.messages
        assert cancelled["method"] == "notifications/cancelled"
        assert cancelled["params"]["requestId"] == ask["id"]
        assert end["error"]["code"] == -32603


# How many values, and how much a client says of itself

FEW = Settings(limits=tight(values=1_000, client_bytes=500))


@front_test
async def test_a_message_of_too_many_values_gets_400_and_its_session_continues() -> None:
    async with bench(FEW) as b:
        p = await opened(b)
        call = await p.post(
            request(1, "tools/call", {"name": "quick", "arguments": {"a": [[]] * 600}})
        ).done()
        assert (call.status, call.json["error"]["code"]) == (400, -32600)
        assert "at most 1000 values" in call.json["error"]["message"]
        text = await p.post(
            request(1, "tools/call", {"name": "quick", "arguments": {"a": ",[{" * 600}})
        ).done()
        assert text.status == 200


@pytest.mark.parametrize(
    ("info", "capabilities"),
    [
        ({"name": "peer", "more": ["x"] * 200}, {}),
        ({"name": "peer"}, {"experimental": {"x": "y" * 500}}),
        ({"name": "p" * 260}, {"experimental": {"x": "y" * 260}}),
    ],
)
@front_test
async def test_a_client_with_too_large_client_info_gets_no_session(
    info: dict[str, object], capabilities: dict[str, object]
) -> None:
    async with bench(FEW) as b:
        params = {"protocolVersion": LATEST, "clientInfo": info, "capabilities": capabilities}
        call = await b.peer().post(request(1, "initialize", params)).done()
        assert (call.status, call.json["error"]["code"]) == (400, -32602)
        assert "at most 500 are accepted" in call.json["error"]["message"]
        assert not b.engine.runtime.sessions
