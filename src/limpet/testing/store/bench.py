"""One store on the bench: made fresh for each test, with a virtual clock and a list of its wake-ups."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from limpet.config import Limits
from limpet.core.lifecycle import SessionInput
from limpet.core.stream import Position, StreamPage
from limpet.errors import Fenced, StreamClosed
from limpet.stores.base import (
    Attached,
    Claim,
    Claimed,
    Closed,
    Duplicate,
    Refusal,
    SessionRecord,
    Store,
    WakeUp,
)
from limpet.testing.clock import VirtualClock
from limpet.testing.store.limits import tight
from limpet.wire.jsonrpc import RequestId

KEY, OTHER = "session", "other-session"
PRINCIPAL, STRANGER = "principal", "stranger"
IDLE, GRACE, LIFETIME = 100.0, 50.0, 1000.0
PAGE = (1_000, 1 << 20)


def record(key: str = KEY, principal: str = PRINCIPAL, **fields: Any) -> SessionRecord:
    """Return a session as the engine would open it, with short clocks."""
    given = {
        "version": "2025-11-25",
        "standalone": f"{key}-standalone",
        "client": {"name": "test"},
        "capabilities": {},
        "grace": GRACE,
        "idle": IDLE,
        "lifetime": LIFETIME,
    }
    return SessionRecord(key=key, principal=principal, **{**given, **fields})


class Bench:
    """A store and short methods for a test."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.store = store
        self.clock = clock
        self.bind()

    def bind(self) -> None:
        """Collect the store's wake-ups, beginning with an empty list."""
        self.wakeups: list[tuple[WakeUp, str, str]] = []
        self.store.bind(lambda reason, key, name: self.wakeups.append((reason, key, name)))

    async def open(self, key: str = KEY, principal: str = PRINCIPAL, **fields: Any) -> SessionRecord:
        """Open a session that must find room."""
        opened = record(key, principal, **fields)
        assert await self.store.open(opened, evict=False) == []
        return opened

    async def claim(
        self, request_id: RequestId, stream: str, *, key: str = KEY, principal: str = PRINCIPAL,
        digest: bytes = b"body", control: bool = False,
    ) -> Claimed | Duplicate | Refusal:  # fmt: skip
        """Try to claim a request."""
        return await self.store.claim(key, principal, Claim(request_id, stream, digest, control))

    async def begin(self, request_id: RequestId, stream: str, **more: Any) -> int:
        """Claim a request that must be free; return its fence."""
        claimed = await self.claim(request_id, stream, **more)
        assert isinstance(claimed, Claimed), claimed
        return claimed.fence

    async def streaming(self, request_id: RequestId, stream: str, **more: Any) -> int:
        """Begin an exchange whose stream exists."""
        fence = await self.begin(request_id, stream, **more)
        await self.store.open_stream(more.get("key", KEY), stream, fence, tag_of(stream, 0))
        return fence

    async def append(self, stream: str, fence: int, number: int, data: bytes = b"{}") -> Position:
        """Add an event with a tag of its own."""
        return await self.store.append(KEY, stream, fence, [(tag_of(stream, number), data)])

    async def start_of(self, stream: str) -> Position:
        """Return where a stream began."""
        attached = await self.attach(stream)
        await self.store.detach(KEY, stream, attached.generation, None, broke=False)
        return attached.cursor

    async def read(self, stream: str, cursor: Position, key: str = KEY) -> StreamPage:
        """Read all there is after a position of a stream that must exist."""
        page = await self.store.read(key, stream, cursor, *PAGE)
        assert page is not None
        return page

    async def attach(
        self, stream: str | None = None, cursor: Position | None = None, **more: str
    ) -> Attached:
        """Attach a reader that must find its place."""
        attached = await self.store.attach(
            more.get("key", KEY), more.get("principal", PRINCIPAL), stream, cursor
        )
        assert isinstance(attached, Attached), attached
        return attached

    async def sweep(self) -> list[tuple[str, SessionInput]]:
        """Close the sessions that are due; return which and why."""
        return [(closed.record.key, closed.reason) for closed in await self.store.sweep()]

    async def ends(self, seconds: float, reason: SessionInput) -> None:
        """Check that the session closes for this reason after so many seconds, and not a second earlier."""
        self.clock.advance(seconds - 1)
        assert await self.sweep() == []
        self.clock.advance(1)
        assert await self.sweep() == [(KEY, reason)]

    async def lives(self, key: str = KEY) -> bool:
        """Return True if a session is open, without a sign of its client."""
        return key in await self.store.sessions()


def tag_of(stream: str, number: int) -> int:
    """Return a tag that no other event of a test has."""
    return (sum(stream.encode()) << 32) + number + 1


def data_of(page: StreamPage) -> list[bytes]:
    """Return the payloads of a page."""
    return [event.data for event in page.events]


async def refused(
    attempt: Awaitable[object], errors: type[Exception] | tuple[type[Exception], ...] = (Fenced, StreamClosed)
) -> None:
    """Await a call that must raise one of these errors."""
    try:
        await attempt
    except errors:
        return
    raise AssertionError(f"{errors} was not raised")


def reasons(closed: list[Closed] | Refusal) -> list[tuple[str, SessionInput]]:
    """Return which sessions were closed, and why."""
    assert not isinstance(closed, Refusal)
    return [(one.record.key, one.reason) for one in closed]


class Contract:
    """The base of every part of the contract: stores to test."""

    def make_stores(
        self, limits: Limits, clock: VirtualClock, count: int
    ) -> AbstractAsyncContextManager[Sequence[Store]]:
        """Return a context with so many replicas of one fresh, empty store, each with a name of its own.

        Leaving it must release everything. Only the contract of shared stores asks for more than one.
        """
        raise NotImplementedError("say how your stores are made: override make_stores")


C = TypeVar("C", bound=Contract)
Scenario = Callable[[C, Bench], Coroutine[Any, Any, None]]


def scenario(**limits: int) -> Callable[[Scenario[C]], Callable[[C], None]]:
    """Run an asynchronous test on a fresh store with these limits, in an event loop of its own."""

    def decorate(test: Scenario[C]) -> Callable[[C], None]:
        async def start(contract: C, stores: Sequence[Store], clock: VirtualClock) -> None:
            await test(contract, Bench(stores[0], clock))

        return plain_test(test, start, tight(**limits), 1)

    return decorate


def plain_test(
    test: Callable[..., Any],
    start: Callable[[C, Sequence[Store], VirtualClock], Coroutine[Any, Any, None]],
    limits: Limits,
    count: int,
) -> Callable[[C], None]:
    """Return a method that pytest can call: named as `test`, with `start` on fresh stores in its own event loop."""

    async def on_stores(self: C) -> None:
        clock = VirtualClock()
        async with self.make_stores(limits, clock, count) as stores:
            await start(self, stores, clock)

    @functools.wraps(test, assigned=("__name__", "__qualname__", "__doc__", "__module__"))
    def run(self: C) -> None:
        asyncio.run(on_stores(self))

    # Otherwise pytest would look for a fixture of the wrapped function's parameter.
    del run.__dict__["__wrapped__"]
    return run
