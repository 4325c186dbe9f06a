"""The engine: the one object through which fronts use everything else. front → engine → back → engine → front.

Fronts read and write bytes. The store decides races: of several attempts it accepts one. The engine starts and ends all
tasks between the two.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary, ref

from limpet.auth.forward_key import CredentialSealer, ForwardKey
from limpet.config import Settings
from limpet.core.lifecycle import SessionInput
from limpet.engine.access import Access
from limpet.engine.audit import Audit
from limpet.engine.back import Back
from limpet.engine.caller import Caller
from limpet.engine.conversations import Conversations
from limpet.engine.exchange import Exchange, SessionExchange
from limpet.engine.exchanges import Exchanges, within_spans
from limpet.engine.failure_log import note_failure
from limpet.engine.forwarding import Forwarding
from limpet.engine.hand_over import HandOver
from limpet.engine.home import Homes
from limpet.engine.idempotency import IdempotentCalls
from limpet.engine.inbox import Inbox
from limpet.engine.inner import answering
from limpet.engine.listener_homes import ListenerHomes
from limpet.engine.listening import Listening
from limpet.engine.load import Load
from limpet.engine.observed_store import observed_store, store_kind, unobserved
from limpet.engine.outages import PatientState
from limpet.engine.outside import EngineOutside
from limpet.engine.pauses import Pulse
from limpet.engine.rates import RateLimiter
from limpet.engine.reader import End
from limpet.engine.readers import Readers
from limpet.engine.readiness import Readiness
from limpet.engine.replica import Replica
from limpet.engine.runtime import Runtime
from limpet.engine.session import Session
from limpet.engine.sessionless import SessionlessCalls
from limpet.engine.sessions import Sessions
from limpet.engine.succession import Succession
from limpet.engine.tasks import Tasks
from limpet.errors import Cancelled, ConfigError, LifespanEnded, Stopping
from limpet.ports import Clock, Observer, Random, SilentObserver, SystemClock, SystemRandom, spans_of
from limpet.protocol.mirrored_headers import MirroredParameter
from limpet.protocol.quirks import ClientQuirks
from limpet.protocol.sessionless import RequestMeta
from limpet.protocol.subscriptions import Change
from limpet.stores.base import Store, WakeUp
from limpet.stores.memory import MemoryStore
from limpet.supervision import supervise
from limpet.wire.jsonrpc import Request

T = TypeVar("T")

_SERVED: Final[WeakKeyDictionary[Store, "ref[Engine]"]] = WeakKeyDictionary()
"""By store: the engine that it wakes. A store wakes one engine, so a second one would take the wake-ups of the
first."""
_CLAIM_SECONDS: Final = 0.01
"""Seconds after which a stopping engine checks again whether claims are still on their way."""
_LAST_SECONDS: Final = 3.0
"""Seconds for the last writes and the listeners of closed sessions, also if calls have used up the drain time."""
_LAST_LOOK: Final = 1.0
"""Seconds in which requests that wait for a call answer that it still runs, when the drain time is over."""

_SESSION_WAKE_UPS: Final = {
    WakeUp.STREAM: Session.wake_reader,
    WakeUp.ANSWER: Session.answered,
    WakeUp.TURN: Session.look_for_turn,
}
"""The method of a session that each wake-up calls."""


class Engine:
    """Sessions, exchanges and readers over one store and one back.

    Starts itself on first use: `ensure_started` is cheap and every front calls it. Bound to
    the event loop it was started on.

    Fronts, servers and commands use the members below. `runtime` has the members that the parts of the engine share;
    an architecture test keeps the layers above away from it.
    """

    settings: Settings
    clock: Clock
    random: Random
    observer: Observer
    store: Store
    load: Load
    """The memory of what clients make this process keep."""
    audit: Audit
    """Reports refusals and administrative acts."""
    rates: RateLimiter
    """How often principals, tools and addresses may call."""
    quirks: ClientQuirks
    """The differences of known clients."""
    access: Access
    """The scopes that requests need."""
    mirrored: Callable[[Request, RequestMeta, Caller], tuple[MirroredParameter, ...]]
    """The parameters of a request that its headers must mirror (2026-07-28)."""
    spawn: Callable[[Coroutine[Any, Any, object]], None]
    """Run a coroutine in the background; the engine ends it when it closes."""
    runtime: Runtime

    exchanges: Exchanges
    sessions: Sessions
    readers: Readers
    sessionless: SessionlessCalls
    idempotent: IdempotentCalls
    conversations: Conversations
    listening: Listening
    tasks: Tasks
    hand_over: HandOver
    forwarding: Forwarding
    replica: Replica
    inbox: Inbox
    """Messages from and to other replicas."""
    readiness: Readiness
    state: PatientState
    """The state of sessions and areas, for handlers."""
    pulse: Pulse

    started: bool
    leaving: bool
    """The process is stopping and still serves, while balancers and clients learn of it."""
    drained: bool
    """Nothing runs any more, and every request is refused."""

    failure: LifespanEnded | None = None
    """Why this engine stops: its back cannot answer any more. None: it has not failed since its start."""
    _on_failure: Callable[[], None] | None = None
    _starting: asyncio.Future[None] | None
    _drains_until: float | None
    _sweeping: list[asyncio.Task[None]]

    def __init__(
        self,
        back: Back,
        settings: Settings = Settings(),
        *,
        store: Store | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        observer: Observer | None = None,
        forward_key: ForwardKey | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.random = random or SystemRandom()
        self.observer = observer or SilentObserver()
        self.store = self._observed(store or MemoryStore(settings.limits, self.clock))
        self.mirrored, self.access = back.mirrored, back.access
        self.runtime = runtime = Runtime(
            back, settings, store=self.store, clock=self.clock, random=self.random, observer=self.observer
        )
        self.load, self.audit, self.rates = runtime.load, runtime.audit, RateLimiter(runtime)
        self.spawn, self.quirks = runtime.spawn, runtime.quirks
        self.exchanges = Exchanges(runtime)
        self.listening = Listening(runtime)
        self.sessions = Sessions(runtime, self.exchanges, self.listening)
        self.readers = Readers(runtime, self.sessions)
        self.sessionless = SessionlessCalls(runtime)
        self.rates.starts_again = self.sessionless.starts_again
        self.tasks = Tasks(runtime, self.sessionless.end, self.listening)
        self.hand_over = HandOver(runtime, self.exchanges, self.sessionless, self.tasks)
        self.inbox = inbox = Inbox(runtime, CredentialSealer(forward_key, self.random))
        self._make_sessionless(inbox)
        self._homes = self._made_homes(inbox)
        if runtime.spans is not None:
            self.exchanges.submit = within_spans(self.exchanges.submit, runtime.spans)
        self._succession = Succession(runtime, inbox, lambda: self.leaving or runtime.is_draining)
        self.replica = Replica(runtime, self.sessions, self.listening, inbox)
        self.readiness = Readiness(runtime)
        self.state = PatientState(self.store, settings.limits.store_seconds)
        self.pulse = runtime.pulse
        self.started = self.leaving = self.drained = self._closing = False
        self._starting, self._drains_until, self._sweeping = None, None, []

    def _observed(self, store: Store) -> Store:
        """Return the store; with spans, if it is outside of this process and the engine is traced."""
        if (spans := spans_of(self.observer)) is None or not store.is_shared:
            return store
        system = store_kind(store)
        return observed_store(store, lambda _, name, command: spans.command(system, name, command))

    def _make_sessionless(self, inbox: Inbox) -> None:
        """Make the parts for calls without a session that other replicas, a key or a conversation concern."""
        runtime, calls = self.runtime, self.sessionless
        self.forwarding = Forwarding(runtime, self.readers, calls, inbox)
        self.idempotent = IdempotentCalls(
            runtime, calls, self.exchanges.claims, self.readers, self.forwarding
        )
        self.conversations = Conversations(runtime, calls, self.idempotent, self.forwarding)

    def _made_homes(self, inbox: Inbox) -> Homes | None:
        """Return the object that sends requests to the homes of sessions.

        None if sessions have no home, or one process serves.
        """
        if not (self.runtime.back.has_home and self.store.is_shared):
            return None
        return Homes(self.runtime, self.exchanges, self.sessions, self.readers, inbox, lambda: self.draining)

    @property
    def draining(self) -> bool:
        """True if the process is stopping: running work may finish, and no new work begins."""
        return self.runtime.is_draining

    @draining.setter
    def draining(self, value: bool) -> None:
        self.runtime.is_draining = value

    def refuses(self, request: Request, caller: Caller) -> bool:
        """True if this process is stopping and the request would begin new work: refuse it with `stopping()`."""
        return self.runtime.refuses(request, caller)

    def stopping(self) -> Stopping:
        """Return the refusal of new work while this process is stopping."""
        return self.runtime.stopping()

    def drain_left(self) -> float:
        """Return the seconds of the drain time that are left. The first call begins it: a stop has one drain time."""
        now = asyncio.get_running_loop().time()
        if self._drains_until is None:
            self._drains_until = now + self.settings.times.drain
        return max(0.0, self._drains_until - now)

    def __repr__(self) -> str:
        return f"<Engine {len(self.runtime.sessions)} sessions over {self.store!r}>"

    async def ensure_started(self, context: Context | None = None) -> None:
        """Start once; concurrent callers wait for the same start.

        The started tasks live longer than the caller. A request passes an empty `context`, so that no
        background work runs with its context variables (a tenant, a trace).
        """
        if self.started:
            return
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start(), context=context)
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        self.failure, self.runtime.stop_reason = None, ""
        try:
            self._take_store()
            store = unobserved(self.store)
            # Optional: what a store keeps in this process is charged.
            if (charge_all := getattr(type(store), "charge_all", None)) is not None:
                charge_all(store, self.load.ledger)
            await self.replica.start()
            await self.sessionless.keys.renew()
            await self._start_back()
            # After the author's lifespan, which may set a task factory.
            self.runtime.bind(asyncio.get_running_loop())
        except BaseException:
            await self._undo_start()
            raise
        self._sweep()
        self.pulse.start()
        self.started = True

    async def _start_back(self) -> None:
        """Start the back.

        Raises:
            LifespanEnded: it cannot answer any more.
        """
        outside = EngineOutside(self.runtime, self.sessions, self.listening, self._homes, self._fail)
        await self.runtime.back.start(outside)
        if self.failure is not None:
            await self.runtime.back.stop()
            raise self.failure

    async def _undo_start(self) -> None:
        """Leave nothing of a start that failed: no lease and its thread, no task, no connection.

        The next call starts again.
        """
        try:
            # A lease that was lost meanwhile is being taken again.
            await self.runtime.finish(0)
            await self.replica.stop()
            if self._leave_store():
                await self.store.aclose()
        finally:
            self._starting = None

    def when_failed(self, stop: Callable[[], None]) -> None:
        """Let a front stop the process if the back cannot answer any more; at once, if that has happened.

        Without such a front the engine drains and then refuses every request: the process belongs to another server.
        """
        self._on_failure = stop
        if self.failure is not None:
            stop()

    def _fail(self, failure: LifespanEnded) -> None:
        """Stop, because the back cannot answer any more."""
        self.observer.note("lifespan.ended", reason=str(failure), error=failure.__cause__)
        if self.failure is not None or self.leaving or self.draining:
            return
        self.failure, self.runtime.stop_reason = failure, str(failure)
        if self._on_failure is not None:
            self._on_failure()
        else:
            self.spawn(self.leave())

    def _take_store(self) -> None:
        """Let the store wake this engine, and no other.

        Raises:
            ConfigError: the store object serves another engine.
        """
        store = self.store
        # A weak reference: the engine holds its store, and a strong one would keep both forever.
        served = _SERVED.get(store)
        if served is not None and served() not in {None, self}:
            raise ConfigError(
                f"{store!r} already serves another server of this process: give each server a store object of its own, "
                "or the store's URL; servers with different namespaces share one file or Redis"
            )
        _SERVED[store] = ref(self)
        store.bind(self._wake)

    def _leave_store(self) -> bool:
        """Let another engine use the store; False if another one does already."""
        served = _SERVED.get(self.store)
        if served is None or served() is not self:
            return False
        del _SERVED[self.store]
        return True

    # Members that fronts and servers need besides the engine's parts

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine to its end, even if the caller is cancelled; return its task."""
        return self.runtime.begin(work)

    async def check_session(self, key: str, principal: str) -> None:
        """Check that a session exists and belongs to the principal. Keeps nothing of it in this process.

        Raises:
            SessionGone: it does not exist, or belongs to another principal.
        """
        self.runtime.release(await self.sessions.find(key, principal))

    def note_failure(self, exchange: Exchange, error: BaseException) -> str:
        """Log a failed handler with its traceback; return the correlation id of the log line."""
        return note_failure(self.runtime, exchange, error)

    async def changed(self, change: Change, principal: str | None = None) -> None:
        """Send a change to the sessions and listeners that asked for it, or only to those of one principal.

        Waits until it is on its way, at most `Limits.store_seconds` for an unavailable store: it is sent later then.
        """
        spread = self.sessions.changes.report(change, principal)
        await asyncio.wait({spread}, timeout=self.settings.limits.store_seconds)

    async def aclose(self) -> None:
        """Let handlers finish for the drain time, end the others, close every session of this process."""
        if not self.started or self._closing:
            return
        self._closing = True
        for job in self._sweeping:
            job.cancel()
        self.pulse.stop()
        await self.drain(answerable=False)
        # From here on no work may begin: it would use a stopped back, or start the engine again.
        self.drained = True
        for session in list(self.runtime.sessions.values()):
            self.spawn(self._shut(session))
        await self.runtime.finish(max(self.drain_left(), _LAST_SECONDS))
        await self.replica.stop()
        await self.runtime.back.stop()
        await self.store.aclose()
        self._leave_store()
        self._starting = self._drains_until = None
        self.started = self.draining = self.leaving = self.drained = self._closing = False

    async def _shut(self, session: Session) -> None:
        """Close a session that ends with this process. A session that other replicas can serve continues."""
        if session.duplex is not None or not session.lasting or not self.store.is_shared:
            await self.sessions.close(session, SessionInput.SHUTDOWN)
        else:
            self.runtime.sessions.pop(session.record.key, None)
            await session.listeners_called()

    async def leave(self) -> None:
        """The server that hosts this application is stopping: let handlers finish, then end the streams it waits for.

        Streams of running calls are not handed over: without an open response the host would end at once,
        and the handlers with it.
        """
        if not self.started or self.leaving:
            return
        self.leaving = True
        await self.drain(hand_over=False, answerable=self.store.is_shared)
        self.drained = True
        self.end_standalone()

    def end_standalone(self) -> None:
        """End the standalone streams, which never end by themselves. Their clients reconnect to another replica."""
        for session in self.runtime.sessions.values():
            for reader in session.readers.get(session.record.standalone, ()):
                reader.stop(End.AGED)

    async def drain(self, *, hand_over: bool = True, answerable: bool = True) -> None:
        """Wait until no call runs, is queued, or waits for its client's answer; after the drain time, end the rest.

        Meanwhile requests that begin no work are served: reads, resumes, repeats, answers. Streams of running calls are
        ended early only if another replica stays, where their clients can resume them.
        `answerable`: clients can still send answers, here or to another replica. If not, calls without a session that
        wait for an answer are ended without a wait.
        """
        self.draining = True
        self.drain_left()
        await self.listening.stop()
        if hand_over and self.runtime.sessions and await self._succession.exists():
            self.sessions.hand_over()
        while ((tasks := self._working(answerable=answerable)) or self._is_waited_for()) and (
            left := self.drain_left()
        ):
            if tasks:
                await asyncio.wait(tasks, timeout=left)
            else:
                await asyncio.sleep(_CLAIM_SECONDS)
        await self.hand_over.collecting.end_waits(_LAST_LOOK)
        await self.end_work()

    async def end_work(self) -> None:
        """End every call that still runs, now: its client receives one error, which says that the server stops."""
        working = [session for session in self.runtime.sessions.values() if session.exchanges]
        await asyncio.gather(
            *(self.sessions.end_work(session, "the server is stopping") for session in working),
            self.sessionless.end_work("the server is stopping"),
        )

    def _is_waited_for(self) -> bool:
        """True if a claim or an end is on its way to the store, or a call waits for its turn."""
        on_the_way = self.exchanges.claims.running or self.exchanges.ending
        return bool(on_the_way or any(session.waiting for session in self.runtime.sessions.values()))

    def _working(self, *, answerable: bool = True) -> dict[asyncio.Task[None], Exchange]:
        """Return the tasks of handlers that a stop waits for, each with its exchange."""
        exchanges = [
            *(self.sessionless.live() if answerable else self.sessionless.working()),
            *(e for session in self.runtime.sessions.values() for e in session.exchanges.values()),
        ]
        return {
            exchange.task: exchange for exchange in exchanges if exchange.task and not exchange.task.done()
        }

    def live_sessions(self) -> list[Session]:
        """Return the local sessions of this process."""
        return list(self.runtime.sessions.values())

    def live_exchanges(self) -> list[Exchange]:
        """Return the requests of this process that have not ended: they wait, run, are parked or were handed over.

        Each is the exchange that the back has. `answering` returns the one that answers its request.
        """
        sessions, call_of = self.runtime.sessions.values(), self.hand_over.call_of
        in_sessions = (e for session in sessions for e in session.exchanges.values())
        return [call_of(exchange) for exchange in (*self.sessionless.live(), *in_sessions)]

    async def cancel(self, exchange: Exchange, reason: str) -> None:
        """End a request of this process as its client could. The client receives one error, which names the reason."""
        exchange = answering(exchange)
        if isinstance(exchange, SessionExchange):
            await self.exchanges.end(exchange, Cancelled(reason))
        else:
            await self.sessionless.end(exchange, Cancelled(reason))

    def in_flight(self) -> list[str]:
        """Return the name of each request that a stop waits for: its tool or prompt, or else its method."""
        requests = [exchange.request for exchange in self._working().values()]
        return [str(request.params.get("name", request.method)) for request in requests]

    def _wake(self, kind: WakeUp, key: str, name: str) -> None:
        """Handle a wake-up of the store."""
        if kind is WakeUp.TASK:
            self.tasks.wake_up(key)
        elif kind is WakeUp.FORWARD or kind is WakeUp.NEWS:
            self.replica.wake_up(kind)
        elif kind is WakeUp.HELD:
            self.readers.check_held(key, name)
        else:
            if (session := self.runtime.sessions.get(key)) is not None:
                self._wake_session(kind, session, name)
            elif kind is WakeUp.CANCEL:
                self.idempotent.cancelled(key, name)
            if kind is WakeUp.CLOSED and self._homes is not None:
                self._homes.closed(key)

    def _wake_session(self, kind: WakeUp, session: Session, name: str) -> None:
        if (handle := _SESSION_WAKE_UPS.get(kind)) is not None:
            handle(session, name)
            return
        match kind:
            case WakeUp.CANCEL:
                exchange = session.exchanges.get(name)
                if exchange is not None:
                    self.spawn(self.exchanges.end(exchange, Cancelled("by the client")))
            case WakeUp.TAKEN:
                self.readers.taken(session, name)
            case WakeUp.PROBE:
                self.spawn(self.exchanges.claims.repeats.answer(session, name))
            case WakeUp.CLOSED:
                if self.store.is_shared:
                    self.sessions.closed_elsewhere(session)
            case _:
                raise AssertionError(f"{kind} concerns no session")

    def _sweep(self) -> None:
        """Start the jobs of the sweep, each in its own loop: one that fails or waits does not stop the others."""
        jobs = {
            "sessions": self.sessions.sweep,
            "orphans": self.replica.sweep,
            "closings": self.replica.report_closings,
            "tasks": self.tasks.sweep,
            "keys": self.sessionless.keys.renew,
            "orphan tasks": self.tasks.reap,
            "expired tokens": self._end_expired,
            "audit": self.audit.sweep,
            "rates": self.rates.sweep,
        }
        if self._homes is not None:
            jobs["homes of listeners"] = ListenerHomes(self.runtime, self._homes).sweep
        observer = self.observer
        self._sweeping = [
            supervise(f"sweep of {name}", partial(self._repeat, job), observer) for name, job in jobs.items()
        ]
        if self.store.is_shared:
            self._sweeping.append(supervise("rates", self.rates.keep_reconciled, observer))

    async def _end_expired(self) -> None:
        """End the listeners and calls whose token has expired. Streams of sessions do it themselves (`Reader`)."""
        await self.listening.sweep()
        await self.sessionless.sweep()

    async def _repeat(self, job: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self.settings.times.sweep)
            await job()
