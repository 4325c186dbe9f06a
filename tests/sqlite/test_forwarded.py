"""A retry that lands at another replica than the one its call is parked at, over one file."""

import asyncio
import base64
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, get_args

import pytest
from typing_extensions import override

from limpet import Context, Principal, Server
from limpet.auth.forward_key import ForwardKey, new_key
from limpet.config import ResponseMode
from limpet.core.lifecycle import SessionInput
from limpet.engine.rounds import RoundWriter
from limpet.errors import BUSY, OUTCOME_UNKNOWN, StoreUnavailable
from limpet.protocol.idempotency import KEY as IDEMPOTENCY_KEY
from limpet.stores.base import Store
from limpet.stores.sqlite import SqliteStore
from limpet.testing import SeededRandom
from tests.asgi import Call, Peer
from tests.messages import metadata, modern_headers, request
from tests.sqlite.support import store_path
from tests.support import async_test, stays, until

ASKABLE = {**metadata(capabilities={"roots": {}}), "progressToken": 1}


def replica(path: Path, release: asyncio.Event | None = None) -> Server:
    server = Server("carried", store=SqliteStore(path))

    @server.tool
    async def count(ctx: Context, *, talks: bool) -> int:
        roots = await ctx.roots()
        if talks:
            await ctx.progress(1, 2)
        if release is not None:
            await release.wait()
        return len(roots)

    return server


SECRETS: Final = {
    "authorization": "Bearer secret-token-0",
    "proxy-authorization": "Basic secret-token-1",
    "cookie": "sid=secret-token-2",
    "x-api-key": "secret-token-3",
    "x-amz-security-token": "secret-token-4",
    "cf-access-jwt-assertion": "secret-token-5",
}
KEPT: Final = {"x-tenant": "kitchen", "traceparent": "00-1", "idempotency-key": "order-7"}


KEY: Final = new_key(SeededRandom(1))


async def verifier(token: str) -> Principal | None:
    return Principal(subject="alice") if token == "secret-token-0" else None


def keeping(store: Store, seen: list[dict[str, str]], resumed: asyncio.Event) -> Server:
    """Return a replica with a tool that waits for its client in both eras."""
    server = Server("carried", store=store, verifier=verifier)

    @server.tool
    async def count(ctx: Context, *, talks: bool) -> int:
        if talks:
            await resumed.wait()
        else:
            await ctx.roots()
        seen.append(dict(ctx.headers))
        return 1

    return server


async def carry_secrets(
    there: Store, here: Store, resumed: asyncio.Event, key: str | None = None
) -> tuple[str, dict[str, str]]:
    """Let a call of a session run, and a retry be forwarded; return the session's id and the headers seen."""
    seen: list[dict[str, str]] = []
    servers = [keeping(store, seen, resumed) for store in (there, here)]
    for server in servers:
        server.forward_key = ForwardKey(key) if key is not None else None
    peers = [Peer(server.asgi(response="json")) for server in servers]
    inside = peers[0]
    await inside.initialize(headers=SECRETS)
    params = {"name": "count", "arguments": {"talks": True}}
    running = inside.post(request(2, "tools/call", params), headers=SECRETS | KEPT)
    session, inside.session, inside.version = inside.session, "", ""
    asked = await called(inside, talks=False, headers=SECRETS | KEPT).done()
    parked = asked.json["result"]
    answers: dict[str, Any] = {key: {"roots": []} for key in parked["inputRequests"]}
    retry = {"requestState": parked["requestState"], "inputResponses": answers}
    answer = await called(peers[1], talks=False, headers=SECRETS | KEPT, **retry).done()
    assert answer.json["result"]["structuredContent"] == {"result": 1}
    resumed.set()
    await running.done()
    for server in servers:
        await server.engine.aclose()
    return session, seen[0]


@pytest.mark.parametrize("key", [None, KEY])
@async_test
async def test_no_credential_no_key_and_no_session_id_is_written_to_the_file(key: str | None) -> None:
    with store_path() as path:
        session, headers = await carry_secrets(SqliteStore(path), _Scanned(path), asyncio.Event(), key)
        assert {name: headers.get(name) for name in KEPT} == KEPT, "headers without a credential travel"
        arrived = {name: headers[name] for name in SECRETS.keys() & headers.keys()}
        assert arrived == ({} if key is None else SECRETS)
        written = _Scanned.written
        assert b"inputResponses" in written, "the scan looks where forwarded requests are written"
        assert (b"sealed " in written) is (key is not None)
        for secret in (b"secret-token", session.encode(), KEY.encode(), base64.b64decode(KEY)):
            assert secret not in written


