"""The contract of stores over a real Redis, and over a cluster of three."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import ClassVar

import pytest
from typing_extensions import override

from holdfast.config import Limits
from holdfast.stores.base import Store
from holdfast.stores.redis.core import silent
from holdfast.stores.redis.store import RedisStore
from holdfast.testing import SharedContract, StoreContract, VirtualClock
from tests.redis_server import needs_redis, redis_cluster, redis_server

NAMESPACES = count()


class Unpolled(RedisStore):
    """A store that does not look for lost wake-ups: tests of one store compare all wake-ups, and a poll may repeat one."""

    @override
    async def look_again(self) -> None:
        return


class OverRedis(StoreContract, SharedContract):
    __test__ = False
    url: ClassVar[str]

    @asynccontextmanager
    async def make_store(self, limits: Limits, clock: VirtualClock) -> AsyncIterator[Store]:
        store = Unpolled(self.url, limits, clock, namespace=f"contract{next(NAMESPACES)}")
        try:
            yield store
        finally:
            await store.aclose()

    @asynccontextmanager
    async def make_stores(
        self, limits: Limits, clock: VirtualClock, count: int
    ) -> AsyncIterator[list[Store]]:
        namespace = f"contract{next(NAMESPACES)}"
        stores = [
            RedisStore(self.url, limits, clock, namespace=namespace, replica=f"replica{number}")
            for number in range(count)
        ]
        try:
            for store in stores:
                store.bind(silent)
            await asyncio.gather(*(store.heard() for store in stores))
            yield list(stores)
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
