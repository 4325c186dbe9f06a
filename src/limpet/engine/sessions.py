"""Sessions: opened by initialize, closed once; and the messages that belong to no exchange.

    initialize ──▶ opening ──▶ Back.initialize ──▶ store.open ──▶ Opened: the id and the result for the client
                                                        │
                                                        └──▶ sessions that were evicted for it ──▶ announce

The store has the sessions. A process has a local session (`session.py`) while something of the session runs in it.

Why a session is closed once, although every replica may close it. `Store.close` is one atomic step, and returns the
closing to one caller. It also ends the exchanges in flight. The caller that gets the closing ends the local work
(`end_work`) and calls the listeners (`announce`). Each other replica that has a local session receives a wake-up and
ends its own part (`closed_elsewhere`); it calls no listener. A lost wake-up is sent again by the store, which compares
the work of a process with its data every second; a write for the session also finds that it is gone.

Why each closing is reported. The store keeps a closing until `closing_reported`. If the process that closed the session
dies before its listeners were called, another replica gets the closing from the store and calls them (`replica.py`).

Why a closing waits a moment. The readers of a closed session still have to read their terminal messages: `end_work`
gives them a second. The store keeps the logs of these streams for some seconds, so a slow reader loses nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from limpet.core.eras import check_client, check_handshake, own_meta
from limpet.core.ledger import Charge
from limpet.core.lifecycle import SessionInput
from limpet.core.remembered import remembered
from limpet.engine.anonymous import AnonymousSessions
from limpet.engine.asks import ask
from limpet.engine.author_errors import ends_the_task
from limpet.engine.back import Described
from limpet.engine.caller import Caller
from limpet.engine.changes import Changes
from limpet.engine.exchanges import Exchanges
from limpet.engine.failure_log import hide_cause
from limpet.engine.listening import Listening
from limpet.engine.outages import retried
from limpet.engine.outcome import ending
from limpet.engine.reader import End
from limpet.engine.runtime import Runtime
from limpet.engine.session import HIDDEN, ClientDuplex, Session
from limpet.engine.standalone import Standalone
from limpet.errors import (
    Cancelled,
    InvalidParams,
    OutcomeUnknown,
    SessionGone,
    StoreError,
    TooManySessions,
    UpstreamFailed,
    UpstreamUnavailable,
    joined,
)
from limpet.ports import Spans
from limpet.protocol.params import cancellation_reason
from limpet.protocol.subscriptions import REPORTED, TOPICS, Change
from limpet.protocol.versions import REVISIONS, negotiate
from limpet.stores.base import Answered, Closed, Refusal, SessionRecord
from limpet.wire.jsonrpc import Request, Response, encode, notification_message

ANONYMOUS = ""
"""The principal of clients that are not authenticated. They share it: see `anonymous.py` for their eviction."""
_NO_META: dict[str, Any] = {}
"""The metadata of every session that needs none: do not change it."""
_CONNECTED = 1e9
"""Idle time and lifetime, in seconds, of a session that ends with its connection: thirty years."""
_FLUSH_SECONDS = 1.0
"""How long the end of a session waits until its readers have read their terminal messages."""


NotifyHome = Callable[[SessionRecord, str, dict[str, Any]], Awaitable[bool]]
"""Sends a client's notification to the home of its session. False: this replica handles it."""


class Opened(Struct, frozen=True):
    """A new session, its id (sent to the client and not kept) and the initialize result."""

    session: Session
    session_id: str
    result: bytes


@lru_cache(maxsize=4_096)
def session_key(session_id: str) -> str:
    """Return the key that a session is stored under. The id cannot be computed from it."""
    return sha256(session_id.encode()).hexdigest()


