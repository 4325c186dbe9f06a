"""Probes of the path to the server: buffering proxies, replicas that share no sessions, cut idle streams."""

import asyncio
from contextlib import suppress
from typing import Final

from limpet.checking.ground import Ground, NotApplicable, ProbeFailed
from limpet.checking.lane import Lane, Question
from limpet.checking.seen_response import EVENT_STREAM, SeenResponse
from limpet.errors import Broken, WireError
from limpet.transports.http import HttpAnswer

CONNECTIONS: Final = 16
IDLE_SECONDS: Final = 240.0
"""How long `--slow` watches an idle stream."""
SOON: Final = 1.0
_HEAD_SECONDS: Final = 2.0
_APART: Final = 0.02
"""Seconds between two events that did not wait for each other."""
_NAME_ONE: Final = "name a tool with --tool that reports progress for a second"
_LISTEN: Final = Question("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, "")
_LONG_ENOUGH: Final = 0.08
"""Seconds of a call that show whether its events wait for its end."""
_TOGETHER: Final = 0.05
"""Events that arrive within this part of the call before its answer arrive together with the answer."""
_EVENTS_ENOUGH: Final = 3
_TRIALS: Final = 3
"""Calls whose events must arrive with the answer: a machine under load can delay the events of one."""
_TELLING: Final = (
    "server", "via", "x-served-by", "x-server", "x-server-id", "x-backend", "x-backend-server", "x-upstream", "x-instance",
    "x-instance-id", "x-replica", "x-pod", "x-pod-name", "x-hostname", "x-node", "x-container-id", "x-amz-cf-pop", "fly-region",
)  # fmt: skip
"""Headers by which servers behind one address differ."""
_COOKIES: Final = ("AWSALB", "AWSALBCORS", "GCLB", "SERVERID", "SRV", "route", "sticky", "ARRAffinity")
"""Cookies by which balancers send a client to one replica."""
_REFUSED: Final = 400
_LOST: Final = (400, 404)
"""Statuses of a replica that does not know the session."""


async def buffering(ground: Ground) -> str:
    """Measure when the first bytes of a stream arrive: at once, or only with its end."""
    lane = await ground.lane()
    if said := await _first_of_stream(lane):
        return said
    call = ground.answered_call()
    said = ""
    for _ in range(_TRIALS):
        said, arrived = _judged(await lane.ask(call))
        if arrived:
            return said
    raise ProbeFailed(f"{said}, {_TRIALS} times: the path holds events back")


def _judged(outcome: SeenResponse) -> tuple[str, bool]:
    """Return when the events of a call arrived, and whether they arrived before its answer.

    Raises:
        NotApplicable: the call is too short, or has too few events.
    """
    before = [one for one in outcome.events if not one.is_answer]
    answered = max((one.at for one in outcome.events), default=0.0)
    if outcome.kind != EVENT_STREAM or not before:
        raise NotApplicable(f"no stream sent an event before its answer: {_NAME_ONE}")
    gap = answered - before[0].at
    if gap > max(_APART, _TOGETHER * answered):
        return f"the first event of a call of {answered:.2f} s arrived {gap:.2f} s before its answer", True
    if answered < _LONG_ENOUGH or len(before) < _EVENTS_ENOUGH:
        raise NotApplicable(
            f"the events of the call came with its answer, after {answered:.2f} s: {_NAME_ONE}"
        )
    return f"{len(before)} events of a call arrived together with its answer after {answered:.2f} s", False


async def _first_of_stream(lane: Lane) -> str:
    """Return when the first bytes of a stream that stays open arrived; empty if it sends none."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    name = "a subscription" if lane.is_sessionless else "a GET stream"
    try:
        async with asyncio.timeout(_HEAD_SECONDS):
            answer = await _open_stream(lane)
    except TimeoutError:
        raise ProbeFailed(
            f"the head of {name} did not arrive within {_HEAD_SECONDS:g} s: the path or the server holds it back"
        ) from None
    if answer.status >= _REFUSED or not answer.header("content-type").startswith(EVENT_STREAM):
        return ""
    with suppress(TimeoutError):
        async with asyncio.timeout(SOON):
            if await answer.chunk():
                return f"the first bytes of {name} arrived after {(loop.time() - begun) * 1000:.0f} ms"
    # It may have nothing to send. Or a proxy sends the head and holds the body back: a call shows it.
    return ""


async def _open_stream(lane: Lane) -> HttpAnswer:
    """Open a stream that stays open: the GET stream of a session, or a subscription."""
    if lane.is_sessionless:
        return await lane.open(_LISTEN)
    return await lane.peer.open("GET", lane.get_headers())


async def replicas(ground: Ground) -> str:
    """Use one session on many new connections, which a balancer spreads over the replicas."""
    lane = await ground.lane()
    outcomes = await asyncio.gather(*(_alone(lane) for _ in range(CONNECTIONS)))
    lost = [one for one in outcomes if one.status in _LOST and lane.session]
    if lost:
        raise ProbeFailed(f"{len(lost)} of {CONNECTIONS} new connections did not find the session: {lost[0]}")
    failed = [one for one in outcomes if not one.answers]
    if failed:
        raise ProbeFailed(f"{len(failed)} of {CONNECTIONS} new connections got {failed[0]}")
    said = "found the session" if lane.session else "were answered"
    return f"{CONNECTIONS} new connections {said}; {_seen(outcomes)}"


def _seen(outcomes: list[SeenResponse]) -> str:
    """Return how many replicas showed themselves, and by which headers."""
    differing = [name for name in _TELLING if len({one.headers.get(name, ()) for one in outcomes}) > 1]
    cookies = {
        cookie.partition("=")[0] for one in outcomes for cookie in one.headers.get("set-cookie", ())
    } & set(_COOKIES)
    sticky = f"; the cookie {min(cookies)} keeps a client on one replica" if cookies else ""
    if not differing:
        return f"one server showed itself{sticky}"
    many = len({tuple(one.headers.get(name, ()) for name in differing) for one in outcomes})
    return f"{many} replicas showed themselves (by {', '.join(differing)}){sticky}"


async def idle(ground: Ground) -> str:
    """Leave a stream open until it is cut, or for some minutes."""
    lane = await ground.lane()
    try:
        async with asyncio.timeout(ground.peer.patience):
            answer = await _open_stream(lane)
    except TimeoutError:
        raise ProbeFailed("the head of the stream did not arrive") from None
    if answer.status >= _REFUSED:
        raise NotApplicable(f"the server offers no stream that stays open ({answer.status})")
    seconds, gap, ended = await _watch(answer)
    beat = f"something was sent every {gap:.0f} s" if gap is not None else "nothing was sent"
    if not ended:
        return f"an idle stream was still open after {seconds:.0f} s; {beat}"
    if ended == "cut":
        raise ProbeFailed(f"an idle stream was cut after {seconds:.0f} s; {beat}")
    return f"an idle stream was ended in order after {seconds:.0f} s; {beat}"


async def _watch(answer: HttpAnswer) -> tuple[float, float | None, str]:
    """Return the seconds, the longest gap between bytes (None: no bytes), and how the stream ended.

    Empty if it is still open.
    """
    loop = asyncio.get_running_loop()
    begun = last = loop.time()
    gap: float | None = None
    try:
        async with asyncio.timeout(IDLE_SECONDS):
            while await answer.chunk():
                now = loop.time()
                gap = max(gap or 0.0, now - last)
                last = now
        ended = "end"
    except TimeoutError:
        ended = ""
    except (Broken, WireError):
        ended = "cut"
    return loop.time() - begun, gap, ended


async def _alone(lane: Lane) -> SeenResponse:
    """Send a plain request on a connection of its own."""
    question = lane.questions()[0]
    headers = {**lane.headers(question.method, {}), "connection": "close"}
    return await lane.peer.send_alone("POST", headers, lane.body(lane.next_id(), question.method, {}))
