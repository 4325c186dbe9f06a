"""Known clients that depart from the protocol: how they are treated, the table that says so, and its counts."""

import asyncio
from typing import Any

from limpet import Principal, Settings
from limpet.config import HttpSettings, Quirks
from limpet.fronts.http.front import HttpFront
from limpet.protocol.quirks import KNOWN, NAMES, ClientCounts, ClientQuirks
from limpet.testing import NotingObserver
from tests.asgi import Call, Peer
from tests.backs.behind import Behind, in_front
from tests.backs.test_failures import Slow
from tests.messages import initialize, request
from tests.support import until
from tests.unit.fronts.http.bench import Bench, bench, front_test

EVERY = Settings(quirks={"odd": Quirks(isolate=True, no_priming=True, reinitialize=True)})


async def opened(peer: Peer, name: str) -> Call:
    """Initialise with a client's name; keep the new session id if there is one."""
    call = await peer.post(request("init", "initialize", initialize(client=name))).done()
    peer.session = call.headers.get("mcp-session-id", peer.session)
    peer.version = "2025-11-25"
    return call


def noted(b: Bench, event: str) -> list[dict[str, Any]]:
    return [{k: v for k, v in facts.items() if k != "session"} for facts in b.observer.named(event)]


@front_test
async def test_two_calls_with_one_id_of_a_client_that_reuses_ids_both_run_and_it_is_counted() -> None:
    async with bench() as b:
        for count in (1, 2):
            p = b.peer()
            await opened(p, "claude-ai")
            calls = [p.call(1, "held"), p.call(1, "held")]
            await asyncio.sleep(0)
            b.release.set()
            for call in calls:
                assert (await call.done()).json["result"]["id"] == 1
            assert noted(b, "quirk.applied")[-1] == {
                "client": "claude-ai",
                "quirk": "isolate",
                "count": count,
            }
    assert len(b.runs) == 4


@front_test
async def test_a_client_that_fails_on_an_empty_event_gets_a_position_in_a_notification_without_effect() -> (
    None
):
    for name in ("Visual Studio Code", "Java SDK MCP Client", "another"):
        async with bench() as b:
            p = b.peer()
            await opened(p, name)
            call = await p.call(1, "held").begun()
            [mark] = [event for event in call.events if event.id]
            is_known = name in KNOWN
            assert (mark.data == "") is not is_known
            if is_known:
                assert mark.message["method"] == "notifications/cancelled"
            standalone = await p.get().begun()
            assert any(event.id and not event.data for event in standalone.events) is not is_known
            await call.cut()
            resumed = p.get(mark.id)
            b.release.set()
            await resumed.done()
            assert [event.message["id"] for event in resumed.events if event.data] == [1]
            told = [{"client": name, "quirk": "no_priming", "count": 1}]
            assert noted(b, "quirk.applied") == (told if is_known else [])
            await standalone.cut()


@front_test
async def test_a_second_initialize_of_a_client_that_does_so_opens_a_new_session_and_closes_the_old_one() -> (
    None
):
    async with bench() as b:
        p = b.peer()
        await opened(p, "inspector-client")
        former = p.session
        again = await opened(p, "inspector-client")
        assert again.status == 200
        assert p.session != former
        await until(lambda: b.noted("session.closed") == 1)
        assert (await p.call(1).done()).status == 200
        p.session = former
        assert (await p.call(2).done()).status == 404
        assert noted(b, "quirk.applied") == [
            {"client": "inspector-client", "quirk": "reinitialize", "count": 1}
        ]


@front_test
async def test_a_second_initialize_does_not_close_a_session_of_another_client() -> None:
    async def verify(token: str) -> Principal:
        return Principal(subject=token)

    async with bench(verifier=verify) as b:
        mine, other = b.peer(token="ada"), b.peer(token="bob")
        await opened(mine, "inspector-client")
        other.session = mine.session
        await opened(other, "inspector-client")
        assert other.session != mine.session
        assert (await mine.call(1).done()).status == 200
        assert noted(b, "quirk.applied") == []


@front_test
async def test_the_upstream_of_a_session_ends_when_its_client_initializes_again() -> None:
    behind = Behind(Slow().server, "sessions")
    async with in_front(behind) as front:
        p = Peer(HttpFront(front.engine, HttpSettings()))
        await opened(p, "inspector-client")
        assert behind.living == 1
        await opened(p, "inspector-client")
        await until(lambda: len(behind.links) == 2 and behind.living == 1)
        assert not behind.links[1].lost


@front_test
async def test_a_setting_replaces_the_table_and_an_empty_one_turns_it_off() -> None:
    async with bench(EVERY) as b:
        p = b.peer()
        await opened(p, "odd")
        assert [told["quirk"] for told in noted(b, "quirk.applied")] == ["isolate", "no_priming"]
        await opened(p, "odd")
        assert {told["quirk"] for told in noted(b, "quirk.applied")} == {
            "isolate",
            "no_priming",
            "reinitialize",
        }
        q = b.peer()
        await opened(q, "inspector-client")
        assert (await opened(q, "inspector-client")).status == 400
    async with bench(Settings(quirks={})) as b:
        p = b.peer()
        await opened(p, "claude-ai")
        first = p.call(1, "held")
        await asyncio.sleep(0)
        assert (await p.call(1, "quick").done()).status == 400
        assert noted(b, "exchange.duplicate") == [{"client": "claude-ai", "count": 1}]
        b.release.set()
        await first.done()


def test_clients_beyond_the_limit_are_counted_together_and_names_are_cut() -> None:
    counts = ClientCounts()
    for number in range(NAMES):
        assert counts.add({"name": f"client {number}"}, "isolate") == (f"client {number}", 1)
    assert counts.add({"name": "one more"}, "isolate") == ("other", 1)
    assert counts.add({"name": "yet another"}, "isolate") == ("other", 2)
    assert counts.add({"name": "client 3"}, "isolate") == ("client 3", 2)
    assert ClientCounts().add({"name": "x" * 100}, "isolate") == ("x" * 64, 1)
    assert ClientCounts().add({"name": 7}, "isolate") == ("unknown", 1)


def test_only_the_exact_name_is_known() -> None:
    quirks = ClientQuirks(None, NotingObserver())
    assert quirks.of({"name": "claude-ai"}).isolate
    for other in ({"name": "Claude-AI"}, {"name": ["claude-ai"]}, {}, None):
        assert quirks.of(other) == Quirks()
