"""Sessions from initialize to their one closing transition, and what reaches them from outside any exchange."""

import asyncio
from functools import lru_cache
from hashlib import sha256
from typing import Any

from msgspec import Struct

from holdfast.core.budget import Charge
from holdfast.core.eras import check_client, check_handshake
from holdfast.core.lifecycle import Input
from holdfast.engine.asks import ask
from holdfast.engine.exchange import Caller
from holdfast.engine.exchanges import Exchanges
from holdfast.engine.faults import ends_the_task
from holdfast.engine.outcome import ending
from holdfast.engine.reader import End
from holdfast.engine.runtime import Runtime
from holdfast.engine.session import Channel, Session
from holdfast.errors import Cancelled, InvalidParams, SessionGone, StoreError, TooManySessions
from holdfast.protocol.quirks import quirks_of
from holdfast.protocol.subscriptions import TOPICS, Change
from holdfast.protocol.versions import negotiate
from holdfast.stores.base import STANDALONE_FENCE, Answered, Closed, Refusal, SessionRecord
from holdfast.wire.jsonrpc import Response, encode, notification_message

ANONYMOUS = ""
"""The principal of clients that are not authenticated. They share it, so they never evict each other."""
_CONNECTED = 1e9
"""Seconds a session may idle or last whose connection is its life: thirty years, so that no clock ends it."""
_FLUSH_SECONDS = 1.0
"""How long a closing session waits for its readers to take their terminal messages."""


class Opened(Struct, frozen=True):
    """A new session, its id (told to the client, then forgotten) and the initialize result."""

    session: Session
    session_id: str
    result: bytes


@lru_cache(maxsize=4_096)
def session_key(session_id: str) -> str:
    """Return the key a session is stored under; the id does not follow from it."""
    return sha256(session_id.encode()).hexdigest()


