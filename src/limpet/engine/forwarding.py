"""Forwarding: a retry that arrives at one replica, for a call that is parked at another.

Or a repeat for a call that runs there.

A parked call is a suspended task in one process. A retry can arrive at any replica; the `requestState` names the one
that has the call. The request travels through the store, and the answer comes back as a stream in the store:

    replica A (has the client's connection)            store                  replica B (has the parked call)
    ───────────────────────────────────────    ────────────────────────    ───────────────────────────────────
    forward: open a session for this
      one request                        ──▶   session
      put a Retry into B's inbox         ──▶   inbox of B, wake-up    ──▶   claim, take it from the inbox
    wait for the reply                         claim, stream         ◀──   continue the call
    attach to the stream                 ◀──   inbox of A, wake-up   ◀──   reply: Began
    deliver: stream ─▶ HTTP response     ◀──   messages, terminal    ◀──   deliver: call ─▶ stream
    close the session                    ──▶   gone                  ──▶   reads no session: cancels the call

The session exists for this one request, so the rules for streams hold here too: order, one terminal message, fencing,
and the end that other replicas write if B dies. The client never sees this session.

Why a request runs once. B claims the exchange before it takes the request out of its inbox. If B finds the request a
second time (it was interrupted in between), the claim is its own, and nothing has run. If B dies after the claim, the
sweep of another replica ends the exchange with −31002.

Why A never waits forever. A waits for the reply for two leases, and until the lease of B has ended, and then takes the
request back from the inbox (`Inbox.request`). If that fails, B took it: A reads the stream, and if there is none the
client gets −31003. A stream that has begun ends with a terminal message, or its session and its reader end.

Why B never works for a client that has disconnected. A closes the session when its client disconnects. B checks the
session after each silence of `_HEARTBEAT` seconds, and each append fails without the session.

`inbox.py` reads the inboxes, and tries a request again for which B had no memory.
"""

import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

from limpet.core.lifecycle import SessionInput
from limpet.core.stream import Position
from limpet.engine.caller import Caller
from limpet.engine.delivery import Batch, deliver
from limpet.engine.inbox import Inbox, Received
from limpet.engine.messages import Began, ForwardedRequest, Late, Moved
from limpet.engine.outages import retried
from limpet.engine.reader import Reader
from limpet.engine.readers import Readers
from limpet.engine.rounds import ResponseWaiter
from limpet.engine.runtime import Runtime
from limpet.engine.session import HIDDEN, Session
from limpet.engine.sessionless import SessionlessCalls
from limpet.errors import (
    Busy,
    McpError,
    OutcomeUnknown,
    ParkedElsewhere,
    ParkedGone,
    SessionGone,
    Stopping,
    StoreError,
    Unreached,
    Unresumable,
)
from limpet.protocol.sessionless import RequestMeta, read_meta
from limpet.protocol.versions import LATEST
from limpet.stores.base import Claim, Claimed, Refusal, SessionRecord
from limpet.wire.jsonrpc import Request, refusal

_HEARTBEAT: Final = 1.0
"""Seconds of silence after which the replica that runs the call checks that the client is still there."""


BeginHere = Callable[[RequestMeta, Caller, Request], Coroutine[Any, Any, ResponseWaiter]]


