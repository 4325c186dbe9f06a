"""The contract of stores, over SQLite."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from limpet.config import Limits
from limpet.stores.base import Store
from limpet.stores.sqlite import SqliteStore
from limpet.testing import BackendContract, SharedContract, StoreContract, VirtualClock
from tests.sqlite.support import store_path


class TestSqliteStore(StoreContract, BackendContract, SharedContract):
    @asynccontextmanager
    async def make_stores(
        self, limits: Limits, clock: VirtualClock, count: int
    ) -> AsyncIterator[Sequence[Store]]:
        with store_path() as path:
            stores = [SqliteStore(path, limits, clock, replica=f"replica{number}") for number in range(count)]
            try:
                for store in stores[1:]:
                    await store.sessions()  # a store listens from its first command on
                yield stores
            finally:
                for store in stores:
                    await store.aclose()
