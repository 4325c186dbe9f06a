"""Readers: which connection gets the messages of a stream, and how the end of a reader changes its session.

A stream has one active reader in the whole cluster. The store knows which: it counts the readers of a stream, and each
new one gets the next generation. The POST that claims an exchange is the reader of generation 0, before it has read
anything.

    POST ── claim ──▶ generation 0 ──▶ plain answer, no Reader was ever made
                           │
                           └─ first(): the call became a stream ──▶ Reader, generation 0
    GET with Last-Event-ID ── attach() ──▶ Reader, generation 1, 2, …       the reader before it ends (TAKEN_OVER)
    GET without it ────────── attach() ──▶ Reader of the standalone stream; the reader before it becomes idle
    repeated POST ─────────── repeat() ──▶ Reader from the start of the log of the call that it repeats

Why an old connection cannot disturb a new one. Every command of a reader to the store carries its generation. The end
of a reader that has a successor has an old generation, and the store ignores it. In this process the same rule holds by
identity: a writer forgets a reader only if it is its present one. If the store's answer to an attach arrives later than
the answer to a newer attach, `_install` sees the higher generation and ends the late reader; on the standalone stream
it becomes idle instead.

Why a place is not lost. A reader that the store has attached must be detached, or its session would count as attached
forever and would never begin its grace period. So the attach runs in its own task: if the request that wanted it is
cancelled, the task still ends, and its reader is given back (`Runtime.take_or_give_back`). If the store does not answer
an attach in time, it may have attached a reader that this process does not know: once no attach of the session is under
way, the store is asked who has the place, and a reader of this replica that is unknown here is detached (`_undo`). A
detach without an answer of the store is sent again until there is one (`Runtime.write_eventually`). A failover may lose
one that was answered: stores that can lose writes say from time to time which readers they have (`check_held`).

The effect of an end. BROKE and STALLED are breaks: if the session has no other reader, it becomes detached. The other
ends are no breaks: AGED, a finished stream, a takeover. `detach` takes effect once for each reader, for every kind of
end. A reader that has no end yet when it is detached was cancelled by its host: its connection is gone (BROKE).

Which idle reader comes next. On the standalone stream superseded readers stay open. When the active one ends, the
newest of them in this process takes over, from the furthest cursor of the two. If the active one was at another
replica, the idle ones notice it at their keep-alives: an attach with `since` succeeds only if no newer reader is there
(`_succeed`).

When an answer is kept for a repeat, the table of its fate decides (`core/fate.py`). Each connection reports to it, by
its writer; `follow_up` sends the commands that follow to the store.

Why no repeat runs between the end of a call and its answer. An end that is stored frees its id, and the POST writes the
answer in a later pass of the loop. A repeat that is claimed in between would run the call again, and the connection of
the first one may break before the write. So a call whose POST waits is in `Session.answering` until its answer is
written or kept (`hold`, `close`), and a request with the same id and the same bytes that this process receives
meanwhile waits for that. A plain call is written right after its handler has returned: no request comes in between. At
another replica a repeat may still be claimed first, if the break falls into the round trip in which the end is stored.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Coroutine, Iterator
from typing import Any, Final

from limpet.core.empty_table import EMPTY
from limpet.core.fate import FateAction, FateInput
from limpet.core.stream import Position
from limpet.engine.exchange import SessionExchange
from limpet.engine.outages import RETRY_SECONDS, retried
from limpet.engine.outcome import ANSWER_DROPPED
from limpet.engine.reader import End, Reader
from limpet.engine.runtime import Runtime
from limpet.engine.session import HIDDEN, Session
from limpet.engine.sessions import Sessions
from limpet.engine.writer import SessionWriter
from limpet.errors import (
    Fenced,
    OutcomeUnknown,
    SessionGone,
    StoreError,
    StoreUnavailable,
    StreamClosed,
    Unbegun,
    Unresumable,
    Withdrawn,
)
from limpet.stores.base import Attached, Refusal
from limpet.wire.jsonrpc import RequestId

_DOUBTED: Final = 1_000
"""How many places of readers the store is asked about at once. Beyond it the sweeps of a shared store find them."""
_LOOK_SECONDS = 0.1
"""How often the store is asked whether another replica has begun a stream."""
_BREAKS = frozenset({End.BROKE, End.STALLED})
"""Unwanted ends: they make a session detached if it has no other reader."""


_IDLE_READERS: Final = 4
"""Superseded GET readers of a session that stay open and idle. Some clients reconnect in a loop if they are closed."""
_REFUSALS: Final = {
    Refusal.NO_SESSION: SessionGone,
    Refusal.UNBEGUN: Unbegun,
    Refusal.UNRESUMABLE: Unresumable,
    Refusal.WITHDRAWN: Withdrawn,
}


class Readers:
    """Attaches and detaches readers."""

    def __init__(self, runtime: Runtime, sessions: Sessions) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._moving: Counter[str] = Counter()
        """By session: how many attaches and detaches are on their way to the store."""
        self._doubted: set[tuple[str, str | None]] = set()
        """By session and stream: the places that the store is asked about."""

    async def first(self, exchange: SessionExchange) -> Reader:
        """Make the POST that claimed the exchange the reader of its stream, which now begins to exist.

        Raises:
            StoreUnavailable: the stream cannot begin now. The exchange continues, and the POST can try again.
            Fenced, StreamClosed: the exchange has ended meanwhile and needs no stream.
        """
        reader = await self._first(exchange)
        reader.request_id = exchange.request.id
        return reader

    async def _first(self, exchange: SessionExchange) -> Reader:
        writer = exchange.writer
        try:
            await writer.open()
        except SessionGone:
            # Another replica has closed the session, and its wake-up is late or was lost: the exchange has ended too.
            self._runtime.on_gone(exchange.session)
            raise StreamClosed from None
        except (Fenced, StreamClosed):
            if writer.terminal is not None:
                raise
            # Other replicas have declared this one dead, and one of them has ended the exchange: its end can be read.
            record = exchange.session.record
            return await self.attach(record.key, record.principal, exchange.claim.stream)
        # From its start, not from where it is now: the handler may have written since.
        session = self._runtime.registered(exchange.session)
        reader = self._reader(session, exchange.claim.stream, 0, writer.start)
        # The exchange may have been settled meanwhile; the code that ends it waits for this reader nevertheless.
        self._install(reader, writer, FateInput.ATTACHED)
        return reader

    async def attach(
        self, key: str, principal: str, stream: str | None = None, cursor: Position | None = None
    ) -> Reader:
        """Attach a new reader in place of the former one. At the end of a complete stream it has ended already.

        Raises:
            SessionGone: no such session for this principal.
            Unresumable: no such stream or position in it.
        """
        attaching = self._runtime.take_or_give_back(self._attach(key, principal, stream, cursor), self.detach)
        if (spans := self._runtime.spans) is None or stream is None or cursor is None:
            return await attaching
        if (resuming := spans.resume(stream)) is None:
            return await attaching
        with resuming as span:
            reader = await attaching
            # Not before: a client can send any event id.
            span.link(stream)
            span.describe(session=reader.session.name)
            return reader

    async def _attach(self, key: str, principal: str, stream: str | None, cursor: Position | None) -> Reader:
        attached = await self._take_place(key, principal, stream, cursor)
        if isinstance(attached, Refusal):
            # Only a repeat of its request asks for a stream that has never begun; an event id of it is forged.
            is_forged = attached is Refusal.WITHDRAWN and cursor is not None
            raise _REFUSALS[Refusal.UNRESUMABLE if is_forged else attached]
        session = self._runtime.local_session(attached.record)
        start = attached.cursor
        if attached.returned:
            self._runtime.returned(session)
        standalone = stream is None or stream == attached.record.standalone
        name = stream or attached.record.standalone
        if cursor is None and standalone:
            # From the position of the superseded reader; the store learns that position only when the reader leaves.
            start = max([start, *(reader.cursor for reader in session.readers.get(name, ()))])
        reader = self._reader(session, name, attached.generation, start, standalone=standalone)
        if standalone and self._runtime.store.is_shared:
            reader.on_idle = lambda: self._runtime.spawn(self._succeed(reader))
        if standalone:
            reader.on_gap = lambda: self._sessions.changes.missed(key)
        if attached.finished:
            reader.end = End.FINISHED
        self._install(reader, _writer_of(session, name), FateInput.REPEATED, standalone=standalone)
        return reader

    async def _take_place(
        self,
        key: str,
        principal: str,
        stream: str | None,
        cursor: Position | None,
        *,
        since: int | None = None,
    ) -> Attached | Refusal:
        """Attach a reader in the store. If it is not known whether it did, the place is given back later."""
        try:
            with self._on_its_way(key):
                return await self._runtime.store.attach(key, principal, stream, cursor, since=since)
        except Exception:
            self._doubt(key, stream)
            raise

    @contextlib.contextmanager
    def _on_its_way(self, key: str) -> Iterator[None]:
        self._moving[key] += 1
        try:
            yield
        finally:
            self._moving[key] -= 1
            if not self._moving[key]:
                del self._moving[key]

    def check_held(self, key: str, stream: str) -> None:
        """Detach a reader that the store says is here, and is not: a failover has lost that it left."""
        session = self._runtime.sessions.get(key)
        if session is None or stream not in session.readers:
            self._doubt(key, stream)

    def _doubt(self, key: str, stream: str | None) -> None:
        place = key, stream
        if place not in self._doubted and len(self._doubted) < _DOUBTED:
            self._doubted.add(place)
            self._runtime.spawn(self._check(key, stream))

    async def _check(self, key: str, stream: str | None) -> None:
        try:
            await self._undo(key, stream)
        finally:
            self._doubted.discard((key, stream))

    async def _undo(self, key: str, stream: str | None) -> None:
        """Detach the reader of a stream if the store has one of this replica that is unknown here."""
        runtime, store = self._runtime, self._runtime.store
        status = await retried(lambda: store.look(key))
        if status is None:
            return
        name = stream or status.record.standalone
        probed = await retried(lambda: store.probe(key, name))
        while key in self._moving:
            # What the store has may be the place of an attach whose reply is on its way, or one that is given back.
            await asyncio.sleep(RETRY_SECONDS)
            probed = await retried(lambda: store.probe(key, name))
        # What becomes doubtful from here on needs another check.
        self._doubted.discard((key, stream))
        if probed is None or probed.reader != store.replica or not probed.generation:
            # A POST has generation 0, and no attach is behind it.
            return
        session = runtime.sessions.get(key)
        if session is None:
            # A hidden session belongs to all replicas: it does not become a local one.
            is_hidden = key.startswith(HIDDEN)
            session = (
                Session(status.record, runtime.settings)
                if is_hidden
                else runtime.local_session(status.record)
            )
        readers = session.readers.get(name, ())
        living = [reader for reader in readers if reader.end is None]
        if all(reader.generation < probed.generation for reader in readers):
            # The attach without a reply may have taken the place of a reader that is alive: it is its place again. If
            # this has no reply either, the place is doubtful again.
            with contextlib.suppress(StoreError):
                if not (living and await self._take_again(max(living, key=_generation), probed.generation)):
                    await self._leave(session, name, probed.generation, None, broke=True)
        runtime.release(session)

    async def read_end(self, key: str, principal: str, stream: str) -> bytes | None:
        """Return the kept answer of a stream, which stays kept; None if there is none.

        The session does not become a local one: it belongs to all replicas, and a stop of this one must not close it.

        Raises:
            StoreUnavailable: it cannot be read now.
            OutcomeUnknown: the answer was dropped.
        """

        async def leave(attached: Attached | Refusal) -> None:
            if not isinstance(attached, Refusal):
                # No break, and without progress: the answer stays kept.
                session = Session(attached.record, self._runtime.settings)
                await self._leave(session, stream, attached.generation, None, broke=False)

        with self._on_its_way(key):
            taking = self._take_place(key, principal, stream, None)
            attached = await self._runtime.take_or_give_back(taking, leave)
            if attached is Refusal.UNRESUMABLE:
                raise OutcomeUnknown(ANSWER_DROPPED)
            if isinstance(attached, Refusal):
                return None
            try:
                page = await self._runtime.store.read(key, stream, attached.cursor, 1, 1)
            finally:
                await leave(attached)
        return page.events[-1].data if page is not None and page.events else None

    async def repeat(self, session: Session, stream: str, request_id: RequestId | None = None) -> Reader:
        """Attach a repeated POST to the exchange it repeats, from the start of its log. Waits for an unavailable store.

        Raises:
            Withdrawn: the claim of that exchange was given back, and nothing of it ran: submit the request again.
        """
        try:
            reader = await self._repeat(session, stream)
            reader.request_id = request_id
            return reader
        finally:
            # Without a reader, this process may not need the session.
            self._runtime.release(session)

    async def _repeat(self, session: Session, stream: str) -> Reader:
        while True:
            try:
                if (writer := _writer_of(session, stream)) is not None:
                    # Another replica may have ended it, because it declared this one dead: its end is in the log.
                    with contextlib.suppress(Fenced, StreamClosed):
                        await writer.open()
                return await self.attach(session.record.key, session.record.principal, stream)
            except Unbegun:
                # It runs at another replica, and its stream begins with its first message.
                await asyncio.sleep(_LOOK_SECONDS)
            except Unresumable:
                raise OutcomeUnknown(ANSWER_DROPPED) from None
            except StoreUnavailable:
                # The call runs, or has run: after a refusal the client would send it a second time.
                await asyncio.sleep(RETRY_SECONDS)

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

    def _install(
        self, reader: Reader, writer: SessionWriter | None, happened: FateInput, *, standalone: bool = False
    ) -> None:
        """Give a reader the deliveries of its stream; `writer`: of the exchange, if it runs here."""
        before = reader.session.add_reader(reader)
        if any(old.end is None and old.generation > reader.generation for old in before):
            # Another reader took its place while the store's answer was on its way here.
            before = [reader]
        elif writer is not None:
            writer.report(happened, reader)
        for old in before:
            old.active = False
            if not standalone:
                old.stop(End.TAKEN_OVER)
        # Closing a superseded GET makes its client open another one, forever: leave it idle, but not many of them.
        idle = [old for old in before if old.end is None] if standalone else []
        for old in idle[: max(0, len(idle) - _IDLE_READERS)]:
            old.stop(End.TAKEN_OVER)

    def taken(self, session: Session, stream: str) -> None:
        """Record that the stream has its reader at another replica now."""
        standalone = stream == session.record.standalone
        if (writer := _writer_of(session, stream)) is not None:
            writer.report(FateInput.SUPERSEDED)
        for reader in session.readers.get(stream, ()):
            reader.active = False
            if not standalone:
                reader.stop(End.TAKEN_OVER)
        if session.pace is not None:
            session.pace.moved.set()

    async def _succeed(self, reader: Reader) -> None:
        """Become the active reader again if the one that superseded this one, at another replica, is gone."""
        if _may_succeed(reader, reader.generation):
            # If the store does not work, the next keep-alive tries again.
            with contextlib.suppress(StoreError):
                await self._take_again(reader, reader.generation)

    async def _take_again(self, reader: Reader, since: int) -> bool:
        """Make a reader the active one, from where the last one was.

        False if another one has attached since that generation, or what this one has not read is gone.
        """
        session, record, stream = reader.session, reader.session.record, reader.stream
        found = await self._take_place(record.key, record.principal, stream, reader.cursor, since=since)
        if isinstance(found, Refusal):
            return False
        reader.generation, reader.cursor = found.generation, max(reader.cursor, found.cursor)
        if reader not in session.readers.get(stream, ()):
            # It was detached meanwhile, with its old generation.
            await self._leave(session, stream, found.generation, found.cursor, broke=True)
        elif _may_succeed(reader, found.generation):
            if found.returned:
                self._runtime.returned(session)
            reader.resume()
        return True

    async def detach(self, reader: Reader) -> None:
        """Give the reader's place back. Safe to call twice.

        A reader without an end was cancelled by its host, or its request was: its connection is gone.
        """
        session = reader.session
        if reader.end is None:
            reader.stop(End.BROKE)
        reader.ended.set()
        # This breaks the reference cycle of reader and writer.
        reader.on_progress = reader.on_last = None
        if reader not in session.readers.get(reader.stream, ()):
            return
        if reader.end is End.STALLED:
            self._runtime.observer.note("stream.stalled", session=session.name, client=session.client_name)
        successor = session.remove_reader(reader)
        if (writer := _writer_of(session, reader.stream)) is not None:
            writer.report(FateInput.TAKEN if reader.end is End.FINISHED else FateInput.LEFT, reader)
        if successor is not None:
            # The cursor never moves back: a reader that came late and broke at once was behind the one it superseded.
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
        """Record in the store that the reader has left; otherwise the session would count as attached forever."""
        key = session.record.key

        async def leave() -> None:
            if await self._runtime.store.detach(key, stream, generation, cursor, broke=broke):
                self._sessions.detached(session)

        await self._runtime.write_eventually(leave, self._on_its_way(key))

    async def give_back(self, session: Session, stream: str, *, broke: bool = False) -> None:
        """Give back the place of a POST that has not begun to read.

        If another reader has attached meanwhile, nothing changes.
        """
        await self._leave(session, stream, 0, None, broke=broke)

    async def clean_up(self, work: Coroutine[Any, Any, None]) -> None:
        """Give back several places, in a task of its own: some hosts cancel a request again at each await."""
        await asyncio.shield(self._runtime.begin(work))

    def hold(self, exchange: SessionExchange) -> None:
        """Let a request with the same id wait while the POST of this exchange waits for its answer."""
        session = exchange.session
        if session.answering is EMPTY:
            session.answering = {}
        session.answering[exchange.claim.id] = exchange

    async def close(self, exchange: SessionExchange) -> None:
        """End the wait of the POST of an exchange: its answer is taken, or is or will be kept for a repeat."""
        exchange.writer.report(FateInput.LEFT)
        try:
            await self.follow_up(exchange)
        finally:
            self.let_go(exchange)

    def let_go(self, exchange: SessionExchange) -> None:
        """End the wait of a POST whose client has taken the answer."""
        session, request_id = exchange.session, exchange.claim.id
        if session.answering.get(request_id) is exchange:
            del session.answering[request_id]
            if not session.answering:
                session.answering = EMPTY
            exchange.writer.changed()
            self._runtime.release(session)

    async def follow_up(self, exchange: SessionExchange) -> None:
        """Send the commands that follow from the reports about an answer to the store. Safe to call again."""
        writer, session, claim = exchange.writer, exchange.session, exchange.claim
        owed, writer.owed = writer.owed, ()
        terminal = writer.terminal
        is_in_memory = terminal is not None and writer.position is writer.stored is None
        if FateAction.KEEP in owed and terminal is not None and is_in_memory and not session.record.isolate:
            key, keep, tag = session.record.key, self._runtime.store.keep, self._runtime.random.tag()
            await self._runtime.write_eventually(lambda: keep(key, claim.stream, claim, terminal, tag=tag))
        if FateAction.LEAVE in owed:
            await self.give_back(session, claim.stream, broke=True)
        elif FateAction.RELEASE in owed and writer.stored is not None:
            await self._leave(session, claim.stream, 0, writer.stored, broke=False)


def _writer_of(session: Session, stream: str) -> SessionWriter | None:
    """Return the writer of a stream whose exchange runs here, or whose POST waits here for its answer."""
    exchange = session.exchanges.get(stream)
    if exchange is None:
        ended = (one for one in session.answering.values() if one.claim.stream == stream)
        exchange = next(ended, None)
    return None if exchange is None else exchange.writer


def _generation(reader: Reader) -> int:
    return reader.generation


def _may_succeed(reader: Reader, generation: int) -> bool:
    """True if no other reader in this process is active for the stream, or newer."""
    others = [other for other in reader.session.readers.get(reader.stream, ()) if other is not reader]
    return not any(other.end is None and (other.active or other.generation > generation) for other in others)
