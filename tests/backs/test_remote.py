"""A server behind a URL, in every form that servers have: it restarts, forgets sessions, and cuts streams."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from limpet import Client, Limits, McpError, Remote, Settings
from limpet.backs.proxy import restoring, subscriptions
from limpet.backs.proxy.restoring import ATTEMPTS, STEADY_SECONDS, Reconnection
from limpet.errors import OUTCOME_UNKNOWN, NotSent
from limpet.ports import Ports, SystemRandom
from limpet.testing import NotingObserver
from limpet.upstream.settings import ClientTimes
from tests.asgi import Peer
from tests.backs.fake import BadRequest, Cut, Fake
from tests.messages import notification, request
from tests.support import LoopClock, async_test, until, virtual_test_within

TIMES: Final = ClientTimes(backoff=(0.01, 0.05), patience=5.0, standalone=0.5)
SHAPES: Final[dict[str, dict[str, Any]]] = {
    "JSON": {},
    "events": {"form": "sse"},
    "GET answers 405": {"get": False},
    "stateless": {"stateless": True, "get": False},
    "stateless with events": {"stateless": True, "get": False, "form": "sse"},
    "2026-07-28": {"era": "sessionless"},
    "2026-07-28 with events": {"era": "sessionless", "form": "sse"},
}
CHANGED: Final = "notifications/tools/list_changed"


@asynccontextmanager
async def served(fake: Fake, **options: Any) -> AsyncIterator[Remote]:
    async with fake:
        remote = Remote(fake.url, times=TIMES, **options)
        try:
            yield remote
        finally:
            await remote.engine.aclose()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the pauses before another attempt short."""
    monkeypatch.setattr(restoring, "PAUSES", (0.02, 0.1))
    monkeypatch.setattr(subscriptions, "_AGAIN_SECONDS", 0.05)


@pytest.mark.parametrize("client_era", ["sessions", "sessionless"])
@pytest.mark.parametrize("status", [400, 404])
@async_test
async def test_a_session_that_the_server_no_longer_knows_is_opened_again_once_and_then_the_error_is_honest(
    status: int, client_era: str
) -> None:
    fake = Fake(unknown=status)
    async with served(fake) as remote, Client(remote, protocol_version=client_era) as client:
        await client.call_tool("a", {"n": 1})
        opened, sent = fake.asked["initialize"], fake.asked["tools/call"]
        fake.forget_sessions()
        assert "'n': 2" in (await client.call_tool("a", {"n": 2})).text
        assert fake.asked["initialize"] == opened + 1
        # The first attempt was refused, and not executed.
        assert fake.asked["tools/call"] == sent + 2
        # From now on the server forgets each session at once.
        fake.forgets = True
        fake.forget_sessions()
        with pytest.raises(McpError) as failed:
            await client.call_tool("a", {"n": 3})
        assert "nothing was executed" in failed.value.message
        assert "no longer knows the session" in failed.value.message
        assert fake.asked["initialize"] == opened + 2
        assert fake.asked["tools/call"] == sent + 4


@pytest.mark.parametrize("reason", ["no such argument", "Server not initialized"])
@async_test
async def test_a_bad_request_in_a_living_session_is_refused_once_and_the_other_calls_go_on(
    reason: str,
) -> None:
    def bad(params: dict[str, Any]) -> dict[str, Any]:
        if params["name"] == "bad":
            raise BadRequest(reason)
        return {"content": [{"type": "text", "text": "good"}]}

    fake = Fake(form="sse")
    fake.answers |= {"tools/call": bad, "ping": lambda _params: {}}
    async with served(fake) as remote, Client(remote, protocol_version="sessions") as client:
        release = fake.hold = asyncio.Event()
        good = asyncio.ensure_future(client.call_tool("good"))
        await until(lambda: fake.asked["tools/call"] == 1)
        fake.hold = None
        with pytest.raises(McpError, match=reason) as refused:
            await client.call_tool("bad")
        assert refused.value.code == -32000
        assert (fake.asked["tools/call"], fake.asked["ping"], fake.asked["initialize"]) == (2, 1, 1)
        release.set()
        assert (await good).text == "good"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("client_era", ["sessions", "sessionless"])
