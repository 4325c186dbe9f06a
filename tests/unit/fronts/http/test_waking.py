"""Requests that are read after a pause of this process: started only for clients that are still there."""

import asyncio
import json
import math

import pytest

from limpet.config import Limits, Settings
from tests.asgi import Call, Json
from tests.messages import metadata, modern_headers, notification, request
from tests.unit.fronts.http.bench import OLDEST, Bench, bench, front_test


def paused(one: Bench) -> None:
    """Let the engine find that it could not run until now."""
    one.engine.pulse._trusted_until = -math.inf


MESSAGES: dict[str, tuple[Json | list[Json], dict[str, str]]] = {
    "in a session": (request(1, "tools/call", {"name": "quick"}), {}),
    "a batch": ([request(number, "tools/call", {"name": "quick"}) for number in (1, 2)], {}),
    "2026-07-28": (
        request(1, "tools/call", {"name": "quick", "_meta": metadata()}),
        modern_headers("tools/call", {"name": "quick"}),
    ),
}


async def sent_after_a_pause(one: Bench, kind: str) -> Call:
    """Open a session and send a request that is read after a pause."""
    p = one.peer()
    await p.initialize(OLDEST)
    message, headers = MESSAGES[kind]
    paused(one)
    return p.send("POST", json.dumps(message).encode(), headers=headers)


@pytest.mark.parametrize("seen", ["by ASGI", "by the transport"])
@pytest.mark.parametrize("kind", MESSAGES)
@front_test
async def test_a_request_whose_client_has_left_is_not_started_after_a_pause(kind: str, seen: str) -> None:
    async with bench() as one:
        call = await sent_after_a_pause(one, kind)
        if seen == "by ASGI":
            call._gone.set()
        else:
            call.transport.closing = True
        await call.done()
        assert (one.runs, call.status) == ([], 0)
        assert one.noted("request.dropped") == 1


@pytest.mark.parametrize("kind", MESSAGES)
@front_test
async def test_a_request_whose_client_waits_is_answered_after_a_pause(kind: str) -> None:
    async with bench() as one:
        call = await sent_after_a_pause(one, kind)
        assert (await call.done()).status == 200
        assert one.runs == ["quick"] * (2 if kind == "a batch" else 1)


@pytest.mark.parametrize("kind", ["a request", "a batch"])
@front_test
async def test_a_request_that_waits_for_its_slot_ends_if_its_client_has_closed_its_side_during_a_pause(
    kind: str,
) -> None:
    async with bench(Settings(limits=Limits(running=1))) as one:
        p = one.peer()
        await p.initialize(OLDEST)
        first = p.call(1, "held")
        await asyncio.sleep(1)
        call = request(2, "tools/call", {"name": "quick"})
        waiting = p.post(call if kind == "a request" else [call])
        await asyncio.sleep(1)
        waiting.transport.half_closed = True
        paused(one)
        one.release.set()
        await first.done()
        await waiting.done()
        assert one.runs == ["held"]
        assert waiting.status == 503 if kind == "a request" else waiting.transport.aborted
        again = await p.post(call if kind == "a request" else [call]).done()
        assert (again.status, one.runs) == (200, ["held", "quick"])


@front_test
async def test_a_break_after_a_pause_is_noticed() -> None:
    async with bench() as one:
        p = one.peer()
        await p.initialize(OLDEST)
        paused(one)
        await p.call(1).done()
        held = p.call(9, "held")
        await asyncio.sleep(1)
        await held.cut()
        assert one.noted("session.detached") == 1


@front_test
async def test_answers_and_notifications_are_taken_from_a_client_that_has_left() -> None:
    async with bench() as one:
        p = one.peer()
        await p.initialize()
        asking = await p.call(1, "ask").until(1)
        [ask] = asking.messages
        paused(one)
        for message in (
            notification("notifications/initialized"),
            {"jsonrpc": "2.0", "id": ask["id"], "result": {"roots": []}},
        ):
            sent = p.post(message)
            sent._gone.set()
            await sent.done()
        await asking.done()
        assert asking.messages[-1]["result"]["answer"] == {"roots": []}
        assert one.back.notified
