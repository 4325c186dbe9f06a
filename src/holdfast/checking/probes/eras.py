"""Probes of the handshake and of 2026-07-28."""

from typing import Any, Final

from holdfast.checking.ground import Failed, Ground, NotApplicable
from holdfast.checking.lane import SESSION_VERSION, VERSION_HEADER, initialize
from holdfast.checking.peer import NO_ANSWER, Outcome
from holdfast.checking.probes.requests import answers_still
from holdfast.errors import HEADER_MISMATCH, UNSUPPORTED_VERSION
from holdfast.protocol.sessionless import VERSION

_SERVER_ERRORS: Final = range(500, 600)
_VISIBLE: Final = frozenset(map(chr, range(0x21, 0x7F)))


async def reachable(ground: Ground) -> str:
    """Send server/discover and initialize. One of them must be answered."""
    if ground.unreachable:
        raise Failed(ground.unreachable)
    return f"{ground.server} speaks {' and '.join(ground.versions)}"


async def negotiation(ground: Ground) -> str:
    """Ask for 2026-07-28 and for sessions, as a client does that speaks both; then for a version that does not exist."""
    discovery = ground.discovery
    if discovery.status == NO_ANSWER or discovery.status in _SERVER_ERRORS:
        raise Failed(f"server/discover got {discovery}: a client that speaks both eras waits or gives up")
    if not ground.has_sessions:
        if not ground.handshake.is_refusal:
            raise Failed(f"initialize got {ground.handshake} instead of a refusal")
        return "the server speaks 2026-07-28 and refuses initialize"
    outcome, lane = await initialize(ground.peer, "1999-01-01")
    if lane is not None:
        ground.keep(lane)
        if lane.version == "1999-01-01":
            raise Failed("the server accepted the protocol version 1999-01-01, which does not exist")
    elif not outcome.is_refusal:
        raise Failed(f"initialize with the protocol version 1999-01-01 got {outcome}")
    first = "answered" if ground.is_sessionless else f"refused with {discovery}"
    second = f"got {lane.version}" if lane is not None else "was refused"
    return f"server/discover was {first}, initialize was answered; an unknown version {second}"


async def handshake(ground: Ground) -> str:
    """Open a session."""
    if not ground.has_sessions:
        raise NotApplicable("the server speaks only 2026-07-28, which has no handshake")
    outcome = ground.handshake
    agreed: dict[str, Any] = outcome.result
    if not isinstance(agreed.get("serverInfo"), dict) or not isinstance(agreed.get("capabilities"), dict):
        raise Failed("the result of initialize has no serverInfo or no capabilities")
    lane = await ground.lane()
    if not set(lane.session) <= _VISIBLE:
        raise Failed("the session id has characters that are not visible ASCII")
    note = "" if lane.version == SESSION_VERSION else f" ({SESSION_VERSION} was offered)"
    await answers_still(lane)
    return f"the server agreed to {lane.version}{note} and gave {'a' if lane.session else 'no'} session id"


async def modern_headers(ground: Ground) -> str:
    """Send headers of 2026-07-28 that are missing, or differ from the body."""
    lane = await ground.without_session()
    question = lane.questions()[-1]
    right = lane.headers(question.method, {})
    wrong: dict[str, dict[str, str]] = {
        "another Mcp-Method": {**right, "mcp-method": "holdfast-check/other"},
        "no Mcp-Method": {name: value for name, value in right.items() if name != "mcp-method"},
    }
    for name, headers in wrong.items():
        outcome = await lane.peer.send("POST", headers, lane.body(5, question.method, {}))
        _expect(outcome, HEADER_MISMATCH, name)
    older = await lane.peer.send(
        "POST", {**right, VERSION_HEADER: SESSION_VERSION}, lane.body(5, question.method, {})
    )
    if not older.is_refusal:
        raise Failed(f"an MCP-Protocol-Version that differs from the body got {older} instead of 400")
    await answers_still(lane)
    return f"headers that do not agree with the body were refused, with the error {HEADER_MISMATCH}"


async def modern_version(ground: Ground) -> str:
    """Send a version after 2026-07-28 that does not exist."""
    lane = await ground.without_session()
    question = lane.questions()[0]
    later = "2999-01-01"
    body = lane.body(5, question.method, {}).replace(VERSION.encode(), later.encode())
    outcome = await lane.peer.send("POST", {**lane.headers(question.method, {}), VERSION_HEADER: later}, body)
    _expect(outcome, UNSUPPORTED_VERSION, f"the version {later}")
    return f"an unknown version got 400 with the error {UNSUPPORTED_VERSION}"


async def modern_requests(ground: Ground) -> str:
    """Send each kind of request without a session."""
    lane = await ground.without_session()
    for question in ground.questions(lane):
        outcome = await lane.ask(question)
        if not question.fits(outcome.result) and not (question.method == "tools/call" and outcome.is_refusal):
            raise Failed(f"{question.method} got {outcome}")
    return f"{len(ground.questions(lane))} kinds of requests were answered without a session"


def _expect(outcome: Outcome, code: int, name: str) -> None:
    if outcome.status != 400 or outcome.code != code:  # noqa: PLR2004 - Bad Request
        raise Failed(f"{name} got {outcome} instead of 400 with the error {code}")
