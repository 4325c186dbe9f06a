"""A server that was stopped starts again in the same process, also on another event loop, over every store."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, contextmanager

import pytest

from limpet import Client, Server
from limpet.stores.redis.store import RedisStore
from tests.redis_server import needs_redis, redis_cluster, redis_server
from tests.sqlite.support import store_path
from tests.support import BOUND


@contextmanager
def url_of(kind: str) -> Iterator[str]:
    match kind:
        case "memory":
            yield "memory:"
        case "sqlite":
            with store_path() as path:
                yield f"sqlite:///{path}"
        case "redis":
            with redis_server() as server:
                yield server.url
        case _:
            with redis_cluster() as nodes:
                yield "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)


async def serve_twice(server: Server) -> None:
    for _ in range(2):
        async with aclosing(server.engine):
            await server.engine.ensure_started()
            store = server.engine.runtime.store
            async with asyncio.timeout(BOUND), Client(server, protocol_version="sessions") as client:
                if isinstance(store, RedisStore):
                    await store.heard()
                assert await client.request("ping") == {}


REDIS = [pytest.param(kind, marks=needs_redis) for kind in ("redis", "cluster")]


@pytest.mark.parametrize("kind", ["memory", "sqlite", *REDIS])
def test_a_server_that_was_stopped_starts_again(kind: str) -> None:
    with url_of(kind) as url:
        server = Server("again", store=url)
        for _ in range(2):
            asyncio.run(serve_twice(server))
