"""Without sessions: every POST stands alone, and nothing is left of it."""

import asyncio

import pytest

from limpet.config import Limits, Settings, Times
from tests.asgi import Peer
from tests.messages import LATEST, notification, request
from tests.support import LoopClock
from tests.unit.fronts.http.bench import MIDDLE, OLDEST, REVISIONS, Bench, bench, front_test

STATELESS = Settings(stateless=True)


async def opened(b: Bench, version: str = LATEST) -> Peer:
    """Return a client that has initialized."""
    peer = b.peer()
    assert (await peer.initialize(version)).status == 200
    return peer


async def left(b: Bench) -> int:
    """Return the numbers of sessions: in the store, and local ones."""
    return len(await b.store.sessions()) + len(b.engine.runtime.sessions)


@pytest.mark.parametrize("version", REVISIONS)
@front_test
async def test_initialize_returns_no_session_id_and_calls_need_no_session_id(version: str) -> None:
    async with bench(STATELESS) as b:
        p = b.peer()
        answer = await p.initialize(version)
        assert answer.json["result"]["protocolVersion"] == version
        assert "mcp-session-id" not in answer.headers
        assert (await p.post(notification("notifications/initialized")).done()).status == 202
        assert (await p.call(1).done()).json["result"] == {"tool": "quick", "id": 1}
        assert await left(b) == 0
        assert b.back.events == ["start"]


@front_test
async def test_an_old_session_id_of_a_client_is_ignored() -> None:
    async with bench(STATELESS) as b:
        p = await opened(b)
        p.session = "from-before"
        assert (await p.call(1).done()).status == 200


@front_test
async def test_one_id_may_be_in_flight_many_times() -> None:
    async with bench(STATELESS) as b:
        p = await opened(b)
        calls = [p.call(1, "held") for _ in range(3)]
        await asyncio.sleep(1)
        b.release.set()
        for call in calls:
            assert [message["id"] for message in (await call.done()).messages] == [1]
        assert await left(b) == 0


@pytest.mark.parametrize("version", REVISIONS)
@front_test
async def test_progress_is_streamed_and_the_stream_stays_open_to_its_end(version: str) -> None:
    async with bench(Settings(stateless=True, times=Times(stream_age=(20, 40)))) as b:
        p = await opened(b, version)
        call = await p.call(1, "ticks").until(2)
        assert call.events[0].comment == "open"
        await asyncio.sleep(100)
        assert not call.complete
        b.release.set()
        await call.done()
        assert call.progress == [1, 2, "end"]
        assert await left(b) == 0


@front_test
async def test_an_ask_fails_at_once_with_a_reason() -> None:
    async with bench(STATELESS) as b:
        p = await opened(b)
        before = LoopClock().now()
        failed = await p.call(1, "ask").done()
        assert LoopClock().now() == before
        assert failed.json["error"]["code"] == -32603
        [note] = b.observer.named("handler.failed")
        assert "without sessions" in str(note["error"])
        assert await left(b) == 0


@front_test
async def test_closing_the_stream_early_does_nothing() -> None:
    async with bench(STATELESS) as b:
        p = await opened(b)
        call = await p.call(1, "let_go").begun()
        await asyncio.sleep(5)
        assert not call.complete
        b.release.set()
        assert (await call.done()).messages[0]["result"] == {"tool": "let_go"}


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
@front_test
async def test_there_is_nothing_to_get_or_delete(method: str) -> None:
    async with bench(STATELESS) as b:
        refused = await b.peer().send(method).done()
        assert (refused.status, refused.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("grace", [None, 0.0])
@pytest.mark.parametrize("after", [0.1, 1.0])
@front_test
async def test_a_disconnect_ends_the_call_and_no_listener_is_called(
    after: float, grace: float | None
) -> None:
    async with bench(Settings(stateless=True, times=Times(grace=grace))) as b:
        p = await opened(b)
        call = p.call(1, "held")
        await asyncio.sleep(after)
        await call.cut()
        await asyncio.sleep(5)
        assert await left(b) == 0
        assert b.back.events == ["start"]
        assert b.noted("session.detached") == 0
        assert b.noted("exchange.fenced") == 0


@front_test
async def test_a_response_without_an_ask_is_dropped() -> None:
    async with bench(STATELESS) as b:
        p = await opened(b)
        assert (await p.post({"jsonrpc": "2.0", "id": "x.1", "result": {}}).done()).status == 202, "dropped"


@front_test
async def test_unknown_versions_are_refused_here_too() -> None:
    async with bench(STATELESS) as b:
        refused = await b.peer().call(3, headers={"mcp-protocol-version": "2024-11-05"}).done()
        assert (refused.status, refused.json["id"]) == (400, 3)


@front_test
async def test_a_call_beyond_the_limit_of_running_calls_gets_503_with_its_id() -> None:
    async with bench(Settings(stateless=True, limits=Limits(sessions=2))) as b:
        p = await opened(b)
        calls = [p.call(number, "held") for number in range(2)]
        await asyncio.sleep(1)
        refused = await p.call(9).done()
        assert (refused.status, refused.json["id"]) == (503, 9)
        b.release.set()
        for call in calls:
            await call.done()
        assert (await p.call(9).done()).status == 200


@pytest.mark.parametrize(("version", "status"), [(OLDEST, 200), ("", 200), (MIDDLE, 400), (LATEST, 400)])
@front_test
async def test_batches_are_answered_in_the_revision_that_has_them(version: str, status: int) -> None:
    async with bench(STATELESS) as b:
        p = b.peer()
        p.version = version
        call = await p.post([request(1, "ping"), request(2, "ping"), notification("notifications/x")]).done()
        assert call.status == status
        if status == 200:
            answers: object = call.json
            assert answers == [{"jsonrpc": "2.0", "id": n, "result": {}} for n in (1, 2)]
        assert await left(b) == 0


@front_test
async def test_always_json_works_without_sessions() -> None:
    async with bench(STATELESS, response="json") as b:
        p = await opened(b)
        call = p.call(1, "held")
        await asyncio.sleep(100)
        b.release.set()
        assert (await call.done()).json["result"]["tool"] == "held"
        assert await left(b) == 0
