"""Every claim of a probe has a server that breaks it, and every freedom of the specification has a server that uses it.

A server that uses a freedom must not fail: a false accusation is the worst fault of the check.
"""

import asyncio
import json
from typing import Any, Final

from limpet.testing import Row, check
from tests.checking.faulty import STREAM, Fault, Faulty, Request, Wrong, result
from tests.http.serving import under_uvicorn
from tests.support import async_test

AGREED: Final = b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}'
ANSWER: Final = {"jsonrpc": "2.0", "id": 4711, "result": {"content": []}}
REPEATED: Final = Wrong(200, b'id: e1\ndata: {"jsonrpc":"2.0","method":"notifications/message"}\n\n', STREAM)
PONG: Final = b'{"jsonrpc":"2.0","id":1,"result":{}}'


SILENT: Final = "a resumed stream says nothing"
"""The only claim that the check finds by waiting for all of its time limit."""


async def row(probe: str, app: Faulty, timeout: float) -> Row:
    """Run one probe; return its row."""
    async with under_uvicorn(app) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        report = await check(url, only=[probe], timeout=timeout)
        await app.aclose()
    return report.row(probe)


def error(request: Request, code: int, status: int = 200, **members: Any) -> Wrong:
    answer = {"jsonrpc": "2.0", "id": request.id, "error": {"code": code, "message": "no", **members}}
    return Wrong(status, json.dumps(answer).encode())


def events(*messages: Any) -> Wrong:
    text = "".join(f"data: {json.dumps(message)}\n\n" for message in messages)
    return Wrong(200, text.encode(), STREAM)


def agreeing(**members: Any) -> Fault:
    """Return a server that agrees to something else in `initialize`."""
    agreed = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "serverInfo": {"name": "x", "version": "1"},
    }
    return lambda r: result(r, {**agreed, **members}) if r.called == "initialize" else None


def twice(request: Request) -> Wrong | None:
    if request.called != "ping" or not isinstance(request.id, int) or request.id < 1000:
        return None
    answer = {"jsonrpc": "2.0", "id": request.id, "result": {}}
    return events(answer, answer)


def is_late(request: Request) -> bool:
    """Return whether a request continues a stream."""
    return request.method == "GET" and "last-event-id" in request.headers