@async_test
async def test_every_shape_of_server_is_served_and_may_restart(shape: str, client_era: str) -> None:
    fake = Fake(**SHAPES[shape])
    async with served(fake) as remote, Client(remote, protocol_version=client_era) as client:
        assert await client.list_tools() == []
        assert "'n': 1" in (await client.call_tool("a", {"n": 1})).text
        await fake.stop()
        await fake.start()
        assert "'n': 2" in (await client.call_tool("a", {"n": 2})).text
        fake.hold = asyncio.Event()
        calls = fake.asked["tools/call"]
        lost = asyncio.ensure_future(client.call_tool("a", {"n": 3}))
        await until(lambda: fake.asked["tools/call"] > calls)
        await fake.stop()
        with pytest.raises(McpError) as failed:
            await lost
        assert failed.value.code == OUTCOME_UNKNOWN
        fake.hold = None
        await fake.start()
        assert "'n': 4" in (await client.call_tool("a", {"n": 4})).text
        # A request that gets 404 was not executed, and is sent again in the new session.
        has_session = "era" not in SHAPES[shape] and "stateless" not in SHAPES[shape]
        assert fake.asked["tools/call"] - calls <= 2 + has_session


@async_test
async def test_a_server_that_answers_404_to_the_first_get_keeps_its_session() -> None:
    fake = Fake(get=False, no_get=404)
    async with served(fake) as remote, Client(remote, protocol_version="sessions") as client:
        await until(lambda: fake.asked["GET"] == 1)
        for _ in range(3):
            await client.call_tool("a")
        assert fake.asked["initialize"] == 1
        fake.forget_sessions()
        await client.call_tool("a")
        assert fake.asked["initialize"] == 2


@pytest.mark.parametrize("client_era", ["sessions", "sessionless"])
@async_test
async def test_a_stream_that_the_server_cuts_is_resumed_and_the_call_is_sent_once(client_era: str) -> None:
    def cut(_params: dict[str, Any]) -> dict[str, Any]:
        raise Cut

    fake = Fake(form="sse")
    fake.answers["tools/call"] = cut
    async with served(fake) as remote, Client(remote, protocol_version=client_era) as client:
        assert (await client.call_tool("a")).text == "after the cut"
    assert fake.asked["tools/call"] == 1
    assert [h["last-event-id"] for h in fake.sent_with("GET") if "last-event-id" in h]


RESTORED: Final[dict[str, Any]] = {
    "tools": {"listChanged": True},
    "logging": {},
    "resources": {"subscribe": True},
}


@pytest.mark.parametrize(
    ("restarts", "status"), [(False, 404), (True, 404), (True, 400)], ids=["404", "restart", "400"]
)
@async_test
async def test_a_lost_session_is_replaced_without_a_call_and_gets_the_settings_of_the_old_one(
    restarts: bool, status: int
) -> None:
    fake = Fake(capabilities=RESTORED, unknown=status)
    fake.answers |= {"logging/setLevel": lambda _params: {}, "resources/subscribe": lambda _params: {}}
    async with served(fake) as remote:
        peer = Peer(remote.asgi())
        await peer.initialize()
        await peer.post(notification("notifications/initialized")).done()
        await peer.post(request(1, "logging/setLevel", {"level": "debug"})).done()
        await peer.post(request(2, "resources/subscribe", {"uri": "memo://one"})).done()
        standalone = await peer.get().begun()
        await until(lambda: len(fake.streams) == 1)
        if restarts:
            await fake.stop()
            await fake.start()
        else:
            fake.forget_sessions()
        await standalone.until(2)
        methods = {message["method"] for message in standalone.messages}
        assert methods >= {CHANGED, "notifications/resources/list_changed"}
        assert fake.asked["logging/setLevel"] == fake.asked["resources/subscribe"] == 2
        # The new session reports changes.
        await until(lambda: len(fake.streams) == 1)
        seen = len(standalone.messages)
        fake.notify("notifications/resources/updated", uri="memo://one")
        await standalone.until(seen + 1)
        assert standalone.messages[-1]["params"] == {"uri": "memo://one"}
        await standalone.cut()


