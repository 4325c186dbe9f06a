"""Forwarding: a retry that arrives at one replica, for a call that is parked at another.

A parked call is a suspended task in one process. A retry can arrive at any replica; the `requestState` names the one that
has the call. The request travels through the store, and the answer comes back as a stream in the store:

    replica A (has the client's connection)            store                  replica B (has the parked call)
    ───────────────────────────────────────    ────────────────────────    ───────────────────────────────────
    forward: open a session for this
      one request                        ──▶   session
      put the request into B's inbox     ──▶   inbox of B, wake-up    ──▶   look: take it from the inbox
    wait for the stream to begin               claim, stream         ◀──   claim; go on with the call
    deliver: stream ─▶ HTTP response     ◀──   messages, terminal    ◀──   deliver: call ─▶ stream
    close the session                    ──▶   gone                  ──▶   reads no session: cancels the call

The session exists for this one request, so the rules for streams hold here too: order, one terminal message, fencing, and the end
that other replicas write if B dies. Its client never sees it.

Why a request runs once. B claims the exchange before it takes the request out of its inbox. If B finds the request a second
time (it was interrupted in between), the claim is taken and the request is only removed. If B dies after the claim, the
sweep of another replica ends the exchange with −31002.

Why A never waits for ever. The inbox entry lives for one lease. If no stream has begun by then, B is gone and the client gets
−31003. Once the stream has begun, it ends with a terminal message, or the session ends and the reader with it.

Why B never works for a client that has gone. A closes the session when its client goes. B looks for the session at each
silence of `_HEARTBEAT` seconds, and each append fails without it.

A request that finds no memory at B (`TooMuchWork`), or that arrives while the store is away, stays in the inbox:
`is_woken` says that the inbox must be read again.
"""

import asyncio
import contextlib
from typing import Final

from holdfast.core.lifecycle import Input
from holdfast.core.stream import Position
from holdfast.engine.delivery import Batch, deliver
from holdfast.engine.exchange import Caller
from holdfast.engine.forwarded import ForwardedRequest, decode_forwarded, encode_forwarded
from holdfast.engine.reader import Reader
from holdfast.engine.readers import Readers
from holdfast.engine.runtime import Runtime
from holdfast.engine.session import Session
from holdfast.engine.sessionless import SessionlessCalls
from holdfast.errors import (
    HoldfastError,
    McpError,
    ParkedGone,
    SessionGone,
    StoreError,
    TooMuchWork,
    Unresumable,
)
from holdfast.protocol.sessionless import read_meta
from holdfast.protocol.versions import LATEST
from holdfast.stores.base import Claim, Claimed, Refusal, SessionRecord
from holdfast.wire.jsonrpc import Request, refusal

_LOOK_SECONDS: Final = 0.05
"""Seconds between two looks for the stream of the other replica."""
_HEARTBEAT: Final = 1.0
"""Seconds of silence after which the replica that runs the call checks that the client is still there."""


_FORWARDED: Final = "forwarded"
"""The principal to whom a request is charged until it is decoded and its own principal is known."""


