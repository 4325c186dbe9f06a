"""Messages between replicas: each is handled once, and one that cannot be handled now is handled later."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.config import Limits, Times
from holdfast.engine.inbox import Inbox
from holdfast.engine.replica_messages import Began, Notify, Reply, encode_message
from holdfast.errors import StoreError, TooMuchWork
from tests.simulation.cluster import Cluster, ReplicaConnection
from tests.support import LoopClock
from tests.unit.engine.harness import engine_harness, engine_test, settle_down

TIMES = Times(lease=1e4, lease_renewal=1e3)
MESSAGE = Notify("session", "notifications/x", {})


@asynccontextmanager
async def inbox() -> AsyncIterator[tuple[Inbox, ReplicaConnection, list[str]]]:
    """Yield an inbox, the connection of another replica, and the names of the messages that were handled."""
    cluster = Cluster(Limits(), LoopClock())
    sender = cluster.connect("sender")
    handled: list[str] = []
    async with engine_harness(times=TIMES, store=cluster.connect("one").store) as made:
        box = made.engine.replica._inbox

        async def handle(name: str, message: Any, payload: bytes) -> None:
            handled.append(name)
            await box.remove(name)

        box.handlers[Notify] = handle
        yield box, sender, handled


@engine_test
async def test_a_message_that_a_store_puts_into_the_inbox_again_is_handled_once() -> None:
    async with inbox() as (_, sender, handled):
        for _ in range(3):
            assert await sender.forward("one", "m", encode_message(MESSAGE), seconds=60)
            await settle_down()
            assert await sender.remove_forwarded("m", replica="one") is False, "it was removed"
        assert handled == ["m"]


@engine_test
async def test_a_message_without_room_stays_and_is_handled_later() -> None:
    async with inbox() as (box, sender, handled):
        handle, refusals = box.handlers[Notify], [TooMuchWork(), StoreError("away")]

        async def refuse(name: str, message: Any, payload: bytes) -> None:
            if refusals:
                raise refusals.pop()
            await handle(name, message, payload)

        box.handlers[Notify] = refuse
        assert await sender.forward("one", "m", encode_message(MESSAGE), seconds=60)
        await settle_down()
        assert handled == []
        await asyncio.sleep(3)
        assert handled == ["m"]


@engine_test
async def test_a_reply_is_for_the_task_that_waits_and_others_are_dropped() -> None:
    async with inbox() as (box, sender, _):
        with box.expecting("m") as replied:
            for name in ("other", "m", "m"):
                await sender.forward("one", f"re.{name}", encode_message(Reply(name, Began())), seconds=60)
            assert await replied == Began()
        await settle_down()
        assert await box._runtime.store.inbox() == []


@engine_test
async def test_a_message_that_this_release_cannot_read_is_removed() -> None:
    async with inbox() as (box, sender, handled):
        await sender.forward("one", "m", b'{"type":"of a later release"}', seconds=60)
        await settle_down()
        assert (handled, await box._runtime.store.inbox()) == ([], [])


@engine_test
async def test_claims_that_json_cannot_hold_are_refused_before_anything_is_sent() -> None:
    async with inbox() as (box, _, _):
        with pytest.raises(StoreError, match="claims of this principal"):
            await box.send("sender", "m", Notify("s", "m", {"a": object()}), seconds=60)
