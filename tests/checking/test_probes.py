"""Each probe finds its fault: a wrapper around our own server answers some requests wrongly."""

import asyncio
import re
from contextlib import aclosing
from typing import Any, Final

import pytest

from limpet.checking import run
from limpet.checking.probes import path
from limpet.checking.table import PROBES
from limpet.errors import ConfigError
from limpet.protocol.hand_over import TICKET_KEY
from limpet.protocol.idempotency import KEY
from limpet.testing import Report, check
from tests.checking.faulty import STREAM, Fault, Faulty, Request, Wrong, result
from tests.http.serving import under_uvicorn
from tests.support import async_test


def stalled(request: Request) -> Wrong | None:
    """The first call is that of the survey."""
    if request.called == "tools/call":
        request.count("calls")
    return Wrong(200, hangs=True) if request.called == "ping" and request.seen["calls"] > 1 else None


def cut(request: Request) -> Wrong | None:
    if request.method == "GET":
        request.count("streams")
    return Wrong(404) if request.called == "ping" and request.seen["streams"] else None


HANGS: Final = Wrong(200, hangs=True)
LATE: Final = b'data: {"jsonrpc":"2.0","id":4711,"result":{}}\n\n'
"""The answer to a call that was cut."""
TICKET: Final = {"content": [], "_meta": {TICKET_KEY: {"ticket": "a" * 32, "collect": "collect"}}}
"""The answer of a call that was handed over, whose result is not kept."""
FAULTS: Final[dict[str, Fault]] = {
    "reachable": lambda _: Wrong(404),
    "handshake": lambda r: result(r, {"protocolVersion": "2025-11-25"}) if r.called == "initialize" else None,
    "authorization": lambda r: Wrong(401) if "authorization" not in r.headers else None,
    "negotiation": lambda r: Wrong(500) if r.called == "server/discover" else None,
    "parallel": lambda r: result(r) if r.id == 1001 else None,
    "duplicate-ids": lambda r: Wrong(200, kind=STREAM) if r.id == 2001 and r.count("2001") > 1 else None,
    "reused-id": lambda r: Wrong(500) if r.called == "ping" and r.id == 1 and r.count("1") > 1 else None,
    "id-types": lambda r: result(r, id=7) if r.id == "7" else None,
    "bad-ids": lambda r: result(r) if r.id is True else None,
    "resume": lambda r: Wrong(200, kind=STREAM) if "last-event-id" in r.headers else None,
    "foreign-event": lambda r: Wrong(404) if r.headers.get("last-event-id") == "no-such-event-1" else None,
    "cuts": cut,
    "stalled": stalled,
    "second-stream": lambda r: Wrong(409) if r.method == "GET" and r.count("GET") > 1 else None,
    "cancel": lambda r: Wrong(400) if r.called == "notifications/cancelled" else None,
    "bad-bodies": lambda r: Wrong(500) if r.body == b"hello" else None,
    "unknown-method": lambda r: result(r) if r.called == "limpet-check/no-such-method" else None,
    "unknown-tool": lambda r: result(r, {"content": []}) if b"no-such-tool" in r.body else None,
    "notification": lambda r: Wrong(200, b"{}") if r.called == "notifications/initialized" else None,
    "session-header": lambda r: Wrong(400) if r.id == 5 and "mcp-session-id" in r.headers else None,
    "version-header": lambda r: result(r) if r.headers.get("mcp-protocol-version") == "1999-01-01" else None,
    "origin": lambda r: result(r) if "origin" in r.headers else None,
    "content-type": lambda r: result(r) if r.headers.get("content-type") == "text/plain" else None,
    "deleted": lambda r: Wrong(200) if r.method == "DELETE" else None,
    "sessionless": lambda r: Wrong(500) if r.headers.get("mcp-method") == "tools/call" else None,
    "sessionless-headers": lambda r: (
        result(r) if r.headers.get("mcp-method") == "limpet-check/other" else None
    ),
    "sessionless-version": lambda r: (
        Wrong(400) if r.headers.get("mcp-protocol-version") == "2999-01-01" else None
    ),
    "sessionless-shared-ids": lambda r: (
        Wrong(200, kind=STREAM) if r.id == 3001 and r.count("3001") > 1 else None
    ),
    "sessionless-cuts": lambda r: Wrong(500) if r.id == 4712 else None,
    "sessionless-cancel": lambda r: Wrong(200, LATE, STREAM) if r.method == "GET" and r.is_modern else None,
    "handed-over": lambda r: result(r, TICKET) if b'"look"' in r.body else None,
    "idempotency-keys": lambda r: (
        result(r, {"content": [], "resultType": "complete", "run": r.count("keyed")})
        if KEY.encode() in r.body
        else None
    ),
    "buffering": lambda r: HANGS if r.method == "GET" else None,
    "replicas": lambda r: (
        Wrong(404) if r.headers.get("connection") == "close" and r.count("close") % 2 else None
    ),
    "idle": lambda r: Wrong(200, b"", STREAM, breaks=True) if r.method == "GET" else None,
}


TOKEN: Final = {"authorization": "Bearer right"}


WAITING: Final = {"resume", "stalled"}
"""The probes that find their faults by waiting for all of the time limit."""


def test_every_probe_has_a_fault() -> None:
    assert list(FAULTS) == [probe.name for probe in PROBES]


