"""The members that all parts of the engine share: settings, store, clock, random, observer; the local sessions.

The tasks.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from limpet.config import Settings
from limpet.core.ledger import Charge
from limpet.engine.access import Access
from limpet.engine.audit import Audit
from limpet.engine.back import Back
from limpet.engine.caller import Caller
from limpet.engine.exchange import Exchange
from limpet.engine.load import Load
from limpet.engine.outages import retried
from limpet.engine.pauses import Pulse
from limpet.engine.session import ClientDuplex, Session
from limpet.errors import Stopping, StoreUnavailable
from limpet.ports import Clock, Observer, Random, Spans, SystemClock, spans_of, uptime
from limpet.protocol.methods import WITHOUT_WORK
from limpet.protocol.quirks import ClientQuirks
from limpet.stores.base import AtOnce, SessionRecord, Store
from limpet.wire.jsonrpc import Request

T = TypeVar("T")
_NOTHING: Final = contextlib.nullcontext()
Handle = Callable[[Exchange], Awaitable[bytes]]


class Watch(Protocol):
    """Sees the calls of a server."""

    now: Callable[[], float]
    """The clock of `Exchange.began`."""

    def ended(self, exchange: Exchange, result: bytes = b"", error: BaseException | None = None) -> None:
        """Record that the handler of an exchange has ended, and how. Does nothing if it is not watched."""


class NewTask(Protocol):
    """Starts a task."""

    def __call__(
        self, work: Coroutine[Any, Any, None], /, *, name: str, context: Context | None = None
    ) -> asyncio.Task[None]:
        """Start it in a copy of the present context, or in this context."""


class Runtime:
    """The shared members of one engine."""

    __slots__ = (
        "access",
        "at_once",
        "audit",
        "back",
        "clock",
        "handle",
        "hidden",
        "is_draining",
        "is_over",
        "load",
        "new_task",
        "observer",
        "on_gone",
        "pulse",
        "quirks",
        "random",
        "sessions",
        "settings",
        "spans",
        "stop_reason",
        "store",
        "tasks",
        "watch",
    )

    def __init__(
        self,
        back: Back,
        settings: Settings,
        *,
        store: Store,
        clock: Clock,
        random: Random,
        observer: Observer,
    ) -> None:
        self.spans: Spans | None = spans_of(observer)
        self.back: Back = back
        self.handle: Handle = back.handle if self.spans is None else _with_spans(back.handle)
        """Answers an exchange: the back, or the hand-over in front of it (`hand_over.py`)."""
        self.watch: Watch | None = getattr(back, "watch", None)
        """Watches the calls that the back answers, if it is watched."""
        self.access: Access = back.access
        self.settings: Settings = settings
        self.load: Load = Load(settings.limits)
        self.store: Store = store
        # A store that other replicas write to cannot answer at once.
        self.at_once: AtOnce | None = None if store.is_shared else getattr(store, "at_once", None)
        """The store, if it can claim and settle without waiting."""
        self.new_task: NewTask = asyncio.create_task
        """Starts the task of a handler: see `bind`."""
        self.clock: Clock = clock
        self.random: Random = random
        self.observer: Observer = observer
        self.quirks: ClientQuirks = ClientQuirks(settings.quirks, observer)
        self.sessions: dict[str, Session] = {}
        self.hidden: dict[str, Charge] = {}
        """The memory of hidden sessions, by their keys, if the store keeps them in this process."""
        self.tasks: set[asyncio.Task[Any]] = set()
        self.is_draining: bool = False
        """The server is stopping: running work may finish, and no new work begins."""
        self.stop_reason: str = ""
        """Why the server is stopping, if it has failed."""
        self.is_over: bool = False
        """True after the drain: the tasks that are left are cancelled."""
        self.pulse: Pulse = Pulse(uptime if isinstance(clock, SystemClock) else clock.now)
        """Knows whether this process could not run until a moment ago: the ends of connections may not be read yet."""
        self.on_gone: Callable[[Session], None] = lambda _: None
        """Called with a session that was found to be closed by another replica."""
        self.audit: Audit = Audit(self)

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the tasks of handlers on this loop.

        Without a task factory they are made directly: `create_task` makes up a name for each task and looks up the
        loop. A factory of eager tasks (Python 3.12) is not used either: a handler would run, and could end, before the
        front waits for it. Then the answer of a cut request would not be kept, and its repeat would run the call again.
        """
        self.is_over = False
        make: NewTask = partial(asyncio.Task, loop=loop)
        is_direct = loop.get_task_factory() is None or loop.create_task(_nothing()).done()
        self.new_task = make if is_direct else loop.create_task

    def local_session(self, record: SessionRecord, duplex: ClientDuplex | None = None) -> Session:
        """Return the local session of a record; make it if this process has none yet."""
        session = self.sessions.get(record.key)
        if session is None:
            session = self.sessions[record.key] = Session(record, self.settings, duplex)
        elif self.store.is_shared:
            # Another replica may have changed it.
            session.record = record
        return session

    def registered(self, session: Session) -> Session:
        """Return the local session that receives the wake-ups, for a caller that is about to wait for one.

        Where the store is shared, a session that this process did not need may have been released meanwhile.
        """
        return self.sessions.setdefault(session.record.key, session) if self.store.is_shared else session

    def release(self, session: Session) -> None:
        """Drop a local session that is not needed, where the store is shared: any replica may get the next request."""
        if self.store.is_shared and session.is_quiet and self.sessions.get(session.record.key) is session:
            del self.sessions[session.record.key]

    def returned(self, session: Session) -> None:
        """Report that a detached session came back."""
        if not session.lasting:
            return
        self.observer.note("session.resumed", session=session.name, client=session.client_name)
        session.queue_listener(lambda: self.back.reattached(session))

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine as a task of the engine, which ends when the engine ends."""
        self.begin(work).add_done_callback(self._note_failure)

    def _note_failure(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # No caller waits for the task, so the failure is logged.
            self.observer.note("work.failed", error=error)

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do the same and return the task, for a caller that waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self.keep(task)
        return task

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Make a task one of the engine."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def refuses(self, request: Request, caller: Caller) -> bool:
        """True if the server is stopping and this request would begin new work: raise `stopping()`."""
        is_new = self.is_draining and request.method not in WITHOUT_WORK and not self.access.collects(request)
        return is_new and (not caller.is_inner or bool(self.stop_reason))

    def stopping(self) -> Stopping:
        """Return the refusal of new work while the server is stopping."""
        return Stopping(self.stop_reason)

    # Obligations: writes that must reach the store even if the request that caused them is cancelled

    async def write_eventually(
        self,
        write: Callable[[], Awaitable[object]],
        during: contextlib.AbstractContextManager[object] = _NOTHING,
    ) -> None:
        """Write to the store, now or in the background: if it is unavailable, or the caller is cancelled meanwhile.

        The write must be safe to repeat. The context `during` ends when it has succeeded, or will not be tried again.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(during)
            try:
                await write()
            except (StoreUnavailable, asyncio.CancelledError) as failed:
                self.spawn(_retry_within(stack.pop_all(), write))
                if not isinstance(failed, StoreUnavailable):
                    raise

    async def take_or_give_back(
        self, work: Coroutine[Any, Any, T], give_back: Callable[[T], Coroutine[Any, Any, None]]
    ) -> T:
        """Return the result of `work`.

        If the caller is cancelled meanwhile, the result is given back when it arrives.
        """
        taking = self.begin(work)
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            self.spawn(_give_back_later(taking, give_back))
            raise

    async def finish(self, seconds: float) -> None:
        """Wait for all tasks of the engine, also those that they start; after so many seconds, cancel the others."""
        now = asyncio.get_running_loop().time
        deadline = now() + seconds
        while self.tasks and now() < deadline:
            await asyncio.wait(self.tasks, timeout=deadline - now())
        self.is_over = True
        for task in self.tasks:
            task.cancel()


async def _retry_within(stack: contextlib.ExitStack, write: Callable[[], Awaitable[object]]) -> None:
    with stack:
        await retried(write)


async def _give_back_later(
    taking: asyncio.Task[T], give_back: Callable[[T], Coroutine[Any, Any, None]]
) -> None:
    await asyncio.wait([taking])
    if not taking.cancelled() and taking.exception() is None:
        await give_back(taking.result())


def _with_spans(handle: Handle) -> Handle:
    """Return a function that answers exchanges in the same way, each within the span of its handler."""

    async def handle_within_span(exchange: Exchange) -> bytes:
        span = exchange.caller.span
        if span is None:
            return await handle(exchange)
        with span.handler(exchange.request) as returned:
            result = await handle(exchange)
            returned(result)
            return result

    return handle_within_span


async def _nothing() -> None:
    """End at once: only an eager task has ended when it is made."""
