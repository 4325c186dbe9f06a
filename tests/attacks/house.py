"""A server with something of everything that belongs to a principal, on each store; and tokens that a scan can recognise."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from limpet import Context, Server
from limpet.auth import Principal, Verifier
from limpet.config import HttpSettings
from limpet.fronts.http.front import HttpFront
from tests.asgi import Peer
from tests.messages import LATEST, metadata
from tests.redis_server import RedisServer, needs_redis, redis_server
from tests.sqlite.support import store_path

MARKER: Final = "lp-marker"
"""In every token of these tests, and in nothing else."""
ANN: Final = f"{MARKER}-ann-0a1b2c3d4e5f"
ANN_AGAIN: Final = f"{MARKER}-ann-rotated-5f4e3d"
BOB: Final = f"{MARKER}-bob-f5e4d3c2b1a0"
SUBJECTS: Final = {ANN: "ann", ANN_AGAIN: "ann", BOB: "bob"}
META: Final = metadata(
    capabilities={
        "elicitation": {"form": {}},
        "roots": {},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    }
)
STORES: Final = (
    "memory",
    pytest.param("sqlite"),
    pytest.param("redis", marks=needs_redis),
)


async def verifier(token: str) -> Principal | None:
    """Return the principal of a known token. Its exceptions name the token, as a careless author's code does."""
    if token.endswith("raise"):
        raise ConnectionError(f"no answer about {token}")
    subject = SUBJECTS.get(token)
    return Principal(subject=subject, issuer="test") if subject is not None else None


class Kept:
    """Where a store keeps its data, for a test that reads all of it."""

    def __init__(self, url: str, path: Path | None = None, redis: RedisServer | None = None) -> None:
        self.url = url
        self._path = path
        self._redis = redis

    def everything(self) -> bytes:
        """Return all bytes that are stored."""
        if self._path is not None:
            return b"".join(file.read_bytes() for file in self._path.parent.iterdir())
        return self._redis.dump() if self._redis is not None else b""


@contextmanager
def kept(kind: str) -> Iterator[Kept]:
    """Yield a fresh store of a kind."""
    if kind == "sqlite":
        with store_path() as path:
            yield Kept(f"sqlite:///{path}", path)
    elif kind == "redis":
        with redis_server() as server:
            yield Kept(server.url, redis=server)
    else:
        yield Kept("memory:")


def equipped(server: Server) -> Server:
    """Add tools that stream, ask, fail, keep state and run as tasks."""

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def stream(ctx: Context) -> str:
        await ctx.progress(1, 2)
        await asyncio.sleep(60)
        return "never"

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Name?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return str(answer.data)

    @server.tool
    async def boom(ctx: Context) -> str:
        raise RuntimeError(f"it failed for {ctx.principal!r}")

    @server.tool
    async def begin(ctx: Context) -> str:
        handle = await ctx.new_handle()
        await (await ctx.state_for(handle)).set("owner", "ann")
        return handle

    @server.tool
    async def look(handle: str, ctx: Context) -> str:
        return str(await (await ctx.state_for(handle)).get("owner"))

    @server.tool
    async def leak(ctx: Context) -> str:
        """Misuse the client's token, as no tool should."""
        token = ctx.headers["authorization"]
        logging.getLogger("limpet.house").warning("called with %s", token)
        await (await ctx.state_for(await ctx.new_handle())).set("token", token)
        return token

    @server.tool(task="optional")
    async def later() -> str:
        await asyncio.sleep(60)
        return "late"

    return server


class House:
    """A served server, and clients of it."""

    def __init__(self, front: HttpFront, server: Server) -> None:
        self.front = front
        self.server = server
        self.engine = server.engine

    def peer(self, token: str, **options: Any) -> Peer:
        """Return a client."""
        return Peer(self.front, token=token, **options)

    async def opened(self, token: str, **options: Any) -> Peer:
        """Return a client with a session."""
        peer = self.peer(token, **options)
        assert (await peer.initialize(LATEST)).status == 200
        return peer


@asynccontextmanager
async def house(
    store: str = "memory:", verifying: Verifier = verifier, **options: Any
) -> AsyncIterator[House]:
    """Serve the server in this process while the block runs."""
    http = options.pop("http", HttpSettings())
    server = equipped(Server("house", store=store, verifier=verifying, **options))
    front = server.front(http)
    await server.engine.ensure_started()
    try:
        yield House(front, server)
    finally:
        await server.engine.end_work()
        await server.engine.aclose()
