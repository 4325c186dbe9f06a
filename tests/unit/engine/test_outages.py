"""A store that is away for a while: running handlers wait for it, and nothing is there twice or missing."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from typing_extensions import override

from holdfast.config import Limits
from holdfast.core.stream import Position
from holdfast.engine.exchange import Exchange
from holdfast.errors import REQUEST_CANCELLED, AskTimeout, StoreUnavailable
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ScriptedBack
from tests.support import LoopClock
from tests.unit.engine.harness import CALL, Json, engine_harness, engine_test, settle_down

PROGRESS = "notifications/progress"


class Moody(MemoryStore):
    """A memory store that can be away: commands fail, or are done and their replies lost."""

    def __init__(self, limits: Limits = Limits()) -> None:
        super().__init__(limits, LoopClock())
        self.away = self.loses_replies = False
        self.failed = 0

    async def _try(self, command: Callable[[], Awaitable[Any]]) -> Any:
        if self.away:
            self.failed += 1
            if self.loses_replies:
                await command()
            raise StoreUnavailable("on purpose")
        return await command()

    @override
    async def open_stream(self, *args: Any) -> Position:
        return await self._try(lambda: MemoryStore.open_stream(self, *args))  # type: ignore[no-any-return]

    @override
    async def attach(self, *args: Any, **more: Any) -> Any:
        return await self._try(lambda: MemoryStore.attach(self, *args, **more))

    @override
    async def close(self, *args: Any) -> Any:
        return await self._try(lambda: MemoryStore.close(self, *args))

    @override
    async def keep(self, *args: Any, **more: Any) -> None:
        await self._try(lambda: MemoryStore.keep(self, *args, **more))

    @override
    async def append(self, *args: Any) -> Position:
        return await self._try(lambda: MemoryStore.append(self, *args))  # type: ignore[no-any-return]

    @override
    async def settle(self, *args: Any, **more: Any) -> None:
        await self._try(lambda: MemoryStore.settle(self, *args, **more))

    @override
    async def ask(self, *args: Any) -> bool:
        return await self._try(lambda: MemoryStore.ask(self, *args))  # type: ignore[no-any-return]

    @override
    async def take_answer(self, *args: Any) -> bytes | None:
        return await self._try(lambda: MemoryStore.take_answer(self, *args))  # type: ignore[no-any-return]

    @override
    async def withdraw(self, *args: Any) -> None:
        await self._try(lambda: MemoryStore.withdraw(self, *args))


async def count_to_three(exchange: Exchange) -> object:
    for number in range(3):
        await exchange.notify(PROGRESS, {"n": number})
    return {}


def numbers(messages: list[Json]) -> list[int]:
    return [message["params"]["n"] for message in messages if message.get("method") == PROGRESS]


@engine_test
async def test_a_handler_that_tells_of_its_progress_waits_for_a_store_that_is_away() -> None:
    for loses_replies in (False, True):
        store = Moody()

        async def leaves(exchange: Exchange, store: Moody = store) -> object:
            await exchange.notify(PROGRESS, {"n": -1})
            store.away = True
            return await count_to_three(exchange)

        for script, expected in ((count_to_three, [0, 1, 2]), (leaves, [-1, 0, 1, 2])):
            async with engine_harness(ScriptedBack({CALL: script}), store=store) as d:
                store.away, store.loses_replies, store.failed = script is count_to_three, loses_replies, 0
                post = await d.post(1)
                await asyncio.sleep(10)
                assert store.failed > 5
                assert 0 not in numbers(post.messages) or loses_replies
                store.away = False
                messages = await post.whole()
                assert numbers(messages) == expected, f"each once; replies lost: {loses_replies}"
                assert messages[-1]["result"] == {}


@engine_test
async def test_a_store_that_stays_away_fails_the_handler_after_the_limit() -> None:
    store = Moody(Limits(store_seconds=20))
    async with engine_harness(
        ScriptedBack({CALL: count_to_three}), limits=Limits(store_seconds=20), store=store
    ) as d:
        store.away = True
        await d.post(1)
        await asyncio.sleep(19)
        assert not d.noted.named("handler.failed")
        await asyncio.sleep(2)
        [failed] = d.noted.named("handler.failed")
        assert isinstance(failed["error"], StoreUnavailable)
        store.away = False
        await asyncio.sleep(1)


@engine_test
async def test_a_cancelled_handler_waits_no_longer() -> None:
    store = Moody()
    async with engine_harness(ScriptedBack({CALL: count_to_three}), store=store) as d:
        store.away = True
        post = await d.post(1)
        await settle_down()
        await d.cancel(1)
        await settle_down()
        assert post.exchange.task is not None
        assert post.exchange.task.done()
        store.away = False
        assert (await post.whole())[-1]["error"]["code"] == REQUEST_CANCELLED


@engine_test
async def test_a_message_of_a_call_that_has_ended_is_waited_for_no_longer() -> None:
    tasks: list[asyncio.Task[None]] = []

    async def leave_one_behind(exchange: Exchange) -> object:
        await exchange.notify(PROGRESS, {"n": 0})
        store.away = True
        tasks.append(asyncio.create_task(exchange.notify(PROGRESS, {"n": 0})))
        await asyncio.sleep(1)
        return {}

    store = Moody()
    async with engine_harness(ScriptedBack({CALL: leave_one_behind}), store=store) as d:
        await d.post(1)
        await asyncio.sleep(3)
        [left] = tasks
        assert left.done()
        assert isinstance(left.exception(), StoreUnavailable)
        store.away = False
        await asyncio.sleep(1)


@engine_test
async def test_an_ask_waits_for_a_store_that_is_away_at_every_step() -> None:
    async def ask(exchange: Exchange) -> object:
        return await exchange.ask("roots/list", {})

    store = Moody()
    async with engine_harness(ScriptedBack({CALL: ask}), store=store) as d:
        store.away = True
        post = await d.post(1)
        await asyncio.sleep(5)
        store.away = False
        await asyncio.sleep(1)
        [asked] = post.messages
        await d.answer(asked, {"roots": []})
        store.away = True
        await asyncio.sleep(5)
        store.away = False
        assert (await post.whole())[-1]["result"] == {"roots": []}


@engine_test
async def test_a_store_that_is_away_does_not_hide_why_an_ask_has_ended() -> None:
    async def ask(exchange: Exchange) -> object:
        return await exchange.ask("roots/list", {}, timeout=20)

    store = Moody()
    async with engine_harness(ScriptedBack({CALL: ask}), store=store) as d:
        post = await d.post(1)
        await settle_down()
        store.away = True
        await asyncio.sleep(21)
        store.away = False
        assert "error" in (await post.whole())[-1]
        [failed] = d.noted.named("handler.failed")
        assert isinstance(failed["error"], AskTimeout)


@engine_test
async def test_an_end_whose_reply_was_lost_is_written_once_and_noted_as_no_fence() -> None:
    store = Moody()
    gate = asyncio.Event()

    async def late(exchange: Exchange) -> object:
        await exchange.notify(PROGRESS, {"n": 0})
        await gate.wait()
        return {}

    async with engine_harness(ScriptedBack({CALL: late}), store=store) as d:
        post = await d.post(1)
        await settle_down()
        store.away = store.loses_replies = True
        gate.set()
        await asyncio.sleep(2)
        store.away = False
        assert [message.get("method", "result") for message in await post.whole()] == [PROGRESS, "result"]
        await asyncio.sleep(1)
        assert d.noted.named("exchange.unsettled")
        assert not d.noted.named("exchange.fenced")


class Slow(MemoryStore):
    """A memory store that takes seconds to write an end, and knows what it was asked in which order."""

    def __init__(self) -> None:
        super().__init__(Limits(), LoopClock())
        self.steps: list[str] = []

    @override
    async def settle(self, *args: Any, **more: Any) -> None:
        self.steps.append("end begins")
        await asyncio.sleep(2)
        await super().settle(*args, **more)
        self.steps.append("end written")

    @override
    async def aclose(self) -> None:
        self.steps.append("closed")
        await super().aclose()


@engine_test
async def test_a_server_that_stops_waits_for_an_end_that_is_on_its_way_to_the_store() -> None:
    store = Slow()
    async with engine_harness(store=store) as d:
        await d.submit(1)
        await settle_down()
        assert store.steps == ["end begins"]
        assert not d.session.exchanges
    assert store.steps == ["end begins", "end written", "closed"]
