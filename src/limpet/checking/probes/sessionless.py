"""Probes of 2026-07-28: each request stands alone, and closing its response cancels it.

Whether a server stops the work of a closed response cannot be seen from outside. The probes see that other requests
continue, and that nothing of the cancelled one is delivered later.
"""

import asyncio
from typing import Final

from limpet.checking.ground import Ground, ProbeFailed
from limpet.checking.lane import SESSION_VERSION, VERSION_HEADER, Lane
from limpet.checking.probes.answers import answers_still, fault, raise_first
from limpet.checking.probes.inputs import BAD_REQUEST
from limpet.checking.probes.streams import belongs
from limpet.checking.seen_response import SeenResponse
from limpet.errors import HEADER_MISMATCH, UNSUPPORTED_VERSION
from limpet.protocol.sessionless import VERSION
from limpet.transports.http import HttpAnswer

_CALLS: Final = 6
_HALF: Final = 3
_MOMENT: Final = 0.1
_WATCH_SECONDS: Final = 1.0
_ID: Final = 4711


async def requests(ground: Ground) -> str:
    """Send each kind of request without a session."""
    lane = await ground.without_session()
    asked = ground.questions(lane)
    for question in asked:
        outcome = await lane.ask(question, id=_ID)
        if found := fault(outcome, _ID, question):
            raise ProbeFailed(found)
        if isinstance(outcome.result, dict) and not isinstance(outcome.result.get("resultType"), str):
            raise ProbeFailed(f"the result of {question.method} has no resultType")
    return f"{len(asked)} kinds of requests were answered without a session"


async def headers(ground: Ground) -> str:
    """Send headers of 2026-07-28 that are missing, or differ from the body."""
    lane = await ground.without_session()
    question = lane.questions()[-1]
    right = lane.headers(question.method, {})
    body = lane.body(5, question.method, {})
    wrong: dict[str, dict[str, str]] = {
        "another Mcp-Method": {**right, "mcp-method": "limpet-check/other"},
        "no Mcp-Method": {name: value for name, value in right.items() if name != "mcp-method"},
    }
    for name, sent in wrong.items():
        _expect_mismatch(await lane.peer.send("POST", sent, body), name)
    older = await lane.peer.send("POST", {**right, VERSION_HEADER: SESSION_VERSION}, body)
    if not older.is_refusal:
        raise ProbeFailed(f"an MCP-Protocol-Version that differs from the body got {older} instead of 400")
    if ground.facts.tool is not None:
        call = ground.facts.tool
        sent = {**lane.headers_of(call), "mcp-name": "limpet-check-other"}
        _expect_mismatch(
            await lane.peer.send("POST", sent, lane.body(5, call.method, call.params)), "another Mcp-Name"
        )
    await answers_still(lane)
    return f"headers that do not agree with the body were refused, with the error {HEADER_MISMATCH}"


def _expect_mismatch(outcome: SeenResponse, name: str) -> None:
    # A gateway in front may refuse the request, and does not have to send a JSON-RPC error.
    if outcome.status != BAD_REQUEST or outcome.code not in (HEADER_MISMATCH, None):
        raise ProbeFailed(f"{name} got {outcome} instead of 400 with the error {HEADER_MISMATCH}")


async def version(ground: Ground) -> str:
    """Send a version after 2026-07-28 that does not exist."""
    lane = await ground.without_session()
    question = lane.questions()[0]
    later = "2999-01-01"
    body = lane.body(5, question.method, {}).replace(VERSION.encode(), later.encode())
    outcome = await lane.peer.send("POST", {**lane.headers(question.method, {}), VERSION_HEADER: later}, body)
    if outcome.status != BAD_REQUEST or outcome.code != UNSUPPORTED_VERSION:
        raise ProbeFailed(
            f"the version {later} got {outcome} instead of 400 with the error {UNSUPPORTED_VERSION}"
        )
    data = outcome.error.get("data")
    supported = data.get("supported") if isinstance(data, dict) else None
    if not isinstance(supported, list) or VERSION not in supported:
        raise ProbeFailed(
            f"the error {UNSUPPORTED_VERSION} does not list the supported versions in data.supported"
        )
    return f"an unknown version got 400 with the error {UNSUPPORTED_VERSION} and the supported versions"


async def cuts(ground: Ground) -> str:
    """Cut half of several responses at once. The other half must be answered."""
    lane = await ground.without_session()
    question = ground.largest(lane)
    kept = ground.answered_call() if ground.facts.call_seconds is not None else lane.questions()[-1]
    seconds = ground.seconds_for(_CALLS)
    cut = [asyncio.create_task(lane.open(question)) for _ in range(_HALF)]
    waiting = [asyncio.create_task(lane.ask(kept, id=_ID + at, seconds=seconds)) for at in range(_HALF)]
    try:
        await asyncio.wait(cut, timeout=_MOMENT)
        for task in cut:
            task.cancel()
        for opened in await asyncio.gather(*cut, return_exceptions=True):
            if isinstance(opened, HttpAnswer):
                opened.close()
        outcomes = await asyncio.gather(*waiting)
    finally:
        for asked in waiting:
            asked.cancel()
    raise_first(
        [fault(outcome, _ID + at, kept) for at, outcome in enumerate(outcomes)], _HALF, "beside cut ones"
    )
    await answers_still(lane)
    return f"{_HALF} responses were cut; {_HALF} others in work at the same time got their answers"


async def cancel(ground: Ground) -> str:
    """Close the response of a call, which cancels it.

    Nothing of it may be delivered later, and the server must continue.
    """
    call = ground.call()
    lane = await ground.without_session()
    token = ground.peer.next_token()
    seen = await lane.ask(call.with_token(token), id=_ID, until=lambda _: True)
    if seen.is_crash:
        raise ProbeFailed(f"the call got {seen}")
    await _expect_nothing(lane, seen, token)
    notified = await lane.notify("notifications/cancelled", {"requestId": _ID})
    if notified.is_crash:
        raise ProbeFailed(f"notifications/cancelled got {notified}")
    await answers_still(lane)
    return "the response of a call was closed; nothing of it was delivered later, and the server continued"


async def _expect_nothing(lane: Lane, seen: SeenResponse, token: str) -> None:
    """Ask for the rest of the cancelled call, as a client of an older revision would."""
    last = seen.events[-1].id if seen.events else None
    outcome = await lane.peer.send(
        "GET",
        lane.get_headers(last or "0"),
        until=lambda one: belongs(one, token),
        seconds=min(_WATCH_SECONDS, lane.peer.patience),
    )
    if outcome.events and belongs(outcome, token):
        raise ProbeFailed("a GET with Last-Event-ID delivered messages of a call whose response was closed")