class Forwarding:
    """Forwards requests to other replicas, and answers those that other replicas forward to this one."""

    def __init__(self, runtime: Runtime, readers: Readers, calls: SessionlessCalls, inbox: Inbox) -> None:
        self._runtime = runtime
        self._readers = readers
        self._calls = calls
        self._inbox = inbox
        self.begin_here: BeginHere = self._begin
        """Begins a call that has an idempotency key: see `idempotency.py`."""
        inbox.handlers["retry"] = ForwardedRequest, self._take

    # Requests of our clients, answered by another replica

    async def forward(self, replica: str, caller: Caller, request: Request) -> Reader:
        """Let another replica answer a request; return a reader of its answer. Close the reader with `drop`.

        Raises:
            ParkedGone: that replica is gone, with its parked calls (Unreached: nothing of the request ran there).
            Busy: that replica is alive and has not taken the request.
            OutcomeUnknown: the store has lost the session of this request. That replica may have the request already.
        """
        runtime = self._runtime
        session = await self._open_session(caller)
        retry = ForwardedRequest(
            session=session.record.key,
            stream=runtime.random.token(12),
            request=request,
            **self._inbox.caller_fields(caller),
        )
        try:
            return await self._send_retry(replica, retry, caller)
        except BaseException:
            await self._forget(session)
            raise

    async def _send_retry(self, replica: str, retry: ForwardedRequest, caller: Caller) -> Reader:
        """Send a retry; return a reader of its stream as soon as the stream begins."""
        seconds = 2 * self._runtime.settings.times.lease
        verdict = await self._inbox.request(replica, "retry", retry.stream, retry, caller, seconds=seconds)
        if verdict is None or isinstance(verdict, Moved):
            raise Unreached
        if isinstance(verdict, Late):
            raise Busy(verdict.message, verdict.retry_after)
        try:
            return await self._readers.attach(retry.session, retry.owner, retry.stream)
        except Unresumable:
            raise ParkedGone from None
        except SessionGone:
            raise OutcomeUnknown from None

    async def _open_session(self, caller: Caller) -> Session:
        random, times = self._runtime.random, self._runtime.settings.times
        record = SessionRecord(
            key=HIDDEN + random.token(32),
            principal=caller.key,
            version=LATEST.name,
            standalone=random.token(12),
            client={},
            capabilities={},
            grace=0,
            idle=times.parked,
            lifetime=times.lifetime,
        )
        if isinstance(await self._runtime.store.open(record, evict=False), Refusal):
            raise ParkedGone
        session = self._runtime.local_session(record)
        session.lasting = False
        return session

    async def drop(self, reader: Reader) -> None:
        """Close the reader of an answer and its session: the other replica then knows that the client needs no more."""
        await self._readers.detach(reader)
        await self._forget(reader.session)

    async def _forget(self, session: Session) -> None:
        """Close the session of a forwarded request.

        If the store is unavailable, the session ends by its idle time: do not wait here.
        """
        self._runtime.sessions.pop(session.record.key, None)
        with contextlib.suppress(StoreError):
            await self._runtime.store.close(session.record.key, SessionInput.SHUTDOWN)

    # Requests of other replicas, answered here

    async def _take(self, received: Received) -> None:
        retry: ForwardedRequest = received.body
        charge = received.charge()
        claim = Claim(retry.request.id, retry.stream, b"")
        claimed = await self._runtime.store.claim(retry.session, retry.owner, claim)
        await received.remove()
        if isinstance(claimed, Claimed):
            await self._answer(received, retry.caller(charge), claimed.fence)

    async def _answer(self, received: Received, caller: Caller, fence: int) -> None:
        store, random, retry = self._runtime.store, self._runtime.random, received.body
        try:
            meta = read_meta(retry.request.params)
            begin = self._begin if meta.key is None else self.begin_here
            waiter = await begin(meta, caller, retry.request)
        except (McpError, ParkedElsewhere) as failed:
            error = failed if isinstance(failed, McpError) else OutcomeUnknown()
            terminal = refusal(retry.request.id, error)
            await store.settle(retry.session, retry.stream, fence, terminal, tag=random.tag(), keep=True)
            # A retry belongs to its parked call, which cannot move.
            moves = isinstance(failed, Stopping) and "requestState" not in retry.request.params
            await received.reply(Moved(store.replica) if moves else Began())
            return
        try:
            start = await store.open_stream(retry.session, retry.stream, fence, random.tag())
            await received.reply(Began())
            await deliver(waiter, _AnswerLog(self._runtime, retry, fence, start))
        finally:
            if waiter.leave():
                await self._calls.abandon(waiter.exchange)

    async def _begin(self, meta: RequestMeta, caller: Caller, request: Request) -> ResponseWaiter:
        begin = self._calls.go_on if "requestState" in request.params else self._calls.start
        return begin(meta, caller, request)


class _AnswerLog:
    """A sink: the stream of a forwarded request. The replica that has the client's connection reads it."""

    patience: Final = _HEARTBEAT

    def __init__(self, runtime: Runtime, retry: ForwardedRequest, fence: int, start: Position) -> None:
        self._store = runtime.store
        self._random = runtime.random
        self._where = (retry.session, retry.stream)
        self._fence = fence
        self._start = start

    async def write(self, batch: Batch) -> None:
        """Append the messages, also if the store is unavailable for long; the terminal message ends the exchange."""
        session, stream = self._where
        messages = batch.messages[:-1] if batch.finished else batch.messages
        if messages:
            events = [(self._random.tag(), message) for message in messages]
            await retried(lambda: self._store.append(session, stream, self._fence, events))
        if batch.finished:
            terminal, tag = batch.messages[-1], self._random.tag()
            await retried(lambda: self._store.settle(session, stream, self._fence, terminal, tag=tag))

    async def silence(self) -> None:
        """Check that the session still exists: the other replica closes it when its client has disconnected.

        Raises:
            SessionGone: it does not exist.
        """
        if await retried(lambda: self._store.read(*self._where, self._start, 1, 1)) is None:
            raise SessionGone("the client of a forwarded request has disconnected")
