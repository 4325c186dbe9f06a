"""The home of a session: the replica whose back keeps something for it.

Requests that arrive elsewhere are forwarded to it.

A child process, a hosted run or a session of another server lives in one process. The record of a session names the
replica that has it (`SessionRecord.home`), and `take_home` of the store changes that by compare-and-set. Native servers
have no homes: any replica answers any request, and nothing of this module runs.

    replica A (has the client's connection)          store                     replica H (the home)
    ────────────────────────────────────────    ───────────────────────    ─────────────────────────────────────
    make a stream name S, `submit` it     ──▶   inbox of H, wake-up   ──▶  claim S, take it out of the inbox;
                                                claim                 ◀──    compare the record's home, start
    wait for the reply                                                     wait for a quick end, at most `stream_after`
    resolve                               ◀──   inbox of A, wake-up   ◀──  reply: Ended, Began, Refused, Late, Moved
    Ended: answer with its message
    Began: attach to S, as a repeat does  ◀──   stream S, terminal    ◀──  the handler's messages

So the home claims the exchange, and its death is found by the sweep as for every exchange (`replica.py`). A only
reads: the end of A, or of its client, costs a reader (law 6). With the reply, the reader's place belongs to A. The
store keeps the answer until A reports that its client has taken it (`core/fate.py`), and an equal request that arrives
meanwhile waits for this report. If A dies first, H gives the place back, and the answer stays kept.

**A request starts only while its client waits** (law 12; the rule is in `core/exchange.py`). A knows the connection, H
does not. When the connection ends before the reply, A tells the store (`give_back`). The session remembers the name of
S, and H finds it with its claim of S: the claim is refused, and nothing starts. If H has claimed S before and S waits
there for a slot or its turn, H claims S once more when it has it. A itself does not send, or start, a request whose
connection is gone.

**Why a request starts at most once.** Everything that starts S claims it first, and the store gives a claim of S once:
S stays known while it runs, and after its end as a stream with its terminal message. Five orders of events need more
than that:

1. *H dies before it takes the request.* A finds that the lease of H has ended, and takes the request back from the
   inbox of H (`remove_forwarded`: of A and H, one does it). It was there, so H had not started S: H starts S after the
   removal. A takes the home and claims S itself. If H had claimed S and died before the removal, A's claim is a
   Duplicate that names S, and A reads S: the sweep ends it with −31002.
2. *H dies after it took the request.* A cannot take it back. A never starts S: it attaches to S and reads the end that
   H or the sweep wrote. If there is no S, the outcome is unknown, and the client gets −31002.
3. *H was paused, A has taken the home, and H wakes up* with the request in its memory. H claims S, and the claim is
   either a Duplicate (A has claimed S), or its record names another home. Then H frees S again and starts nothing. The
   claim and the record come from one step of the store, and A takes the home before it claims S.
4. *The reply is lost*: A was paused for longer than its lease, so that H could not reply. After two leases without a
   reply, A takes the request back as in case 1, and refuses it as busy if H lives. If it cannot be taken back, case 2
   applies.
5. *The store puts the request into the inbox twice* (a command sent again). The inbox knows the name (`inbox.py`).

**Why a session does not stay without a home.** A home that is stopping replies Moved with its own name; a home whose
lease has ended gets no message. After an outage of the store, A gives it the time to renew its lease first
(`outages.py`). In both cases A takes the home, unless another replica was faster: then A asks that one. The back of the
new home builds its data from the record (`Back.moved`), or raises: then the session is closed. The former home learns
of it from a claim whose record names another home, or when its back asks (`Outside.confirm_home`), and releases its
data (`Back.left`).

A client that only listens sends no request: `listener_homes.py` takes the home for it.

The home that A knows is a cache. A wrong entry costs a message: the replica that is not the home says so.
"""

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from limpet.core.exchange import ExchangeState
from limpet.core.fate import FateInput
from limpet.core.lifecycle import SessionInput
from limpet.core.stream import after_terminal
from limpet.engine.caller import Caller
from limpet.engine.claims import Repeat
from limpet.engine.exchange import SessionExchange, exchange_of
from limpet.engine.exchanges import Exchanges, NotHome
from limpet.engine.inbox import Inbox, Received
from limpet.engine.messages import (
    Began,
    Ended,
    ForwardedRequest,
    Late,
    Message,
    Moved,
    Notify,
    Refused,
    Verdict,
)
from limpet.engine.outages import retried
from limpet.engine.readers import Readers
from limpet.engine.runtime import Runtime
from limpet.engine.session import Session
from limpet.engine.sessions import Sessions
from limpet.engine.writer import ForwardedWriter, LogWriter
from limpet.errors import Busy, Fenced, SessionGone, StoreError, StreamClosed, TooMuchWork
from limpet.protocol.methods import CONTROL
from limpet.stores.base import Claim, Claimed, Duplicate, Refusal, SessionRecord
from limpet.wire.jsonrpc import Request, encode
from limpet.wire.shape import counted_cost

