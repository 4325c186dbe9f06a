"""Probes of wrong requests: each gets a clear refusal, and the server continues."""

from typing import Final

from holdfast.checking.ground import Failed, Ground, NotApplicable
from holdfast.checking.lane import SESSION_HEADER, VERSION_HEADER, Question
from holdfast.checking.peer import Outcome
from holdfast.checking.probes.requests import answers_still

BAD_REQUEST: Final = 400
NOT_FOUND: Final = 404
ACCEPTED: Final = 202
METHOD_NOT_FOUND: Final = -32601
DEPTH: Final = 20_000
BODIES: Final[dict[str, bytes]] = {
    "an empty body": b"",
    "a cut JSON text": b'{"jsonrpc":"2.0","id":1,"method":"pi',
    "no JSON": b"hello",
    "invalid UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\xff\xfe"}}',
    "a number": b"17",
    "an empty array": b"[]",
    "no method": b'{"jsonrpc":"2.0","id":1}',
    "a number as the method": b'{"jsonrpc":"2.0","id":1,"method":5}',
    "no JSON-RPC version": b'{"id":1,"method":"ping"}',
    "params that are a text": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}',
    "deeply nested JSON": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":' + b"[" * DEPTH + b"]" * DEPTH + b"}}",
}  # fmt: skip
"""Bodies that are not valid messages."""


async def bodies(ground: Ground) -> str:
    """Send bodies that are not valid messages."""
    lane = await ground.lane()
    for name, body in BODIES.items():
        outcome = await lane.peer.send("POST", lane.headers("ping", {}), body)
        if not outcome.is_refusal:
            raise Failed(f"{name} got {outcome} instead of a refusal")
        await answers_still(lane)
    return f"{len(BODIES)} invalid bodies were refused, and the server continued"


async def unknown_method(ground: Ground) -> str:
    """Send a method that does not exist."""
    lane = await ground.lane()
    outcome = await lane.ask(Question("holdfast-check/no-such-method", {}, ""))
    if outcome.code != METHOD_NOT_FOUND:
        raise Failed(f"an unknown method got {outcome} instead of the error {METHOD_NOT_FOUND}")
    await answers_still(lane)
    return f"an unknown method got the error {METHOD_NOT_FOUND}"


async def unknown_tool(ground: Ground) -> str:
    """Call a tool that does not exist."""
    lane = await ground.lane()
    if "tools" not in lane.capabilities:
        raise NotApplicable("the server has no tools")
    params = {"name": "holdfast-check-no-such-tool", "arguments": {}}
    outcome = await lane.ask(Question("tools/call", params, "content"))
    failed = isinstance(outcome.result, dict) and outcome.result.get("isError") is True
    if outcome.code is None and not failed:
        raise Failed(f"a tool that does not exist got {outcome}")
    return f"a tool that does not exist got {'a failed result' if failed else outcome}"


async def notification(ground: Ground) -> str:
    """Send a notification."""
    lane = await ground.initialized()
    outcome = await lane.notify("notifications/initialized")
    if outcome.status != ACCEPTED or outcome.events:
        raise Failed(f"a notification got {outcome} instead of 202 without a body")
    return "a notification got 202 without a body"


async def session_header(ground: Ground) -> str:
    """Send requests without a session id, and with one that does not exist."""
    lane = await ground.session()
    question = lane.questions()[0]
    headers = lane.headers(question.method, {})
    body = lane.body(5, question.method, {})
    unknown = await lane.peer.send(
        "POST", {**headers, SESSION_HEADER: "holdfast-check-no-such-session"}, body
    )
    if unknown.status != NOT_FOUND:
        raise Failed(
            f"an unknown session id got {unknown} instead of 404, so a client does not open a new session"
        )
    del headers[SESSION_HEADER]
    missing = await lane.peer.send("POST", headers, body)
    if missing.status == NOT_FOUND or not (missing.is_refusal or missing.result is not None):
        raise Failed(f"a request without a session id got {missing} instead of 400")
    said = "was served" if missing.result is not None else f"got {missing.status}"
    return f"an unknown session id got 404; a request without one {said}"


async def version_header(ground: Ground) -> str:
    """Send a protocol version that does not exist."""
    lane = await ground.initialized()
    question = lane.questions()[0]
    headers = {**lane.headers(question.method, {}), VERSION_HEADER: "1999-01-01"}
    outcome = await lane.peer.send("POST", headers, lane.body(5, question.method, {}))
    if outcome.status != BAD_REQUEST:
        raise Failed(f"MCP-Protocol-Version: 1999-01-01 got {outcome} instead of 400")
    return "an unknown MCP-Protocol-Version got 400"


async def origin(ground: Ground) -> str:
    """Send a request as a page of another site would."""
    lane = await ground.lane()
    question = lane.questions()[0]
    headers = {**lane.headers(question.method, {}), "origin": "https://evil.example"}
    outcome = await lane.peer.send("POST", headers, lane.body(5, question.method, {}))
    if not BAD_REQUEST <= outcome.status < 500:  # noqa: PLR2004 - refusals
        raise Failed(f"Origin: https://evil.example got {outcome} instead of 403")
    return f"a foreign Origin got {outcome.status}"


async def content_type(ground: Ground) -> str:
    """Send a valid message as text/plain, which a page of another site may do without asking."""
    lane = await ground.lane()
    question = lane.questions()[0]
    headers = {**lane.headers(question.method, {}), "content-type": "text/plain"}
    outcome = await lane.peer.send("POST", headers, lane.body(5, question.method, {}))
    if not outcome.is_refusal:
        raise Failed(f"Content-Type: text/plain got {outcome} instead of a refusal")
    return f"Content-Type: text/plain got {outcome.status}"


async def deleted(ground: Ground) -> str:
    """Delete a session, and use its id."""
    lane = await ground.session()
    outcome = await lane.delete()
    if outcome.status == 405:  # noqa: PLR2004 - Method Not Allowed
        raise NotApplicable("the server does not let clients end sessions (405)")
    if not outcome.is_ok:
        raise Failed(f"DELETE got {outcome}")
    after: Outcome = await lane.ask(lane.questions()[0])
    if after.status != NOT_FOUND:
        raise Failed(f"a request in a deleted session got {after} instead of 404")
    return f"DELETE got {outcome.status}, and then the session id got 404"