@async_test
async def test_with_a_key_a_header_with_an_ordinary_name_is_sealed_too() -> None:
    own = {"x-pat": "secret-token-6"}
    with store_path() as path:
        there, here = Server("carried", store=SqliteStore(path)), Server("carried", store=_Scanned(path))
        for server in (there, here):
            server.forward_key = ForwardKey(KEY)

            @server.tool
            async def count(ctx: Context, *, talks: bool) -> bool:
                await ctx.roots()
                return talks or ctx.headers["x-pat"] == own["x-pat"]

        async with aclosing(here.engine), aclosing(there.engine):
            asked = await called(Peer(there.asgi(response="json")), talks=False, headers=own).done()
            peer = Peer(here.asgi(response="json"))
            call = await called(peer, talks=False, headers=own, **retry_of(asked)).done()
            assert call.json["result"]["structuredContent"] == {"result": True}
            assert b"sealed " in _Scanned.written
            assert own["x-pat"].encode() not in _Scanned.written


@async_test
async def test_a_replica_with_another_key_refuses_the_request_at_once() -> None:
    with store_path() as path:
        there, here = replica(path), replica(path)
        there.forward_key, here.forward_key = (
            ForwardKey(KEY),
            ForwardKey(new_key(SeededRandom(2))),
        )
        async with aclosing(here.engine), aclosing(there.engine):
            asked = await called(Peer(there.asgi(response="json")), talks=False, headers=SECRETS).done()
            async with asyncio.timeout(0.9 * there.settings.times.lease):
                call = await called(
                    Peer(here.asgi(response="json")), talks=False, headers=SECRETS, **retry_of(asked)
                ).done()
            assert call.json["error"]["code"] == BUSY
            assert "forward key" in call.json["error"]["message"]


class _Scanned(SqliteStore):
    """Looks at every byte of the file and its log at the moment a request is forwarded."""

    written = b""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._directory = path.parent

    @override
    async def forward(self, replica: str, name: str, payload: bytes, *, seconds: float) -> bool:
        forwarded = await super().forward(replica, name, payload, seconds=seconds)
        _Scanned.written = b"".join(file.read_bytes() for file in sorted(self._directory.iterdir()))
        return forwarded


def called(peer: Peer, *, talks: bool, headers: dict[str, str] | None = None, **more: Any) -> Call:
    params = {"name": "count", "arguments": {"talks": talks}, "_meta": ASKABLE, **more}
    own = modern_headers("tools/call", {"name": "count"})
    return peer.post(request(1, "tools/call", params), headers={**own, **(headers or {})})


def retry_of(asked: Call) -> dict[str, Any]:
    """Return the members that a retry adds to the request: the state, and an answer to each question."""
    parked = asked.json["result"]
    answers = {key: {"roots": [{"uri": "file:///x"}]} for key in parked["inputRequests"]}
    return {"requestState": parked["requestState"], "inputResponses": answers}


@async_test
async def test_the_response_of_a_slow_retry_begins_before_a_keep_alive_is_due() -> None:
    release = asyncio.Event()
    with store_path() as path:
        there, here = replica(path, release), replica(path)
        async with aclosing(here.engine), aclosing(there.engine):
            asked = await called(Peer(there.asgi(response="json")), talks=False).done()
            call = called(Peer(here.asgi()), talks=False, **retry_of(asked))
            async with asyncio.timeout(0.8 * here.settings.times.keep_alive):
                await call.begun()
            release.set()
            await call.done()
            assert call.is_stream
            assert call.messages[-1]["result"]["structuredContent"] == {"result": 1}


@async_test
async def test_a_store_that_loses_a_forwarded_retry_leaves_its_outcome_unknown() -> None:
    release = asyncio.Event()
    with store_path() as path:
        there, here = replica(path, release), replica(path)
        async with aclosing(here.engine), aclosing(there.engine):
            asked = await called(Peer(there.asgi(response="json")), talks=False).done()
            await here.engine.ensure_started()
            store = here.engine.runtime.store
            attach = store.attach

            async def emptied(key: str, *args: Any, **more: Any) -> Any:
                await store.close(key, SessionInput.SHUTDOWN)
                return await attach(key, *args, **more)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(store, "attach", emptied)
                call = await called(Peer(here.asgi()), talks=False, **retry_of(asked)).done()
            assert (call.json["id"], call.json["error"]["code"]) == (1, OUTCOME_UNKNOWN)
            release.set()


