"""A server in the same process, as a duplex: every message is encoded and decoded as on any other connection."""

import asyncio
from contextvars import ContextVar
from typing import Final
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from limpet.client.targets import HasEngine
from limpet.core.lifecycle import SessionInput
from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.errors import Broken
from limpet.fronts.duplex import Duplex
from limpet.ports import Observer
from limpet.upstream.connectors import Connector
from limpet.upstream.duplex_link import DuplexLink
from limpet.upstream.link import Receiver, UpstreamLink

BEHIND: Final = 256
"""Messages that may wait for the client before the server has to wait."""
_STARTED_HERE: Final[WeakKeyDictionary[Engine, int]] = WeakKeyDictionary()
"""Engines that a duplex started, with the number of their duplexes. The last duplex stops the engine, so that the
next one may start it on another event loop, as tests do."""
_STOPPING: Final[WeakKeyDictionary[Engine, asyncio.Task[None]]] = WeakKeyDictionary()
"""Engines that their last duplex stops."""
_within: Final[ContextVar[Engine | None]] = ContextVar("within", default=None)
"""The engine whose own tasks run this code, such as the end of its lifespan: its stop waits for them."""


class InProcessDuplex:
    """The client's end of a duplex in memory."""

    def __init__(self, engine: Engine, caller: Caller) -> None:
        self._engine = engine
        self._duplex = Duplex(engine, self._deliver, replace(caller, is_inner=True))
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue(BEHIND)
        self._closed = False
        self._counts = False

    @property
    def exit_status(self) -> None:
        return

    @property
    def last_words(self) -> str:
        return "it is a server of this process"

    async def start(self) -> None:
        """Start the server if it is not running; after its stop, if the last duplex stops it now."""
        while (stopping := _STOPPING.get(self._engine)) is not None and _within.get() is not self._engine:
            await asyncio.wait({stopping})
        if not self._engine.started or self._engine in _STARTED_HERE:
            _STARTED_HERE[self._engine] = _STARTED_HERE.get(self._engine, 0) + 1
            self._counts = True
        token = _within.set(self._engine)
        try:
            await self._engine.ensure_started()
        except BaseException:
            await self._leave()
            raise
        finally:
            _within.reset(token)

    async def read(self) -> bytes:
        return b"" if self._closed else await self._arrived.get()

    async def write(self, message: bytes) -> None:
        """Give a message to the server.

        Raises:
            Broken: this end was closed.
        """
        if self._closed:
            raise Broken("the connection was closed")
        await self._duplex.take(message)

    async def aclose(self) -> None:
        """Close: running requests may finish, then the session is closed."""
        if self._closed:
            return
        self._closed = True
        self._duplex.gone.set()
        await self._duplex.hang_up(SessionInput.DELETED)
        # Wake the reader. A full queue has no waiting reader.
        if not self._arrived.full():
            self._arrived.put_nowait(b"")
        await self._leave()

    async def _leave(self) -> None:
        """Stop the server if a duplex started it and this is its last duplex."""
        if not self._counts:
            return
        self._counts = False
        _STARTED_HERE[self._engine] -= 1
        if not _STARTED_HERE[self._engine]:
            del _STARTED_HERE[self._engine]
            stopping = asyncio.get_running_loop().create_task(self._engine.aclose())
            _STOPPING[self._engine] = stopping
            stopping.add_done_callback(lambda _: _STOPPING.pop(self._engine, None))
            await asyncio.shield(stopping)

    async def _deliver(self, message: bytes) -> None:
        if self._closed:
            raise ConnectionResetError
        await self._arrived.put(message)


class InProcessConnector(Connector):
    """Links to a server in this process."""

    def __init__(self, server: HasEngine, caller: Caller, probe_seconds: float, observer: Observer) -> None:
        self.probe_seconds: float | None = probe_seconds
        # `answer_seconds` stays None: the start of the server is the author's own code and may take long.
        self._server = server
        self._caller = caller
        self._observer = observer

    async def connect(self, receiver: Receiver) -> UpstreamLink:
        """Start the server if it is not running, and open a duplex to it."""
        duplex = InProcessDuplex(self._server.engine, self._caller)
        await duplex.start()
        return DuplexLink(duplex, receiver, self._observer)
