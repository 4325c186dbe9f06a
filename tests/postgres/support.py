"""What the tests of PostgreSQL share."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from limpet.stores.base import Claim, Claimed, WakeUp
from limpet.stores.postgres.store import PostgresStore
from limpet.testing.store.bench import KEY, PRINCIPAL, record

TABLES = "session, field, event, lingering, subscription, work, area, cell, op, kept, task, lease, inbox, news, secret, closing, notice"
NAMESPACES = count()


async def emptied(store: PostgresStore) -> None:
    """Empty the schema of a store: quicker than to make another one."""
    await store.totals()
    connection = await store._link.connect()
    schema = store._schema
    statements = [f'DELETE FROM "{schema}".{table}' for table in TABLES.split(", ")]
    statements.append(f'UPDATE "{schema}".total SET bytes = 0, sessions = 0, tasks = 0, task_bytes = 0')
    await connection.script(";".join(statements))
    connection.end()


class Noted:
    """An observer that keeps everything."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, dict[str, object]]] = []

    def note(self, event: str, /, **facts: object) -> None:
        self.notes.append((event, facts))

    def named(self, event: str) -> list[dict[str, object]]:
        """Return the facts of all events of this name."""
        return [facts for name, facts in self.notes if name == event]


@asynccontextmanager
async def stores(url: str, count: int = 1, **more: Any) -> AsyncIterator[list[PostgresStore]]:
    """Yield replicas on a schema of their own."""
    namespace = more.pop("namespace", f"t{next(NAMESPACES)}")
    made = [
        PostgresStore(url, namespace=namespace, replica=f"replica{number}", **more) for number in range(count)
    ]
    try:
        yield made
    finally:
        for store in made:
            await store.aclose()


async def plain_call(store: PostgresStore, name: str) -> None:
    """Make a call in the session KEY."""
    claimed = await store.claim(KEY, PRINCIPAL, Claim(name, name, b"body"))
    assert isinstance(claimed, Claimed), claimed
    await store.settle(KEY, name, claimed.fence, None)


async def opened(store: PostgresStore) -> None:
    """Open the session KEY."""
    assert await store.open(record(idle=600.0), evict=False) == []


class Woken:
    """The wake-ups of a store."""

    def __init__(self, store: PostgresStore) -> None:
        self.all: list[tuple[WakeUp, str, str]] = []
        self._came = asyncio.Event()
        store.bind(self._take)

    def _take(self, kind: WakeUp, key: str, name: str) -> None:
        self.all.append((kind, key, name))
        self._came.set()

    async def until(self, is_it: Callable[[tuple[WakeUp, str, str]], bool]) -> None:
        """Wait for a wake-up."""
        while not any(map(is_it, self.all)):
            self._came.clear()
            await self._came.wait()


class Proxy:
    """A TCP proxy in front of a server that can lose answers."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._lines: list[asyncio.StreamWriter] = []
        self.loses = b""
        """Bytes of a request whose answer is lost, with the connection; empty: none."""
        self.lost = 0
        self.stays_silent = False

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._works = list[asyncio.Task[None]]()
        return (
            f"postgres://limpet@127.0.0.1:{self._server.sockets[0].getsockname()[1]}/postgres?sslmode=disable"
        )

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for line in self._lines:
            line.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, front = await asyncio.open_connection("127.0.0.1", self._port)
        self._lines += [writer, front]
        is_lost = asyncio.Event()

        async def ask() -> None:
            while data := await reader.read(1 << 16):
                if self.loses and self.loses in data:
                    self.loses, self.lost = b"", self.lost + 1
                    is_lost.set()
                front.write(data)
            front.close()

        async def answer() -> None:
            while data := await back.read(1 << 16):
                if is_lost.is_set():
                    # The work is done.
                    writer.transport.abort()
                    front.transport.abort()
                    return
                if not self.stays_silent:
                    writer.write(data)
            writer.close()

        await asyncio.gather(ask(), answer(), return_exceptions=True)
