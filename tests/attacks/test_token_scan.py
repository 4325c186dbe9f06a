"""No token, session id or event id is in a log, a store or a response: servers of each kind, on each store, with the log at DEBUG.

The tokens of these tests have a marker that nothing else has. Each server goes through calls that succeed, that fail and that are
refused; then all that was written anywhere is searched for the marker, and for the tokens in other encodings.
"""

import asyncio
import base64
import io
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

from limpet import Process, Remote, Settings
from limpet.config import HttpSettings, RateLimits, Times
from limpet.options import FromHeader
from limpet.server.served import Served
from tests.asgi import Call, Peer
from tests.attacks.house import ANN, BOB, MARKER, META, STORES, Kept, house, kept, verifier
from tests.backs.fake import Fake
from tests.messages import LATEST, initialize, notification, request
from tests.support import BOUND, async_test

WRONG: Final = tuple(f"{MARKER}-wrong-{kind}" for kind in ("raise", "guess", "expired"))
LITTLE: Final = [sys.executable, str(Path(__file__).parents[1] / "backs" / "little.py")]
FORWARD_KEY: Final = base64.b64encode(b"k" * 32).decode()


@contextmanager
def logged() -> Iterator[io.StringIO]:
    """Collect every line of every logger, at DEBUG, with tracebacks."""
    written = io.StringIO()
    handler, root = logging.StreamHandler(written), logging.getLogger()
    handler.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s %(args)s"))
    names = ("", "limpet", "asyncio")
    before = {name: logging.getLogger(name).level for name in names}
    root.addHandler(handler)
    for name in names:
        logging.getLogger(name).setLevel(logging.DEBUG)
    try:
        yield written
    finally:
        root.removeHandler(handler)
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def forms(secret: str) -> set[bytes]:
    """Return a secret as it may be written."""
    raw = secret.encode()
    encoded = base64.b64encode(raw).rstrip(b"=")
    return {
        raw,
        quote(secret).encode(),
        raw.hex().encode(),
        encoded[: len(encoded) // 4 * 4 - 4],
        repr(raw).encode()[2:-1],
    }


def found(where: str, content: bytes, secrets: set[str]) -> list[str]:
    """Return the secrets that are somewhere in the content."""
    hits = [f"{where}: a token" for _ in range(content.count(MARKER.encode()))]
    return hits + [
        f"{where}: {secret[:12]}…" for secret in secrets if any(one in content for one in forms(secret))
    ]


class Attempts:
    """One client's attempts, and the bodies and headers of all responses."""

    def __init__(self, h: Any) -> None:
        self.h = h
        self.seen = bytearray()
        self.secrets: set[str] = {ANN, BOB, *WRONG}

    def peer(self, token: str) -> Peer:
        return Peer(self.h, token=token)

    async def keep(self, call: Call, *, cut: bool = False) -> Call:
        """Wait for a response and keep it."""
        if cut:
            await call.begun()
            await call.cut()
        else:
            async with asyncio.timeout(BOUND):
                await call.done()
        # The session's own id is in one header, for its own client.
        headers = [pair for pair in call.raw_headers if pair[0] != b"mcp-session-id"]
        self.seen += repr(headers).encode() + call.body
        return call

    async def served(self, make: Callable[[], Call], *, cut: bool = False) -> Call:
        """Send a request until the rate of its principal lets it pass, and keep its responses."""
        while (call := await self.keep(make(), cut=cut)).status == 429:
            await asyncio.sleep(0.2)
        return call

    async def run(self, tool: str, arguments: dict[str, Any]) -> None:
        """Use all features of a server: with a session, without one, and with wrong tokens."""
        params = {"name": tool, "arguments": arguments}
        ann, bob = self.peer(ANN), self.peer(BOB)
        opened = await self.keep(ann.post(request("i", "initialize", initialize(LATEST))))
        assert opened.status == 200, opened.body
        ann.session, ann.version = opened.headers["mcp-session-id"], LATEST
        self.secrets.add(ann.session)
        await self.keep(ann.post(notification("notifications/initialized")))
        await self.keep(ann.post(request(2, "tools/call", params)))
        await self.keep(ann.post(request(3, "tools/call", {"name": "unknown"})))
        await self.keep(ann.post(request(4, "unknown/method", {})))
        await self.keep(ann.sessionless("tools/call", params, meta=META))
        await self.keep(ann.sessionless("tools/call", {**params, "requestState": "forged"}, meta=META))
        await self.keep(ann.send("POST", b"{broken"))
        await self.keep(ann.send("POST", b"{}", raw=[(b"authorization", f"Bearer {BOB}".encode())]))
        await self.keep(ann.post(request(5, "ping", {}), headers={"host": "evil.example"}))
        bob.session, bob.version = ann.session, LATEST
        await self.keep(bob.post(request(6, "tools/call", params)))
        await self.keep(bob.send("DELETE"))
        listening = ann.get()
        await self.keep(listening, cut=True)
        for _ in range(6):
            await self.keep(ann.post(request(7, "tools/call", params)))
        for token in WRONG:
            bad = self.peer(token)
            await self.keep(bad.post(request(1, "initialize", initialize(LATEST))))
            for method in ("GET", "DELETE"):
                await self.keep(bad.send(method, headers={"mcp-session-id": "0" * 64}))
            await self.keep(bad.sessionless("tools/call", params, meta=META))
            await self.keep(bad.send("POST", b"{broken", path=f"/mcp?access_token={token}"))
        await self.keep(ann.send("DELETE"))


def check(attempts: Attempts, log: str, where: Kept) -> None:
    """Find nothing."""
    hits = found("log", log.encode(), attempts.secrets)
    hits += found("store", where.everything(), attempts.secrets)
    tokens = {secret for secret in attempts.secrets if secret.startswith(MARKER)}
    hits += found("response", bytes(attempts.seen), tokens)
    assert hits == []


SETTINGS: Final = Settings(
    rates=RateLimits(principal="8/s", refusals="8/s", tools={"echo": "5/s"}), times=Times(drain=0.2)
)


@pytest.mark.parametrize("store", STORES)
@async_test
async def test_no_token_is_in_a_log_a_store_or_a_response(store: str) -> None:
    with kept(store) as where, logged() as log:
        async with house(where.url, settings=SETTINGS) as h:
            attempts = Attempts(h.front)
            await attempts.run("echo", {"text": "hello"})
            ann = attempts.peer(ANN)
            for name in ("boom", "begin", "later"):
                call = partial(ann.sessionless, "tools/call", {"name": name}, meta=META)
                await attempts.served(call)
            streaming = partial(
                ann.sessionless, "tools/call", {"name": "stream"}, meta={**META, "progressToken": 1}
            )
            await attempts.served(streaming, cut=True)
            parked = await attempts.served(partial(ann.sessionless, "tools/call", {"name": "ask"}, meta=META))
            attempts.secrets.add(parked.json["result"]["requestState"])
            await h.engine.rates.reconcile()
            await asyncio.sleep(1.0)  # The rate of the principal recovers: 8 in a second.
            # The messages of a call are stored while it runs.
            session = await h.opened(ANN)
            await session.post(
                request(8, "tools/call", {"name": "stream", "_meta": {"progressToken": 1}})
            ).until(1)
            running = where.everything()
            assert store == "memory" or b"notifications/progress" in running
            assert found("store", running, attempts.secrets) == []
        assert {"token", "session", "host", "malformed", "request_state"} <= h.engine.audit.counts.keys()
        assert "handler.failed" in log.getvalue(), "the log is really at DEBUG, with tracebacks"
        assert "session.opened" in log.getvalue()
        check(attempts, log.getvalue(), where)


@asynccontextmanager
async def in_front(kind: str, url: str) -> AsyncIterator[tuple[Served, str]]:
    """Yield a server in front of another one that gets the tokens of its clients, and the name of a tool."""
    shared: Any = {"store": url, "verifier": verifier, "settings": SETTINGS, "forward_key": FORWARD_KEY}
    if kind == "process":
        yield Process(LITTLE, env={"TOKEN": FromHeader("authorization")}, **shared), "echo"
        return
    async with Fake() as fake:
        yield Remote(fake.url, pass_token=True, **shared), "a"
        assert ANN in str(fake.headers), "the server behind has the token"


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", ["process", "remote"])
@async_test
async def test_no_token_is_left_by_a_server_in_front_of_another_one(kind: str, store: str) -> None:
    with kept(store) as where, logged() as log:
        async with in_front(kind, where.url) as (server, tool):
            front = server.front(HttpSettings())
            attempts = Attempts(front)
            try:
                await attempts.run(tool, {"text": "hello"})
            finally:
                await server.engine.aclose()
        check(attempts, log.getvalue(), where)


def test_the_scan_finds_a_token_in_each_form() -> None:
    """The tests above find nothing; this one shows that they would."""
    for form in forms(ANN):
        assert found("log", b"some " + form + b" line", {ANN})
    assert found("log", f"handler.failed token={MARKER}-unknown".encode(), set())
    assert found("log", b"a plain line", {ANN, BOB}) == []


@async_test
async def test_the_scan_finds_a_token_that_a_tool_writes_down() -> None:
    with kept("sqlite") as where, logged() as log:
        async with house(where.url) as h:
            attempts = Attempts(h.front)
            ann = attempts.peer(ANN)
            await attempts.keep(ann.sessionless("tools/call", {"name": "leak"}, meta=META))
            with pytest.raises(AssertionError, match="log: a token"):
                check(attempts, log.getvalue(), Kept("memory:"))
            with pytest.raises(AssertionError, match="store: a token"):
                check(attempts, "", where)
            with pytest.raises(AssertionError, match="response: a token"):
                check(attempts, "", Kept("memory:"))
