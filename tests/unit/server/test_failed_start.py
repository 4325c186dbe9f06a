"""A start that fails leaves nothing, on every store: a mounted server starts again with each request."""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from limpet import Server
from tests.asgi import Peer
from tests.redis_server import needs_redis, redis_server
from tests.sqlite.support import store_path
from tests.support import async_test, until

TRIES = 5


@contextlib.contextmanager
def _store(kind: str) -> Iterator[str]:
    if kind == "sqlite":
        with store_path() as path:
            yield f"sqlite:///{path}"
    elif kind == "redis":
        with redis_server() as server:
            yield server.url
    else:
        yield kind


def _held() -> tuple[int, list[str], int]:
    """Return the descriptors, our threads and the tasks of this process: their numbers and names."""
    threads = sorted(one.name for one in threading.enumerate() if one.name.startswith("limpet"))
    return len(list(Path("/proc/self/fd").iterdir())), threads, len(asyncio.all_tasks())


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")  # noqa: PTH112
@pytest.mark.parametrize("kind", ["memory:", "sqlite", pytest.param("redis", marks=needs_redis)])
@async_test
async def test_a_start_that_fails_leaves_no_thread_descriptor_or_task(kind: str) -> None:
    is_up = False

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        if not is_up:
            raise RuntimeError("the database is down")
        yield

    with _store(kind) as url:
        server = Server("failing", lifespan=lifespan, store=url)
        async with aclosing(server.engine):
            app = server.asgi()

            async def attempt() -> None:
                with pytest.raises(RuntimeError, match="the database is down"):
                    await Peer(app).initialize()

            # The first one starts the thread pool of the loop.
            await attempt()
            before = _held()
            for _ in range(TRIES):
                await attempt()
            await until(lambda: _held() <= before, explain=lambda: f"{before} {_held()}")
            is_up = True
            assert (await Peer(app).initialize()).status == 200
