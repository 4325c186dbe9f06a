"""`subscriptions/listen` over real sockets: many listeners, cut ones, slow ones, and a server that stops."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from limpet.config import Settings, Times
from limpet.protocol.subscriptions import Change
from limpet.testing.store.limits import tight
from tests.http.back import Config
from tests.http.client import Response, http_test, sessionless
from tests.http.serving import Served, in_loop, limpet_serve
from tests.messages import MODERN
from tests.schema import validate
from tests.support import BOUND, until

SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
TOOLS: Final = {"toolsListChanged": True}
CHANGED: Final = "notifications/tools/list_changed"


class Ear:
    """A subscription over a socket: its messages one by one, each checked against the schema."""

    def __init__(self, response: Response) -> None:
        self.response = response
        self.connection = response.connection
        self._messages: AsyncIterator[Any] = response.messages()

    @classmethod
    async def opened(cls, port: int, wanted: dict[str, Any], **options: Any) -> "Ear":
        """Return a listener that has its acknowledgement."""
        response = await sessionless(port, "subscriptions/listen", {"notifications": wanted}, **options)
        assert (response.status, response.is_stream) == (200, True)
        ear = cls(response)
        acknowledged = await ear.next()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        return ear

    async def next(self) -> Any:
        message = await anext(self._messages)
        validate(message, MODERN, answers="subscriptions/listen")
        return message

    async def rest(self) -> list[Any]:
        """Return the remaining messages until the stream's proper end."""
        return [message async for message in self._messages]


def served_with(**limits: int) -> Config:
    return Config(settings=Settings(limits=tight(**limits), times=Times(drain=0.5)))


async def ears(served: Served, number: int, wanted: dict[str, Any]) -> list[Ear]:
    """Open listeners, not all of them at the same instant."""
    gate = asyncio.Semaphore(50)

    async def one(n: int) -> Ear:
        async with gate:
            return await Ear.opened(served.port, wanted, id=n)

    return list(await asyncio.gather(*(one(n) for n in range(number))))


@http_test
async def test_a_thousand_listeners_get_one_change_each() -> None:
    async with in_loop() as served:
        opened = await ears(served, 1_000, TOOLS)
        assert len(served.engine.listening) == 1_000
        await served.engine.changed(Change("tools"))
        told = await asyncio.gather(*(ear.next() for ear in opened))
        assert [message["method"] for message in told] == [CHANGED] * 1_000
        assert [message["params"]["_meta"][SUBSCRIPTION] for message in told] == list(range(1_000))
        for ear in opened:
            ear.connection.cut()
        await until(lambda: len(served.engine.listening) == 0)


@http_test
async def test_a_cut_listener_frees_its_place_promptly_whether_it_ends_or_resets() -> None:
    async with in_loop(served_with(listeners=1)) as served:
        for reset in (False, True):
            ear = await Ear.opened(served.port, TOOLS)
            refused = await sessionless(served.port, "subscriptions/listen", {"notifications": TOOLS})
            assert refused.status == 429
            assert refused.headers["retry-after"] == "30"
            ear.connection.cut(reset=reset)
            await until(lambda: len(served.engine.listening) == 0, seconds=10)


@http_test
async def test_a_subscription_that_stops_reading_delays_no_other_and_is_dropped_at_its_limit() -> None:
    long = "x" * 60_000
    uris = [f"a://{n}/{long}" for n in range(60)]
    async with in_loop(served_with(listener_changes=20, subscription_bytes=4_000_000)) as served:
        slow = await Ear.opened(served.port, {"resourceSubscriptions": uris}, receive_buffer=4_096)
        quick = await Ear.opened(served.port, {"resourceSubscriptions": uris})
        slow.connection.stop_reading()
        deadline = time.perf_counter() + 60
        while len(served.engine.listening) == 2:
            assert time.perf_counter() < deadline, "the slow one was not dropped"
            for uri in uris:
                await served.engine.changed(Change("resource", uri))
                assert (await quick.next())["params"]["uri"] == uri
        slow.connection.go_on_reading()
        await until(lambda: slow.connection.is_ended)
        await served.engine.changed(Change("resource", uris[0]))
        assert (await quick.next())["params"]["uri"] == uris[0]


@http_test
async def test_a_silent_stream_carries_comments() -> None:
    times = Times(keep_alive=0.05, drain=0.5)
    async with in_loop(Config(settings=Settings(times=times))) as served:
        response = await sessionless(served.port, "subscriptions/listen", {"notifications": TOOLS})
        seen = []
        async for event in response.events(comments=True):
            seen.append(event.comment)
            if len(seen) == 4:
                break
        assert seen == ["", "keep-alive", "keep-alive", "keep-alive"]


@http_test
async def test_a_server_that_stops_completes_a_hundred_listeners_and_does_not_wait_for_the_drain_time() -> (
    None
):
    with limpet_serve("examples/everything.py:server") as process:
        opened = [await Ear.opened(process.port, TOOLS, id=n) for n in range(100)]
        before = time.perf_counter()
        ending = asyncio.gather(*(ear.rest() for ear in opened))
        code = await asyncio.to_thread(process.terminate, BOUND)
        rests = await ending
        taken = time.perf_counter() - before
    for n, messages in enumerate(rests):
        assert [message["id"] for message in messages] == [n]
        validate(messages[0], MODERN, answers="subscriptions/listen")
        assert messages[0]["result"] == {"resultType": "complete", "_meta": {SUBSCRIPTION: n}}
    assert code in {0, -signal.SIGTERM}
    assert taken < 20, "the drain time is 30 s"


@http_test
async def test_stopping_ends_listeners_at_once_while_their_streams_are_read() -> None:
    async with in_loop() as served:
        opened = await ears(served, 100, TOOLS)
        ending = asyncio.gather(*(ear.rest() for ear in opened))
        before = time.perf_counter()
        await served.engine.drain()
        rests = await ending
        assert time.perf_counter() - before < 20, "the drain time is 30 s"
        assert {messages[-1]["result"]["resultType"] for messages in rests} == {"complete"}
        await served.engine.changed(Change("tools"))
        assert all(len(messages) == 1 for messages in rests)