Claims = dict[str, tuple[str, Fault, str]]
"""The probe, the server, and words of the row, by name."""
BREAKING: Final[Claims] = {
    "initialize agrees to 2026-07-28": (
        "handshake",
        agreeing(protocolVersion="2026-07-28"),
        "has no initialize",
    ),
    "the session id has a space": (
        "handshake",
        lambda r: Wrong(200, AGREED, headers={"mcp-session-id": "a b"}) if r.called == "initialize" else None,
        "not visible ASCII",
    ),
    "a declared list does not exist": (
        "handshake",
        lambda r: error(r, -32601) if r.called == "tools/list" else None,
        "declares the capability tools",
    ),
    "any version is accepted": (
        "negotiation",
        lambda r: (
            result(r, {"protocolVersion": "1999-01-01"})
            if r.called == "initialize" and b"1999-01-01" in r.body
            else None
        ),
        "accepted the protocol version 1999-01-01",
    ),
    "an unknown version is an internal error": (
        "negotiation",
        lambda r: Wrong(500) if r.called == "initialize" and b"1999-01-01" in r.body else None,
        "got status 500",
    ),
    "two answers": ("parallel", twice, "got 2 answers"),
    "a request is only accepted": (
        "parallel",
        lambda r: Wrong(202) if r.id == 1003 else None,
        "got status 202 and no answer",
    ),
    "the id of another request": (
        "parallel",
        lambda r: result(r, id=1) if r.called == "ping" and r.id == 1000 else None,
        "the id 1 instead of 1000",
    ),
    "parallel requests without a session": (
        "parallel",
        lambda r: Wrong(500) if r.is_modern and r.id == 1003 else None,
        "2026-07-28: 1 of 24 requests failed",
    ),
    "all duplicates are refused": (
        "duplicate-ids",
        lambda r: Wrong(400) if r.id == 2000 else None,
        "all of 8 requests",
    ),
    "an id is refused the second time without a session": (
        "reused-id",
        lambda r: Wrong(400) if r.is_modern and r.id == 1 and r.count("1") > 3 else None,
        "2026-07-28: request",
    ),
    "an array as the id is an internal error": (
        "bad-ids",
        lambda r: Wrong(500) if r.id == [] else None,
        "the id [] got status 500",
    ),
    "a resumed stream is refused": (
        "resume",
        lambda r: Wrong(400) if is_late(r) else None,
        "the GET with Last-Event-ID got status 400",
    ),
    SILENT: (
        "resume",
        lambda r: Wrong(200, b": hello\n\n", STREAM, hang_after=True) if is_late(r) else None,
        "without a further message",
    ),
    "an event is delivered twice": (
        "resume",
        lambda r: (REPEATED if r.count("late") < 3 else events(ANSWER)) if is_late(r) else None,
        "1 of 3 messages arrived twice",
    ),
    "progress is lost": ("resume", lambda r: events(ANSWER) if is_late(r) else None, "and 3 without a cut"),
    "an event of another session is delivered": (
        "foreign-event",
        lambda r: events(ANSWER) if is_late(r) else None,
        "delivered messages of the other session",
    ),
    "an unknown event is an internal error": (
        "foreign-event",
        lambda r: Wrong(500) if r.headers.get("last-event-id") == "no-such-event-1" else None,
        "got status 500",
    ),
    "a call is cancelled with an internal error": (
        "cancel",
        lambda r: Wrong(500) if r.id == 77 and r.called == "tools/call" else None,
        "the cancelled call got status 500",
    ),
    "an unknown id cannot be cancelled": (
        "cancel",
        lambda r: Wrong(500) if r.called == "notifications/cancelled" and b"99999" in r.body else None,
        "for the id 99999 got status 500",
    ),
    "the id of a cancelled call is lost": (
        "cancel",
        lambda r: Wrong(200, kind=STREAM) if r.called == "ping" and r.id == 77 else None,
        "was used again",
    ),
    "a cut text is accepted": (
        "bad-bodies",
        lambda r: Wrong(202) if r.body.endswith(b"pi") else None,
        "a cut JSON text got status 202",
    ),
    "a number as the method is answered": (
        "bad-bodies",
        lambda r: result(r) if r.message.get("method") == 5 else None,
        "a number as the method got",
    ),
    "deep JSON is an internal error": (
        "bad-bodies",
        lambda r: Wrong(500) if len(r.body) > 30_000 else None,
        "deeply nested JSON got status 500",
    ),
    "an unknown method gets 200 without a session": (
        "unknown-method",
        lambda r: error(r, -32601) if r.is_modern and "no-such" in r.called else None,
        "instead of the status 404",
    ),
    "a notification gets a body": (
        "notification",
        lambda r: Wrong(202, b"Accepted") if r.called == "notifications/initialized" else None,
        "with a body",
    ),
    "a request without a session is an internal error": (
        "session-header",
        lambda r: Wrong(500) if r.id == 5 and "mcp-session-id" not in r.headers else None,
        "without a session id got status 500",
    ),
    "DELETE is an internal error": (
        "deleted",
        lambda r: Wrong(500) if r.method == "DELETE" else None,
        "DELETE got status 500",
    ),
    "a result without its type": (
        "sessionless",
        lambda r: (
            result(r, {"tools": []}) if r.is_modern and r.called == "tools/list" and r.id == 4711 else None
        ),
        "has no resultType",
    ),
    "a missing Mcp-Method is accepted": (
        "sessionless-headers",
        lambda r: result(r) if r.is_modern and "mcp-method" not in r.headers else None,
        "no Mcp-Method got",
    ),
    "another Mcp-Name is accepted": (
        "sessionless-headers",
        lambda r: result(r) if r.headers.get("mcp-name") == "limpet-check-other" else None,
        "another Mcp-Name got",
    ),
    "another version in the header is accepted": (
        "sessionless-headers",
        lambda r: result(r) if b"2026-07-28" in r.body and not r.is_modern else None,
        "that differs from the body got",
    ),
    "a wrong header has the wrong error": (
        "sessionless-headers",
        lambda r: error(r, -32600, 400) if r.headers.get("mcp-method") == "limpet-check/other" else None,
        "instead of 400 with the error -32020",
    ),
    "the supported versions are not listed": (
        "sessionless-version",
        lambda r: (
            (
                error(r, -32022, 400, data={"supported": 7})
                if "2999" in r.headers["mcp-protocol-version"]
                else None
            )
            if "mcp-protocol-version" in r.headers
            else None
        ),
        "does not list the supported versions",
    ),
    "an id of another client is refused": (
        "sessionless-shared-ids",
        lambda r: error(r, -32600, 400) if r.id == 3000 and r.count("3000") > 1 else None,
        "7 of 8 requests with the same id failed",
    ),
    "a cancelled notification is an internal error": (
        "sessionless-cancel",
        lambda r: Wrong(500) if r.is_modern and r.called == "notifications/cancelled" else None,
        "notifications/cancelled got status 500",
    ),
    "some connections get 502": (
        "replicas",
        lambda r: Wrong(502) if r.headers.get("connection") == "close" and r.count("new") % 2 else None,
        "8 of 16 new connections got status 502",
    ),
}


TOGETHER: Final = 6
"""How many servers are checked at the same time: each waits most of its time."""


async def rows(claims: Claims) -> dict[str, tuple[Row, str]]:
    """Check the server of each claim; return the rows by name, each with the expected words."""
    places = asyncio.Semaphore(TOGETHER)

    async def one(name: str) -> tuple[str, tuple[Row, str]]:
        probe, fault, said = claims[name]
        async with places:
            # Any other answer arrives before the time limit, also on a busy machine.
            return name, (await row(probe, Faulty(fault), 2 if name == SILENT else 30), said)

    return dict(await asyncio.gather(*map(one, claims)))


@async_test
async def test_every_broken_rule_is_found() -> None:
    found = await rows(BREAKING)
    blind = {
        name: row for name, (row, said) in found.items() if row.verdict != "fail" or said not in row.happened
    }
    assert not blind


