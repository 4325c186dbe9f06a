"""The rules of a session on documents themselves, in the memory store."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from limpet.config import Limits
from limpet.stores.base import Store
from limpet.stores.memory import MemoryStore
from limpet.testing import VirtualClock
from tests.rules.book import RuleBook


class TestDocuments(RuleBook):
    @asynccontextmanager
    async def make_stores(
        self, limits: Limits, clock: VirtualClock, count: int
    ) -> AsyncIterator[Sequence[Store]]:
        assert count == 1
        yield [MemoryStore(limits, clock)]