class Sessions:
    """Opens, finds, addresses and closes sessions."""

    def __init__(self, runtime: Runtime, exchanges: Exchanges) -> None:
        self._runtime = runtime
        self._exchanges = exchanges
        runtime.on_gone = self.closed_elsewhere
        self._closing: set[str] = set()
        """Sessions that this process is closing: their bell tells it nothing new."""

    async def open(
        self, caller: Caller, params: dict[str, Any], *, channel: Channel | None = None, lasting: bool = True
    ) -> Opened:
        """Make a session for an initialize request; one that is not `lasting` is told to no listener.

        Raises:
            InvalidParams: the request is malformed; no session exists.
            UnsupportedVersion: this client is not served with sessions.
            TooManySessions: there is no room.
        """
        runtime = self._runtime
        check_handshake(runtime.settings, params)
        client, capabilities = _checked(params)
        check_client(runtime.settings, client, capabilities)
        revision = negotiate(params.get("protocolVersion"))
        times = runtime.settings.times
        session_id = runtime.random.token(32)
        record = SessionRecord(
            key=session_key(session_id),
            principal=caller.key,
            version=revision.name,
            standalone=runtime.random.token(12),
            client=client,
            capabilities=capabilities,
            grace=times.grace_seconds,
            idle=times.idle if channel is None else _CONNECTED,
            lifetime=times.lifetime if channel is None else _CONNECTED,
            isolate=channel is None and self._isolates(client),
        )
        described = await runtime.back.initialize(record, caller)
        try:
            evicted = await runtime.store.open(record, evict=caller.key != ANONYMOUS)
        except BaseException:
            # It is not known whether it was opened, and no client knows its id.
            runtime.spawn(runtime.insist(lambda: runtime.store.close(record.key, Input.SHUTDOWN)))
            runtime.spawn(runtime.back.dropped(record))
            raise
        if isinstance(evicted, Refusal):
            await runtime.back.dropped(record)
            raise TooManySessions
        for closed in evicted:
            self.announce(closed)
        session = runtime.local_session(record, channel)
        if lasting:
            runtime.observer.note("session.opened", session=session.name, version=revision.name)
            session.queue_listener(lambda: runtime.back.opened(session))
        return Opened(session, session_id, encode({"protocolVersion": revision.name, **described}))

    def _isolates(self, client: dict[str, Any]) -> bool:
        runtime = self._runtime
        return runtime.settings.duplicates == "isolate" or quirks_of(client, runtime.quirks).isolate

    async def find(self, key: str, principal: str) -> Session:
        """Return a living session of this principal.

        Raises:
            SessionGone: there is none; unknown, closed and foreign are the same.
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
        charge: Charge | None = None,
    ) -> None:
        """Take a client's notification: act on the ones the engine owns, hand the rest to the back.

        It passes when no call does, so it has a bound of its own: where as many as may run at once are still with the
        back, the next ones are dropped. `charge` is kept until the back has ended with it.

        Raises:
            SessionGone: no such session for this principal.
        """
        session = await self.find(key, principal)
        try:
            await self._notify(session, method, params, charge)
        finally:
            self._runtime.release(session)

    async def _notify(
        self, session: Session, method: str, params: dict[str, Any], charge: Charge | None
    ) -> None:
        store, record = self._runtime.store, session.record
        if method == "notifications/cancelled":
            request_id = params.get("requestId")
            if isinstance(request_id, int | str) and not isinstance(request_id, bool):
                await store.cancel(record.key, record.principal, request_id)
            return
        if method == "notifications/initialized":
            await store.change(record.key, initialized=True)
        if session.notified >= session.limits.running:
            self._runtime.observer.note("notification.dropped", session=session.name, method=method)
            return
        session.notified += 1
        self._runtime.spawn(self._notify_back(session, method, params, charge))

    async def _notify_back(
        self,
        session: Session,
        method: str,
        params: dict[str, Any],
        charge: Charge | None,  # noqa: ARG002 - kept as long as this runs
    ) -> None:
        try:
            await self._runtime.back.notify(session, method, params)
        except BaseException as error:  # a handler's fault must not reach the receive path
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
        """Send a notification that belongs to no request. A session that is gone is no error."""
        await self._push(key, notification_message(method, params))

    async def broadcast(self, method: str, params: object = None, *, principal: str | None = None) -> None:
        """Send a notification to every session, or to those of one principal.

        The store names them: where it is shared, a session may live in no process between two requests.
        """
        message = notification_message(method, params)
        for key in await self._runtime.store.sessions(principal):
            await self._push(key, message)

    async def resource_updated(self, uri: str) -> None:
        """Tell the sessions that subscribed to a resource."""
        message = notification_message("notifications/resources/updated", {"uri": uri})
        for key in await self._runtime.store.subscribers(uri):
            await self._push(key, message)

    async def changed(self, change: Change, principal: str | None = None) -> None:
        """Tell the sessions that want to know of a change; only those of one principal, if it is named.

        They know of lists and of resources they subscribed to; other kinds are for listeners.
        """
        if change.kind == "resource":
            await self.resource_updated(change.name)
        elif not TOPICS[change.kind].name:
            await self.broadcast(TOPICS[change.kind].method, principal=principal)

    async def _push(self, key: str, message: bytes) -> None:
        session = self._runtime.sessions.get(key)
        if session is not None and session.channel is not None:
            await session.channel.send(message)
            return
        try:
            await self._runtime.store.append(key, "", STANDALONE_FENCE, self._runtime.random.tag(), message)
        except (StoreError, SessionGone):
            self._runtime.observer.note("push.dropped", session=key[:8])

    async def ask(
        self, session: Session, method: str, params: object, *, timeout: float | None = None
    ) -> Any:
        """Ask the client outside of any exchange, on the standalone stream."""

        async def send(message: bytes) -> None:
            await self._push(session.record.key, message)

        runtime, stream = self._runtime, session.record.standalone
        return await ask(runtime.store, runtime.random, session, stream, send, method, params, timeout)

    # Ending

    async def close(self, session: Session, reason: Input) -> bool:
        """End a session, wherever its calls run. False if it was closed already.

        One step in the store closes it and ends what is in flight (see `Store.close`). The replicas where
        something of it lives are rung: each cancels its handlers and lets its readers read to the end.
        """
        runtime, key = self._runtime, session.record.key
        why = f"the session was closed ({reason.value})"
        is_first = key not in self._closing
        self._closing.add(key)
        try:
            closed = await runtime.store.close(key, reason, ending(Cancelled(why), runtime.random.tag()))
            if closed is not None:
                try:
                    await self.end_work(session, why, closed=True)
                finally:
                    self.announce(closed)
        except StoreError:
            # Its connection is gone, whatever the store says: nothing may run on for it.
            if session.channel is not None:
                await self.end_work(session, why)
            else:
                runtime.spawn(self._end_if_closed(session))
            raise
        finally:
            if is_first:
                self._closing.discard(key)
        if closed is None and is_first:
            # Another replica was first, and its bell may have rung while this one was closing.
            self.closed_elsewhere(session)
        return closed is not None

    async def _end_if_closed(self, session: Session) -> None:
        """End what lives here of a session if the store has closed it, and only its answer was lost."""
        runtime = self._runtime
        if await runtime.insist(lambda: runtime.store.holder(session.record.key)) is None:
            self.closed_elsewhere(session)

    async def end_work(self, session: Session, why: str, *, closed: bool = False) -> None:
        """Settle what is in flight and wait a moment for its readers to take their terminal messages.

        `closed`: the store has settled it, with the session.
        """
        ended = list(session.exchanges.values())
        for exchange in ended:
            await self._exchanges.end(exchange, Cancelled(why), closed=closed)
        if closed:
            self._wake(session)
        deadline = asyncio.get_running_loop().time() + _FLUSH_SECONDS
        for exchange in ended:
            await exchange.writer.flushed(deadline - asyncio.get_running_loop().time())
        # Those who still read what had ended before.
        streams = [stream for stream in session.readers if stream != session.record.standalone]
        for reader in [reader for stream in streams for reader in session.readers[stream]]:
            await reader.ended.wait(max(0.0, deadline - asyncio.get_running_loop().time()))

    async def forget(self, session: Session) -> None:
        """Drop a session that lived for one request only; no listener ever knew it. A store that is away drops it later."""
        runtime, key = self._runtime, session.record.key
        try:
            await self.end_work(session, "the request is over")
        finally:
            runtime.sessions.pop(key, None)
            await runtime.surely(lambda: runtime.store.close(key, Input.SHUTDOWN))

    async def sweep(self) -> None:
        """Close what is due."""
        for closed in await self._runtime.store.sweep():
            self.announce(closed)

    def detached(self, session: Session) -> None:
        """Tell that a session lost its last reader."""
        if not session.lasting:
            return
        self._runtime.observer.note("session.detached", session=session.name)
        session.queue_listener(lambda: self._runtime.back.detached(session))
        if session.record.grace == 0:
            self._runtime.spawn(self.sweep())

    def closed_elsewhere(self, session: Session) -> None:
        """End what lives here of a session that another replica has closed, and tells of."""
        key = session.record.key
        if key not in self._closing and self._runtime.sessions.get(key) is session:
            del self._runtime.sessions[key]
            self._runtime.spawn(self._end_here(session))

    async def _end_here(self, session: Session) -> None:
        await self.end_work(session, "the session was closed", closed=True)
        self._let_go(session)

    def announce(self, closed: Closed) -> None:
        """Tell the listeners that a session has ended, and let go of what lives here of it."""
        runtime = self._runtime
        session = runtime.sessions.pop(closed.record.key, None) or Session(closed.record, runtime.settings)
        self._let_go(session)
        if session.exchanges:
            # Closed by another replica, whose bell was lost.
            runtime.spawn(self._end_here(session))
        if not session.lasting:
            return
        runtime.observer.note("session.closed", session=session.name, reason=closed.reason.value)
        session.queue_listener(lambda: runtime.back.closed(session, closed.reason))
        # Nobody else holds on to the session now, and the back must not stop before its listener has heard.
        runtime.spawn(self._told(session, closed))

    async def _told(self, session: Session, closed: Closed) -> None:
        await session.listeners_called()
        if self._runtime.store.is_shared:
            await self._runtime.store.closing_reported(closed)

    def _let_go(self, session: Session) -> None:
        self._wake(session)
        for name in session.pending:
            session.answered(name)

    @staticmethod
    def _wake(session: Session) -> None:
        """Let the readers of a closed session look: a request's stream has its end in the log, the standalone one ends now."""
        for stream, readers in list(session.readers.items()):
            for reader in readers:
                if stream == session.record.standalone:
                    reader.stop(End.CLOSED)
                else:
                    reader.wake.ring()


def _checked(params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    client, capabilities = params.get("clientInfo"), params.get("capabilities")
    if not isinstance(params.get("protocolVersion"), str):
        raise InvalidParams("initialize needs protocolVersion, a string such as 2025-11-25")
    if not isinstance(client, dict) or not isinstance(client.get("name"), str):
        raise InvalidParams("initialize needs clientInfo with a name")
    if not isinstance(capabilities, dict):
        raise InvalidParams("initialize needs capabilities, an object")
    return client, capabilities
