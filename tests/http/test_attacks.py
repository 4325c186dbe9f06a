"""Attacks on sessions, with raw sockets: each attempt gets its exact status.

Every bad request has a healthy one beside it, in flight while it is answered.
"""

import asyncio
import itertools
import json
import math
import re
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from limpet.config import Limits, Settings, Times
from limpet.ports import SystemRandom
from tests.http.back import Config
from tests.http.client import Client, Connection, Response, call, http_test, text
from tests.http.serving import Process, in_loop, process
from tests.messages import BOTH, Json, request
from tests.support import until

TWO = Config(tokens={"alice-token": "alice", "bob-token": "bob"})
HEADERS = {"Content-Type": "application/json", "Accept": BOTH}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Process]:
    """A server that asks for a token, with short deadlines."""
    limits = Limits(body_seconds=0.5, header_seconds=0.5)
    with process(Config(settings=Settings(limits=limits), tokens=TWO.tokens)) as running:
        yield running


class Beside:
    """A healthy call in flight, which must not notice anything."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __aenter__(self) -> None:
        self._healthy = await self._client.start("ticks", n=3, interval=0.05)

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            messages = [message async for message in self._healthy.messages()]
            assert len(messages) == 4
            assert text(messages[-1]) == "3 ticks"


async def code(response: Response) -> tuple[int, int]:
    """Return the status and the JSON-RPC code."""
    return response.status, (await response.json())["error"]["code"]


# Sessions and principals


@http_test
async def test_another_principals_session_is_answered_like_an_unknown_session() -> None:
    async with in_loop(TWO) as served:
        alice = await Client.opened(served.port, token="alice-token")
        bob = await Client.opened(served.port, token="bob-token")
        bob.session_id = alice.session_id
        stranger = Client(served.port, token="bob-token")
        stranger.session_id = "never-minted"
        asking = await alice.start("ask", message="m", id="asking")
        ask = await anext(asking.messages())
        standalone = await alice.get()
        store = served.engine.runtime.store
        async with Beside(alice):
            before = repr(store)
            attacks: list[Json] = [
                call("asking", "echo", text="x"),
                {
                    "jsonrpc": "2.0",
                    "id": ask["id"],
                    "result": {"action": "accept", "content": {"name": "bob"}},
                },
                {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "asking"}},
            ]
            for attack in attacks:
                mine, unknown = await bob.post(attack), await stranger.post(attack)
                assert mine.status == unknown.status == 404
                assert await mine.body() == await unknown.body()
            for event_id in ("", asking.last_id):
                mine, unknown = await bob.get(event_id), await stranger.get(event_id)
                assert mine.status == unknown.status == 404
                assert await mine.body() == await unknown.body()
            assert await bob.delete() == await stranger.delete() == 404
            assert repr(store).split(",")[0] == before.split(",")[0]
        assert await alice.reply(ask, {"action": "decline"}) == 202
        assert "decline" in text(await asking.answer())
        await alice.call("push", start=5, n=1)
        assert (await anext(standalone.messages()))["params"]["data"] == 5


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer wrong", "Basic YWxpY2U6eA==", "alice-token"])
@http_test
async def test_a_valid_session_id_without_a_valid_token_is_refused(
    guarded: Process, authorization: str
) -> None:
    alice = await Client.opened(guarded.port, token="alice-token")
    async with Beside(alice):
        for method in ("POST", "GET", "DELETE"):
            headers = {**alice.headers(), **HEADERS, "Authorization": authorization}
            if not authorization:
                del headers["Authorization"]
            connection = await Connection.open(guarded.port)
            body = json.dumps(call(1, "echo", text="x")).encode() if method == "POST" else b""
            response = await connection.request(method, headers, body)
            assert response.status == 401
            assert response.headers["www-authenticate"].startswith("Bearer")


@http_test
async def test_a_session_id_of_the_clients_choice_is_never_adopted(trial: Process) -> None:
    healthy, fixed = await Client.opened(trial.port), Client(trial.port)
    fixed.session_id = "chosen-by-the-attacker"
    async with Beside(healthy):
        params = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "x"}, "capabilities": {}}
        opening = await fixed.post(request(1, "initialize", params))
        assert opening.headers.get("mcp-session-id") != fixed.session_id
        assert (await fixed.start("echo", text="x")).status == 404
        assert (await fixed.get()).status == 404


def test_minted_ids_do_not_repeat_and_have_no_structure() -> None:
    mint = SystemRandom().token
    ids = [mint(32) for _ in range(200_000)]
    assert len(set(ids)) == len(ids)
    (length,) = {len(one) for one in ids}
    symbols = len(set("".join(ids[:1_000])))
    # The last character of a base64 text carries fewer bits.
    assert (length - 1) * math.log2(symbols) >= 250
    for place in range(length - 1):
        counts = Counter(one[place] for one in itertools.islice(ids, 20_000))
        assert len(counts) == symbols
        assert max(counts.values()) < 1.5 * 20_000 / symbols, "every place is uniform"


# Streams and ids


@http_test
async def test_a_forged_or_foreign_event_id_is_refused_without_a_foreign_byte(trial: Process) -> None:
    healthy, other = await Client.opened(trial.port), await Client.opened(trial.port)
    foreign = await other.start("slow", seconds=5, text="foreign bytes")
    await anext(foreign.events())
    own = await healthy.start("slow", seconds=0.5, text="own")
    await anext(own.events())
    stream, seq, tag = own.last_id.split(".")
    forged = [
        foreign.last_id,
        f"{stream}.{int(seq) + 1}.{tag}",
        f"{stream}.{seq}.{int(tag, 16) ^ 1:x}",
        f"{foreign.last_id.split('.')[0]}.{seq}.{tag}",
        f"{stream}.-1.{tag}",
        f"{stream}.{seq}",
        "x" * 10_000,
        "..",
        "\x01\x02",
        "_GET_stream",
        "0",
        "é.1.1",
        f"{stream}.²0.{tag}",
        f"{stream}.1.{tag}g",
    ]
    async with Beside(healthy):
        for event_id in forged:
            response = await healthy.get(event_id)
            body = await response.body()
            assert response.status == 400, event_id[:60]
            assert b"foreign" not in body
    assert text(await own.answer()) == "own"


@pytest.mark.parametrize(
    "wrong",
    [
        "null",
        "1.5",
        "true",
        "[]",
        "{}",
        str(2**64),
        str(-(2**64)),
        '"' + "x" * 257 + '"',
        '"' + "x" * 1_000_000 + '"',
        "1e400",
    ],
    ids=lambda text: text[:12],
)
@http_test
async def test_an_id_that_is_no_id_is_refused(trial: Process, wrong: str) -> None:
    client = await Client.opened(trial.port)
    async with Beside(client):
        body = json.dumps(call(1, "echo", text="x")).replace('"id": 1', f'"id": {wrong}')
        status, number = await code(await client.post(body.encode()))
        assert status == 400
        assert number in {-32600, -32700}


# Heads


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("Origin", "https://evil.example")], 403),
        ([("Origin", "null")], 403),
        ([("Origin", "http://localhost.evil.com")], 403),
        ([("Origin", "http://localhost@evil.com")], 403),
        ([("Origin", "http://evil.com/localhost")], 403),
        ([("Origin", "file://localhost")], 403),
        ([("Origin", "http://localhost"), ("Origin", "https://evil.example")], 400),
        ([("Origin", "http://localhost"), ("Origin", "http://localhost")], 400),
        ([("Host", "evil.example")], 421),
        ([("Host", "localhost.evil.com")], 421),
        ([("Host", "localhost:80@evil")], 421),
        ([("Host", "a/b?c#d")], 421),
        ([("Host", "127.0.0.1"), ("Host", "evil.example")], 400),
        ([("Origin", "http://localhost:5173")], 200),
        ([("Host", "localhost:8000")], 200),
        ([("Host", "[::1]:8000")], 200),
    ],
    ids=str,
)
@http_test
async def test_only_known_hosts_and_origins_are_served(
    trial: Process, headers: list[tuple[str, str]], status: int
) -> None:
    client = await Client.opened(trial.port)
    async with Beside(client):
        connection = await Connection.open(trial.port)
        pairs = [*client.headers().items(), ("Content-Type", "application/json"), *headers]
        response = await connection.request("POST", pairs, json.dumps(call("x", "echo", text="x")).encode())
        # 400 is right too where the value is not a host.
        assert response.status == status or (status == 421 and response.status == 400)


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "application/jsonp"],
)
@http_test
async def test_a_form_or_plain_text_is_refused_and_not_run(trial: Process, kind: str) -> None:
    client = await Client.opened(trial.port)
    async with Beside(client):
        connection = await Connection.open(trial.port)
        headers = {**client.headers(), "Content-Type": kind}
        name = f"form {kind}"
        response = await connection.request("POST", headers, json.dumps(call(1, "echo", text=name)).encode())
        assert response.status == 415
        assert await client.call("count", key=name) == 0


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"Mcp-Session-Id: {id}\r\nMcp-Session-Id: {id}\r\nContent-Length: 2\r\n\r\n{}", 400),
        (b"Mcp-Session-Id: {id}\r\nMcp-Session-Id: other\r\nContent-Length: 2\r\n\r\n{}", 400),
        (
            b"Mcp-Session-Id: {id}\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            400,
        ),
        (b"Mcp-Session-Id: {id}\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        (b"Mcp-Session-Id: {id}\r\nContent-Length: -1\r\n\r\n", 400),
        (b"Mcp-Session-Id : {id}\r\nContent-Length: 2\r\n\r\n{}", 400),
        (b"Content-Length: 2\r\nX: " + b"y" * 20_000 + b"\r\n\r\n{}", 431),
    ],
    ids=[
        "same twice",
        "two",
        "length and chunked",
        "two lengths",
        "negative",
        "space",
        "large head",
    ],
)
@http_test
async def test_heads_that_two_readers_could_read_differently_are_refused(
    trial: Process, raw: bytes, status: int
) -> None:
    client = await Client.opened(trial.port)
    async with Beside(client):
        connection = await Connection.open(trial.port)
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: {BOTH}\r\n"
        )
        await connection.send(head.encode() + raw.replace(b"{id}", client.session_id.encode()))
        assert (await connection.response()).status == status


@pytest.mark.parametrize(
    "target", ["http://evil.example/mcp", "http://127.0.0.1/mcp", "*", "evil.example:80"]
)
@http_test
async def test_a_target_that_is_no_path_is_refused(trial: Process, target: str) -> None:
    client = await Client.opened(trial.port)
    async with Beside(client):
        connection = await Connection.open(trial.port)
        body = json.dumps(call(1, "echo", text="x")).encode()
        response = await connection.request("POST", {**client.headers(), **HEADERS}, body, target)
        assert response.status == 400


# Bodies


@http_test
async def test_a_body_beyond_the_limit_is_refused_with_and_without_its_length(trial: Process) -> None:
    client = await Client.opened(trial.port)
    head = {**client.headers(), **HEADERS}
    async with Beside(client):
        connection = await Connection.open(trial.port)
        assert (await connection.request("POST", {**head, "Content-Length": str(2**40)})).status == 413
        chunked = await Connection.open(trial.port)
        part = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        response = asyncio.create_task(
            chunked.request("POST", {**head, "Transfer-Encoding": "chunked"}, part)
        )
        await asyncio.sleep(0)
        for _ in range(80):
            await chunked.send(part)
        assert (await response).status == 413
        zipped = await Connection.open(trial.port)
        assert (await zipped.request("POST", {**head, "Content-Encoding": "gzip"}, b"\x1f\x8b")).status == 415


@http_test
async def test_slow_heads_and_bodies_are_ended_in_time(guarded: Process) -> None:
    client = await Client.opened(guarded.port, token="alice-token")
    head = {**client.headers(), **HEADERS}
    async with Beside(client):
        began = time.monotonic()
        body = await Connection.open(guarded.port)
        silent = await Connection.open(guarded.port)
        slow = await Connection.open(guarded.port)
        await slow.send(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Sl")
        assert (await body.request("POST", {**head, "Content-Length": "100"}, b'{"jsonrpc"')).status == 408
        for connection in (silent, slow):
            assert (await connection.rest()).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - began < 9, "without its own limit the head of a request may take 10 s"


DEEP = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
MANY = (
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{'
    + b",".join(b'"k%d":1' % n for n in range(1_000_000))
    + b"}}"
)
ENVELOPE = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":%s}}}'


@pytest.mark.parametrize(
    ("body", "status", "number"),
    [
        (DEEP, 400, -32600),
        (b"[" * 100_000, 400, -32600),
        (MANY, 413, -32600),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":{"b":1,"b":2}}}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","\\u0069d":2}', 400, -32600),
        ((ENVELOPE % "NaN").encode(), 400, -32700),
        ((ENVELOPE % "Infinity").encode(), 400, -32700),
        ((ENVELOPE % "1e400").encode(), 400, -32700),
        ((ENVELOPE % '"\\ud800"').encode(), 400, -32700),
        ((ENVELOPE % '"x"').encode()[:-3], 400, -32700),
        ((ENVELOPE % '"').encode() + b'\xff\xfe"', 400, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}garbage', 400, -32700),
        (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}', 400, -32700),
        (b"", 400, -32700),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', 400, -32600),
        (b"[]", 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"Method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"METHOD":"ping"}', 400, -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1}', 400, -32600),
        (b'"text"', 400, -32600),
        (b"null", 400, -32600),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, bytes) else "",
)
@http_test
async def test_json_that_is_not_one_plain_message_is_refused_at_once(
    trial: Process, body: bytes, status: int, number: int
) -> None:
    client = await Client.opened(trial.port)
    async with Beside(client):
        connection = await Connection.open(trial.port)
        before = await client.call("stats")
        response = await connection.request(
            "POST", {**client.headers(), **HEADERS, "Content-Length": str(len(body))}, body
        )
        answer = await response.body()
        spent = (await client.call("stats"))["cpu"] - before["cpu"]
        assert (response.status, json.loads(answer)["error"]["code"]) == (status, number)
        assert b"Traceback" not in answer
        assert b"/src/" not in answer
        assert spent < 0.2, "a refusal is cheap"


# Many of them


@http_test
async def test_one_principal_that_opens_sessions_without_end_evicts_only_its_own() -> None:
    limits = Limits(sessions_per_principal=50, sessions=200)
    config = Config(settings=Settings(limits=limits), tokens={**TWO.tokens, "c": "carol"})
    async with in_loop(config) as served:
        alice = await Client.opened(served.port, token="alice-token")
        async with Beside(alice):
            bobs = [await Client.opened(served.port, token="bob-token") for _ in range(300)]
        assert len(served.engine.runtime.sessions) <= 51
        assert (await bobs[0].start("echo", text="x")).status == 404
        assert await bobs[-1].call("echo", text="newest") == "newest"
        assert await alice.call("echo", text="unaffected") == "unaffected"


@http_test
async def test_anonymous_clients_evict_idle_sessions_and_none_that_works() -> None:
    async with in_loop(Config(settings=Settings(limits=Limits(sessions=20)))) as served:
        first = await Client.opened(served.port)
        call = asyncio.create_task(first.start("gated", id="g", key="g"))
        await until(lambda: bool(served.engine.live_exchanges()))
        idle = [await Client.opened(served.port) for _ in range(19)]
        params = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "x"}, "capabilities": {}}

        async def is_served() -> bool:
            answer = await Client(served.port).post(request(1, "initialize", params))
            assert answer.status == 200 or int(answer.headers["retry-after"]) > 0
            return answer.status == 200

        # For a second none of them is idle.
        await until(is_served)
        assert (await idle[0].start("echo", text="x")).status == 404
        assert len(served.engine.runtime.sessions) == 20
        assert await first.delete() == 204
        await call


@http_test
async def test_calls_beyond_the_quota_are_refused_exactly_and_control_passes() -> None:
    limits = Limits(running=20, queued=30)
    async with in_loop(Config(settings=Settings(limits=limits))) as served:
        client, healthy = await Client.opened(served.port), await Client.opened(served.port)
        async with Beside(healthy):
            calls = [asyncio.create_task(client.start("gated", id=f"g{n}", key="g")) for n in range(100)]
            await until(lambda: sum(task.done() for task in calls) >= 50)
            ping = await client.post(request("p", "ping"))
            assert (ping.status, (await ping.json())["result"]) == (200, {})
            assert served.back.runs["g"] == 20
            served.back.gates["g"].set()
            responses = await asyncio.gather(*calls)
        assert Counter(response.status for response in responses) == {200: 50, 429: 50}
        refused = next(response for response in responses if response.status == 429)
        assert refused.headers["retry-after"]
        assert await code(refused) == (429, -31001)


@http_test
async def test_two_hundred_gets_leave_five_readers() -> None:
    async with in_loop() as served:
        client = await Client.opened(served.port)
        async with Beside(client):
            streams = [await client.get() for _ in range(200)]
            (session,) = served.engine.runtime.sessions.values()
            await until(lambda: len(session.readers[session.record.standalone]) == 5)
        await client.call("push", start=1, n=1)
        assert (await anext(streams[-1].messages()))["params"]["data"] == 1


@http_test
async def test_answers_are_taken_once_from_their_own_session_and_in_time() -> None:
    async with in_loop() as served:
        client, other = await Client.opened(served.port), await Client.opened(served.port)
        async with Beside(client):
            holding = await client.start("fanout", n=2)
            asks: list[Json] = []
            async for message in holding.messages():
                asks.append(message)
                if len(asks) == 2:
                    break
            result = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "yes"}}
            different = {**result, "model": "other"}
            assert await client.reply({"id": "unknown"}, result) == 202, "dropped"
            assert await client.reply({"id": 1}, result) == 202, "dropped"
            assert await other.reply(asks[0], different) == 202, "unknown to the other session: dropped"
            assert await client.reply(asks[0], result) == 202
            assert await client.reply(asks[0], result) == 202, "an equal answer again"
            assert await client.reply(asks[0], different) == 400
            assert await client.reply(asks[1], result) == 202
            assert text(await holding.answer()) == "yes,yes"
            assert await client.reply(asks[0], result) == 202, "an equal answer again, after the call's end"
            assert await client.reply(asks[0], different) == 400
            late = await client.start("ask", message="m", timeout=0.2)
            ask = await anext(late.messages())
            assert "AskTimeout" in text(await late.answer())
            assert await client.reply(ask, {"action": "accept"}) == 202, "late: dropped"
            refused = await client.start("ask", message="m")
            ask = await anext(refused.messages())
            error = {"code": -1, "message": "no, thank you"}
            assert (await client.post({"jsonrpc": "2.0", "id": ask["id"], "error": error})).status == 202
            assert "AskRefused: the client refused elicitation/create: no, thank you (-1)" in text(
                await refused.answer()
            )


# The log


@http_test
async def test_logs_hold_one_line_per_event_and_no_secret() -> None:
    injected = "evil\r\nsession.opened session=forged\x1b[31m"
    with process(TWO) as running:
        alice = await Client.opened(running.port, token="alice-token", name=injected)
        connection = await Connection.open(running.port)
        response = await alice.start("boom", text=f"payload-4711 {injected}")
        answer = (await response.body()).decode()
        assert "4711" not in answer
        assert "Traceback" not in answer
        correlation = re.findall(r"correlation id (\w+)", answer)[0]
        await alice.post(request(3, f"evil/{injected}"))
        streamed = await alice.start("slow", id="dup", seconds=0.4, text="argument-4712")
        await alice.start("echo", id="dup", text="argument-4713")
        event = await anext(streamed.events())
        streamed.connection.cut(reset=True)
        await (await alice.get(event.id)).body()
        await connection.request("POST", {**alice.headers(), **HEADERS, "User-Agent": "evil\x1b[31m"}, b"{}")
        assert await alice.delete() == 204
        log = running.output()
    assert correlation in log
    assert "handler.failed" in log
    for secret in (
        alice.session_id,
        event.id,
        event.id.split(".")[0],
        "alice-token",
        "argument-471",
        "Bearer",
    ):
        assert secret not in log
    lines = log.splitlines()
    assert not [line for line in lines if line.startswith("session.opened session=forged")]
    assert "\x1b" not in log


@http_test
async def test_a_stranger_takes_over_no_stream() -> None:
    """A reader of the same principal may take over: tests/traps/test_streams.py."""
    async with in_loop(Config(settings=Settings(times=Times(drain=0.1)), tokens=TWO.tokens)) as served:
        alice = await Client.opened(served.port, token="alice-token")
        bob = Client(served.port, token="bob-token")
        bob.session_id = alice.session_id
        mine = await alice.get()
        assert (await bob.get()).status == 404
        await alice.call("push", start=1, n=1)
        assert (await anext(mine.messages()))["params"]["data"] == 1
