"""Readers: who reads a stream now, who waits behind them, and what their end means for the session."""

import asyncio
import contextlib
from typing import Final

from holdfast.core.stream import Position
from holdfast.engine.exchange import SessionExchange
from holdfast.engine.reader import End, Reader
from holdfast.engine.runtime import Runtime
from holdfast.engine.session import Session
from holdfast.engine.sessions import Sessions
from holdfast.engine.writer import LogWriter
from holdfast.errors import (
    Fenced,
    OutcomeUnknown,
    SessionGone,
    StoreError,
    StoreUnavailable,
    StreamClosed,
    Unbegun,
    Unresumable,
)
from holdfast.stores.base import Refusal

_LOOK_SECONDS = 0.1
"""How often one looks whether another replica has begun a stream."""
_STORE_SECONDS: Final = 0.5
"""How often a store that is away is tried again."""
_BREAKS = frozenset({End.BROKE, End.STALLED})
"""Ends that are not our design: without another reader they detach the session."""


_REFUSALS: Final = {
    Refusal.NO_SESSION: SessionGone,
    Refusal.UNBEGUN: Unbegun,
    Refusal.UNRESUMABLE: Unresumable,
}


class Readers:
    """Attaches and detaches readers."""

    def __init__(self, runtime: Runtime, sessions: Sessions) -> None:
        self._runtime = runtime
        self._sessions = sessions

    async def first(self, exchange: SessionExchange, writer: LogWriter) -> Reader:
        """Make the POST that claimed the exchange the reader of its stream, which now begins to exist.

        Raises:
            StoreUnavailable: not now; the exchange goes on, and so may whoever waits for it.
            Fenced, StreamClosed: the exchange has ended meanwhile and needs no stream.
        """
        try:
            await writer.open()
        except SessionGone:
            # Closed by another replica, whose bell is late or was lost: the exchange has ended with the session.
            self._runtime.on_gone(exchange.session)
            raise StreamClosed from None
        except (Fenced, StreamClosed):
            if writer.terminal is not None:
                raise
            # This replica was taken for dead and another has ended the exchange: its end is there to read.
            record = exchange.session.record
            return await self.attach(record.key, record.principal, exchange.claim.stream)
        # From its start, not from where it is now: the handler may have written since.
        session = self._runtime.kept(exchange.session)
        reader = self._reader(session, exchange.claim.stream, 0, writer.start)
        self._install(reader, standalone=False)
        # The exchange may have been settled meanwhile; whoever ends it waits for this reader all the same.
        writer.attached(reader)
        return reader

    async def attach(
        self, key: str, principal: str, stream: str | None = None, cursor: Position | None = None
    ) -> Reader:
        """Attach a new reader; the former reader of the stream stops. At the end of a complete stream it has ended already.

        Raises:
            SessionGone: no such session for this principal.
            Unresumable: no such stream or position in it.
        """
        # The code that takes the place must give it back: a request that is cancelled on the way would not.
        return await self._runtime.take(self._attach(key, principal, stream, cursor), self.give_back)

    async def give_back(self, reader: Reader) -> None:
        """Detach a reader whose request has been cancelled."""
        reader.stop(End.BROKE)
        await self.detach(reader)

    async def _attach(self, key: str, principal: str, stream: str | None, cursor: Position | None) -> Reader:
        attached = await self._runtime.store.attach(key, principal, stream, cursor)
        if isinstance(attached, Refusal):
            raise _REFUSALS[attached]
        session = self._runtime.local_session(attached.record)
        start = attached.cursor
        if attached.returned:
            self._runtime.returned(session)
        standalone = stream is None or stream == attached.record.standalone
        name = stream or attached.record.standalone
        if cursor is None and standalone:
            # Where the reader is that this one supersedes; the store learns of it only at a reader's end.
            start = max([start, *(reader.cursor for reader in session.readers.get(name, ()))])
        reader = self._reader(session, name, attached.generation, start, standalone=standalone)
        if standalone and self._runtime.store.is_shared:
            reader.on_idle = lambda: self._runtime.spawn(self._succeed(reader))
        if attached.finished:
            reader.end = End.FINISHED
        self._install(reader, standalone=standalone)
        return reader

    async def repeat(self, session: Session, stream: str) -> Reader:
        """Attach a repeated POST to the exchange it repeats, from the start of its log. Waits for a store that is away."""
        try:
            return await self._repeat(session, stream)
        finally:
            # Without a reader nothing of the session may live here.
            self._runtime.release(session)

    async def _repeat(self, session: Session, stream: str) -> Reader:
        while True:
            try:
                exchange = session.exchanges.get(stream)
                if exchange is not None and isinstance(exchange.writer, LogWriter):
                    # Others may have ended it, because this replica was taken for dead: its end is in the log.
                    with contextlib.suppress(Fenced, StreamClosed):
                        await exchange.writer.open()
                return await self.attach(session.record.key, session.record.principal, stream)
            except Unbegun:
                # It runs at another replica, and its stream begins with the first message.
                await asyncio.sleep(_LOOK_SECONDS)
            except Unresumable:
                raise OutcomeUnknown from None
            except StoreUnavailable:
                # The call runs, or has run: a refusal would invite the client to run it a second time.
                await asyncio.sleep(_STORE_SECONDS)

    def _reader(
        self, session: Session, stream: str, generation: int, cursor: Position, *, standalone: bool = False
    ) -> Reader:
        runtime = self._runtime
        times = runtime.settings.times
        age = (
            runtime.random.uniform(*times.stream_age) if standalone or session.revision.early_close else None
        )
        return Reader(
            runtime.store,
            runtime.clock,
            session,
            stream,
            generation,
            cursor,
            keep_alive=times.keep_alive,
            age=age,
        )

    def _install(self, reader: Reader, *, standalone: bool) -> None:
        session = reader.session
        before = session.add_reader(reader)
        exchange = session.exchanges.get(reader.stream)
        if any(old.end is None and old.generation > reader.generation for old in before):
            # Its place was taken while the store's answer was on the way here.
            before = [reader]
        elif exchange is not None and isinstance(exchange.writer, LogWriter):
            exchange.writer.attached(reader)
        for old in before:
            old.active = False
            if not standalone:
                old.stop(End.TAKEN_OVER)
        # Closing a superseded GET makes its client open another one, for ever: leave it idle, but not many of them.
        idle = [old for old in before if old.end is None] if standalone else []
        for old in idle[: max(0, len(idle) - self._runtime.settings.limits.idle_readers)]:
            old.stop(End.TAKEN_OVER)

    def taken(self, session: Session, stream: str) -> None:
        """Take note that the stream has its reader at another replica now."""
        standalone = stream == session.record.standalone
        for reader in session.readers.get(stream, ()):
            reader.active = False
            if not standalone:
                reader.stop(End.TAKEN_OVER)

    async def _succeed(self, reader: Reader) -> None:
        """Take the place again if whoever superseded this reader at another replica has gone: its client is still here."""
        session, record, stream = reader.session, reader.session.record, reader.stream
        if not _may_succeed(reader, reader.generation):
            return
        try:
            found = await self._runtime.store.attach(
                record.key, record.principal, stream, reader.cursor, since=reader.generation
            )
        except StoreError:
            # The next keep-alive leads to another look.
            return
        if isinstance(found, Refusal):
            return
        reader.generation, reader.cursor = found.generation, max(reader.cursor, found.cursor)
        if reader not in session.readers.get(stream, ()):
            # It has left meanwhile, and what it gave back was its old place.
            await self._leave(session, stream, found.generation, found.cursor, broke=True)
        elif _may_succeed(reader, found.generation):
            if found.returned:
                self._runtime.returned(session)
            reader.resume()

    async def detach(self, reader: Reader) -> None:
        """Give the reader's place back. Safe to call twice."""
        session = reader.session
        reader.ended.ring()
        if reader not in session.readers.get(reader.stream, ()):
            return
        successor = session.remove_reader(reader)
        exchange = session.exchanges.get(reader.stream)
        if exchange is not None and isinstance(exchange.writer, LogWriter):
            exchange.writer.lost(reader)
        if successor is not None:
            # Never back: a reader that came late and broke at once was behind the one it superseded.
            successor.cursor = max(successor.cursor, reader.cursor)
            successor.generation = max(successor.generation, reader.generation)
            successor.resume()
            return
        broke = reader.end in _BREAKS
        await self._leave(session, reader.stream, reader.generation, reader.cursor, broke=broke)
        self._runtime.release(session)

    async def _leave(
        self, session: Session, stream: str, generation: int, cursor: Position | None, *, broke: bool
    ) -> None:
        """Record in the store that the reader left; without that the session would count as attached for ever."""

        async def leave() -> None:
            key = session.record.key
            if await self._runtime.store.detach(key, stream, generation, cursor, broke=broke):
                self._sessions.detached(session)

        await self._runtime.surely(leave)

    async def broke_before_stream(self, exchange: SessionExchange) -> None:
        """Record that the connection waiting for a plain answer is gone."""
        writer = exchange.writer
        if isinstance(writer, LogWriter):
            writer.abandoned()
        await self._leave(exchange.session, exchange.claim.stream, 0, None, broke=True)

    async def left(self, exchange: SessionExchange) -> None:
        """Record that the request that waited for an answer was cancelled: its host has ended it."""
        writer = exchange.log_writer
        if writer.terminal is not None and writer.position is None:
            await self.keep_answer(exchange, writer.terminal)
        elif writer.has_reader and writer.reader is None:
            await self.broke_before_stream(exchange)

    async def keep_answer(self, exchange: SessionExchange, terminal: bytes | None) -> None:
        """After a failed write: keep the answer for a repeat of the request; None: the one that is in its stream."""
        key, claim, tag = exchange.session.record.key, exchange.claim, self._runtime.random.tag()
        if not exchange.session.record.isolate:
            keep = self._runtime.store.keep
            await self._runtime.surely(lambda: keep(key, claim.stream, claim, terminal, tag=tag))


def _may_succeed(reader: Reader, generation: int) -> bool:
    """Tell whether no other reader here has the stream, or is newer."""
    others = [other for other in reader.session.readers.get(reader.stream, ()) if other is not reader]
    return not any(other.end is None and (other.active or other.generation > generation) for other in others)
