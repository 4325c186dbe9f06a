"""The contract of stores, over SQLite."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.config import Limits
from holdfast.stores.base import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import SharedContract, StoreContract, VirtualClock
from tests.sqlite.support import store_path


class TestSqliteStore(StoreContract, SharedContract):
    @asynccontextmanager
    async def make_store(self, limits: Limits, clock: VirtualClock) -> AsyncIterator[Store]:
        with store_path() as path:
            store = SqliteStore(path, limits, clock)
            try:
                yield store
            finally:
                await store.aclose()

    @asynccontextmanager
    async def make_stores(
        self, limits: Limits, clock: VirtualClock, count: int
    ) -> AsyncIterator[list[Store]]:
        with store_path() as path:
            stores: list[Store] = [
                SqliteStore(path, limits, clock, replica=f"replica{number}") for number in range(count)
            ]
            try:
                for store in stores:
                    await store.sessions()  # a store listens from its first command on
                yield stores
            finally:
                for store in stores:
                    await store.aclose()
