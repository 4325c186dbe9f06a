"""Requests forwarded to the replica that must run them, their answers read back from the store.

Some work lives in one place: a parked call, later a child process. A request for it that lands
elsewhere is put into that replica's inbox, and what it answers becomes a stream in the store: in
a session that exists for this one request, so that everything that holds for streams holds here.
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
"""How often one looks whether the other replica has begun."""
_HEARTBEAT: Final = 1.0
"""How often the other replica looks whether its reader's session is still there."""


_FORWARDED: Final = "forwarded"
"""Who is charged for a request before it can be read whose it is."""


class Forwarding:
    """Puts requests to other replicas, and takes theirs."""

    def __init__(self, runtime: Runtime, readers: Readers, calls: SessionlessCalls) -> None:
        self._runtime = runtime
        self._readers = readers
        self._calls = calls
        self._taking: set[str] = set()
        self.is_rung: bool = False
        """Something may be in the inbox: a bell said so, or the inbox could not be read."""

    # Ours, run elsewhere

    async def carry(self, replica: str, caller: Caller, request: Request) -> Reader:
        """Have another replica answer a request; return a reader of its answer. Close it with `drop`.

        Raises:
            ParkedGone: that replica is gone, and what it had parked with it.
        """
        runtime = self._runtime
        session = await self._carrier(caller)
        stream = runtime.random.token(12)
        payload = encode_forwarded(session.record.key, stream, caller, request)
        seconds = runtime.settings.times.lease
        try:
            # Empty: this principal cannot be written down, so no other replica can act for it.
            if payload and await runtime.store.forward(replica, stream, payload, seconds=seconds):
                return await self._begun(session, stream, runtime.clock.now() + seconds)
        except BaseException:
            await self._forget(session)
            raise
        await self._forget(session)
        raise ParkedGone

    async def _carrier(self, caller: Caller) -> Session:
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
        """Let go of an answer, taken or not; whoever still works on it is told by its session's end."""
        await self._readers.detach(reader)
        await self._forget(reader.session)

    async def _forget(self, session: Session) -> None:
        """Close the carrier. One that a store that is away still has closes by its idle time: the answer must not wait."""
        self._runtime.sessions.pop(session.record.key, None)
        with contextlib.suppress(StoreError):
            await self._runtime.store.close(session.record.key, Input.SHUTDOWN)

    # Theirs, run here

    async def look(self) -> None:
        """Take what others have put to us."""
        try:
            waiting = await self._runtime.store.inbox()
        except StoreError:
            # No bell comes again for what is in the inbox now.
            self.is_rung = True
            return
        for forwarded in waiting:
            if forwarded.name not in self._taking:
                self._taking.add(forwarded.name)
                self._runtime.spawn(self._take(forwarded.name, forwarded.payload))

    async def _take(self, name: str, payload: bytes) -> None:
        try:
            # Held as long as this runs. What finds no room stays in the inbox, and is looked at again.
            charge = self._runtime.load.intake(_FORWARDED).charge(payload)
            forwarded = await self._read(name, payload)
            claim = Claim(forwarded.request.id, forwarded.stream, b"")
            claimed = await self._runtime.store.claim(forwarded.session, forwarded.owner, claim)
            await self._runtime.store.remove_forwarded(name)
            if isinstance(claimed, Claimed):
                await self._answer(forwarded, claimed.fence)
            del charge
        except TooMuchWork:
            self.is_rung = True
        except HoldfastError as error:
            # The other side is gone, or the store is: there is nobody to answer.
            self._runtime.observer.note("forward.dropped", error=error)
        finally:
            self._taking.discard(name)

    async def _read(self, name: str, payload: bytes) -> ForwardedRequest:
        forwarded = decode_forwarded(payload)
        if forwarded is None:
            # Of a later release. Taken all the same: it would be found again until its time is over.
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
