"""The rules of a session on drafts, which are compared and committed, at one replica and at several."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from limpet.config import Limits
from limpet.stores.base import Store
from limpet.testing import VirtualClock
from tests.dicts import DictReplica, DictStore, Shelves
from tests.rules.book import RuleBook, SharedRuleBook


class TestDrafts(RuleBook, SharedRuleBook):
    @asynccontextmanager
    async def make_stores(
        self, limits: Limits, clock: VirtualClock, count: int
    ) -> AsyncIterator[Sequence[Store]]:
        if count == 1:
            yield [DictStore(limits, clock)]
            return
        shelves = Shelves(limits, clock)
        yield [DictReplica(limits, clock, shelves, f"replica{number}") for number in range(count)]