FREE: Final[Claims] = {
    "an id is refused the second time in a session": (
        "reused-id",
        lambda r: Wrong(400) if not r.is_modern and r.called == "ping" and r.count("ping") > 1 else None,
        "as the specification allows",
    ),
    "deep JSON is answered": (
        "bad-bodies",
        lambda r: Wrong(200, PONG) if len(r.body) > 30_000 else None,
        "10 of 11 invalid bodies were refused",
    ),
    "an empty array is accepted": (
        "bad-bodies",
        lambda r: Wrong(202) if r.body == b"[]" else None,
        "10 of 11",
    ),
    "a fraction as the id comes back": (
        "bad-ids",
        lambda r: result(r) if r.id == 1.5 else None,
        "4 invalid ids got no result",
    ),
    "null as the id is a notification": (
        "bad-ids",
        lambda r: Wrong(202) if b'"id":null' in r.body else None,
        "4 invalid ids got no result",
    ),
    "text is accepted, if Origin is validated": (
        "content-type",
        lambda r: (
            Wrong(200, PONG)
            if r.headers.get("content-type") == "text/plain" and "origin" not in r.headers
            else None
        ),
        "text/plain was accepted; from a page of another site it got 403",
    ),
    "the version header came later": (
        "version-header",
        lambda r: (
            agreeing(protocolVersion="2025-03-26")(r)
            or (Wrong(202) if "notifications/" in r.called else None)
        ),
        "which does not have this header",
    ),
    "a client may not end its session": (
        "deleted",
        lambda r: Wrong(405) if r.method == "DELETE" else None,
        "does not let clients end sessions (405)",
    ),
    "there is no GET stream": (
        "second-stream",
        lambda r: Wrong(405) if r.method == "GET" else None,
        "offers no GET stream (405)",
    ),
    "streams are not resumed": (
        "resume",
        lambda r: Wrong(405) if is_late(r) else None,
        "does not resume streams",
    ),
    "a resumed stream is closed for a while": (
        "resume",
        lambda r: Wrong(200, b"retry: 10\n\n", STREAM) if is_late(r) and r.count("late") < 3 else None,
        "none lost, none twice",
    ),
    "a cut is noticed late": (
        "resume",
        lambda r: Wrong(409) if is_late(r) and r.count("late") < 3 else None,
        "none lost, none twice",
    ),
    "a GET with an unknown event gets the usual messages": (
        "foreign-event",
        lambda r: (
            events({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}) if is_late(r) else None
        ),
        "deliver nothing",
    ),
    "an unknown id is not cancelled": (
        "cancel",
        lambda r: Wrong(400) if r.called == "notifications/cancelled" and b"99999" in r.body else None,
        "the session continued",
    ),
    "the id of a cancelled call is not used again": (
        "cancel",
        lambda r: Wrong(400) if r.called == "ping" and r.id == 77 else None,
        "the session continued",
    ),
    "requests without a session get 404": (
        "session-header",
        lambda r: Wrong(404) if r.id == 5 and "mcp-session-id" not in r.headers else None,
        "a request without one got 404",
    ),
    "a gateway refuses wrong headers": (
        "sessionless-headers",
        lambda r: Wrong(400) if r.headers.get("mcp-method") == "limpet-check/other" else None,
        "were refused",
    ),
    "many requests are refused as too many": (
        "parallel",
        lambda r: Wrong(429) if r.id == 1005 else None,
        "limits the number of requests (429)",
    ),
    "a list has an error of its own": (
        "parallel",
        lambda r: error(r, -32603) if r.called == "tools/list" else None,
        "each POST got its own answer",
    ),
    "an error of a list is not a fault of the handshake": (
        "handshake",
        lambda r: error(r, -32603) if r.called == "tools/list" else None,
        "tools/list got status 200 with the error -32603",
    ),
    "an unknown version is refused": (
        "negotiation",
        lambda r: error(r, -32602) if r.called == "initialize" and b"1999-01-01" in r.body else None,
        "an unknown version was refused",
    ),
    "a tool asks for input": (
        "sessionless",
        lambda r: (
            result(r, {"resultType": "input_required", "inputRequests": {}})
            if r.is_modern and r.called == "tools/call"
            else None
        ),
        "answered without a session",
    ),
    "a tool has an error": (
        "parallel",
        lambda r: error(r, -32602, 400 if r.is_modern else 200) if r.called == "tools/call" else None,
        "each POST got its own answer",
    ),
    "the GET stream sends nothing at first": (
        "buffering",
        lambda r: Wrong(200, b"", STREAM, hang_after=True) if r.method == "GET" else None,
        "before its answer",
    ),
    "there is no GET stream, and a call shows the path": (
        "buffering",
        lambda r: Wrong(405) if r.method == "GET" else None,
        "before its answer",
    ),
}


@async_test
async def test_no_freedom_of_the_specification_is_a_failure() -> None:
    found = await rows(FREE)
    accused = {
        name: row for name, (row, said) in found.items() if row.verdict == "fail" or said not in row.happened
    }
    assert not accused
