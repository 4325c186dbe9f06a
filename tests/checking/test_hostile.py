"""Servers that behave badly in every way: the check ends in time, with a clear row, and never with an error of its own."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import pytest

from limpet import Context, Server
from limpet.auth.authorizer import Bearer
from limpet.auth.oauth import AuthorizationCode, MemoryStorage, OAuth
from limpet.checking import peer, run
from limpet.checking.probes.inputs import is_private
from limpet.checking.run import CheckPlan
from limpet.cli.using.check import signed_in
from limpet.errors import ConfigError
from limpet.testing import Report, check
from limpet.types import ToolAnnotations
from tests.checking.faulty import STREAM, Fault, Faulty, Request, Send, Wrong, result
from tests.http.serving import under_uvicorn
from tests.redis.test_tls import Authority
from tests.support import async_test
from tests.unit.auth.oauth.authority import authority

READ_ONLY: Final = ToolAnnotations(read_only_hint=True)


async def checked(app: Faulty, **options: Any) -> Report:
    async with under_uvicorn(app) as port:
        report = await check(f"http://127.0.0.1:{port}/mcp", **{"timeout": 30, **options})
        await app.aclose()
    for row in report.rows:
        assert "an error of the check" not in row.happened, row
    return report


# Servers that cannot be reached


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Wrong(500), "initialize got status 500"),
        (Wrong(202), "initialize got status 202 and no answer"),
        (Wrong(204), "initialize got status 204 and no answer"),
        (
            Wrong(307, headers={"location": "https://other.example/mcp"}),
            "to https://other.example/mcp: check that URL",
        ),
        (Wrong(200, b"<html>hello</html>", "text/html"), "status 200 (<html>hello</html>)"),
        (Wrong(200, hangs=True), "no response within"),
        (Wrong(200, b"x" * 100_000, "text/plain", endless=True), "more than 8 MiB"),
        (Wrong(200, b"data: {}\n\n" * 1000, STREAM, endless=True), "more than 10000 events"),
        (Wrong(200, b"data: " + b"x" * 100_000, STREAM, endless=True), "more than 8 MiB"),
        (Wrong(429), "limits the number of requests (429)"),
        (Wrong(401), "the server refuses access (status 401)"),
    ],
    ids=lambda one: one[:20] if isinstance(one, str) else "",
)
@async_test
async def test_a_server_that_answers_nothing_useful_gets_a_clear_row(wrong: Wrong, said: str) -> None:
    # Any other answer arrives before the time limit, also on a busy machine.
    report = await checked(Faulty(lambda _: wrong), timeout=0.5 if wrong.hangs else 30)
    row = report.row("reachable")
    assert row.verdict == "fail"
    assert said in row.happened, row
    assert {other.verdict for other in report.rows[1:]} == {"not applicable"}
    assert report.seconds < 40


@contextlib.asynccontextmanager
async def raw(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Serve bytes; yield the port."""
    writers: list[asyncio.StreamWriter] = []

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(OSError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(guarded, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@async_test
async def test_a_server_that_drops_connections_or_speaks_no_http_gets_a_clear_row() -> None:
    async def drop(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async def hello(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        await writer.drain()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"H")
            await writer.drain()
            await asyncio.sleep(0.05)  # Slower than any time limit of the check.

    for serve, said in ((drop, "the connection broke"), (hello, "is not HTTP/1.1"), (drip, "not HTTP/1.1")):
        async with raw(serve) as port:
            report = await check(f"http://127.0.0.1:{port}/mcp", timeout=10)
        assert said in report.row("reachable").happened, report.row("reachable")
        assert report.seconds < 40


def test_a_wrong_certificate_and_a_server_without_tls_get_a_clear_row(tmp_path: Path) -> None:
    async_test(_wrong_tls)(tmp_path)


async def _wrong_tls(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*Authority(tmp_path, "authority").certify("server"))
    async with raw(silent, tls) as port:
        report = await check(f"https://127.0.0.1:{port}/mcp", timeout=30)
        assert "certificate verify failed" in report.row("reachable").happened

    async with raw(silent) as port:
        report = await check(f"https://127.0.0.1:{port}/mcp", timeout=30)
        assert "cannot connect" in report.row("reachable").happened


# Servers that answer the first requests


@async_test
async def test_calls_that_are_only_accepted_fail_the_probes_that_need_an_answer() -> None:
    app = Faulty(lambda r: Wrong(202) if r.called == "tools/call" else None)
    report = await checked(app, only=["parallel", "resume", "sessionless", "cancel"])
    assert report.row("resume").verdict == "not applicable"
    assert "a call of look got status 202 and no answer" in report.row("resume").happened
    assert report.row("parallel").verdict == "pass", "it is tried without the tool"


@async_test
async def test_a_server_that_breaks_after_the_first_look_is_checked_to_the_end() -> None:
    def fault(request: Request) -> Wrong | None:
        return Wrong(500) if request.count("all") > 8 else None

    report = await checked(Faulty(fault))
    assert len(report.failures) > 10
    assert "a new session was refused: status 500" in report.row("duplicate-ids").happened


@async_test
async def test_answers_that_never_end_are_read_within_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "LONGEST", 12.0)
    largest = 0

    def fault(request: Request) -> Wrong | None:
        is_first = request.called in {"initialize", "server/discover"} or "notifications/" in request.called
        return None if is_first else Wrong(200, b"data: " + b"1" * 60_000 + b"\n\n", STREAM, endless=True)

    class Counting(peer._Shared):
        @property
        def held(self) -> int:
            return self._held

        @held.setter
        def held(self, value: int) -> None:
            nonlocal largest
            self._held = value
            largest = max(largest, value)

    monkeypatch.setattr(peer, "_Shared", Counting)
    report = await checked(Faulty(fault), timeout=4)
    row = report.row("parallel")
    assert row.verdict == "fail" or not row.finished, "a busy machine has no time for it"
    assert 0 < largest < peer.TOGETHER_BYTES + 30 * 256 * 1024
    assert report.seconds < 50


def many_tools(count: int) -> Fault:
    """Return a server with many tools, ten on each page."""

    def fault(request: Request) -> Wrong | None:
        if request.called != "tools/list":
            return None
        start = int(request.message["params"].get("cursor", "0"))
        tools = [
            {
                "name": f"tool-{number}",
                "inputSchema": {"type": "object"},
                "annotations": {"readOnlyHint": False},
            }
            for number in range(start, start + 10)
        ]
        following = {"nextCursor": str(start + 10)} if start + 10 < count else {}
        return result(request, {"tools": tools, "resultType": "complete", **following})

    return fault


@async_test
async def test_a_tool_on_the_last_of_a_hundred_pages_is_found() -> None:
    report = await checked(Faulty(many_tools(1000)), tool="tool-999", only=["parallel"])
    assert report.tool == "tool-999"
    assert report.passed, str(report)


@async_test
async def test_the_same_page_again_and_again_ends_the_search() -> None:
    endless = {"tools": [], "nextCursor": "again"}
    app = Faulty(lambda r: result(r, endless) if r.called == "tools/list" else None)
    report = await checked(app, only=["handshake"])
    assert report.tool == ""


@async_test
async def test_a_slow_tool_is_used_only_where_its_answer_is_not_needed() -> None:
    server = Server("slow")

    @server.tool(annotations=READ_ONLY)
    async def sleep(ctx: Context) -> str:
        """Take longer than the check waits."""
        await ctx.progress(1, 2, "")
        await asyncio.sleep(60)  # Longer than the check waits; it is cancelled then.
        return "slept"

    report = await checked(
        Faulty(lambda _: None, server),
        only=["parallel", "resume", "cancel", "cuts", "stalled", "sessionless-cancel"],
        timeout=4.0,
    )
    assert report.passed, str(report)
    skipped = [row.probe for row in report.rows if row.verdict == "not applicable"]
    assert skipped == ["resume"]
    assert "--timeout" in report.row("resume").happened


@async_test
async def test_of_several_read_only_tools_one_that_works_is_called() -> None:
    server = Server("several")

    @server.tool(annotations=READ_ONLY)
    async def broken() -> str:
        """Fail."""
        raise ValueError("no")

    @server.tool(annotations=READ_ONLY)
    async def works(place: str) -> str:
        """Work."""
        return place

    report = await checked(Faulty(lambda _: None, server), only=["parallel"])
    assert report.tool == "works"


# What a common loop does


def one_writer(_: Request, send: Send) -> Send:
    """Make every response wait for the one that is being sent."""

    async def locked(message: Any) -> None:
        async with WRITER[0]:
            await send(message)

    return locked


WRITER: Final[list[asyncio.Lock]] = []


@async_test
async def test_a_server_whose_responses_share_one_writer_is_found_by_the_stalled_reader() -> None:
    WRITER[:] = [asyncio.Lock()]
    report = await checked(Faulty(lambda _: None, sending=one_writer), only=["stalled"], timeout=3)
    row = report.row("stalled")
    assert row.verdict == "fail", row
    assert "while 2 responses were not read" in row.happened


class Slow(Faulty):
    """A server that needs long for each large message, and does nothing else meanwhile."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async with WRITER[0]:
            pass
        await super().__call__(scope, receive, send)


@async_test
async def test_a_server_that_is_slow_with_large_messages_is_not_accused_of_waiting_for_a_reader() -> None:
    WRITER[:] = [asyncio.Lock()]
    seconds = 0.8

    async def logging() -> None:
        async with WRITER[0]:
            await asyncio.sleep(2 * seconds)  # Longer than the check waits: real time is the subject.

    tasks: set[asyncio.Task[None]] = set()

    def fault(request: Request) -> Wrong | None:
        if len(request.body) > 1_000_000:
            tasks.add(asyncio.create_task(logging()))
        return None

    report = await checked(Slow(fault), only=["stalled"], timeout=seconds)
    if report.row("stalled").verdict != "not applicable":
        # On a loaded machine also small messages take so long.
        seconds *= 6
        report = await checked(Slow(fault), only=["stalled"], timeout=seconds)
    assert report.row("stalled").verdict == "not applicable", report.row("stalled")
    assert "also if they are read" in report.row("stalled").happened
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def held_back(request: Request, send: Send) -> Send:
    """Hold the body of a call back until its end, as a proxy does that buffers."""
    parts: list[bytes] = []

    async def held(message: Any) -> None:
        if request.called != "tools/call" or message["type"] != "http.response.body":
            await send(message)
            return
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            await send({**message, "body": b"".join(parts)})

    return held


@async_test
async def test_events_that_are_held_back_until_the_answer_are_found() -> None:
    app = Faulty(lambda r: Wrong(405) if r.method == "GET" else None, sending=held_back)
    row = (await checked(app, only=["buffering"], timeout=10)).row("buffering")
    assert row.verdict == "fail", row
    assert "the path holds events back" in row.happened


# Servers that need a token

METADATA: Final = "/.well-known/oauth-protected-resource/mcp"


def guarded(document: dict[str, Any] | None, *, announced: bool = True) -> Fault:
    """Return a server that needs the token `right-token`, with this resource metadata."""

    def fault(request: Request) -> Wrong | None:
        host = request.headers["host"]
        if request.path == METADATA:
            assert "authorization" not in request.headers, "the token is only for the server"
            if document is None:
                return Wrong(404)
            return Wrong(200, json.dumps({"resource": f"http://{host}/mcp", **document}).encode())
        if request.headers.get("authorization") == "Bearer right-token":
            return None
        challenge = (
            f'Bearer resource_metadata="http://{host}{METADATA}", scope="read"' if announced else "Bearer"
        )
        return Wrong(401, headers={"www-authenticate": challenge})

    return fault


FOUND: Final = {"authorization_servers": ["https://login.example"]}
RIGHT: Final = {"authorization": "Bearer right-token"}


@async_test
async def test_a_server_that_needs_a_token_says_where_to_get_it_and_shows_the_command() -> None:
    for fault, said in (
        (
            guarded(FOUND),
            "get a token with the scopes read from https://login.example. Then run: limpet check http://",
        ),
        (
            guarded(FOUND, announced=False),
            "get a token from https://login.example. Then run: limpet check http://",
        ),
        (
            guarded(None, announced=False),
            "Put its token into a variable (TOKEN) or a file (--token-file). Then run:",
        ),
        (guarded(None), "there is no valid resource metadata at"),
    ):
        report = await checked(Faulty(fault))
        happened = report.row("reachable").happened
        assert said in happened
        assert happened.endswith("--token-env TOKEN")
        assert report.row("parallel").happened == "the server refuses access"


@async_test
async def test_a_check_signs_in_before_the_first_probe() -> None:
    async with authority() as at:
        oauth = OAuth(
            AuthorizationCode(at.browse, redirect_uri="http://127.0.0.1:3000/callback"),
            storage=MemoryStorage(),
        )
        headers = await signed_in(at.url, oauth, {"x-tenant": "a"})
        assert headers["x-tenant"] == "a"
        assert headers["authorization"].removeprefix("Bearer ") in at.valid
        assert at.seen["/authorize"] == 1


@async_test
async def test_a_sign_in_that_needs_a_proof_for_each_request_is_refused() -> None:
    class Proving(Bearer):
        async def headers(self, method: str, url: str) -> dict[str, str]:
            return {**await super().headers(method, url), "dpop": "proof"}

    app = Faulty(lambda _: None)
    async with aclosing(app), under_uvicorn(app) as port:
        with pytest.raises(ConfigError, match="DPoP"):
            await signed_in(f"http://127.0.0.1:{port}/mcp", Proving("token"), {})


@async_test
async def test_a_server_that_verifies_its_tokens_passes_and_false_metadata_are_found() -> None:
    right = await checked(Faulty(guarded(FOUND)), headers=RIGHT, only=["authorization"])
    assert right.row("authorization").verdict == "pass"
    assert (
        "without the token the server answers 401, and 401 to a wrong one"
        in right.row("authorization").happened
    )
    keys = await checked(Faulty(guarded(None, announced=False)), headers=RIGHT, only=["authorization"])
    assert keys.row("authorization").verdict == "pass", "keys of its own are allowed"
    missing = await checked(Faulty(guarded(None)), headers=RIGHT, only=["authorization"])
    assert "no valid resource metadata at" in missing.failures[0].happened
    empty = await checked(Faulty(guarded({})), headers=RIGHT, only=["authorization"])
    assert "name no authorization server" in empty.failures[0].happened
    public = await checked(Faulty(lambda _: None), headers=RIGHT, only=["authorization"])
    assert "answers also without the token" in public.row("authorization").happened


# Secrets


@async_test
async def test_a_server_that_repeats_everything_cannot_put_a_secret_into_the_report() -> None:
    def fault(request: Request) -> Wrong | None:
        said = " ".join(request.headers.values())
        if request.called == "initialize":
            return result(
                request,
                {
                    "protocolVersion": said[:40],
                    "capabilities": {},
                    "serverInfo": {"name": said, "version": said},
                },
            )
        return Wrong(500, said.encode(), "text/plain")

    headers = {"Authorization": "Bearer secret-token", "X-Key": "other-secret"}
    async with under_uvicorn(Faulty(fault)) as port:
        url = f"http://user:pass-word@127.0.0.1:{port}/mcp?key=query-secret"
        wanted = CheckPlan(headers=headers, patience=0.5)
        text = repr(await run.check(url, wanted))
        assert "[hidden]" in text
        bare = repr(await run.check(url, CheckPlan(patience=0.5)))
    for secret in ("secret-token", "other-secret", "query-secret", "pass-word"):
        assert secret not in text + bare
    assert "dXNlcjpwYXNzLXdvcmQ=" not in bare, "user and password of the URL, as the header has them"


@pytest.mark.parametrize(
    ("url", "private"),
    [
        ("http://127.0.0.1/mcp", True),
        ("http://[::1]:80/mcp", True),
        ("http://10.1.2.3/mcp", True),
        ("http://localhost/mcp", True),
        ("http://printer.local/mcp", True),
        ("https://8.8.8.8/mcp", False),
        ("https://mcp.example.com/mcp", False),
    ],
)
def test_a_public_server_may_allow_other_sites(url: str, *, private: bool) -> None:
    assert is_private(url) is private
