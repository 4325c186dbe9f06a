"""An author's code runs in the context variables of the request that led to it, and of no other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar

from limpet import Server
from limpet.config import Limits, Settings
from limpet.engine.exchange import Exchange
from limpet.engine.reader import End
from limpet.engine.session import Session
from limpet.testing import ScriptedBack
from tests.asgi import Peer
from tests.support import async_test
from tests.unit.engine.harness import CALL, PRINCIPAL, Post, engine_harness, engine_test, settle_down

TENANT: ContextVar[str] = ContextVar("tenant", default="default")


async def who(exchange: Exchange) -> object:
    seen = TENANT.get()
    await asyncio.sleep(1)
    return {"seen": seen}


async def check_queued_calls(settings: Settings) -> None:
    async with engine_harness(ScriptedBack({CALL: who}), settings) as d:

        async def post(tenant: str) -> Post:
            TENANT.set(tenant)
            return await d.post(tenant)

        posts = [await asyncio.create_task(post(f"tenant {number}")) for number in range(4)]
        answers = [(await post.whole())[-1] for post in posts]
        assert [answer["result"]["seen"] for answer in answers] == [f"tenant {number}" for number in range(4)]


@engine_test
async def test_a_call_that_waited_for_a_slot_runs_in_the_context_of_its_own_request() -> None:
    await check_queued_calls(Settings(limits=Limits(running=1)))


@engine_test
async def test_a_call_that_waited_for_its_turn_runs_in_the_context_of_its_own_request() -> None:
    await check_queued_calls(Settings(in_order=True))


@engine_test
async def test_a_listener_that_waited_for_another_runs_in_the_context_of_its_own_request() -> None:
    seen: list[str] = []

    class Back(ScriptedBack):
        async def opened(self, session: Session) -> None:
            seen.append(f"opened by {TENANT.get()}")
            await asyncio.sleep(1)

        async def detached(self, session: Session) -> None:
            seen.append(f"detached by {TENANT.get()}")

    async with engine_harness(Back()) as d:

        async def open_and_break(tenant: str) -> None:
            TENANT.set(tenant)
            reader = await d.engine.readers.attach(d.key, PRINCIPAL)
            reader.stop(End.BROKE)
            await d.engine.readers.detach(reader)

        await asyncio.create_task(open_and_break("a visitor"))
        await asyncio.sleep(2)
        await settle_down()
    assert seen == ["opened by default", "detached by a visitor"]


@async_test
async def test_tasks_started_by_the_first_request_do_not_run_in_its_context() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def lifespan(_server: Server) -> AsyncIterator[None]:
        seen.append(TENANT.get())
        yield

    server = Server("lazy", lifespan=lifespan)
    TENANT.set("the first client's")
    async with aclosing(server.engine):
        assert (await Peer(server.asgi()).initialize()).status == 200
        assert seen == ["default"]
