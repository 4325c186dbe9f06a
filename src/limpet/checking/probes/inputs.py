"""Probes of wrong requests: each gets a clear refusal, and the server continues."""

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from limpet.checking.ground import Ground, NotApplicable, ProbeFailed
from limpet.checking.lane import HEADER_SINCE, SESSION_HEADER, VERSION_HEADER, Lane, Question
from limpet.checking.probes.answers import answers_still, in_each_era
from limpet.checking.probes.streams import NOT_OFFERED
from limpet.checking.seen_response import SeenResponse
from limpet.errors import METHOD_NOT_FOUND

BAD_REQUEST: Final = 400
NOT_FOUND: Final = 404
ACCEPTED: Final = 202
DEPTH: Final = 20_000
EVIL: Final = "https://evil.example"
ALLOWED: Final = "access-control-allow-origin"
_JWT_DOTS: Final = 2
BODIES: Final[dict[str, bytes]] = {
    "an empty body": b"",
    "a cut JSON text": b'{"jsonrpc":"2.0","id":1,"method":"pi',
    "no JSON": b"hello",
    "a number": b"17",
    "a number as the method": b'{"jsonrpc":"2.0","id":1,"method":5}',
    "an empty array": b"[]",
    "no method": b'{"jsonrpc":"2.0","id":1}',
}  # fmt: skip
"""Bodies that are no messages: they must be refused."""
ACCEPTABLE: Final = ("an empty array", "no method")
"""A server may take them for no message at all, or for a response, and accept them with 202."""
TOLERATED: Final[dict[str, bytes]] = {
    "invalid UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\xff\xfe"}}',
    "no JSON-RPC version": b'{"id":1,"method":"ping"}',
    "params that are a text": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}',
    "deeply nested JSON": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":' + b"[" * DEPTH + b"]" * DEPTH + b"}}",
}  # fmt: skip
"""Bodies that a tolerant server can answer. They must not make it fail."""


@in_each_era
async def bodies(_: Ground, lane: Lane) -> str:
    """Send bodies that are not valid messages. They must be refused, and must not make the server fail."""
    refused = 0
    for name, body in {**BODIES, **TOLERATED}.items():
        outcome = await lane.peer.send("POST", lane.headers("ping", {}), body)
        is_accepted = outcome.status == ACCEPTED and name in ACCEPTABLE
        if not (outcome.is_refusal or is_accepted or (name in TOLERATED and outcome.is_ok)):
            raise ProbeFailed(f"{name} got {outcome} instead of a refusal")
        refused += outcome.is_refusal
        await answers_still(lane)
    return (
        f"{refused} of {len(BODIES) + len(TOLERATED)} invalid bodies were refused, and the server continued"
    )


@in_each_era
async def unknown_method(_: Ground, lane: Lane) -> str:
    """Send a method that does not exist."""
    outcome = await lane.ask(Question("limpet-check/no-such-method", {}, ""))
    if outcome.code != METHOD_NOT_FOUND:
        raise ProbeFailed(f"an unknown method got {outcome} instead of the error {METHOD_NOT_FOUND}")
    if lane.is_sessionless and outcome.status != NOT_FOUND:
        raise ProbeFailed(f"an unknown method got {outcome} instead of the status 404 with this error")
    await answers_still(lane)
    return f"an unknown method got the error {METHOD_NOT_FOUND}"


@in_each_era
async def unknown_tool(_: Ground, lane: Lane) -> str:
    """Call a tool that does not exist."""
    if "tools" not in lane.capabilities:
        raise NotApplicable("the server has no tools")
    params = {"name": "limpet-check-no-such-tool", "arguments": {}}
    outcome = await lane.ask(Question("tools/call", params, "content"))
    failed = isinstance(outcome.result, dict) and outcome.result.get("isError") is True
    if outcome.code is None and not failed:
        raise ProbeFailed(f"a tool that does not exist got {outcome}")
    return f"a tool that does not exist got {'a failed result' if failed else outcome}"


async def notification(ground: Ground) -> str:
    """Send a notification."""
    lane = await ground.initialized()
    outcome = await lane.notify("notifications/initialized")
    if outcome.status != ACCEPTED or outcome.events or outcome.text:
        body = " with a body" if outcome.status == ACCEPTED else ""
        raise ProbeFailed(f"a notification got {outcome}{body} instead of 202 without a body")
    return "a notification got 202 without a body"


