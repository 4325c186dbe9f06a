"""The store object: sessions, exchanges, streams and their indexes. The docstring of the package explains the design."""

import heapq
from collections import defaultdict
from math import inf

from holdfast.config import Limits
from holdfast.core.lifecycle import SessionInput, SessionState, step
from holdfast.core.stream import NewEvents, Page, Position, before_terminal
from holdfast.errors import Fenced, StreamClosed
from holdfast.ports import Clock
from holdfast.stores.base import (
    LINGER_SHARE,
    STANDALONE_FENCE,
    AtOnce,
    Claim,
    Claimed,
    Closed,
    Duplicate,
    Ending,
    Found,
    OneProcess,
    Refusal,
    SessionRecord,
    Status,
    Totals,
    WakeUp,
)
from holdfast.stores.memory.asks import AskMethods
from holdfast.stores.memory.lingering import Lingering
from holdfast.stores.memory.readers import ReaderMethods
from holdfast.stores.memory.session import MemoryExchange, MemorySession
from holdfast.stores.memory.state import Cells, MemoryState
from holdfast.stores.memory.subscriptions import SubscriptionMethods
from holdfast.stores.memory.tasks import MemoryTasks, TaskMethods
from holdfast.stores.memory.turns import TurnMethods
from holdfast.stores.rules import claimed_already, cut_to, duplicate, is_crowded, over_budget
from holdfast.wire.jsonrpc import RequestId