class Sessions:
    """Opens, finds and closes sessions, and sends to them."""

    def __init__(self, runtime: Runtime, exchanges: Exchanges, listening: Listening) -> None:
        self._runtime = runtime
        self._exchanges = exchanges
        self.standalone: Standalone = Standalone(runtime)
        self.changes: Changes = Changes(runtime, self.standalone, listening)
        runtime.on_gone = self.closed_elsewhere
        self.notify_home: NotifyHome | None = None
        """Set by `home.py` where sessions have homes."""
        self.anonymous: AnonymousSessions = AnonymousSessions(runtime, self.close_key)
        self._closing: set[str] = set()
        """Sessions that this process is closing: it can ignore the wake-up that says so."""

    async def open(
        self, caller: Caller, params: dict[str, Any], *, duplex: ClientDuplex | None = None
    ) -> Opened:
        """Make a session for an initialize request, as `opening` does."""
        opening = self.opening(caller, params, duplex=duplex)
        return opening if isinstance(opening, Opened) else await opening

    def opening(
        self, caller: Caller, params: dict[str, Any], *, duplex: ClientDuplex | None = None
    ) -> Opened | Awaitable[Opened]:
        """Make a session for an initialize request; return the wait for it if the back or the store waits.

        Raises:
            InvalidParams: the request is malformed; no session exists.
            UnsupportedVersion: this client is not served with sessions.
            TooManySessions: there is no room.
        """
        runtime = self._runtime
        # The session of a single request has no span: the request has its own.
        if (
            runtime.spans is not None
            and caller.span is None
            and not (duplex is None and runtime.settings.stateless)
        ):
            return self._open_within_span(caller, params, duplex, runtime.spans)
        session_id = runtime.random.token(32)
        record, declared = self._new_record(session_id, caller, params, duplex)
        charge = runtime.load.session(caller, declared)
        described, at_once = runtime.back.initialize(record, caller), runtime.at_once
        if at_once is None or not isinstance(described, dict):
            return self._open(session_id, record, caller, described, duplex, charge)
        evicted = at_once.open_nowait(record, evict=caller.key != ANONYMOUS)
        if isinstance(evicted, Refusal):
            return self._open(session_id, record, caller, described, duplex, charge)
        return self._report_opened(session_id, record, caller, evicted, described, duplex, charge)

    async def _open_within_span(
        self, caller: Caller, params: dict[str, Any], duplex: ClientDuplex | None, spans: Spans
    ) -> Opened:
        with spans.request(Request("", "initialize", params), caller.headers) as span:
            opened = await self.open(replace(caller, span=span), params, duplex=duplex)
            span.describe(version=opened.session.record.version, session=opened.session.name)
            return opened

    def _new_record(
        self, session_id: str, caller: Caller, params: dict[str, Any], duplex: ClientDuplex | None
    ) -> tuple[SessionRecord, bytes]:
        """Return the record of a new session, and what its client has declared, encoded."""
        runtime = self._runtime
        settings, times = runtime.settings, runtime.settings.times
        check_handshake(settings, params)
        meta = own_meta(params) if runtime.back.has_home else _NO_META
        client, capabilities = check_client(settings, *_checked(params), meta)
        record = SessionRecord(
            key=session_key(session_id),
            principal=caller.key,
            version=negotiate(params["protocolVersion"]).name,
            standalone=runtime.random.token(12),
            client=_shared(client),
            capabilities=_shared(capabilities),
            grace=times.grace_seconds,
            idle=times.idle if duplex is None else _CONNECTED,
            lifetime=times.lifetime if duplex is None else _CONNECTED,
            isolate=duplex is None and self._isolates(params["clientInfo"]),
            home=runtime.store.replica if runtime.back.has_home else "",
            meta=meta,
            opened=runtime.clock.wall(),
        )
        return record, b"".join((client, capabilities, encode(meta) if meta else b""))

    async def _open(
        self,
        session_id: str,
        record: SessionRecord,
        caller: Caller,
        described: Described,
        duplex: ClientDuplex | None,
        charge: Charge,
    ) -> Opened:
        """Wait for the back, then store the session."""
        runtime = self._runtime
        description = described if isinstance(described, dict) else await self._describe(record, described)
        is_anonymous = caller.key == ANONYMOUS
        try:
            evicted = await runtime.store.open(record, evict=not is_anonymous)
            while isinstance(evicted, Refusal) and is_anonymous and await self.anonymous.make_room():
                evicted = await runtime.store.open(record, evict=False)
        except BaseException:
            # It is not known whether it was opened, and no client has its id.
            runtime.spawn(retried(lambda: runtime.store.close(record.key, SessionInput.SHUTDOWN)))
            runtime.spawn(runtime.back.dropped(record))
            raise
        if isinstance(evicted, Refusal):
            await runtime.back.dropped(record)
            raise TooManySessions
        return self._report_opened(session_id, record, caller, evicted, description, duplex, charge)

    def _report_opened(
        self,
        session_id: str,
        record: SessionRecord,
        caller: Caller,
        evicted: list[Closed],
        described: dict[str, Any],
        duplex: ClientDuplex | None,
        charge: Charge,
    ) -> Opened:
        """Report a session that is stored, and the sessions that were evicted for it."""
        runtime = self._runtime
        for closed in evicted:
            self.announce(closed)
        session = runtime.local_session(record, duplex)
        session.charge = charge
        if runtime.at_once is not None:
            runtime.at_once.charge_to(record.key, charge.account)
        if session.lasting:
            if caller.key == ANONYMOUS and duplex is None:
                self.anonymous.opened(record.key, caller.owner)
            runtime.observer.note(
                "session.opened", session=session.name, client=session.client_name, version=record.version
            )
            if record.isolate or not session.revision.priming:
                # Otherwise no quirk has an effect.
                self._note_quirks(session)
            if runtime.back.hears_opened:
                session.queue_listener(lambda: runtime.back.opened(session))
        return Opened(session, session_id, encode({"protocolVersion": record.version, **described}))

    async def _describe(self, record: SessionRecord, described: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        """Return the back's description of itself for a new session. If the server behind it cannot be used, log it."""
        runtime = self._runtime
        try:
            return await described
        except (OutcomeUnknown, UpstreamFailed, UpstreamUnavailable) as error:
            correlation = runtime.random.token(6)
            runtime.observer.note(
                "session.unserved", session=record.key[:8], correlation=correlation, error=error
            )
            joined(error, correlation)
            hide_cause(runtime, error)
            raise

    def _isolates(self, client: dict[str, Any]) -> bool:
        runtime = self._runtime
        return runtime.settings.duplicates == "isolate" or runtime.quirks.of(client).isolate

    def _note_quirks(self, session: Session) -> None:
        quirks, record = self._runtime.quirks, session.record
        found = quirks.of(record.client)
        if found.isolate and record.isolate:
            quirks.applied(record.client, "isolate")
        if found.no_priming and REVISIONS[record.version].priming:
            quirks.applied(record.client, "no_priming")

    async def find(self, key: str, principal: str) -> Session:
        """Return a living session of this principal.

        Raises:
            SessionGone: the session is unknown, closed, or belongs to another principal.
        """
        found = await self._runtime.store.find(key, principal)
        if found is None:
            raise SessionGone
        session = self._runtime.local_session(found.record)
        if found.returned:
            self._runtime.returned(session)
        return session

    # From the client, outside of exchanges

    async def answer(self, key: str, principal: str, response: Response) -> Answered:
        """Take the client's answer to an ask.

        Raises:
            SessionGone: no such session for this principal.
        """
        session = await self.find(key, principal)
        payload = encode(
            {"error": response.error} if response.error is not None else {"result": response.result}
        )
        digest = sha256(payload).digest()
        try:
            verdict = await self._runtime.store.answer(key, principal, str(response.id), digest, payload)
        finally:
            self._runtime.release(session)
        if isinstance(verdict, Refusal):
            raise SessionGone
        return verdict

    async def notify(
        self,
        key: str,
        principal: str,
        method: str,
        params: dict[str, Any],
        *,
        held: object = None,
    ) -> None:
        """Take a client's notification. Cancellations and `initialized` are for the engine, the others for the back.

        A notification is accepted even if no call is, so it has its own limit: if the back still handles as many
        notifications as calls may run at once, the next ones are dropped. `held` has the charge of
        its memory, and is kept until the back has handled it.

        Raises:
            SessionGone: no such session for this principal.
        """
        session = await self.find(key, principal)
        try:
            await self._notify(session, method, params, held)
        finally:
            self._runtime.release(session)

    async def _notify(self, session: Session, method: str, params: dict[str, Any], held: object) -> None:
        store, record = self._runtime.store, session.record
        if method == "notifications/cancelled":
            request_id = params.get("requestId")
            if isinstance(request_id, int | str) and not isinstance(request_id, bool):
                if reason := cancellation_reason(params):
                    self._runtime.observer.note("call.cancelled", session=session.name, reason=reason)
                await store.cancel(record.key, record.principal, request_id)
            return
        if method == "notifications/initialized":
            await store.change(record.key, initialized=True)
        if self.notify_home is None or not await self.notify_home(record, method, params):
            self.notify_back(session, method, params, held)

    def notify_back(self, session: Session, method: str, params: dict[str, Any], held: object) -> None:
        """Give a client's notification to the back, in a task of its own."""
        if session.notified >= session.limits.running:
            self._runtime.observer.note("notification.dropped", session=session.name, method=method)
            return
        session.notified += 1
        self._runtime.spawn(self._notify_back(session, method, params, held))

    async def _notify_back(
        self,
        session: Session,
        method: str,
        params: dict[str, Any],
        held: object,  # noqa: ARG002 - while this runs
    ) -> None:
        try:
            await self._runtime.back.notify(session, method, params)
        except BaseException as error:  # a handler that fails must not end the receive path
            if ends_the_task(error):
                raise
            self._runtime.observer.note(
                "notification.failed", session=session.name, method=method, error=error
            )
        finally:
            session.notified -= 1
            self._runtime.release(session)

    # To the client, outside of exchanges

    async def push(self, key: str, method: str, params: object = None) -> None:
        """Send a notification that belongs to no request. Nothing happens if the session is gone.

        It waits for a reader of this process that is far behind; a change of a list or a resource does not wait.

        Raises:
            StoreUnavailable: the store was unavailable for `Limits.store_seconds`.
        """
        change = _change(method, params)
        if change is None:
            await self.standalone.send(key, notification_message(method, params))
        else:
            await self.changes.send(key, change)

    async def ask(
        self, session: Session, method: str, params: object, *, timeout: float | None = None
    ) -> Any:
        """Ask the client outside of any exchange, on the standalone stream."""
        runtime, stream = self._runtime, session.record.standalone

        async def send(message: bytes) -> None:
            await self.standalone.append(session.record.key, [message], session.limits.store_seconds)

        return await ask(runtime.store, runtime.random, session, stream, send, method, params, timeout)

    # Ending

    def hand_over(self) -> None:
        """End the streams that clients may resume at another replica. Their calls continue here."""
        for session in self._runtime.sessions.values():
            for stream, readers in session.readers.items():
                if session.revision.early_close or stream == session.record.standalone:
                    for reader in readers:
                        reader.stop(End.AGED)

    async def close(self, session: Session, reason: SessionInput) -> bool:
        """End a session, wherever its calls run. False if it was closed already.

        One step in the store closes it and ends the exchanges in flight (see `Store.close`). The replicas that have a
        local session receive a wake-up: each cancels its handlers and lets its readers read to the end.
        """
        runtime, key = self._runtime, session.record.key
        why = _why(reason)
        is_first = key not in self._closing
        self._closing.add(key)
        try:
            closed = await self._close(key, reason)
            if closed is not None:
                try:
                    await self.end_work(session, why, closed=True)
                finally:
                    self.announce(closed)
        except StoreError:
            # Its connection is gone, so its handlers must end although the store failed.
            if session.duplex is not None:
                await self.end_work(session, why)
            else:
                runtime.spawn(self._end_if_closed(session))
            raise
        finally:
            if is_first:
                self._closing.discard(key)
        if closed is None and is_first:
            # Another replica was first, and its wake-up may have come while this one was closing.
            self.closed_elsewhere(session)
        return closed is not None

    async def close_key(self, key: str, reason: SessionInput) -> bool:
        """End a session, also if this process has no local session. False if it was closed already."""
        session = self._runtime.sessions.get(key)
        if session is not None:
            return await self.close(session, reason)
        closed = await self._close(key, reason)
        if closed is not None:
            self.announce(closed)
        return closed is not None

    async def _close(self, key: str, reason: SessionInput) -> Closed | None:
        """Close a session in the store. Its exchanges in flight end with an error that names the reason."""
        runtime = self._runtime
        error = Cancelled(_why(reason))
        return await runtime.store.close(key, reason, ending(error, runtime.random.tag()))

    async def _end_if_closed(self, session: Session) -> None:
        """End the local session if the store has closed it and only the reply was lost."""
        runtime = self._runtime
        if await retried(lambda: runtime.store.look(session.record.key)) is None:
            self.closed_elsewhere(session)

    async def end_work(self, session: Session, why: str, *, closed: bool = False) -> None:
        """Settle the calls in flight, and wait a moment until their readers have read the terminal messages.

        `closed`: the store has settled them with the session.
        """
        ended = list(session.exchanges.values())
        for exchange in ended:
            await self._exchanges.end(exchange, Cancelled(why), closed=closed)
        if closed:
            self._wake(session)
        deadline = asyncio.get_running_loop().time() + _FLUSH_SECONDS
        for exchange in ended:
            await exchange.writer.flushed(deadline - asyncio.get_running_loop().time())
        # Readers of calls that had ended before.
        streams = [stream for stream in session.readers if stream != session.record.standalone]
        for reader in [reader for stream in streams for reader in session.readers[stream]]:
            await reader.ended.wait(max(0.0, deadline - asyncio.get_running_loop().time()))

    async def forget(self, session: Session) -> None:
        """Drop a session that existed for one request. No listener was called for it.

        An unavailable store drops it later.
        """
        runtime, key = self._runtime, session.record.key
        try:
            await self.end_work(session, "the request is over")
        finally:
            runtime.sessions.pop(key, None)
            await runtime.write_eventually(lambda: runtime.store.close(key, SessionInput.SHUTDOWN))

    async def sweep(self) -> None:
        """Close the sessions whose time is over."""
        for closed in await self._runtime.store.sweep():
            self.announce(closed)

    def detached(self, session: Session) -> None:
        """Report that a session lost its last reader."""
        if not session.lasting:
            return
        self._runtime.observer.note("session.detached", session=session.name, client=session.client_name)
        session.queue_listener(lambda: self._runtime.back.detached(session))
        if session.record.grace == 0:
            self._runtime.spawn(self.sweep())

    def closed_elsewhere(self, session: Session) -> None:
        """End the local session after another replica has closed the session. That replica reports it."""
        key = session.record.key
        if key not in self._closing and self._runtime.sessions.get(key) is session:
            del self._runtime.sessions[key]
            self._runtime.spawn(self._end_here(session))

    async def _end_here(self, session: Session) -> None:
        await self.end_work(session, "the session was closed", closed=True)
        self._let_go(session)

    def announce(self, closed: Closed) -> None:
        """Call the listeners for a session that was closed, and drop the local session."""
        runtime = self._runtime
        self.anonymous.closed(closed.record.key)
        runtime.hidden.pop(closed.record.key, None)
        session = runtime.sessions.pop(closed.record.key, None) or Session(closed.record, runtime.settings)
        self._let_go(session)
        if session.exchanges:
            # Closed by another replica, whose wake-up was lost.
            runtime.spawn(self._end_here(session))
        if session.lasting:
            runtime.observer.note(
                "session.closed", session=session.name, client=session.client_name, reason=closed.reason.value
            )
            session.queue_listener(lambda: runtime.back.closed(session, closed.reason))
            if session.calling is not None:
                # Keeps the session alive, and lets a stop wait until the listener has returned.
                runtime.keep(session.calling)
        if runtime.store.is_shared and (session.lasting or closed.record.key.startswith(HIDDEN)):
            runtime.spawn(self._report_closed(session, closed))

    async def _report_closed(self, session: Session, closed: Closed) -> None:
        await session.listeners_called()
        await self._runtime.store.closing_reported(closed)

    def _let_go(self, session: Session) -> None:
        self._wake(session)
        for pending in session.pending.values():
            pending.cut_off()

    @staticmethod
    def _wake(session: Session) -> None:
        """Wake the readers of a closed session: a request's stream has its end in the log, the other one ends now."""
        for stream, readers in list(session.readers.items()):
            for reader in readers:
                if stream == session.record.standalone:
                    reader.stop(End.CLOSED)
                else:
                    reader.wake.set()


def _why(reason: SessionInput) -> str:
    return f"the session was closed ({reason.value})"


def _change(method: str, params: object) -> Change | None:
    """Return the change that a notification reports; None if it reports none."""
    kind = REPORTED.get(method)
    if kind is None:
        return None
    detail = dict(params) if isinstance(params, dict) else {}
    name = TOPICS[kind].name
    return Change(kind, str(detail.pop(name, "")) if name else "", detail)


def _checked(params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    client, capabilities = params.get("clientInfo"), params.get("capabilities")
    if not isinstance(params.get("protocolVersion"), str):
        raise InvalidParams("initialize needs protocolVersion, a string such as 2025-11-25")
    if not isinstance(client, dict) or not isinstance(client.get("name"), str):
        raise InvalidParams("initialize needs clientInfo with a name")
    if not isinstance(capabilities, dict):
        raise InvalidParams("initialize needs capabilities, an object")
    return client, capabilities


@remembered(128, longest=1_024)
def _shared(declared: bytes) -> dict[str, Any]:
    """Return the declaration of a client.

    A short one as one object for all sessions with the same declaration: do not change it.

    Most sessions of a server are opened by a few programs.
    """
    decoded: dict[str, Any] = msgspec.json.decode(declared)
    return decoded
