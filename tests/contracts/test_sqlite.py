"""The contract of stores, over SQLite."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.config import Limits
from holdfast.stores.base import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import StoreContract, VirtualClock
from tests.sqlite.support import store_path


class TestSqliteStore(StoreContract):
    @asynccontextmanager
    async def make_store(self, limits: Limits, clock: VirtualClock) -> AsyncIterator[Store]:
        with store_path() as path:
            store = SqliteStore(path, limits, clock)
            yield store
            await store.aclose()
