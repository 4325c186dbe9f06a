"""The contract of stores over the shared layer, with a backend of plain dicts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.config import Limits
from holdfast.stores.base import Store
from holdfast.testing import StoreContract, VirtualClock
from holdfast.testing.store.dicts import DictStore


class TestDictStore(StoreContract):
    @asynccontextmanager
    async def make_store(self, limits: Limits, clock: VirtualClock) -> AsyncIterator[Store]:
        store = DictStore(limits, clock)
        try:
            yield store
        finally:
            await store.aclose()
