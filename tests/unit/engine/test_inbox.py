"""Messages between replicas: each is handled once, and one that cannot be handled now is handled later."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from limpet.auth.forward_key import CredentialSealer, ForwardKey, new_key
from limpet.config import Limits, Times
from limpet.engine.inbox import Inbox, Received
from limpet.engine.messages import (
    FAILED,
    REPLY,
    Began,
    ForwardedRequest,
    Late,
    Message,
    Notify,
    Replies,
    decode_verdict,
)
from limpet.errors import StoreError, TooMuchWork
from limpet.ports import SystemRandom
from limpet.wire.jsonrpc import Request
from tests.simulation.cluster import Cluster, ReplicaConnection
from tests.support import LoopClock
from tests.unit.engine.harness import engine_harness, engine_test, settle_down

TIMES = Times(lease=1e4, lease_renewal=1e3)
MESSAGE = msgspec.json.encode(Message.of("notify", "m", Notify("session", "notifications/x", {})))


@asynccontextmanager
async def inbox() -> AsyncIterator[tuple[Inbox, ReplicaConnection, list[str]]]:
    """Yield an inbox, the connection of another replica, and the names of the messages that were handled."""
    cluster = Cluster(Limits(), LoopClock())
    sender = cluster.connect("sender")
    handled: list[str] = []
    async with engine_harness(times=TIMES, store=cluster.connect("one").store) as made:
        box = made.engine.replica._inbox

        async def handle(message: Received) -> None:
            handled.append(message.name)
            await message.remove()

        box.handlers["notify"] = Notify, handle
        yield box, sender, handled


@engine_test
async def test_a_message_that_a_store_puts_into_the_inbox_again_is_handled_once() -> None:
    async with inbox() as (_, sender, handled):
        for _ in range(3):
            assert await sender.forward("one", "m", MESSAGE, seconds=60)
            await settle_down()
            assert await sender.remove_forwarded("m", replica="one") is False, "it was removed"
        assert handled == ["m"]


@engine_test
async def test_a_message_without_room_stays_and_is_handled_later() -> None:
    async with inbox() as (box, sender, handled):
        (_, handle), refusals = box.handlers["notify"], [TooMuchWork(), StoreError("away")]

        async def refuse(message: Received) -> None:
            if refusals:
                raise refusals.pop()
            await handle(message)

        box.handlers["notify"] = Notify, refuse
        assert await sender.forward("one", "m", MESSAGE, seconds=60)
        await settle_down()
        assert handled == []
        await asyncio.sleep(3)
        assert handled == ["m"]


@engine_test
async def test_large_messages_are_decoded_in_turn() -> None:
    async with inbox() as (box, sender, _):
        passes: list[int] = []

        async def handle(message: Received) -> None:
            passes.append(now)
            await message.remove()

        box.handlers["notify"] = Notify, handle
        now, text = 0, {"text": "x" * 600_000}
        for number in range(4):
            payload = msgspec.json.encode(Message.of("notify", f"{number}", Notify("session", "n", text)))
            await sender.forward("one", f"{number}", payload, seconds=60)
        while len(passes) < 4:
            now += 1
            await asyncio.sleep(0)
        assert len(set(passes)) == 4, "each in a pass of its own"


@engine_test
async def test_a_message_is_charged_until_it_is_handled_first_its_bytes_and_then_to_its_own_client() -> None:
    async with inbox() as (box, sender, _):
        load, seen = box._runtime.load, list[tuple[int, int]]()
        senders, ann = load.account("forwarded"), load.account("ann", "s1")

        async def handle(message: Received) -> None:
            seen.append((senders.used, ann.used))
            charge = message.charge()
            assert load.ledger.used, "it subtracts what is free"
            seen.append((senders.used, ann.used))
            await message.remove()
            charge.free()

        box.handlers["submit"] = ForwardedRequest, handle
        request = Request(1, "tools/call", {"name": "echo", "arguments": {"text": "x" * 100_000}})
        body = ForwardedRequest(
            session="s1", stream="s", request=request, owner="ann", principal=None, headers={}
        )
        payload = msgspec.json.encode(Message.of("submit", "m", body))
        assert await sender.forward("one", "m", payload, seconds=60)
        await settle_down()
        assert seen == [(len(payload), 0), (0, load.cost(payload))]
        assert load.ledger.used < 10_000
        assert (senders.used, ann.used) == (0, 0)


@engine_test
async def test_a_message_waits_in_the_store_while_its_client_has_no_room_for_new_work() -> None:
    async with inbox() as (box, sender, handled):
        load = box._runtime.load

        async def handle(message: Received) -> None:
            charge = message.charge()
            handled.append(message.name)
            await message.remove()
            charge.free()

        box.handlers["submit"] = ForwardedRequest, handle
        kept = load.account("bob").open()
        kept.set(load.ledger.total * 6 // 10)
        for name, method in (("call", "tools/call"), ("ping", "ping")):
            body = ForwardedRequest(
                session="s1",
                stream=name,
                request=Request(1, method, {}),
                owner="bob",
                principal=None,
                headers={},
            )
            await sender.forward(
                "one", name, msgspec.json.encode(Message.of("submit", name, body)), seconds=60
            )
        await settle_down()
        assert handled == ["ping"], "control traffic passes"
        kept.free()
        await asyncio.sleep(3)
        assert handled == ["ping", "call"]


@engine_test
async def test_a_reply_is_for_the_task_that_waits_and_others_are_dropped() -> None:
    async with inbox() as (box, sender, _):
        with box._replies.expected("m") as waiter:
            for name in ("other", "m", "m"):
                payload = msgspec.json.encode(Message.of(REPLY, name, Began()))
                await sender.forward("one", f"re.{name}", payload, seconds=60)
            reply = await waiter.reply()
            assert reply is not None
            assert decode_verdict(reply.body) == Began()
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
            await box.ask("sender", "notify", Notify("s", "m", {"a": object()}), seconds=60)


@engine_test
async def test_a_question_of_a_kind_that_has_no_handler_is_refused_at_once() -> None:
    async with inbox() as (box, _, _):
        reply = await box.ask("one", "of a later release", seconds=60)
        assert reply is not None
        assert reply.kind == FAILED
        assert await box.ask("unknown", "notify", seconds=60) is None, "its lease has ended"


@engine_test
async def test_a_waiter_ends_with_the_reply_with_the_death_of_the_receiver_or_with_its_time() -> None:
    replies, now = Replies(), asyncio.get_running_loop().time
    died_at = now() + 2.5

    async def check_gone() -> bool:
        return now() > died_at

    with replies.expected("m") as waiter:
        begun = now()
        assert await waiter.reply(2) is None
        assert now() - begun == pytest.approx(2)
        assert await waiter.reply(check_gone=check_gone) is None
        assert now() - died_at <= 1
        replies.take("m", Message.of(REPLY, "m", 1))
        replies.take("m", None)
        reply = await waiter.reply(0, check_gone)
        assert reply is not None
        assert reply.body == msgspec.Raw(b"1")
    with replies.expected("m") as waiter:
        asyncio.get_running_loop().call_later(5, replies.close)
        assert await waiter.reply() is None
    assert len(replies) == 0


@engine_test
async def test_a_task_that_stops_waiting_does_not_end_the_wait_of_another_one() -> None:
    replies = Replies()
    first, second = replies.expected("a"), replies.expected("a")
    first.__enter__()
    waiter = second.__enter__()
    first.__exit__(None, None, None)
    reply = Message.of(REPLY, "a", 1)
    replies.take("a", reply)
    assert await waiter.reply(0) is reply
    second.__exit__(None, None, None)
    assert len(replies) == 0


@engine_test
async def test_a_message_whose_credentials_cannot_be_opened_is_refused_with_the_reason() -> None:
    """Without its credentials it would be another request."""
    random = SystemRandom()
    sealer = CredentialSealer(ForwardKey(new_key(random), "key"), random)
    async with inbox() as (box, sender, handled):
        message = Message.of("notify", "m", Notify("session", "notifications/x", {}), "one")
        payload = sealer.attach(msgspec.json.encode(message), {"x-pat": "secret"}, replica="one")
        with box._replies.expected("m") as waiter:
            assert await sender.forward("one", "m", payload, seconds=60)
            reply = await waiter.reply(60)
        assert reply is not None
        verdict = decode_verdict(reply.body)
        assert isinstance(verdict, Late)
        assert "nothing was executed. All replicas need the same forward key" in verdict.message
        assert handled == []
