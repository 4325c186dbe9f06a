"""The contract of stores, over every store there is."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

import pytest

from limpet.config import Limits
from limpet.stores.base import Store
from limpet.stores.memory import MemoryStore
from limpet.testing import StoreContract, VirtualClock


class TestMemoryStore(StoreContract):
    @asynccontextmanager
    async def make_stores(
        self, limits: Limits, clock: VirtualClock, count: int
    ) -> AsyncIterator[Sequence[Store]]:
        assert count == 1
        store = MemoryStore(limits, clock)
        async with aclosing(store):
            yield [store]


def test_a_contract_without_a_store_names_the_missing_method() -> None:
    with pytest.raises(NotImplementedError, match="make_stores"):
        StoreContract().test_an_operation_sent_again_returns_its_first_result()