@async_test
async def test_a_stream_that_broke_and_cannot_be_resumed_is_followed_by_an_update_of_each_subscribed_resource() -> (
    None
):
    fake = Fake(capabilities=RESTORED)
    fake.answers["resources/subscribe"] = lambda _params: {}
    async with served(fake) as remote:
        peer = Peer(remote.asgi())
        await peer.initialize()
        await peer.post(notification("notifications/initialized")).done()
        await peer.post(request(1, "resources/subscribe", {"uri": "memo://one"})).done()
        standalone = await peer.get().begun()
        await until(lambda: len(fake.streams) == 1)
        fake.break_streams()
        await standalone.until(1)
        assert [message["params"] for message in standalone.messages] == [{"uri": "memo://one"}]
        assert fake.asked["initialize"] == 1
        await standalone.cut()


@async_test
async def test_a_subscription_that_the_server_refuses_does_not_count() -> None:
    fake = Fake(capabilities=RESTORED)
    async with served(fake, settings=Settings(limits=Limits(subscriptions=2))) as remote:
        peer = Peer(remote.asgi())
        await peer.initialize()
        for number in range(3):
            refused = await peer.post(
                request(number, "resources/subscribe", {"uri": f"memo://{number}"})
            ).done()
            assert refused.json["error"]["code"] == -32601
        fake.answers["resources/subscribe"] = lambda _params: {}
        for number in range(2):
            done = await peer.post(request(number, "resources/subscribe", {"uri": f"memo://{number}"})).done()
            assert done.json["result"] == {}


async def subscribed(remote: Remote) -> list[str]:
    """Return the subscriptions that a new home of the only session would ask for."""
    [session] = remote.engine.runtime.sessions
    return await remote.engine.store.subscriptions(session)


@async_test
async def test_two_equal_subscriptions_at_once_of_which_the_server_refuses_one_are_one_that_is_stored() -> (
    None
):
    fake = Fake(capabilities=RESTORED)

    def answer(_params: object) -> Any:
        if fake.asked["resources/subscribe"] == 1:
            raise LookupError(-32602, "not now")
        return {}

    fake.answers["resources/subscribe"] = answer
    async with served(fake) as remote:
        peer = Peer(remote.asgi())
        await peer.initialize()
        wanted = {"uri": "memo://one"}
        both = [peer.post(request(number, "resources/subscribe", wanted)) for number in (1, 2)]
        done = [(await one.done()).json for one in both]
        assert sorted("error" in one for one in done) == [False, True]
        assert await subscribed(remote) == ["memo://one"]


@async_test
async def test_a_subscription_that_the_client_cancels_is_not_stored_and_an_older_equal_one_is() -> None:
    fake = Fake(capabilities=RESTORED)
    fake.answers |= dict.fromkeys(("resources/subscribe", "resources/unsubscribe"), lambda _params: {})
    async with served(fake) as remote:
        peer = Peer(remote.asgi())
        await peer.initialize()
        await peer.post(request(1, "resources/subscribe", {"uri": "memo://one"})).done()
        fake.hold = asyncio.Event()
        waiting = [
            peer.post(request(number, "resources/subscribe", {"uri": f"memo://{name}"}))
            for number, name in ((2, "two"), (3, "one"))
        ]
        await until(lambda: fake.asked["resources/subscribe"] == 2)
        for number in (2, 3):
            await peer.post(notification("notifications/cancelled", {"requestId": number})).done()
        for one in waiting:
            await one.done()
        fake.hold.set()

        async def is_settled() -> bool:
            return await subscribed(remote) == ["memo://one"]

        await until(is_settled)
        assert (await peer.post(request(4, "resources/subscribe", {"uri": "memo://two"})).done()).json[
            "result"
        ] == {}
        assert sorted(await subscribed(remote)) == ["memo://one", "memo://two"]