_KNOWN: Final = 1_024
_KNOWN_BYTES: Final = 16_384
"""How many records of sessions are remembered to know their homes, and the most memory of one: the description of a
client may take 300 KiB."""
_REQUEST_SECONDS: Final = 600.0
"""How long a request stays in the inbox of a home that is alive and cannot take it."""
_HOPS: Final = 8
"""How often a request is sent to another home before it is refused as busy."""
_INLINE_BYTES: Final = 65_536
"""A terminal message up to this size is part of the reply; a longer one is read from the stream."""
_MOVING: Final = "Busy: the home of this session is changing; try again shortly"


def _nothing() -> None:
    """Do nothing when the client disconnects: the front notices it."""


_Claimed = tuple[SessionExchange, ForwardedWriter]


class Homes:
    """Sends requests to the homes of their sessions, and answers those that other replicas send to this one."""

    def __init__(
        self,
        runtime: Runtime,
        exchanges: Exchanges,
        sessions: Sessions,
        readers: Readers,
        inbox: Inbox,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._runtime = runtime
        self._exchanges = exchanges
        self._sessions = sessions
        self._readers = readers
        self._inbox = inbox
        self._is_stopping = is_stopping
        self._known: OrderedDict[str, SessionRecord] = OrderedDict()
        self._arriving: dict[str, asyncio.Task[SessionRecord]] = {}
        """By session: the tasks that take its home for this replica."""
        self._handed: deque[tuple[float, Session, str]] = deque()
        """The places of readers that other replicas give back, and the time after which this one does."""
        exchanges.submit = self.submit
        sessions.notify_home = self.notify
        inbox.handlers["submit"] = ForwardedRequest, self._take_request
        inbox.handlers["notify"] = Notify, self._take_notification

    @property
    def _me(self) -> str:
        return self._runtime.store.replica

    # At the replica that has the client's connection

    async def submit(
        self, key: str, caller: Caller, request: Request, digest: bytes = b"", *, streams: bool = True
    ) -> SessionExchange | Repeat:
        """Start a request here, or have the home of its session start it. Raises as `Exchanges.submit_here`."""
        if self._runtime.access.collects(request):
            # Any replica answers it: the store has the result.
            return await self._exchanges.submit_here(key, caller, request, digest, streams=streams)
        stream = self._exchanges.stream_name(caller)
        if self._runtime.access.rules is not None:
            stream, digest = self._runtime.access.named(stream, digest, request, caller, key)
        record = self._known.get(key)
        if record is None or record.principal != caller.key:
            # A stranger must not reach the home: if that is gone, the session would move for it.
            record = await self._find(key, caller)
        if record.home == self._me or self._runtime.refuses(request, caller):
            try:
                return await self._exchanges.submit_here(
                    key, caller, request, digest, streams=streams, stream=stream, home=self._me
                )
            except NotHome as moved:
                record = await self._learn_home(moved.record)
        submit = ForwardedRequest(
            session=key,
            stream=stream,
            request=request,
            streams=streams,
            digest=digest,
            **self._inbox.caller_fields(caller),
        )
        waiter = caller.waiter
        if waiter is not None:
            waiter.watch(lambda: self._withdraw(submit))
        try:
            submitting = self._send_home(record, submit, caller)
            return await self._runtime.take_or_give_back(submitting, self._unread)
        except asyncio.CancelledError:
            # A host has ended the request: its client has disconnected.
            self._withdraw(submit)
            raise
        finally:
            if waiter is not None:
                waiter.watch(_nothing)

    def _withdraw(self, submit: ForwardedRequest) -> None:
        """Withdraw a request whose client has disconnected before the home has replied."""
        store = self._runtime.store
        self._runtime.spawn(retried(lambda: store.give_back(submit.session, submit.stream)))

    async def _find(self, key: str, caller: Caller) -> SessionRecord:
        session = await self._sessions.find(key, caller.key)
        self._runtime.release(session)
        return self._know(session.record)

    def _know(self, record: SessionRecord) -> SessionRecord:
        described = encode([record.client, record.capabilities, record.meta])
        if counted_cost(described, len(described)) > _KNOWN_BYTES:
            self._known.pop(record.key, None)
            return record
        self._known[record.key] = record
        self._known.move_to_end(record.key)
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)
        return record

    async def _start_here(self, submit: ForwardedRequest, caller: Caller) -> SessionExchange | Repeat:
        return await self._exchanges.submit_here(
            submit.session,
            caller,
            submit.request,
            submit.digest,
            streams=submit.streams,
            stream=submit.stream,
            home=self._me,
        )

    async def _learn_home(self, record: SessionRecord) -> SessionRecord:
        """Record that another replica is the home of a session."""
        await self._runtime.back.left(record.key)
        return self._know(record)

    async def _send_home(
        self, record: SessionRecord, submit: ForwardedRequest, caller: Caller
    ) -> SessionExchange | Repeat:
        """Send a request to the home, to the next home if it has changed, or become the home."""
        self._exchanges.claims.running += 1
        try:
            for hop in range(_HOPS):
                if caller.waiter is not None and caller.waiter.gone:
                    raise self._exchanges.claims.withdrawn(submit.session)
                if record.home == self._me:
                    try:
                        return await self._start_here(submit, caller)
                    except NotHome as moved:
                        record = await self._learn_home(moved.record)
                        continue
                verdict = await self._inbox.request(
                    record.home, "submit", f"{submit.stream}.{hop}", submit, caller, seconds=_REQUEST_SECONDS
                )
                if isinstance(verdict, Moved) and verdict.home != record.home:
                    record = self._know(replace(record, home=verdict.home))
                elif verdict is None or isinstance(verdict, Moved):
                    record = await self.take_from(record.home, submit.session)
                elif (answer := await self._read_verdict(record, submit, caller, verdict)) is not None:
                    return answer
        finally:
            self._exchanges.claims.running -= 1
        raise Busy(_MOVING)

    async def _read_verdict(
        self, record: SessionRecord, submit: ForwardedRequest, caller: Caller, verdict: Verdict
    ) -> SessionExchange | Repeat | None:
        """Return the answer of the front for a request that the home has taken or refused. None: send it again."""
        key, stream, request = submit.session, submit.stream, submit.request
        match verdict:
            case Late(message, retry_after):
                raise Busy(message, retry_after)
            case Refused(duplicate, reason):
                refused: Duplicate | Refusal = duplicate or reason or Refusal.NO_SESSION
                if refused is Refusal.NO_SESSION:
                    self._known.pop(key, None)
                # The home stores an end before it answers: the id of an answered call is free.
                return await self._exchanges.claims.refused(key, caller, request.id, refused, stream)
            case Ended(terminal, tag):
                return self._ended(record, submit, caller, bytes(terminal), tag)
            case _:
                return Repeat(self._session(record), stream, request.id)

    def _session(self, record: SessionRecord) -> Session:
        """Return the session for a caller that only reads: if this process does not need it, it is not kept."""
        return self._runtime.sessions.get(record.key) or Session(record, self._runtime.settings)

    def _ended(
        self, record: SessionRecord, submit: ForwardedRequest, caller: Caller, terminal: bytes, tag: int
    ) -> SessionExchange:
        """Return an exchange that has ended at its home, with its answer."""
        runtime, session = self._runtime, self._session(record)
        writer = LogWriter(
            runtime.store, runtime.random, session, _claim_of(submit), 0, stored=after_terminal(tag)
        )
        writer.end_with(terminal)
        return exchange_of(writer, submit.request, caller, ExchangeState.SETTLED)

    async def _unread(self, answer: SessionExchange | Repeat) -> None:
        """Keep an answer for a repeat of the request: its client disconnected while this replica waited."""
        if isinstance(answer, SessionExchange):
            await self._readers.close(answer)

    # Becoming the home

    def home_of(self, record: SessionRecord) -> str:
        """Return the home of a session, as far as this replica knows."""
        return self._known.get(record.key, record).home

    def may_take(self) -> bool:
        """False while this replica stops, and while living replicas may not have renewed their leases yet."""
        return not (self._is_stopping() or self._inbox.recovery.check_running())

    async def take_from(self, home: str, key: str) -> SessionRecord:
        """Take the home of a session from a replica that is gone or stopping; return the record as it is then.

        Raises:
            SessionGone: the session is closed, or was closed because the back cannot serve it here.
        """
        known = self._known.get(key)
        if known is not None and known.home != home:
            return known
        if key not in self._arriving:
            arriving = self._arriving[key] = self._runtime.begin(self._arrive(home, key))
            arriving.add_done_callback(lambda _: self._arriving.pop(key))
        return await asyncio.shield(self._arriving[key])

    async def _arrive(self, home: str, key: str) -> SessionRecord:
        runtime = self._runtime
        record = await runtime.store.take_home(key, home)
        if record is None:
            self._known.pop(key, None)
            raise SessionGone
        if record.home == self._me != home:
            runtime.observer.note("session.moved", session=key[:8], home=self._me, before=home)
            try:
                await runtime.back.moved(record)
            except SessionGone:
                await self._sessions.close_key(key, SessionInput.SHUTDOWN)
                raise
        return self._know(record)

    def closed(self, key: str) -> None:
        """Record that a session is closed, here or elsewhere."""
        self._known.pop(key, None)
        self._runtime.spawn(self._runtime.back.left(key))

    # At the home

    async def _take_request(self, received: Received) -> None:
        """Claim and start a request, and reply as soon as there is something to read."""
        claimed = await self._claim(received)
        if not isinstance(claimed, tuple):
            # In this order: if this process ends in between, the sender can take back a request that was not started.
            await received.reply(claimed)
            await received.remove()
            return
        exchange, writer = claimed
        try:
            await self._exchanges.begin(exchange)
            verdict = await self._quick_end(exchange, writer)
        except Busy as error:
            verdict = Late(error.message, error.retry_after)
        is_read = await received.reply(verdict)
        await self._give_back(exchange, verdict, is_read=is_read)

    async def _claim(self, received: Received) -> _Claimed | Verdict:
        """Claim a request and take it out of the inbox.

        Return an exchange that can begin, or the reason for the refusal.
        """
        submit: ForwardedRequest = received.body
        try:
            charge = received.charge()
        except TooMuchWork as error:
            return Late(error.message, error.retry_after)
        if self._is_stopping():
            return Moved(self._me)
        key, claim, store = submit.session, _claim_of(submit), self._runtime.store
        self._exchanges.claims.running += 1
        try:
            # Both before the handler starts. The message is in memory: the store is asked again while it is
            # unavailable.
            claimed, _ = await asyncio.gather(
                retried(lambda: store.claim(key, submit.owner, claim)),
                received.remove(),
            )
            if isinstance(claimed, Claimed) and claimed.record.home != self._me:
                await self._exchanges.claims.free(key, claim.stream, claimed.fence)
        finally:
            self._exchanges.claims.running -= 1
        if isinstance(claimed, Duplicate):
            return Refused(duplicate=claimed)
        if isinstance(claimed, Refusal):
            return Refused(reason=claimed)
        if claimed.record.home != self._me:
            await self._learn_home(claimed.record)
            return Moved(claimed.record.home)
        return self._exchange(submit, submit.caller(charge), claim, claimed)

    def _exchange(self, submit: ForwardedRequest, caller: Caller, claim: Claim, claimed: Claimed) -> _Claimed:
        runtime = self._runtime
        session = runtime.local_session(claimed.record)
        if claimed.returned:
            runtime.returned(session)
        writer = ForwardedWriter(
            runtime.store, runtime.random, session, claim, claimed.fence, streams=submit.streams
        )
        return exchange_of(writer, submit.request, caller), writer

    async def _quick_end(self, exchange: SessionExchange, writer: ForwardedWriter) -> Verdict:
        """Wait until the exchange has ended, has sent a message, or takes long."""
        now, patience = asyncio.get_running_loop().time, self._runtime.settings.times.stream_after
        deadline = now() + patience
        while True:
            if exchange.refusal is not None:
                return Late(exchange.refusal.message, exchange.refusal.retry_after)
            if exchange.state in _STORED and writer.terminal is not None:
                is_whole = not writer.has_begun and len(writer.terminal) <= _INLINE_BYTES
                return Ended(msgspec.Raw(writer.terminal), writer.tag) if is_whole else Began()
            # A call that waits for its slot may still be refused with its own status.
            left = deadline - now() if exchange.task is not None else max(deadline - now(), patience)
            if writer.has_begun or exchange.is_fenced or left <= 0:
                # An exchange that another replica has ended has its end in the log.
                with contextlib.suppress(Fenced, StreamClosed, SessionGone):
                    await retried(writer.open)
                return Began()
            await writer.wake.next(left)

    async def _give_back(self, exchange: SessionExchange, verdict: Verdict, *, is_read: bool) -> None:
        """Give the place of the reader to the other replica: it attaches, or reports that its client has the answer.

        If that replica is gone, or dies before, the answer is kept for a repeat of the request.
        """
        exchange.writer.report(FateInput.LEFT)
        exchange.writer.owed = ()
        session, stream = exchange.session, exchange.claim.stream
        if not is_read or not isinstance(verdict, Began | Ended):
            await self._readers.give_back(session, stream, broke=not is_read)
            return
        # Until then the store must not forget the stream, and it may forget a finished stream that has no reader.
        lease, loop = self._runtime.settings.times.lease, asyncio.get_running_loop()
        self._handed.append((loop.time() + lease, session, stream))
        if len(self._handed) == 1:
            loop.call_later(lease, self._free_places)

    def _free_places(self) -> None:
        """Give back the places that the other replicas have not given back in time.

        One timer is enough for all of them.
        """
        loop = asyncio.get_running_loop()
        # A replica that stops gives back every place.
        while self._handed and self._handed[0][0] <= loop.time() and not self._is_stopping():
            _, session, stream = self._handed.popleft()
            self._runtime.spawn(self._readers.give_back(session, stream))
        if self._handed and not self._is_stopping():
            loop.call_at(self._handed[0][0], self._free_places)

    # Notifications

    async def notify(self, record: SessionRecord, method: str, params: dict[str, Any]) -> bool:
        """Send a client's notification to the home of its session. False: this replica is the home."""
        if record.home == self._me:
            return False
        message = Message.of("notify", self._runtime.random.token(12), Notify(record.key, method, params))
        seconds = self._runtime.settings.times.lease
        if not await self._inbox.send(record.home, message, seconds=seconds):
            self._runtime.observer.note("notification.dropped", session=record.key[:8], method=method)
        return True

    async def _take_notification(self, received: Received) -> None:
        message, charge = received.body, received.charge()
        record = await self._runtime.store.take_home(message.session, self._me)
        await received.remove()
        if record is not None and record.home == self._me:
            session = self._runtime.local_session(record)
            self._sessions.notify_back(session, message.method, message.params, charge)

    async def confirm_home(self, key: str) -> bool:
        """True if a session is open and this replica is its home.

        Also if the store is unavailable: then it is not known.
        """
        try:
            record = await self._runtime.store.take_home(key, self._me)
        except StoreError:
            return True
        if record is not None and record.home != self._me:
            # A failover of the store may have lost that this replica is the home: then `listener_homes.py` takes it
            # again.
            self._know(record)
        return record is not None and record.home == self._me


_STORED: Final = frozenset({ExchangeState.SETTLED, ExchangeState.SETTLED_HELD})


def _claim_of(submit: ForwardedRequest) -> Claim:
    control = submit.request.method in CONTROL
    return Claim(submit.request.id, submit.stream, submit.digest, control)