@async_test
async def test_a_retry_that_cannot_be_forwarded_is_refused_with_its_id_and_can_be_sent_again() -> None:
    with store_path() as path:
        there, here = replica(path), replica(path)
        async with aclosing(here.engine), aclosing(there.engine):
            asked = await called(Peer(there.asgi(response="json")), talks=False).done()
            await here.engine.ensure_started()

            async def away(*_: object, **__: object) -> None:
                raise StoreUnavailable("on purpose")

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(here.engine.runtime.store, "open", away)
                call = await called(Peer(here.asgi()), talks=False, **retry_of(asked)).done()
            assert (call.status, call.json["id"], call.json["error"]["code"]) == (503, 1, BUSY)
            call = await called(Peer(here.asgi()), talks=False, **retry_of(asked)).done()
            assert call.json["result"]["structuredContent"] == {"result": 1}


@async_test
async def test_a_store_that_fails_after_the_answer_does_not_replace_the_answer() -> None:
    with store_path() as path:
        there, here = replica(path), replica(path)
        async with aclosing(here.engine), aclosing(there.engine):
            asked = await called(Peer(there.asgi(response="json")), talks=False).done()
            await here.engine.ensure_started()

            async def away(*_: object) -> None:
                raise StoreUnavailable("on purpose")

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(here.engine.runtime.store, "close", away)
                call = await called(Peer(here.asgi()), talks=False, **retry_of(asked)).done()
            assert (call.status, call.json["result"]["structuredContent"]) == (200, {"result": 1})


@pytest.mark.parametrize("mode", get_args(ResponseMode))
@async_test
async def test_a_retry_answered_by_another_replica_keeps_the_response_mode_of_this_one(
    mode: ResponseMode,
) -> None:
    with store_path() as path:
        there, here = replica(path), replica(path)
        async with aclosing(here.engine), aclosing(there.engine):
            for talks in (False, True):
                asked = await called(Peer(there.asgi(response="json")), talks=talks).done()
                call = await called(Peer(here.asgi(response=mode)), talks=talks, **retry_of(asked)).done()
                assert call.is_stream is (mode == "sse" or (talks and mode == "adaptive"))
                [*told, answer] = call.received
                assert answer["result"]["structuredContent"] == {"result": 1}
                assert len(told) == (talks and mode != "json")


@async_test
async def test_a_retry_for_which_the_other_replica_has_no_memory_waits_there() -> None:
    with store_path() as path:
        there, here = replica(path), replica(path)
        async with aclosing(here.engine), aclosing(there.engine):
            long: dict[str, Any] = {"x": "y" * 20_000}
            parked = (await called(Peer(there.asgi(response="json")), talks=False, **long).done()).json[
                "result"
            ]
            answers: dict[str, Any] = {key: {"roots": []} for key in parked["inputRequests"]}
            retry = {"requestState": parked["requestState"], "inputResponses": answers, **long}
            load = there.engine.runtime.load
            taken = load.account("others").open()
            taken.set(load.ledger.total)
            call = called(Peer(here.asgi(response="json")), talks=False, **retry)
            inbox = there.engine.runtime.store.inbox

            async def is_in_the_inbox() -> bool:
                return bool(await inbox()) and not call.task.done()

            await until(is_in_the_inbox)
            # There is no room for it.
            await stays(is_in_the_inbox, 0.2)
            taken.free()
            assert (await call.done()).json["result"]["structuredContent"] == {"result": 0}
            assert await inbox() == []


@async_test
async def test_a_call_with_a_key_runs_once_over_one_file_and_its_answer_is_there_for_the_other_process() -> (
    None
):
    with store_path() as path:
        release, runs = asyncio.Event(), list[str]()
        servers = [Server("kept", store=SqliteStore(path)) for _ in range(2)]
        for server in servers:

            @server.tool
            async def order(dish: str) -> str:
                runs.append(dish)
                await release.wait()
                return dish

        one, two = (Peer(server.asgi(response="json")) for server in servers)
        meta = {**metadata(), IDEMPOTENCY_KEY: "order-7"}
        params = {"name": "order", "arguments": {"dish": "soup"}}
        first = one.sessionless("tools/call", params, meta=meta)
        await until(lambda: runs == ["soup"])
        await first.cut()
        repeat = two.sessionless("tools/call", params, id=2, meta=meta)
        [running] = servers[0].engine.sessionless.live()
        writer = running.writer
        assert isinstance(writer, RoundWriter)
        await until(lambda: not writer.is_left)
        release.set()
        assert (await repeat.done()).json["id"] == 2
        kept = await two.sessionless("tools/call", params, id=3, meta=meta).done()
        assert (kept.json["id"], kept.json["result"]) == (3, repeat.json["result"])
        assert runs == ["soup"]
        for server in servers:
            await server.engine.aclose()