@async_test
async def test_each_probe_finds_its_fault() -> None:
    places = asyncio.Semaphore(6)

    async def one(probe: str) -> Report:
        app = Faulty(FAULTS[probe])
        async with places, under_uvicorn(app) as port:
            url = f"http://127.0.0.1:{port}/mcp"
            # Any other answer arrives before the time limit, also on a busy machine.
            limit = 2 if probe in WAITING else 30
            report = await check(url, only=[probe], headers=TOKEN, timeout=limit)
            await app.aclose()
        return report

    for probe, report in zip(FAULTS, await asyncio.gather(*map(one, FAULTS)), strict=True):
        row = report.row(probe)
        assert row.verdict == "fail", row
        assert row.happened
        assert not report.passed
        assert report.failures == (row,)


@async_test
async def test_without_a_read_only_tool_no_tool_is_called() -> None:
    app = Faulty(lambda _: None)
    async with aclosing(app):
        app.server.remove_tool("look")
        async with under_uvicorn(app) as port:
            url = f"http://127.0.0.1:{port}/mcp"
            report = await check(url)
            assert report.passed, str(report)
            skipped = {row.probe for row in report.rows if row.verdict == "not applicable"}
            needing = {"resume", "foreign-event", "stalled", "cancel", "sessionless-cancel"}
            needing |= {"handed-over", "idempotency-keys"}
            assert skipped == {"authorization", *needing}
            assert "--tool" in report.row("cancel").happened
            named = await check(url, tool="cook", only=["cancel"])
            assert named.row("cancel").verdict == "pass"
            with pytest.raises(ConfigError, match="no tool 'bake'; it has cook, status"):
                await check(url, tool="bake")
            with pytest.raises(ConfigError, match="no probe 'bake'"):
                await check(url, only=["bake"])


@async_test
async def test_an_idle_stream_is_watched_and_its_keep_alives_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(path, "IDLE_SECONDS", 0.3)
    app = Faulty(lambda _: None)
    async with under_uvicorn(app) as port:
        report = await check(f"http://127.0.0.1:{port}/mcp", only=["idle"])
        await app.aclose()
    assert report.row("idle").verdict == "pass", str(report)
    assert re.search(r"still open after \d+ s", report.row("idle").happened)


@async_test
async def test_a_server_that_demands_a_token_is_named_as_such() -> None:
    app = Faulty(
        lambda request: None if request.headers.get("authorization") == "Bearer right" else Wrong(401)
    )
    async with aclosing(app), under_uvicorn(app) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        refused = await check(url)
        assert "--token-file" in refused.row("reachable").happened
        assert {row.verdict for row in refused.rows[1:]} == {"not applicable"}
        let_in = await check(url, headers={"Authorization": "Bearer right"}, only=["parallel"])
        assert let_in.passed, let_in


HOSTILE: Final[tuple[Any, ...]] = (
    None,
    [],
    "x",
    {"protocolVersion": 5, "supportedVersions": {}},
    {
        "protocolVersion": "2025-11-25",
        "supportedVersions": [[], "2026-07-28"],
        "capabilities": "all",
        "serverInfo": 1,
    },
    {
        "protocolVersion": "x",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": None},
        "serverInfo": {"name": {}},
        "tools": [
            1,
            {"name": 2, "annotations": {"readOnlyHint": True}, "inputSchema": {"required": [{}, 1]}},
        ],
        "nextCursor": "again",
        "_meta": [],
    },
)


@pytest.mark.parametrize("value", HOSTILE)
@async_test
async def test_a_server_with_strange_results_gets_a_report(value: Any) -> None:
    app = Faulty(lambda request: result(request, value, result=value))
    async with under_uvicorn(app) as port:
        report = await check(f"http://127.0.0.1:{port}/mcp", timeout=0.2)
    assert len(report.rows) == len(PROBES) - 1
    assert report.failures


DEEP: Final = Wrong(200, b"[" * 100_000 + b"]" * 100_000)
BYTES: Final = Wrong(307, b"\xff\xfe\x00", "text/plain")


@pytest.mark.parametrize("wrong", [DEEP, BYTES, Wrong(200, b"data: " + DEEP.body + b"\n\n", STREAM)])
@async_test
async def test_a_server_with_unreadable_responses_gets_a_report(wrong: Wrong) -> None:
    async with under_uvicorn(Faulty(lambda _: wrong)) as port:
        report = await check(f"http://127.0.0.1:{port}/mcp", timeout=0.2)
    assert report.row("reachable").verdict == "fail"


@async_test
async def test_a_server_that_hangs_is_checked_within_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "LONGEST", 4.0)
    monkeypatch.setattr(run, "TOGETHER", 1)
    answered = {"initialize", "notifications/initialized"}
    app = Faulty(lambda r: HANGS if r.method == "POST" and r.called not in answered else None)
    async with under_uvicorn(app) as port:
        report = await check(f"http://127.0.0.1:{port}/mcp", timeout=0.3)
        await app.aclose()
    assert report.seconds < 40
    assert report.row("handshake").verdict == "fail"
    assert report.row("stalled").verdict == "not applicable"
    assert (
        "not finished when the check ended, after 4 s: run it alone with --only stalled"
        in report.row("stalled").happened
    )


@async_test
async def test_a_cancelled_check_deletes_its_sessions() -> None:
    asked = asyncio.Event()

    def hanging(request: Request) -> Wrong | None:
        if request.called != "limpet-check/no-such-method":
            return None
        asked.set()
        return HANGS

    app = Faulty(hanging)
    async with under_uvicorn(app) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        deleted: list[str] = []
        app.fault = _noting(app.fault, deleted)
        task = asyncio.create_task(check(url, only=["unknown-method"]))
        await asked.wait()  # The probe waits for an answer that does not come.
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await app.aclose()
    assert deleted == ["DELETE", "DELETE"]


def _noting(fault: Fault, deleted: list[str]) -> Fault:
    def noted(request: Request) -> Wrong | None:
        if request.method == "DELETE":
            deleted.append("DELETE")
        return fault(request)

    return noted
