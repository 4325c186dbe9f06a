"""The contract of stores, over SQLite."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.config import Limits
from holdfast.stores.base import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import StoreContract, VirtualClock


class TestSqliteStore(StoreContract):
    @asynccontextmanager
    async def make_store(self, limits: Limits, clock: VirtualClock) -> AsyncIterator[Store]:
        with TemporaryDirectory() as directory:
            store = SqliteStore(Path(directory) / "store.db", limits, clock)
            yield store
            await store.aclose()