async def session_header(ground: Ground) -> str:
    """Send requests without a session id, and with one that does not exist."""
    lane = await ground.session()
    question = lane.questions()[0]
    headers = lane.headers(question.method, {})
    body = lane.body(5, question.method, {})
    unknown = await lane.peer.send("POST", {**headers, SESSION_HEADER: _other_id(lane.session)}, body)
    is_sealed = lane.session.count(".") >= _JWT_DOTS
    if unknown.status != NOT_FOUND and not (is_sealed and unknown.is_refusal):
        raise ProbeFailed(
            f"an unknown session id got {unknown} instead of 404: after a restart of the server, its clients do not open new sessions"
        )
    del headers[SESSION_HEADER]
    missing = await lane.peer.send("POST", headers, body)
    if not (missing.is_refusal or missing.result is not None):
        raise ProbeFailed(f"a request without a session id got {missing} instead of 400")
    said = "was served" if missing.result is not None else f"got {missing.status}"
    return f"an unknown session id got {unknown.status}; a request without one {said}"


def _other_id(session: str) -> str:
    """Return an id of the same form that was not given: each letter and digit is another one of its kind.

    A server may refuse ids that it could not have given with another status.
    """
    turned = str.maketrans("0123456789abcdefABCDEF", "1032547698badcfeBADCFE")
    return session.translate(turned)


async def version_header(ground: Ground) -> str:
    """Send a protocol version that does not exist."""
    lane = await ground.initialized()
    if lane.version < HEADER_SINCE:
        raise NotApplicable(f"the server speaks {lane.version}, which does not have this header")
    question = lane.questions()[0]
    headers = {**lane.headers(question.method, {}), VERSION_HEADER: "1999-01-01"}
    outcome = await lane.peer.send("POST", headers, lane.body(5, question.method, {}))
    if outcome.status != BAD_REQUEST:
        raise ProbeFailed(f"MCP-Protocol-Version: 1999-01-01 got {outcome} instead of 400")
    return "an unknown MCP-Protocol-Version got 400"


async def origin(ground: Ground) -> str:
    """Send a request as a page of another site would."""
    lane = await ground.lane()
    outcome = await _as_a_page(lane, {"origin": EVIL})
    if BAD_REQUEST <= outcome.status < 500:  # noqa: PLR2004 - refusals
        return f"a foreign Origin got {outcome.status}"
    if ALLOWED in outcome.headers and not is_private(ground.peer.url):
        raise NotApplicable("the server is public, and allows pages of other sites by its CORS headers")
    raise ProbeFailed(f"Origin: {EVIL} got {outcome} instead of 403")


async def content_type(ground: Ground) -> str:
    """Send a message as text/plain from a page of another site, which a browser does without asking the server."""
    lane = await ground.lane()
    plain = {"content-type": "text/plain"}
    outcome = await _as_a_page(lane, {**plain, "origin": EVIL})
    if outcome.is_ok and not outcome.is_refusal:
        if ALLOWED in outcome.headers and not is_private(ground.peer.url):
            raise NotApplicable("the server is public, and allows pages of other sites by its CORS headers")
        raise ProbeFailed(f"Content-Type: text/plain with Origin: {EVIL} got {outcome} instead of a refusal")
    alone = await _as_a_page(lane, plain)
    if alone.is_crash:
        raise ProbeFailed(f"Content-Type: text/plain got {alone}")
    said = "was accepted" if alone.is_ok and not alone.is_refusal else f"got {alone.status}"
    return f"Content-Type: text/plain {said}; from a page of another site it got {outcome.status}"


async def _as_a_page(lane: Lane, headers: dict[str, str]) -> SeenResponse:
    question = lane.questions()[0]
    sent = {**lane.headers(question.method, {}), **headers}
    return await lane.peer.send("POST", sent, lane.body(lane.next_id(), question.method, {}))


def is_private(url: str) -> bool:
    """Return whether a page in a browser could reach the server by DNS rebinding: it is on this machine or network."""
    host = urlsplit(url).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith((".local", ".internal", ".localhost"))


async def deleted(ground: Ground) -> str:
    """Delete a session, and use its id."""
    lane = await ground.session()
    outcome = await lane.delete()
    if outcome.status in NOT_OFFERED:
        raise NotApplicable(f"the server does not let clients end sessions ({outcome.status})")
    if not outcome.is_ok:
        raise ProbeFailed(f"DELETE got {outcome}")
    after: SeenResponse = await lane.ask(lane.questions()[0])
    if after.status != NOT_FOUND:
        raise ProbeFailed(f"a request in a deleted session got {after} instead of 404")
    return f"DELETE got {outcome.status}, and then the session id got 404"
