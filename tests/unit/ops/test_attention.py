"""Attention: an operator gets each warning once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from limpet import Context, Server, Settings, Times
from limpet.client import Client
from limpet.engine.engine import Engine
from limpet.errors import McpError, StoreUnavailable, ToolError
from limpet.ops.attention import Attention
from limpet.ops.call_log import CallWatch
from limpet.ops.operated import Operated
from limpet.ops.ring import Ring
from limpet.testing import NotingObserver
from limpet.testing.store.limits import tight
from tests.stores import ScriptedStore
from tests.support import LoopClock, virtual_test

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
SETTINGS = Settings(times=Times(report_after=5.0), limits=tight(running=2, queued=1, sessionless_calls=3))


@asynccontextmanager
async def observed(
    era: str, ring: Ring, settings: Settings = SETTINGS, **options: Any
) -> AsyncIterator[Client]:
    server = Server("observed", settings=settings)
    server.operate(Operated(LoopClock(), ring=ring))

    @server.tool
    async def hang(ctx: Context) -> str:
        await asyncio.Event().wait()
        return ""

    @server.tool
    async def interview(ctx: Context) -> str:
        return str(await ctx.elicit("Your name?", FORM))

    @server.tool
    async def divide(by: int) -> float:
        return 1 / by

    async with Client(server, protocol_version=era, **options) as client:
        yield client


def warned(ring: Ring, *events: str) -> list[dict[str, str]]:
    return [happened.facts for happened in ring.after() if happened.event in events]


@pytest.mark.parametrize("era", ["sessions", "sessionless"])
@virtual_test
async def test_a_call_that_hangs_gets_one_line_with_the_reason_of_its_wait(era: str) -> None:
    ring = Ring()
    async with observed(era, ring) as client:
        hanging = asyncio.create_task(client.call_tool("hang", timeout=1_000))
        await asyncio.sleep(4)
        assert not warned(ring, "call.slow")
        await asyncio.sleep(60)
        (line,) = warned(ring, "call.slow")
        assert (line["tool"], line["waits_for"], line["client"]) == ("hang", "handler", "limpet")
        assert 5 <= int(line["seconds"]) <= 7
        assert len(line["call"]) == 12
        assert ("session" in line) == (era == "sessions")
        hanging.cancel()


@pytest.mark.parametrize("era", ["sessions", "sessionless"])
@virtual_test
async def test_a_call_that_was_handed_over_may_take_long(era: str) -> None:
    ring = Ring()
    async with observed(era, ring, msgspec.structs.replace(SETTINGS, hand_over=2.0)) as client:
        hanging = asyncio.create_task(client.call_tool("hang", timeout=1_000))
        await asyncio.sleep(60)
        assert not warned(ring, "call.slow")
        hanging.cancel()


@pytest.mark.parametrize("era", ["sessions", "sessionless"])
@virtual_test
async def test_a_tool_that_begins_to_fail_gets_one_line_until_it_works_again(era: str) -> None:
    ring = Ring()
    async with observed(era, ring) as client:

        async def divide(by: int, seconds: int) -> None:
            for _ in range(seconds):
                with suppress(ToolError):
                    await client.call_tool("divide", {"by": by})
                await asyncio.sleep(1)

        await divide(1, 200)
        assert not warned(ring, "tool.failing")
        await divide(0, 40)
        (line,) = warned(ring, "tool.failing")
        assert line["tool"] == "divide"
        assert 5 <= int(line["errors"]) <= int(line["calls"]) <= 66
        assert (int(line["earlier_errors"]), int(line["earlier_calls"]) > 100) == (0, True)
        await divide(1, 300)
        assert len(warned(ring, "tool.failing")) == 1
        await divide(0, 40)
        assert len(warned(ring, "tool.failing")) == 2


@pytest.mark.parametrize("era", ["sessions", "sessionless"])
@virtual_test
async def test_a_question_without_an_answer_is_another_event(era: str) -> None:
    ring, asked = Ring(), asyncio.Event()

    async def never(question: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    async with observed(era, ring, elicitation=never) as client:
        waiting = asyncio.create_task(client.call_tool("interview", timeout=1_000))
        await asked.wait()
        await asyncio.sleep(20)
        (line,) = warned(ring, "ask.unanswered", "call.slow")
        assert (line["tool"], line["waits_for"]) == ("interview", "ask")
        waiting.cancel()


@pytest.mark.parametrize(("era", "places"), [("sessions", 3), ("sessionless", 3)])
@virtual_test
async def test_a_full_queue_is_reported_once_until_it_has_room_again(era: str, places: int) -> None:
    ring = Ring()
    async with observed(era, ring) as client:
        for times in (1, 2):
            calls = [asyncio.create_task(client.call_tool("hang", timeout=1_000)) for _ in range(places)]
            await asyncio.sleep(4)
            assert len(warned(ring, "queue.full")) == times
            with pytest.raises(McpError, match="Busy"):
                await client.call_tool("hang", timeout=2)
            for call in calls:
                call.cancel()
            await asyncio.sleep(4)


class Leases:
    """A store that says which replicas live."""

    is_shared = True
    replica = "me"

    def __init__(self) -> None:
        self.left: dict[str, float] | None = {}
        self.seconds = 0.0
        """How long a reply takes."""

    async def replicas(self) -> dict[str, float]:
        await asyncio.sleep(self.seconds)
        if self.left is None:
            raise StoreUnavailable("away")
        return self.left


@virtual_test
async def test_a_replica_whose_lease_ran_out_is_gone_and_one_that_gave_it_back_has_left() -> None:
    notes, leases = NotingObserver(), Leases()
    server = Server("s")
    engine = Engine(server.back, Settings(times=Times(lease=9.0, lease_renewal=3.0)), store=ScriptedStore())
    engine.store = leases  # type: ignore[assignment]
    attention = Attention(engine, CallWatch(LoopClock(), notes), LoopClock(), notes)
    attention.start()
    for left in ({"a": 8.0, "b": 7.0, "me": 8.0}, {"a": 8.0, "b": 2.0}, {}, {"c": 1.0}, None, {}):
        leases.left = left
        await asyncio.sleep(3.1)
    leases.left = {"d": 6.0}
    await asyncio.sleep(3.1)
    leases.left, leases.seconds = {}, 7.0
    await asyncio.sleep(14)
    attention.stop()
    assert [(event, facts["name"]) for event, facts in notes.notes if event.startswith("replica.")] == [
        ("replica.left", "a"),
        ("replica.gone", "b"),
        ("replica.gone", "d"),
    ], "this replica itself lives, also if its lease has ended"
