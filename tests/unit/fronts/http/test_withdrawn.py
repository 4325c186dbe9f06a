"""A request whose client disconnects before it could start does not start, in every form in which a POST can wait."""

import asyncio
from contextlib import aclosing
from math import inf
from typing import Any
from unittest.mock import patch

import pytest

from limpet.auth import Principal
from limpet.config import Limits, Settings
from limpet.engine.engine import Engine
from limpet.engine.reader import Reader
from limpet.engine.session import Session
from limpet.fronts.http.front import HttpFront
from limpet.fronts.http.http1.channel import SocketChannel
from limpet.fronts.http.http1.connection import HttpConnection
from limpet.fronts.http.http1.deadlines import Deadlines
from limpet.fronts.http.http1.members import Members
from limpet.testing import ScriptedBack
from limpet.wire.jsonrpc import RequestId
from tests.http.paper import Paper
from tests.messages import metadata, modern_headers, request
from tests.stores import ScriptedStore
from tests.support import LoopClock
from tests.unit.engine.harness import settle_down
from tests.unit.fronts.http.bench import OLDEST, bench, front_test
from tests.unit.fronts.http.http1.test_plain_calls import post
from tests.unit.fronts.http.test_batches import answers

ONE_SLOT = Settings(limits=Limits(running=1))


def held(number: int) -> Any:
    return request(number, "tools/call", {"name": "held"})


@front_test
async def test_a_host_reports_the_disconnect_while_the_claim_is_awaited() -> None:
    store = ScriptedStore(is_shared=True)
    async with bench(store=store) as one:
        p = one.peer()
        await p.initialize()
        store.delay("claim", before=1)
        call = p.call(1)
        await asyncio.sleep(0.5)
        call.leave()
        await call.done()
        assert (one.runs, one.noted("request.dropped")) == ([], 1)
        store.recover()
        assert (await p.call(1).done()).status == 200, "its id is free"


@front_test
async def test_a_queued_post_whose_client_leaves_does_not_start_and_its_repeat_does() -> None:
    async with bench(ONE_SLOT) as one:
        p = one.peer()
        await p.initialize()
        first, second = p.call(1, "held"), p.call(2, "held")
        await asyncio.sleep(1)
        await second.cut()
        third = p.call(3, "held")
        await asyncio.sleep(1)
        one.release.set()
        for call in (first, third):
            await call.done()
        assert one.runs == ["held", "held"]
        assert (await p.call(2, "held").done()).status == 200


@front_test
async def test_a_member_of_a_batch_that_repeats_a_request_of_which_nothing_ran_starts_itself() -> None:
    async with bench(ONE_SLOT) as one:
        p = one.peer()
        await p.initialize(OLDEST)
        readers, may_read = one.engine.readers, asyncio.Event()
        repeat = readers.repeat

        async def late(session: Session, stream: str, request_id: RequestId | None = None) -> Reader:
            await may_read.wait()
            return await repeat(session, stream, request_id)

        body = [held(1), held(2)]
        batch = p.post(body)
        await asyncio.sleep(1)
        await batch.cut()
        with patch.object(readers, "repeat", late):
            again = p.post(body)
            await asyncio.sleep(1)
            one.release.set()
            await settle_down()
            assert (one.runs, one.noted("request.dropped")) == (["held"], 1), "the second was given back"
            may_read.set()
            await again.done()
        assert all("result" in end for end in answers(again).values()), answers(again)
        assert one.runs == ["held", "held"]


@front_test
async def test_each_member_of_a_batch_is_checked_by_itself() -> None:
    async with bench(ONE_SLOT) as one:
        p = one.peer()
        await p.initialize(OLDEST)
        batch = p.post([held(number) for number in (1, 2, 3)])
        await asyncio.sleep(1)
        assert one.runs == ["held"]
        await batch.cut()
        one.release.set()
        await settle_down()
        assert one.runs == ["held"], "the members that waited for the slot have not started"
        assert one.noted("request.dropped") == 2


@front_test
async def test_a_member_of_a_batch_is_not_claimed_after_its_client_has_left() -> None:
    store = ScriptedStore(is_shared=True)
    async with bench(store=store) as one:
        p = one.peer()
        await p.initialize(OLDEST)
        store.delay("claim", after=1)
        batch = p.post([held(number) for number in (1, 2)])
        await asyncio.sleep(0.5)
        batch.leave()
        await batch.done()
        assert (one.runs, store.log.count("claim")) == ([], 1)


@pytest.mark.parametrize("kind", ["a request", "a batch"])
@front_test
async def test_without_sessions_a_client_that_leaves_while_its_session_is_opened_starts_nothing(
    kind: str,
) -> None:
    store = ScriptedStore(is_shared=True)
    async with bench(Settings(stateless=True), store=store) as one:
        await one.engine.ensure_started()
        store.delay("open", after=1)
        call = one.peer().post(held(1) if kind == "a request" else [held(1)])
        await asyncio.sleep(0.5)
        call.leave()
        await call.done()
        assert one.runs == []


class Verified:
    """A connection of our own server, whose tokens take a second to be checked."""

    def __init__(self) -> None:
        self.back = ScriptedBack({"tools/call": lambda _: asyncio.sleep(0, {})})
        self.engine = Engine(self.back, clock=LoopClock())
        front = HttpFront(self.engine, verifier=self._verify)
        self.protocol = HttpConnection(Members(front.serve, Deadlines(self.engine.settings.limits, 30.0)))
        self.paper = Paper()

    async def _verify(self, token: str) -> Principal:
        await asyncio.sleep(1)
        return Principal(subject=token)

    async def send(self) -> None:
        """Send a call of 2026-07-28."""
        await self.engine.ensure_started()
        self.protocol.connection_made(self.paper)
        headers = {**modern_headers("tools/call", {"name": "quick"}), "Authorization": "Bearer ada"}
        call = request(1, "tools/call", {"name": "quick", "arguments": {}, "_meta": metadata()})
        self.protocol.data_received(post(call, headers))


@front_test
async def test_a_request_of_2026_07_28_whose_client_leaves_while_its_token_is_checked_does_not_start() -> (
    None
):
    line = Verified()
    async with aclosing(line.engine):
        await line.send()
        await asyncio.sleep(0.5)
        line.protocol.connection_lost(None)
        await asyncio.sleep(1)
        assert line.back.handled == []


@pytest.mark.parametrize("is_there", [True, False])
@front_test
async def test_after_a_pause_a_client_that_has_closed_its_side_is_found_also_if_its_token_takes_long(
    *, is_there: bool
) -> None:
    line = Verified()
    async with aclosing(line.engine):
        await line.engine.ensure_started()
        line.engine.pulse._trusted_until = -inf
        with patch.object(SocketChannel, "may_be_gone", lambda _: not is_there):
            await line.send()
            await asyncio.sleep(0.9)
            assert not line.engine.pulse.is_waking(), "the pause is over when the token is checked"
            await asyncio.sleep(1)
        assert (b"nothing was executed" in line.paper.written) is not is_there
        assert len(line.back.handled) == is_there