class MemoryStore(
    MemoryState,
    AskMethods,
    ReaderMethods,
    TurnMethods,
    TaskMethods,
    SubscriptionMethods,
    OneProcess,
):
    """All data is in the memory of this process, and is lost when the process ends."""

    def __init__(self, limits: Limits = Limits(), clock: Clock | None = None) -> None:
        OneProcess.__init__(self, clock)
        MemoryState.__init__(self, limits, self.now)
        SubscriptionMethods.__init__(self)
        self._tasks = MemoryTasks(limits, self.now)
        self._principals: defaultdict[str, dict[str, MemorySession]] = defaultdict(dict)
        self._bytes = 0
        self._finished: dict[tuple[str, str], None] = {}
        """Finished streams of all sessions, oldest first."""
        self._lingering = Lingering(self.now, self._limits.store_bytes // LINGER_SHARE)

    def __repr__(self) -> str:
        return f"<MemoryStore {len(self._sessions)} sessions, {self._bytes} log bytes>"

    async def aclose(self) -> None:
        """Delete all data."""
        self._tasks.clear()
        self._scopes.clear()
        self._sessions.clear()
        self._due.clear()
        self._subscribers.clear()
        self._principals.clear()
        self._finished.clear()
        self._lingering.clear()
        self._bytes = 0

    # Sessions

    async def open(self, record: SessionRecord, *, evict: bool) -> list[Closed] | Refusal:
        """Keep a new session. If there is no room, evict the session of the principal that has been idle for the longest time."""
        return self.open_now(record, evict=evict)

    def open_now(self, record: SessionRecord, *, evict: bool) -> list[Closed] | Refusal:
        """Has the effect of `open`."""
        if record.key in self._sessions:
            return []
        evicted: list[Closed] = []
        own = self._principals.get(record.principal, {}) if evict else {}
        if is_crowded(self._limits, len(self._sessions), len(own)):
            idle = [s for s in own.values() if not s.running and not s.readers]
            if not idle:
                return Refusal.FULL
            evicted.append(self._end(min(idle, key=lambda s: s.touched), SessionInput.EVICTED))
        session = MemorySession(record, self.now())
        # Eviction may have removed the principal's entry: look it up again.
        self._sessions[record.key] = self._principals[record.principal][record.key] = session
        self._schedule(session)
        return evicted

    async def find(self, key: str, principal: str) -> Found | None:
        """Return the session if it is open and belongs to this principal. Counts as a sign of the client."""
        session = self._live(key, principal)
        return Found(session.record, session.client_seen(self.now())) if session else None

    async def look(self, key: str) -> Status | None:
        """Return an open session."""
        session = self._sessions.get(key)
        if session is None:
            return None
        return session.status(self.now(), log_bytes=session.size, kept_bytes=session.kept)

    async def totals(self) -> Totals:
        """Return the totals of all sessions."""
        detached = sum(session.state is SessionState.DETACHED for session in self._sessions.values())
        return Totals(len(self._sessions), detached, self._bytes, self._kept.bytes)

    async def change(self, key: str, *, level: str | None = None, initialized: bool | None = None) -> None:
        """Set the named fields."""
        session = self._sessions.get(key)
        if session is None:
            return
        if level is not None:
            session.record.level = level
        if initialized is not None:
            session.record.initialized = initialized

    async def close(self, key: str, reason: SessionInput, ending: Ending | None = None) -> Closed | None:
        """Close a session once. Its exchanges in flight end too."""
        session = self._sessions.get(key)
        return self._end(session, reason, ending) if session else None

    async def sweep(self) -> list[Closed]:
        """Close the sessions that are due. A hint that was too early is replaced by the next one."""
        self._tasks.sweep()
        self._scopes.sweep()
        self._lingering.sweep()
        now = self.now()
        closed: list[Closed] = []
        while self._due and self._due[0][0] <= now:
            hint, key = heapq.heappop(self._due)
            session = self._sessions.get(key)
            if session is None or session.hint != hint:
                continue
            session.hint = inf
            reason = session.ends_now(now)
            if reason is None:
                self._schedule(session, session.next_look(now))
            else:
                closed.append(self._end(session, reason))
        return closed

    async def sessions(self, principal: str | None = None) -> list[str]:
        """Return the keys of all open sessions, or of the open sessions of one principal."""
        return list(self._sessions if principal is None else self._principals.get(principal, ()))

    async def take_home(self, key: str, expected: str) -> SessionRecord | None:
        """Make this replica the home if the home is `expected`."""
        session = self._sessions.get(key)
        if session is None:
            return None
        if session.record.home == expected:
            session.record.home = self.replica
        return session.record

    # Exchanges

    @property
    def at_once(self) -> AtOnce | None:
        """This store, because no call of it waits; None if a subclass or a test has replaced one of the three calls."""
        calls = (
            (self.open, MemoryStore.open),
            (self.claim, MemoryStore.claim),
            (self.settle, MemoryStore.settle),
        )
        return self if all(getattr(own, "__func__", None) is usual for own, usual in calls) else None

    async def claim(self, key: str, principal: str, claim: Claim) -> Claimed | Duplicate | Refusal:
        """Register the exchange if its id is free and there is room."""
        return self.claim_now(key, principal, claim)

    def claim_now(self, key: str, principal: str, claim: Claim) -> Claimed | Duplicate | Refusal:
        """Register the exchange if its id is free and there is room."""
        session = self._live(key, principal)
        if session is None:
            return Refusal.NO_SESSION
        mine = session.exchanges.get(claim.stream)
        if mine is not None:
            return self._claimed_before(session, claim.stream, mine)
        if session.withdrawn is not None and claim.stream in session.withdrawn:
            session.withdraw(claim.stream, surely=True)
            return Refusal.WITHDRAWN
        taken = None if session.record.isolate else session.ids.get(claim.id)
        if taken is not None:
            other = session.exchanges[taken]
            verdict = duplicate(
                claim,
                taken,
                other.claim.digest if other.claim else None,
                running=other.running,
                has_reader=other.has_reader,
            )
            if verdict is not None:
                return verdict
            session.release(other)
        if not claim.control and session.calls >= self._limits.running + self._limits.queued:
            return Refusal.BUSY
        returned = session.client_seen(self.now())
        session.fence += 1
        session.exchanges[claim.stream] = MemoryExchange(claim, session.fence)
        session.ids[claim.id] = claim.stream
        session.running += 1
        session.calls += not claim.control
        session.readers += 1
        return Claimed(session.record, session.fence, returned)

    def _claimed_before(
        self, session: MemorySession, stream: str, exchange: MemoryExchange
    ) -> Claimed | Duplicate | Refusal:
        """Answer a claim of a stream that is claimed already."""
        if exchange.running and session.withdrawn is not None and stream in session.withdrawn:
            self._unclaim(session, stream, exchange)
            return Refusal.WITHDRAWN
        if exchange.running:
            return Claimed(session.record, exchange.fence, returned=False)
        return claimed_already(stream, running=False, has_reader=exchange.has_reader)

    async def give_back(self, key: str, stream: str, fence: int = 0) -> None:
        """End an exchange of which nothing ran, and remember its name."""
        session = self._sessions.get(key)
        if session is None:
            return
        exchange = session.exchanges.get(stream)
        if exchange is None or (exchange.running and not fence):
            session.withdraw(stream, surely=fence > 0)
        elif exchange.running and exchange.fence == fence:
            self._unclaim(session, stream, exchange)

    def _unclaim(self, session: MemorySession, stream: str, exchange: MemoryExchange) -> None:
        self.settle_now(session.record.key, stream, exchange.fence)
        session.withdraw(stream, surely=True)

    async def settle(
        self, key: str, stream: str, fence: int, terminal: bytes | None, *, tag: int = 0, keep: bool = False
    ) -> None:
        """End an exchange, with or without a stream."""
        self.settle_now(key, stream, fence, terminal, tag=tag, keep=keep)

    def settle_now(
        self,
        key: str,
        stream: str,
        fence: int,
        terminal: bytes | None = None,
        *,
        tag: int = 0,
        keep: bool = False,
    ) -> None:
        """Has the effect of `settle`."""
        if terminal is not None and self._owner(key).has_settled(stream, fence, tag):
            return
        try:
            session, exchange = self._writable(key, stream, fence)
        except Fenced:
            if terminal is None and self._sessions[key].has_forgotten(stream, fence):
                return
            raise
        claim = exchange.claim
        if claim is None:
            raise StreamClosed
        exchange.running = False
        session.running -= 1
        session.calls -= not claim.control
        session.settled = session.touched = self.now()
        if exchange.asks:
            session.forget_asks(exchange, self.now())
        if terminal is None:
            self._forget(session, stream)
        else:
            exchange.kept = keep
            if not keep:
                session.release(exchange)
            exchange.start(before_terminal(tag))
            self._append(session, exchange, [(tag, terminal)], final=True)
            self._finish(session, stream)
        # A hint that is too early is correct: `sweep` replaces it. But if `sweep` saw the session while this exchange
        # ran, the hint may be as late as the end of the lifetime. Then the session needs a new hint.
        if session.hint > session.settled + session.record.idle or session.state is SessionState.DETACHED:
            self._schedule(session)

    async def keep(self, key: str, stream: str, claim: Claim, terminal: bytes | None, *, tag: int) -> None:
        """Keep a settled exchange's answer for a repeat, unless its id is in use again or a reader has received it."""
        session = self._sessions.get(key)
        if session is None or claim.id in session.ids:
            return
        exchange = session.exchanges.get(stream)
        if exchange is None:
            if terminal is None:
                return
            exchange = session.exchanges[stream] = MemoryExchange(claim, session.fence)
            exchange.running = exchange.has_reader = False
            exchange.start(before_terminal(tag))
            self._append(session, exchange, [(tag, terminal)], final=True)
            self._finish(session, stream)
        elif exchange.log is None or exchange.log.delivered == exchange.log.top:
            return
        exchange.kept = True
        session.ids[claim.id] = stream

    async def cancel(self, key: str, principal: str, request_id: RequestId) -> None:
        """Send CANCEL for the exchange in flight under this id, if there is exactly one."""
        session = self._live(key, principal)
        if session is None:
            return
        matches = [
            name
            for name, exchange in session.exchanges.items()
            if exchange.running and exchange.claim is not None and exchange.claim.id == request_id
        ]
        if len(matches) == 1:
            self.wake(WakeUp.CANCEL, key, matches[0])

    # Streams

    async def open_stream(self, key: str, stream: str, fence: int, tag: int) -> Position:
        """Start the stream of an exchange. If it has started already, keep it."""
        _, exchange = self._writable(key, stream, fence)
        return exchange.start(Position(1, tag)).low

    async def append(self, key: str, stream: str, fence: int, events: NewEvents) -> Position:
        """Add events and send STREAM."""
        if fence == STANDALONE_FENCE:
            session = self._owner(key)
            exchange = session.standalone()
        else:
            session, exchange = self._writable(key, stream, fence)
        return self._append(session, exchange, events)

    async def read(
        self, key: str, stream: str, cursor: Position, max_events: int, max_bytes: int
    ) -> Page | None:
        """Return the events after the cursor."""
        exchange = self._exchange(key, stream)
        log = exchange.log if exchange is not None else self._lingering.get(key, stream)
        return None if log is None else log.read(cursor, max_events, max_bytes)

    # Steps that several operations share

    def _cells(self, scope: str) -> Cells:
        return self._scopes.get(scope) or self._owner(scope)

    def _append(
        self, session: MemorySession, exchange: MemoryExchange, events: NewEvents, *, final: bool = False
    ) -> Position:
        log = exchange.log
        if log is None:
            raise StreamClosed
        if log.top.tag == events[-1][0] and log.events:
            return log.top
        before = log.bytes
        for tag, data in events:
            log.append(tag, data, final=final)
        log.trim(self._limits.stream_events, self._limits.stream_bytes)
        self._account(session, log.bytes - before)
        if self._over(session) > 0:
            while self._over(session) > 0 and self._drop_finished(session):
                pass
            while self._bytes > self._limits.store_bytes and self._drop_oldest_finished():
                pass
            while (over := self._over(session)) > 0 and self._trim_largest(session, over):
                pass
        self.wake(WakeUp.STREAM, session.record.key, exchange.name(session))
        return log.top

    def _trim_largest(self, session: MemorySession, over: int) -> bool:
        """Cut the largest log of the session. Return False if it has no event that may be deleted."""
        logs = (exchange.log for exchange in session.exchanges.values() if exchange.log is not None)
        log = max(logs, key=lambda log: log.bytes)
        freed = log.trim(self._limits.stream_events, cut_to(log.bytes, over))
        self._account(session, -freed)
        return freed > 0

    def _over(self, session: MemorySession) -> int:
        """Return by how many bytes the session or the whole store is over its budget."""
        return over_budget(self._limits, session.size, self._bytes)

    def _account(self, session: MemorySession, change: int) -> None:
        session.size += change
        self._bytes += change

    def _finish(self, session: MemorySession, stream: str) -> None:
        if not (exchange := session.exchanges[stream]).has_reader and exchange.log is not None:
            exchange.log.pack()
        session.finished[stream] = None
        self._finished[session.record.key, stream] = None
        while len(session.finished) > self._limits.finished_streams and self._drop_finished(session):
            pass

    def _drop_finished(self, session: MemorySession) -> bool:
        """Forget the complete stream that is needed least: a delivered one, else the oldest."""
        name = session.least_needed()
        if name is None:
            return False
        del session.finished[name]
        self._forget(session, name)
        return True

    def _drop_oldest_finished(self) -> bool:
        """Forget the oldest complete stream of any session, because the store is over its budget.

        A stream that has a reader is kept: the reader may not have received the answer yet.
        """
        for key, name in self._finished:
            session = self._sessions[key]
            if not session.exchanges[name].has_reader:
                del session.finished[name]
                self._forget(session, name)
                return True
        return False

    def _forget(self, session: MemorySession, name: str) -> None:
        exchange = session.exchanges.pop(name)
        session.release(exchange)
        session.readers -= exchange.has_reader
        if exchange.log is not None:
            self._finished.pop((session.record.key, name), None)
            self._account(session, -exchange.log.bytes)

    def _linger(self, session: MemorySession, ending: Ending | None) -> None:
        """Keep the streams that have a reader, so that the reader can read to the end. Exchanges in flight end now."""
        self._lingering.sweep()
        for name, exchange in list(session.exchanges.items()):
            log, claim = exchange.log, exchange.claim
            if log is None or claim is None or not exchange.has_reader:
                continue
            if exchange.running and ending is not None:
                self._append(session, exchange, [(ending.tag, ending.message(claim.id))], final=True)
            if log.closed:
                self._lingering.keep(session.record.key, name, log)

    def _end(self, session: MemorySession, reason: SessionInput, ending: Ending | None = None) -> Closed:
        record = session.record
        session.state = step(session.state, reason)
        self._linger(session, ending)
        del self._sessions[record.key]
        own = self._principals[record.principal]
        del own[record.key]
        if not own:
            del self._principals[record.principal]
        for uri in session.subscriptions:
            self._forget_subscriber(uri, record.key)
        for name in session.finished:
            self._finished.pop((record.key, name), None)
        self._account(session, -session.size)
        session.keep(-session.kept, self._kept)
        self.wake(WakeUp.CLOSED, record.key, "")
        return Closed(record, reason)
