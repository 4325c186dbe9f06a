"""The contract of stores over a real PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest
from typing_extensions import override

from limpet.config import Limits
from limpet.stores.base import Store, silent
from limpet.stores.postgres import lanes
from limpet.stores.postgres.store import PostgresStore
from limpet.testing import BackendContract, SharedContract, StoreContract, VirtualClock
from tests.postgres.support import emptied
from tests.postgres_server import PostgresServer, needs_postgres, postgres_server


class Unpolled(PostgresStore):
    """A store that does not look for lost wake-ups: tests of one store compare all wake-ups, and a poll may repeat one."""

    @override
    async def look_again(self) -> None:
        return


@needs_postgres
class TestPostgresStore(StoreContract, BackendContract, SharedContract):
    server: ClassVar[PostgresServer]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def running(cls) -> Iterator[None]:
        with postgres_server() as server, pytest.MonkeyPatch.context() as patch:
            # No limit of time is the subject here: a starved machine may need seconds for a large message.
            patch.setattr(lanes, "PATIENCE", 60.0)
            patch.setattr(lanes, "SILENCE", 60.0)
            cls.server = server
            yield

    @asynccontextmanager
    async def make_stores(
        self, limits: Limits, clock: VirtualClock, count: int
    ) -> AsyncIterator[Sequence[Store]]:
        kind = Unpolled if count == 1 else PostgresStore
        stores = [
            kind(f"{self.server.url}?pool=2", limits, clock, replica=f"replica{number}")
            for number in range(count)
        ]
        try:
            await emptied(stores[0])
            if count > 1:
                for store in stores:
                    store.bind(silent)
                await asyncio.gather(*(store.heard() for store in stores))
            yield stores
        finally:
            for store in stores:
                await store.aclose()
