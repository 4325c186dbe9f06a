"""The client's view when the server behind ends, is silent, floods or is too busy; and nothing is left over."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from limpet import Context, McpError, Server
from limpet.backs.proxy.call import Call
from limpet.backs.proxy.calls import Calls
from limpet.backs.proxy.options import ProxyOptions
from limpet.backs.proxy.outbox import Space
from limpet.backs.proxy.silence import Silence
from limpet.backs.proxy.subscriptions import Subscriptions
from limpet.core.ledger import Ledger
from limpet.core.lifecycle import SessionInput
from limpet.engine.caller import Caller
from limpet.errors import BUSY, OUTCOME_UNKNOWN
from limpet.ports import SilentObserver
from limpet.wire.jsonrpc import Request
from tests.backs.behind import Behind, in_front
from tests.duplex import DuplexClient
from tests.support import BOUND, async_test, stays, until, virtual_test, virtual_test_within

ERAS = ["sessions", "sessionless"]


class Slow:
    """A server whose calls wait until the test lets them go."""

    def __init__(self) -> None:
        self.server = Server("slow")
        self.running = self.most = self.levels = 0
        self.go = asyncio.Event()

        @self.server.tool
        async def work(ctx: Context) -> str:
            """Wait for the test."""
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await self.go.wait()
            finally:
                self.running -= 1
            return "worked"

        @self.server.tool
        async def slowly(ctx: Context) -> str:
            """Report progress every 20 s for 200 s."""
            for number in range(10):
                await asyncio.sleep(20)
                await ctx.progress(number + 1)
            return "slowly"

        @self.server.tool
        async def guess(ctx: Context) -> str:
            """Ask the model of the client."""
            return (await ctx.sample("?", max_tokens=1)).text

        @self.server.tool
        async def say(ctx: Context) -> str:
            """Log at every level."""
            await ctx.log("debug", "detail")
            return "said"

        @self.server.resource("memo://one")
        async def memo() -> str:
            """A memo."""
            return "text"


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_after_the_end_of_the_server_one_error_then_a_new_conversation_with_all_that_was_set(
    era: str,
) -> None:
    slow = Slow()
    behind = Behind(slow.server, era)
    changes: list[str] = []
    logs: list[Any] = []
    async with (
        in_front(behind) as front,
        front.client(
            "sessions",
            on_log=lambda message: logs.append(message["data"]),
            on_notification=lambda method, _params: changes.append(method),
        ) as client,
        client.listen(resources=["memo://one"]) as updates,
    ):
        await client.set_log_level("debug")
        call = asyncio.ensure_future(client.call_tool("work"))
        await until(lambda: slow.running == 1)
        await behind.break_links()
        with pytest.raises(McpError) as failed:
            await call
        assert failed.value.code == OUTCOME_UNKNOWN
        assert (await client.call_tool("say")).text == "said"
        await until(lambda: logs == ["detail"])
        await until(lambda: "notifications/tools/list_changed" in changes)
        await slow.server.resource_updated("memo://one")
        assert (await anext(updates)).uri == "memo://one"
        assert behind.living == 1


@async_test
async def test_a_session_that_ends_while_its_server_is_not_ready_yet_leaves_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(_subscriptions: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Subscriptions, "ready", never)
    behind = Behind(Slow().server)
    async with in_front(behind) as front:
        opening = asyncio.ensure_future(DuplexClient(front.engine, Caller("")).open())
        await until(lambda: behind.living == 1)
        opening.cancel()
        await until(lambda: behind.living == 0)


@async_test
async def test_a_read_that_the_end_of_the_server_has_cut_is_sent_again() -> None:
    server, began = Server("reads"), asyncio.Event()

    @server.resource("memo://one")
    async def memo() -> str:
        """Wait for the test, the first time."""
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()
        return "text"

    behind = Behind(server, "sessions")
    async with in_front(behind) as front, front.client("sessions") as client:
        # The client itself does not send it again.
        asked = client.request("resources/read", {"uri": "memo://one"}, idempotent=False)
        read = asyncio.ensure_future(asked)
        await began.wait()
        await behind.break_links()
        assert (await read)["contents"][0]["text"] == "text"


@async_test
async def test_a_strict_proxy_closes_the_session_when_the_server_ends() -> None:
    behind = Behind(Slow().server, "sessions")
    async with in_front(behind, ProxyOptions(strict=True)) as front:
        client = DuplexClient(front.engine, Caller(""))
        await client.open()
        [key] = front.engine.runtime.sessions
        await client.say("ping", 1)
        await client.answer(1)
        await behind.break_links()

        async def is_closed() -> bool:
            return await front.engine.store.find(key, "") is None

        await until(is_closed)
        await until(lambda: behind.living == 0)


@async_test
async def test_a_strict_proxy_opens_another_conversation_for_the_next_client_without_a_session() -> None:
    behind = Behind(Slow().server, "sessions")
    async with in_front(behind, ProxyOptions(strict=True)) as front, front.client("sessionless") as client:
        assert (await client.call_tool("say")).text == "said"
        await behind.break_links()
        await until(lambda: behind.living == 0)
        assert (await client.call_tool("say")).text == "said"


@pytest.mark.parametrize("client_era", ERAS)
@async_test
async def test_the_limit_of_calls_at_once_holds_and_the_queue_is_bounded(client_era: str) -> None:
    slow = Slow()
    options = ProxyOptions(concurrency=2, queued=3)
    async with in_front(Behind(slow.server), options) as front, front.client(client_era) as client:
        calls = [asyncio.ensure_future(client.call_tool("work")) for _ in range(6)]
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        [refused] = [call.exception() for call in done]
        assert isinstance(refused, McpError)
        assert refused.code == BUSY
        await until(lambda: slow.running == 2)
        slow.go.set()
        results = await asyncio.gather(*(call for call in calls if call not in done))
        assert [result.text for result in results] == ["worked"] * 5
        assert slow.most == 2


@async_test
async def test_control_traffic_passes_although_the_limit_of_calls_is_reached() -> None:
    slow = Slow()
    options = ProxyOptions(concurrency=1, queued=1)
    async with (
        in_front(Behind(slow.server, "sessions"), options) as front,
        front.client("sessions") as client,
    ):
        calls = [asyncio.ensure_future(client.call_tool("work")) for _ in range(2)]
        await until(lambda: slow.running == 1)
        async with asyncio.timeout(BOUND):
            await client.ping()
            await client.set_log_level("warning")
            async with client.listen(resources=["memo://one"]):
                assert slow.running == 1
        slow.go.set()
        assert (await calls[0]).text == "worked"
        assert (await calls[1]).text == "worked"


@pytest.mark.parametrize(("server_era", "at_once"), [("sessions", 1), ("sessionless", 2)])
@async_test
async def test_calls_of_a_2026_client_that_can_be_asked_run_one_at_a_time_only_if_a_question_could_be_unclear(
    server_era: str, at_once: int
) -> None:
    slow = Slow()
    async with (
        in_front(Behind(slow.server, server_era)) as front,
        front.client("sessionless", elicitation=lambda _question: {}) as client,
    ):
        calls = [asyncio.ensure_future(client.call_tool("work")) for _ in range(2)]
        await until(lambda: slow.running == at_once)
        slow.go.set()
        assert [result.text for result in await asyncio.gather(*calls)] == ["worked"] * 2
        assert slow.most == at_once


@pytest.mark.parametrize("waits_already", [False, True])
@async_test
async def test_a_call_whose_client_never_answers_does_not_stop_the_other_calls(waits_already: bool) -> None:
    slow, asks, is_asked = Slow(), asyncio.Event(), asyncio.Event()

    @slow.server.tool
    async def ask(ctx: Context) -> str:
        """Ask the user when the test says so."""
        slow.running += 1
        await asks.wait()
        return str(await ctx.elicit("a question", {"type": "object", "properties": {}}))

    async def never(_question: Any) -> Any:
        is_asked.set()
        await asyncio.Event().wait()

    behind = Behind(slow.server, "sessions")
    async with in_front(behind) as front, front.client("sessionless", elicitation=never) as client:
        abandoned = asyncio.ensure_future(client.call_tool("ask"))
        await until(lambda: slow.running == 1)
        slow.go.set()
        if waits_already:
            other = asyncio.ensure_future(client.call_tool("work"))
            await stays(lambda: not other.done(), 0.05)  # it waits for its turn
            asks.set()
        else:
            asks.set()
            await is_asked.wait()
            other = asyncio.ensure_future(client.call_tool("work"))
        assert (await other).text == "worked"
        assert len(front.notes.named("upstream.turn_taken")) == 1
        abandoned.cancel()
        await until(lambda: behind.living == 1)


@virtual_test_within(3_000)
async def test_a_silent_server_ends_a_call_and_progress_extends_its_time() -> None:
    slow = Slow()
    async with in_front(Behind(slow.server), ProxyOptions(call_seconds=60)) as front:
        client = DuplexClient(front.engine, Caller(""))
        await client.open()
        await client.say("tools/call", 1, name="slowly", arguments={}, _meta={"progressToken": "mine"})
        assert (await client.answer(1))["result"]["content"][0]["text"] == "slowly"
        tokens = {
            m["params"]["progressToken"] for m in client.received if m.get("method", "").endswith("progress")
        }
        assert tokens == {"mine"}
        before = asyncio.get_running_loop().time()
        await client.say("tools/call", 2, name="work", arguments={})
        error = (await client.answer(2))["error"]
        assert error["code"] == OUTCOME_UNKNOWN
        assert "silent for 60 s" in error["message"]
        assert asyncio.get_running_loop().time() - before == pytest.approx(60, abs=1)
        await until(lambda: slow.running == 0)
        await client.duplex.hang_up(SessionInput.DELETED)


@virtual_test_within(3_000)
async def test_the_time_in_which_a_client_is_asked_does_not_count_for_any_call_that_may_have_asked() -> None:
    slow = Slow()
    async with in_front(Behind(slow.server, "sessions"), ProxyOptions(call_seconds=60)) as front:
        client = DuplexClient(front.engine, Caller(""))
        await client.open()
        await client.say("tools/call", 1, name="work", arguments={})
        await until(lambda: slow.running == 1)
        await client.say("tools/call", 2, name="guess", arguments={})
        await client.wait_for("sampling/createMessage")
        await asyncio.sleep(200)
        [question] = [m for m in client.received if m.get("method") == "sampling/createMessage"]
        answer = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "guessed"}}
        await client.duplex.take(
            msgspec.json.encode({"jsonrpc": "2.0", "id": question["id"], "result": answer})
        )
        assert (await client.answer(2))["result"]["content"][0]["text"] == "guessed"
        slow.go.set()
        assert (await client.answer(1))["result"]["content"][0]["text"] == "worked"
        await client.duplex.hang_up(SessionInput.DELETED)


@virtual_test_within(3_000)
async def test_an_upstream_without_a_session_ends_when_it_is_idle_and_not_before() -> None:
    behind = Behind(Slow().server)
    async with in_front(behind, ProxyOptions(idle_seconds=100)) as front:
        client = DuplexClient(front.engine, Caller(""))
        await client.sessionless("tools/call", 1, name="say", arguments={})
        await client.answer(1)
        await asyncio.sleep(90)
        assert behind.living == 1
        await asyncio.sleep(20)
        assert behind.living == 0


@virtual_test_within(3_000)
async def test_a_server_that_does_not_answer_unsubscribe_does_not_delay_the_end_of_other_upstreams() -> None:
    slow = Slow()
    behind, control = Behind(slow.server, "sessions"), Calls.control
    asked: list[str] = []

    async def unanswered(calls: Calls, method: str, params: dict[str, Any]) -> object:
        asked.append(method)
        if method == "resources/unsubscribe":
            await asyncio.Event().wait()
        return await control(calls, method, params)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Calls, "control", unanswered)
        async with in_front(behind, ProxyOptions(idle_seconds=100)) as front:
            ann, bob = (DuplexClient(front.engine, Caller(name)) for name in ("ann", "bob"))
            wanted = {"resourceSubscriptions": ["memo://one"], "toolsListChanged": True}
            await ann.sessionless("subscriptions/listen", 1, notifications=wanted)
            await ann.wait_for("notifications/subscriptions/acknowledged")
            await ann.say("notifications/cancelled", requestId=1)
            await ann.sessionless("subscriptions/listen", 2, notifications={"toolsListChanged": True})
            await until(lambda: "resources/unsubscribe" in asked)
            await bob.sessionless("tools/call", 1, name="say", arguments={})
            await bob.answer(1)
            assert behind.living == 2
            await asyncio.sleep(110)
            assert behind.living == 1
            assert front.back.upstreams.opened()[0].client.caller.key == "ann"


@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("client_era", ERAS)
@async_test
async def test_a_client_that_stands_still_gets_every_change_although_few_messages_may_wait_for_it(
    client_era: str, server_era: str
) -> None:
    server = Server("many")

    @server.resource("memo://{number}")
    async def memo(number: str) -> str:
        """A memo."""
        return number

    uris = [f"memo://{number}" for number in range(30)]
    updated = "notifications/resources/updated"
    async with in_front(Behind(server, server_era), ProxyOptions(notifications=4)) as front:
        client = DuplexClient(front.engine, Caller(""))
        if client_era == "sessions":
            await client.open()
            for number, uri in enumerate(uris, 1):
                await client.say("resources/subscribe", number, uri=uri)
                await client.answer(number)
        else:
            await client.sessionless(
                "subscriptions/listen", "l", notifications={"resourceSubscriptions": uris}
            )
            await client.wait_for("notifications/subscriptions/acknowledged")
        client.reading.clear()
        for uri in uris:
            await server.resource_updated(uri)
        await stays(lambda: len(client.notified(updated)) <= 1, 0.05)
        client.reading.set()
        await until(lambda: {params["uri"] for params in client.notified(updated)} == set(uris))
        await client.duplex.hang_up(SessionInput.DELETED)


@virtual_test
async def test_a_closed_upstream_leaves_no_timer() -> None:
    async with in_front(Behind(Slow().server), ProxyOptions(call_seconds=300)) as front:
        client = DuplexClient(front.engine, Caller(""))
        await client.open()
        await client.say("tools/call", 1, name="say", arguments={})
        await client.answer(1)
        [upstream] = front.back.upstreams.opened()
        assert upstream.calls._silence.timer is not None
        await client.duplex.hang_up(SessionInput.DELETED)
        await until(lambda: not front.back.upstreams.opened())
        await until(lambda: upstream.calls._silence.timer is None)


@async_test
async def test_a_session_has_its_own_upstream_which_ends_with_it() -> None:
    behind = Behind(Slow().server)
    async with in_front(behind) as front:
        async with front.client("sessions") as one, front.client("sessions") as two:
            await one.call_tool("say")
            await two.call_tool("say")
            assert behind.living == 2
            assert len({client.session for client in behind.clients}) == 2
        await until(lambda: behind.living == 0)


@async_test
async def test_anonymous_clients_share_an_upstream_unless_they_may_be_different_people() -> None:
    behind = Behind(Slow().server)
    async with in_front(behind) as front:
        for number, others in enumerate((False, True)):
            front.back.shares_anonymous = not others
            client = DuplexClient(front.engine, Caller(""))
            for request in range(3):
                await client.sessionless("tools/call", request, name="say", arguments={})
                assert "result" in await client.answer(request)
            assert len(behind.clients) == (4 if others else 1), number
        await until(lambda: behind.living == 1)


@async_test
async def test_principals_never_share_an_upstream() -> None:
    behind = Behind(Slow().server)
    async with in_front(behind) as front:
        for key in ("ada", "bob", "ada"):
            client = DuplexClient(front.engine, Caller(key))
            await client.sessionless("tools/call", 1, name="say", arguments={})
            await client.answer(1)
        assert [client.caller.key for client in behind.clients] == ["ada", "bob"]


@async_test
async def test_too_many_upstreams_are_refused_as_busy_and_a_free_place_is_used_again() -> None:
    behind = Behind(Slow().server)
    async with in_front(behind, ProxyOptions(upstreams=2)) as front:
        async with front.client("sessions"), front.client("sessions"):
            with pytest.raises(McpError) as refused:
                async with front.client("sessions"):
                    raise AssertionError("the third client was served")
            assert refused.value.code == BUSY
        await until(lambda: behind.living == 0)
        async with front.client("sessions") as client:
            await client.call_tool("say")


@async_test
async def test_upstreams_of_one_call_count_against_the_limit() -> None:
    slow = Slow()
    async with in_front(Behind(slow.server), ProxyOptions(upstreams=1)) as front:
        front.back.shares_anonymous = False
        client = DuplexClient(front.engine, Caller(""))
        await client.sessionless("tools/call", 1, name="work", arguments={})
        await until(lambda: slow.running == 1)
        await client.sessionless("tools/call", 2, name="work", arguments={})
        assert (await client.answer(2))["error"]["code"] == BUSY
        slow.go.set()
        assert "result" in await client.answer(1)


@async_test
async def test_progress_that_does_not_rise_is_dropped() -> None:
    sent: list[Any] = []

    class Told:
        request = Request(1, "tools/call", {"_meta": {"progressToken": "mine"}})

        async def notify(self, _method: str, params: msgspec.Raw) -> None:
            sent.append(msgspec.json.decode(params)["progress"])

    exchange: Any = Told()
    outside: Any = None
    space = Space(100, 1_000, 1_000)
    call = Call(exchange, silence=Silence(1), space=space, observer=SilentObserver(), outside=outside)
    for progress in (1, 3, 2, 3, True, "x", 4.5):
        call._on_progress({"progress": progress, "progressToken": 99})
    await until(lambda: len(sent) == 3)
    assert sent == [1, 3, 4.5]


@async_test
async def test_a_message_that_is_complete_leaves_the_memory_of_its_call() -> None:
    ledger = Ledger(2**26)
    account, before = ledger.account("a client"), ledger.used
    exchange: Any = SimpleNamespace(caller=None, request=Request(1, "tools/call", {}))
    outside: Any = SimpleNamespace(
        charge=lambda _caller, _size, *, urgent: account.open() if urgent else None
    )
    space = Space(100, 1_000, 1_000)
    call = Call(exchange, silence=Silence(1), space=space, observer=SilentObserver(), outside=outside)
    call.received(1_000_000)
    assert ledger.used - before > 1_000_000
    call.received(0)
    assert ledger.used == before