class Forwarding:
    """Forwards requests to other replicas, and answers those that other replicas forward to this one."""

    def __init__(self, runtime: Runtime, readers: Readers, calls: SessionlessCalls) -> None:
        self._runtime = runtime
        self._readers = readers
        self._calls = calls
        self._taking: set[str] = set()
        self.is_woken: bool = False
        """The inbox must be read: a wake-up said so, or it could not be read before."""

    # Requests of our clients, answered by another replica

    async def forward(self, replica: str, caller: Caller, request: Request) -> Reader:
        """Have another replica answer a request; return a reader of its answer. Close it with `drop`.

        Raises:
            ParkedGone: that replica is gone, and what it had parked with it.
        """
        runtime = self._runtime
        session = await self._open_session(caller)
        stream = runtime.random.token(12)
        payload = encode_forwarded(session.record.key, stream, caller, request)
        seconds = runtime.settings.times.lease
        try:
            # An empty payload: this principal cannot be encoded, so no other replica can act for it.
            if payload and await runtime.store.forward(replica, stream, payload, seconds=seconds):
                return await self._begun(session, stream, runtime.clock.now() + seconds)
        except BaseException:
            await self._forget(session)
            raise
        await self._forget(session)
        raise ParkedGone

    async def _open_session(self, caller: Caller) -> Session:
        random, times = self._runtime.random, self._runtime.settings.times
        record = SessionRecord(
            key=random.token(32),
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

    async def _begun(self, session: Session, stream: str, deadline: float) -> Reader:
        while True:
            try:
                return await self._readers.attach(session.record.key, session.record.principal, stream)
            except Unresumable:
                if self._runtime.clock.now() > deadline:
                    raise ParkedGone from None
                await asyncio.sleep(_LOOK_SECONDS)

    async def drop(self, reader: Reader) -> None:
        """Close the reader of an answer. Its session ends too, which tells the other replica that the client needs no more."""
        await self._readers.detach(reader)
        await self._forget(reader.session)

    async def _forget(self, session: Session) -> None:
        """Close the session of a forwarded request. If the store is away, the session ends by its idle time: do not wait here."""
        self._runtime.sessions.pop(session.record.key, None)
        with contextlib.suppress(StoreError):
            await self._runtime.store.close(session.record.key, Input.SHUTDOWN)

    # Requests of other replicas, answered here

    async def look(self) -> None:
        """Answer the requests in the inbox."""
        try:
            waiting = await self._runtime.store.inbox()
        except StoreError:
            # There is no second wake-up for what is in the inbox now.
            self.is_woken = True
            return
        for forwarded in waiting:
            if forwarded.name not in self._taking:
                self._taking.add(forwarded.name)
                self._runtime.spawn(self._take(forwarded.name, forwarded.payload))

    async def _take(self, name: str, payload: bytes) -> None:
        try:
            # Held while this runs. A request that finds no room stays in the inbox until the next look.
            charge = self._runtime.load.intake(_FORWARDED).charge(payload)
            forwarded = await self._read(name, payload)
            claim = Claim(forwarded.request.id, forwarded.stream, b"")
            claimed = await self._runtime.store.claim(forwarded.session, forwarded.owner, claim)
            await self._runtime.store.remove_forwarded(name)
            if isinstance(claimed, Claimed):
                await self._answer(forwarded, claimed.fence)
            del charge
        except TooMuchWork:
            self.is_woken = True
        except HoldfastError as error:
            # The other replica is gone, or the store is away: there is no client to answer.
            self._runtime.observer.note("forward.dropped", error=error)
        finally:
            self._taking.discard(name)

    async def _read(self, name: str, payload: bytes) -> ForwardedRequest:
        forwarded = decode_forwarded(payload)
        if forwarded is None:
            # A later release has written it. Remove it, or each look would find it again until it expires.
            await self._runtime.store.remove_forwarded(name)
            raise StoreError("a request that was put to this replica cannot be read")
        return forwarded

    async def _answer(self, forwarded: ForwardedRequest, fence: int) -> None:
        store, random = self._runtime.store, self._runtime.random
        try:
            awaited = self._calls.go_on(
                read_meta(forwarded.request.params), forwarded.caller, forwarded.request
            )
        except McpError as error:
            terminal = refusal(forwarded.request.id, error)
            await store.settle(
                forwarded.session, forwarded.stream, fence, terminal, tag=random.tag(), keep=True
            )
            return
        try:
            start = await store.open_stream(forwarded.session, forwarded.stream, fence, random.tag())
            await deliver(awaited, _AnswerLog(self._runtime, forwarded, fence, start))
        finally:
            if awaited.leave():
                await self._calls.abandon(awaited.exchange)


class _AnswerLog:
    """The stream of a forwarded request: a sink. The replica that has the client's connection reads it."""

    patience: Final = _HEARTBEAT

    def __init__(self, runtime: Runtime, forwarded: ForwardedRequest, fence: int, start: Position) -> None:
        self._store = runtime.store
        self._random = runtime.random
        self._where = (forwarded.session, forwarded.stream)
        self._fence = fence
        self._start = start

    async def write(self, batch: Batch) -> None:
        """Append the messages; the terminal message ends the exchange."""
        session, stream = self._where
        messages = batch.messages[:-1] if batch.finished else batch.messages
        for message in messages:
            await self._store.append(session, stream, self._fence, self._random.tag(), message)
        if batch.finished:
            terminal = batch.messages[-1]
            await self._store.settle(session, stream, self._fence, terminal, tag=self._random.tag())

    async def silence(self) -> None:
        """Check that the session is still there: the other replica closes it when its client has gone.

        Raises:
            SessionGone: it is not.
        """
        if await self._store.read(*self._where, self._start, 1, 1) is None:
            raise SessionGone("the client of a forwarded request has gone")