@async_test
async def test_after_a_break_of_the_listen_stream_of_a_2026_server_its_lists_may_have_changed() -> None:
    fake = Fake(era="sessionless", capabilities=RESTORED)
    async with served(fake) as remote:
        peer = Peer(remote.asgi())
        await peer.initialize()
        standalone = await peer.get().begun()
        await until(lambda: len(fake.streams) == 1)
        await fake.stop()
        await fake.start()
        await standalone.until(2)
        assert CHANGED in {message["method"] for message in standalone.messages}
        await standalone.cut()


@async_test
async def test_a_strict_proxy_closes_the_session_and_opens_no_other_one() -> None:
    fake = Fake()
    async with served(fake, strict=True) as remote:
        peer = Peer(remote.asgi())
        await peer.initialize()
        await until(lambda: len(fake.streams) == 1)
        fake.forget_sessions()

        async def is_closed() -> bool:
            return (await peer.post(request(1, "ping", {})).done()).status == 404

        await until(is_closed)
        assert fake.asked["initialize"] == 1


@virtual_test_within(100_000)
async def test_attempts_to_reconnect_are_bounded_and_start_again_after_a_steady_time() -> None:
    clock, notes = LoopClock(), NotingObserver()
    times: list[float] = []
    works = False

    async def connect() -> None:
        times.append(clock.now())
        if not works:
            raise NotSent("no")

    again = Reconnection(connect, Ports(clock, SystemRandom(), notes))
    again.soon()
    again.soon()
    await asyncio.sleep(3_000)
    assert len(times) == ATTEMPTS == len(notes.named("upstream.not_reconnected"))
    assert times[-1] - times[-2] > times[1] - times[0]
    works = True
    # Each new session is lost at once: these attempts are bounded too.
    for _ in range(3 * ATTEMPTS):
        again.soon()
        await asyncio.sleep(0.2)
    assert len(times) == 2 * ATTEMPTS
    await asyncio.sleep(STEADY_SECONDS)
    again.soon()
    await asyncio.sleep(0.2)
    assert len(times) == 2 * ATTEMPTS + 1
    again.close()


@pytest.mark.parametrize("form", ["json", "sse"])
@pytest.mark.parametrize("client_era", ["sessions", "sessionless"])
@async_test
async def test_an_answer_is_in_the_memory_of_its_client_while_it_is_read(client_era: str, form: Any) -> None:
    """The server behind sends the first halves, and holds the rest: as many are read as there is memory for."""
    fake = Fake(form=form)
    fake.rest = asyncio.Event()
    fake.answers["tools/call"] = lambda _params: b'{"content":[],"text":"' + b"x" * 2_000_000 + b'"}'
    async with served(fake, settings=Settings(limits=Limits(memory=16 * 2**20))) as remote:
        ledger = remote.engine.load.ledger
        async with Client(remote, protocol_version=client_era) as client:
            calls = [asyncio.create_task(client.call_tool("a", {"n": n})) for n in range(12)]
            await until(lambda: any(call.done() for call in calls))
            assert ledger.used > 2_000_000
            fake.rest.set()
            ends = await asyncio.gather(*calls, return_exceptions=True)
        dropped = [end for end in ends if isinstance(end, McpError)]
        assert {end.code for end in dropped} == {OUTCOME_UNKNOWN}
        assert all("answer was dropped" in str(end) for end in dropped)
        assert fake.asked["tools/call"] == 12, "a call whose answer was dropped was sent again"
        assert len(dropped) < 12
        await until(lambda: ledger.used < 2**20)
