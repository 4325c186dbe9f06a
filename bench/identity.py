"""The cost of identity: a plain call with a verified JWT against the same call of an anonymous client, in CPU time.

    python -m bench.identity

Both fronts are in one process and get the same bytes on transports that only record, so nothing but the server is
measured: parsing, identity, the call, the response. A connection sends the same head again and again, or another one each time. Rounds of the two alternate, every answer is checked, and the smallest
round of each counts: noise only adds. The token is known to the verifier from its first call on.
"""

import asyncio
import gc
import json
import time
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from limpet import Server
from limpet.auth import Verifier
from limpet.auth.verifiers import JwtVerifier
from limpet.config import HttpSettings, Limits
from limpet.fronts.http.http1.connection import HttpConnection
from limpet.fronts.http.http1.deadlines import Deadlines
from limpet.fronts.http.http1.members import Members
from limpet.transports.loops import run

CALLS: Final = 2_000
ROUNDS: Final = 15
AUDIENCE: Final = "https://tools.example/mcp"
ISSUER: Final = "https://id.example"
PREFIX: Final = "io.modelcontextprotocol/"
META: Final = {
    f"{PREFIX}protocolVersion": "2026-07-28",
    f"{PREFIX}clientInfo": {"name": "bench", "version": "1"},
    f"{PREFIX}clientCapabilities": {},
}


class Recorder(asyncio.Transport):
    """A transport that keeps the last answer."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: Any) -> None:
        self.written = bytes(data)

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 50_000) if name in {"peername", "sockname"} else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Take any."""


class Caller:
    """One connection to one front."""

    def __init__(self, server: Server, token: str) -> None:
        front = server.front(HttpSettings())
        self._protocol = HttpConnection(Members(front.serve, Deadlines(Limits(), 30.0)))
        self._paper = Recorder()
        self._protocol.connection_made(self._paper)
        self._head = f"Authorization: Bearer {token}\r\n" if token else ""
        self.server = server

    def request(self, body: dict[str, Any], *lines: str) -> bytes:
        """Return the bytes of a POST."""
        data = json.dumps(body).encode()
        head = "".join(f"{line}\r\n" for line in lines)
        return (
            "POST /mcp HTTP/1.1\r\nHost: localhost:8000\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\n{self._head}{head}Content-Length: {len(data)}\r\n\r\n"
        ).encode() + data

    async def send(self, data: bytes) -> bytes:
        """Send a request and wait for its answer."""
        paper = self._paper
        paper.written = b""
        self._protocol.data_received(data)
        while not paper.written:
            await asyncio.sleep(0)
        return paper.written


def echo_server(verifier: Verifier | None) -> Server:
    server = Server("bench", verifier=verifier)

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


def verified() -> tuple[JwtVerifier, str]:
    """Return a verifier and a token that it has checked before it is measured; no server is asked."""
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "client_id": "bench", "exp": time.time() + 3_600}
    token = jwt.encode({**claims, "scope": "read write"}, key, algorithm="RS256", headers={"kid": "1"})
    verifier = JwtVerifier(issuer=ISSUER, audience=AUDIENCE)

    async def find(_kid: object, _algorithm: object) -> list[Any]:
        return [key.public_key()]

    verifier._keys.find = find  # type: ignore[method-assign,assignment]
    return verifier, token


async def prepared(caller: Caller, *, modern: bool) -> tuple[bytes, bytes]:
    """Return the request of a plain call, in a session of its own if it has one, with two different heads."""
    params: dict[str, Any] = {"name": "echo", "arguments": {"text": "hello"}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    if modern:
        params["_meta"] = META
        lines = ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: echo"]
        return caller.request(call, *lines), caller.request(call, *lines, "X-Trace: 1")
    opening = {
        "protocolVersion": "2025-11-25",
        "clientInfo": {"name": "bench", "version": "1"},
        "capabilities": {},
    }
    opened = await caller.send(
        caller.request({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": opening})
    )
    session = next(line for line in opened.decode().splitlines() if line.lower().startswith("mcp-session-id"))
    lines = [session, "MCP-Protocol-Version: 2025-11-25"]
    return caller.request(call, *lines), caller.request(call, *lines, "X-Trace: 1")


async def spent(caller: Caller, heads: tuple[bytes, ...]) -> float:
    """Return the CPU microseconds of one call, over many that have these heads in turn."""
    gc.collect()
    begun = time.process_time()
    for number in range(CALLS):
        answer = await caller.send(heads[number % len(heads)])
        if b'"hello"' not in answer:
            raise AssertionError(answer)
    return (time.process_time() - begun) / CALLS * 1e6


async def main() -> None:
    """Measure both eras and print the ratios."""
    verifier, token = verified()
    for modern in (False, True):
        callers = [Caller(echo_server(None), ""), Caller(echo_server(verifier), token)]
        requests = [await prepared(caller, modern=modern) for caller in callers]
        for heads in (1, 2):
            rounds: list[list[float]] = [[], []]
            for _ in range(ROUNDS):
                for number, caller in enumerate(callers):
                    rounds[number].append(await spent(caller, requests[number][:heads]))
            anonymous, known = (min(times) for times in rounds)
            era, head = "2026-07-28" if modern else "a session", "the same" if heads == 1 else "another"
            print(
                f"{era}, {head} head each time: anonymous {anonymous:.1f} µs, JWT {known:.1f} µs, ratio {known / anonymous:.2f}"
            )
        for caller in callers:
            await caller.server.engine.aclose()


if __name__ == "__main__":
    run(main(), threads=4)
