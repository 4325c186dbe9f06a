"""Calls that become tasks: the client gets a handle at once, the handler runs on, and the client polls.

The store holds a task, so any process can answer questions about it; the process that runs its handler
learns of answers and cancellations by the store's wake-ups. A task belongs to one principal,
and its id is never stored, only the hash of the id.

How a task ends after each kind of failure. It has an owner, the replica in which its handler runs, and every change
of it is a compare-and-set on its version. The owner writes the end; if the store is unavailable, it tries
until the store is back. If the owner dies, another replica finds the task without a living owner and
writes one error in its place: the outcome is unknown. An owner that was only paused, and writes later, finds the
task ended and changes nothing. So a task that was answered with a handle ends exactly once, and a
client that polls sees its end.

A failover of the store may lose writes, and the owner restores them. It knows the ends of its last tasks
(`task_ends.py`): a task that is its own in the store, and that does not run here, gets its end again, or the error
"outcome unknown" if the end is not known any more. A task that runs here is opened again if the store has lost it, and
gets the asks that its handler waits for.
"""

import asyncio
import contextlib
import math
from collections import ChainMap
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Final

import msgspec

from limpet.core import tasks as core
from limpet.core.exchange import ExchangeInput, step
from limpet.core.rounds import Asked, fresh_key
from limpet.core.tasks import TaskInput, TaskState, detailed, task_key
from limpet.engine.caller import Caller
from limpet.engine.exchange import Exchange
from limpet.engine.inner import InnerExchange
from limpet.engine.listening import Listening
from limpet.engine.outages import RETRY_SECONDS
from limpet.engine.outcome import Outcome
from limpet.engine.rounds import Answers, RoundWriter, answer_to, end_asks
from limpet.engine.runtime import Runtime
from limpet.engine.task_ends import TaskEnds
from limpet.engine.wake import Wake
from limpet.errors import (
    INTERNAL_ERROR,
    AskRefused,
    AskTimeout,
    BackPressureError,
    Busy,
    Cancelled,
    McpError,
    OutcomeUnknown,
    StateError,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    UnknownTask,
)
from limpet.protocol.hand_over import new_ticket
from limpet.protocol.sessionless import typed_result
from limpet.protocol.subscriptions import Change
from limpet.protocol.tasks import Progress, progress_of
from limpet.stores.base import Cell, OrphanTask
from limpet.wire.jsonrpc import encode

_LOOK_EVERY: Final = 15.0
"""Seconds after which an answer or a cancellation is found if its wake-up was lost."""

REFUSED_KEY: Final = "io.limpet/refused"
"""In the place of an answer: code, message and data of the error with which a client answered an ask in a session."""

Step = Callable[[TaskState], TaskState | None]
End = Callable[[Exchange, McpError], Coroutine[Any, Any, None]]
"""Stops an exchange's handler and settles it."""


class TaskWriter:
    """The writer of an exchange that has become a task: it writes to the store."""

    __slots__ = (
        "_answers",
        "_asked",
        "_keys",
        "_tasks",
        "exchange",
        "former",
        "key",
        "look_at",
        "principal",
        "state",
    )

    def __init__(
        self, tasks: "Tasks", key: str, exchange: Exchange, former: RoundWriter | None, state: TaskState
    ) -> None:
        self._tasks = tasks
        self.key: str = key
        self.exchange: Exchange = exchange
        self.principal: str = exchange.session.record.principal
        self.former: RoundWriter | None = former
        """The writer of its rounds, which answered with the handle; a repeat of that request gets the same answer.
        None: another exchange has answered the request (`hand_over.py`)."""
        self.look_at: float = math.inf
        """When to read it from the store again: it may have expired, or a wake-up was lost."""
        self.state: TaskState = state
        """As it was last read."""
        self._keys: set[str] = set()
        self._answers: Answers = {}
        self._asked: dict[str, Asked] = {}
        """The asks of these answers, which the handler has not withdrawn."""

    @property
    def is_unread(self) -> bool:
        """False: it writes to the store, and waits for no client."""
        return False

    @property
    def is_waiting(self) -> bool:
        """True if the task requires input."""
        return bool(self._answers)

    @property
    def asks(self) -> int:
        """How many asks wait for an answer."""
        return len(self._answers)

    async def send(self, message: bytes) -> None:
        """Make the status of the task of a progress notification. Drop every other message: tasks have none."""
        progress = progress_of(message)
        if progress is not None:
            await self._tasks.try_write(self, lambda state: core.described(state, progress))

    async def ask(
        self, method: str, params: object, timeout: float | None = None, key: str | None = None
    ) -> Any:
        """Let the task require input, and wait for it.

        Raises:
            BackPressureError: too many asks wait already.
            AskTimeout: no answer came in time.
            CallEnded: the task has ended.
        """
        if len(self._answers) >= self._tasks.max_asks:
            raise BackPressureError(
                f"{method} refused: {self._tasks.max_asks} asks of this task wait for an answer"
            )
        name = fresh_key(self._keys, key)
        answer = self._answers[name] = asyncio.get_running_loop().create_future()
        asked = self._asked[name] = Asked(method, params)
        try:
            async with asyncio.timeout(timeout):
                await self._tasks.write(self, lambda state: core.asked(state, name, asked))
                return await answer_to(method, answer, None)
        except TimeoutError:
            raise AskTimeout(f"the client did not answer {method} within {timeout:g} s") from None
        finally:
            del self._answers[name], self._asked[name]
            if not self.exchange.has_ended:
                await self._tasks.write_soon(self, lambda state: core.withdrawn(state, name))

    def deliver(self, answers: dict[str, Any]) -> None:
        """Give answers to the asks that wait for them."""
        for name, value in answers.items():
            waiting = self._answers.get(name)
            if waiting is None or waiting.done():
                continue
            refused = value.get(REFUSED_KEY) if type(value) is dict else None
            if refused is None:
                waiting.set_result(value)
            else:
                waiting.set_exception(AskRefused(self._asked[name].method, *refused))

    def reconcile(self, state: TaskState) -> TaskState | None:
        """Return the state with the asks of this handler; None if it has them."""
        waiting = {name: asked for name, asked in self._asked.items() if not self._answers[name].done()}
        return core.reconciled(state, waiting, self._asked)

    def end_asks(self) -> None:
        """End the asks of a task that is over."""
        end_asks(self._answers)

    async def settle(self, outcome: Outcome) -> None:
        """Write the end of the task, unless it has ended already."""
        await self._tasks.settle(self, outcome)


class Tasks:
    """Starts tasks, and answers requests for all tasks in the store."""

    def __init__(self, runtime: Runtime, end: End, listening: Listening) -> None:
        self._runtime = runtime
        self._listening = listening
        self._end = end
        self._running: dict[str, TaskWriter] = {}
        """By key: the tasks whose handlers run here."""
        self._ends = TaskEnds(runtime.clock, runtime.load, shared=runtime.store.is_shared)
        self._sent_versions: dict[tuple[str, str], int] = {}
        """By task id and principal: the version that was last sent to its listeners here."""
        self._waiting: dict[str, list[Wake]] = {}
        """By key: the wake-ups of requests that wait for a change of the task."""
        self._send_missed_at = 0.0
        self._ttl = runtime.settings.times.task
        self.poll: float = runtime.settings.times.task_poll
        self.max_asks: int = runtime.settings.limits.asks

    async def begin(self, exchange: Exchange) -> None:
        """Make a task of a call and answer its request with the handle, once the store has the task.

        A call that is a task already does not change.

        Raises:
            Busy: this principal, or the server, has too many tasks, or the store does not work; the call has not
                changed.
            RuntimeError: an ask of the call still waits for its answer.
        """
        former = exchange.writer
        if isinstance(exchange, InnerExchange) and exchange.outer is not None:
            await exchange.now()
            return
        if not isinstance(former, RoundWriter):
            return
        if former.rounds.waiting:
            raise RuntimeError(
                "a call becomes a task before it asks or after it was answered, not while it asks"
            )
        task_id, task = await self.open(exchange, former)
        exchange.writer = task
        exchange.state, _ = step(exchange.state, ExchangeInput.BECAME_TASK)
        former.settle(Outcome(self.handle_of(task_id, task)))

    async def open(self, exchange: Exchange, former: RoundWriter | None = None) -> tuple[str, TaskWriter]:
        """Keep a task for a running call in the store; return its id and its writer. The call has not changed yet.

        Raises:
            Busy: as `begin`.
        """
        task_id = new_ticket(self._runtime.random) + self._mark(exchange)
        state = core.begun(self._runtime.clock.wall(), self._ttl)
        task = TaskWriter(self, task_key(task_id), exchange, former, state)
        await self._keep(task, state)
        return task_id, task

    def handle_of(self, task_id: str, task: TaskWriter) -> bytes:
        """Return the answer to the request of a call that has become a task."""
        members = msgspec.to_builtins(core.created(task_id, task.state, self.poll))
        return encode(typed_result("task", self._runtime.back.server_info, members))

    def drop(self, task: TaskWriter) -> None:
        """Forget a task that no client has learnt of: its call has ended otherwise."""
        self._running.pop(task.key, None)
        self._runtime.spawn(self.write(task, lambda state: core.ended(state, TaskInput.CANCEL)))

    def _mark(self, exchange: Exchange) -> str:
        """Return the end of the task's id: requests for the task need the scopes of its call (`access.py`)."""
        rules = self._runtime.access.rules
        if rules is None:
            return ""
        session = exchange.session.record.key
        return self._runtime.access.mark(rules.needs(exchange.request, exchange.caller, session).scopes)

    async def _keep(self, task: TaskWriter, state: TaskState) -> None:
        store = self._runtime.store
        # Before it is opened: a task that is ours in the store and unknown here has ended.
        self._running[task.key] = task
        try:
            full = await store.open_task(task.key, task.principal, _encode(state), ttl=self._ttl)
        except (asyncio.CancelledError, StoreUnavailable):
            # The client does not learn of the task, but the store may have it.
            self.drop(task)
            with _busy_without_store():
                raise
        if full is not None:
            del self._running[task.key]
            raise Busy("Busy: too many tasks are kept; try again later", retry_after=30)
        task.look_at = self._next_look(state)

    # The handler's side

    async def describe(self, exchange: Exchange, progress: Progress) -> None:
        """Write the progress of a call that has become a task.

        Does nothing while the store is unavailable: the work must not fail for that.
        """
        if isinstance(exchange.writer, TaskWriter):
            await self.try_write(exchange.writer, lambda state: core.described(state, progress))

    async def write(self, task: TaskWriter, change: Step) -> None:
        """Change a running task's state, also if the store is unavailable for long."""
        while not await self.try_write(task, change):  # noqa: ASYNC110 - nothing tells when the store is back
            await asyncio.sleep(RETRY_SECONDS)

    async def write_soon(self, task: TaskWriter, change: Step) -> None:
        """Change a running task's state now, or later if the store is unavailable."""
        if not await self.try_write(task, change):
            self._runtime.spawn(self.write(task, change))

    async def try_write(self, task: TaskWriter, change: Step) -> bool:
        """Change a running task's state; does nothing if the task has ended or expired.

        False: the store is unavailable.
        """
        try:
            await self._change(task.key, task.principal, change)
        except StoreUnavailable as error:
            self._runtime.observer.note("task.unwritten", error=error)
            return False
        return True

    async def settle(self, task: TaskWriter, outcome: Outcome) -> None:
        """End a task as its handler did; later, if the store is unavailable."""
        self._ends.add(task.key, outcome)
        self._running.pop(task.key, None)
        if not await self._try_store_end(task, outcome):
            self._runtime.spawn(self._store_end(task, outcome))

    async def _store_end(self, task: TaskWriter, outcome: Outcome) -> None:
        while not await self._try_store_end(task, outcome):  # noqa: ASYNC110 - nothing tells when the store is back
            await asyncio.sleep(RETRY_SECONDS)

    async def _try_store_end(self, task: TaskWriter, outcome: Outcome) -> bool:
        try:
            is_written = await self.try_write(task, _ending(outcome))
        except StateError as error:
            refusal = McpError(INTERNAL_ERROR, f"The task has ended, but its result cannot be kept: {error}")
            outcome = Outcome(error=refusal)
            self._ends.add(task.key, outcome)
            is_written = await self.try_write(task, _ending(outcome))
        if is_written:
            self._ends.stored(task.key)
        return is_written

    # The client's side

    def check(self, task_id: str, caller: Caller) -> None:
        """Check that a caller may know the scopes of a task's call; that it has them was checked before (`access.py`).

        Raises:
            UnknownTask: it may not.
        """
        if self._runtime.access.marked(task_id, caller) is None:
            raise UnknownTask

    async def get(self, task_id: str, principal: str) -> TaskState:
        """Return a task.

        Raises:
            UnknownTask: the principal has no such task.
            StoreBusy: the store does not work.
        """
        with _busy_without_store():
            cell = await self._runtime.store.get_task(task_key(task_id), principal)
        if cell is None:
            raise UnknownTask
        return self._readable(cell)

    @contextlib.contextmanager
    def watched(self, task_id: str) -> Iterator[Wake]:
        """Return a wake-up that each change of a task sets.

        A change whose wake-up was lost does not: read it from time to time.
        """
        key, wake = task_key(task_id), Wake()
        self._waiting.setdefault(key, []).append(wake)
        try:
            yield wake
        finally:
            self._waiting[key].remove(wake)
            if not self._waiting[key]:
                del self._waiting[key]

    async def known(self, task_ids: Iterable[str], principal: str) -> list[str]:
        """Return those of the ids that are tasks of this principal.

        Raises:
            StoreBusy: the store does not work.
        """
        get = self._runtime.store.get_task
        with _busy_without_store():
            return [task_id for task_id in task_ids if await get(task_key(task_id), principal) is not None]

    async def update(self, task_id: str, principal: str, answers: dict[str, Any]) -> None:
        """Give a task the answers that it asked for; others are ignored.

        Raises:
            UnknownTask: the principal has no such task.
            Busy: there is no room for the answers, or the store does not work.
        """
        try:
            await self._change_known(task_id, principal, lambda state: core.answered(state, answers))
        except StateError as error:
            raise Busy(f"Busy: {error}", retry_after=30) from None

    async def cancel(self, task_id: str, principal: str) -> None:
        """Cancel a task; one that has ended stays as it is.

        Raises:
            UnknownTask: the principal has no such task.
            StoreBusy: the store does not work.
        """
        await self._change_known(task_id, principal, lambda state: core.ended(state, TaskInput.CANCEL))

    async def _change_known(self, task_id: str, principal: str, change: Step) -> None:
        with _busy_without_store():
            if not await self._change(task_key(task_id), principal, change):
                raise UnknownTask

    async def _change(self, key: str, principal: str, change: Step) -> bool:
        """Change a task's state; try again if another change came first. False: there is no such task."""
        runtime = self._runtime
        while (cell := await runtime.store.get_task(key, principal)) is not None:
            changed = change(self._readable(cell))
            if changed is None:
                return True
            if await self._set(key, principal, cell, changed):
                return True
        return False

    async def _set(self, key: str, principal: str, cell: Cell, state: TaskState) -> bool:
        """Write a task's next state, if it has not changed since it was read."""
        value = _encode(core.renewed(state, self._runtime.clock.wall(), self._ttl))
        version = await self._runtime.store.set_task(
            key, principal, value, version=cell.version, ttl=self._ttl, ends=state.is_terminal
        )
        return version > 0

    # The store's side

    def wake_up(self, key: str) -> None:
        """Handle a changed task, if its handler runs here, or it has listeners or requests that wait for it here."""
        for wake in self._waiting.get(key, ()):
            wake.set()
        task = self._running.get(key)
        if task is not None:
            self._later(self._look(task))
        task_id = self._listening.task_ids.get(key)
        if task_id is not None:
            self._later(self._send_state(key, task_id))

    async def _send_state(self, key: str, task_id: str) -> None:
        """Send the present state of a task to its listeners, once for each version."""
        for owner in self._listening.owners(("task", task_id)):
            cell = await self._runtime.store.get_task(key, owner)
            if cell is not None and self._sent_versions.get((task_id, owner)) != cell.version:
                self._sent_versions[task_id, owner] = cell.version
                task = detailed(task_id, self._readable(cell), self.poll)
                detail = msgspec.json.decode(encode(task))
                self._listening.send(Change("task", task_id, detail), owner)

    async def sweep(self) -> None:
        """Read the tasks that are due, and stop the handlers of those that have expired."""
        now = self._runtime.clock.now()
        for task in [task for task in self._running.values() if task.look_at <= now]:
            await self._without_fail(self._look(task))
        if self._send_missed_at <= now:
            self._send_missed_at = now + _LOOK_EVERY
            await self._send_missed()

    async def _send_missed(self) -> None:
        """Send listeners the changes whose wake-up was lost."""
        listened = dict(self._listening.task_ids)
        self._sent_versions = {
            known: n for known, n in self._sent_versions.items() if known[0] in listened.values()
        }
        for key, task_id in listened.items():
            await self._without_fail(self._send_state(key, task_id))

    async def reap(self) -> None:
        """End the tasks whose handlers are gone, with the end that is known here, or with the error "outcome unknown".

        They belong to dead replicas, or to this one: they had ended, and a failover has brought them back.
        """
        self._ends.sweep()
        # Not a copy: a task that is kept while the store looks is known when its answer is compared.
        known = ChainMap[str, Any](self._running, self._ends.unstored)
        while orphans := await self._runtime.store.orphan_tasks(known):
            ended = [await self._reap(orphan) for orphan in orphans]
            if not any(ended):
                # Another replica was faster, or the task has changed; the next sweep tries again.
                return

    async def _reap(self, orphan: OrphanTask) -> bool:
        state = self._readable(orphan.cell)
        outcome = self._ends.get(orphan.key) or Outcome(error=OutcomeUnknown())
        ended = _ending(outcome)(state) or state
        if not await self._set(orphan.key, orphan.principal, orphan.cell, ended):
            return False
        self._runtime.observer.note("task.reaped", owner=orphan.owner)
        return True

    def _readable(self, cell: Cell) -> TaskState:
        """Return a task's state; for one that this release cannot read, the state of a task that has just begun."""
        try:
            return _DECODER.decode(cell.value)
        except msgspec.DecodeError as error:
            self._runtime.observer.note("task.unreadable", error=error)
            return core.begun(self._runtime.clock.wall(), self._ttl)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        self._runtime.spawn(self._without_fail(work))

    async def _without_fail(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (StoreError, msgspec.DecodeError) as error:
            # No caller waits for this. A missed change is seen at the next check. A task that fails here
            # does not stop the check of the others.
            self._runtime.observer.note("task.unseen", error=error)

    async def _look(self, task: TaskWriter) -> None:
        cell = await self._runtime.store.get_task(task.key, task.principal)
        if task.exchange.has_ended:
            return
        if cell is None:
            await self._look_for_lost(task)
            return
        state = task.state = self._readable(cell)
        if state.is_terminal:
            await self._end(task.exchange, Cancelled("the task was cancelled, or ended by another replica"))
        else:
            task.deliver(state.answers)
            task.look_at = self._next_look(state)
            if task.reconcile(state) is not None:
                await self._change(task.key, task.principal, task.reconcile)

    async def _look_for_lost(self, task: TaskWriter) -> None:
        """End the handler of a task that has expired. If it has not, the store has lost it: open it again."""
        state = task.reconcile(task.state) or task.state
        left = state.created + state.ttl - self._runtime.clock.wall()
        if left <= 0:
            await self._end(task.exchange, Cancelled("the task has expired"))
        elif await self._runtime.store.open_task(task.key, task.principal, _encode(state), ttl=left) is None:
            task.look_at = self._next_look(state)
        else:
            await self._end(task.exchange, Cancelled("the store has lost the task, and has no room for it"))

    def _next_look(self, state: TaskState) -> float:
        clock = self._runtime.clock
        left = state.created + state.ttl - clock.wall()
        return clock.now() + (min(left, _LOOK_EVERY) if left > 0 else _LOOK_EVERY)


@contextlib.contextmanager
def _busy_without_store() -> Iterator[None]:
    """Refuse a request that needs the store as busy, while the store does not work."""
    try:
        yield
    except StoreUnavailable as error:
        raise StoreBusy from error


def _ending(outcome: Outcome) -> Step:
    error = outcome.error
    if error is None:
        return lambda state: core.ended(state, TaskInput.RESULT, result=outcome.result)
    if isinstance(error, Cancelled):
        return lambda state: core.ended(state, TaskInput.CANCEL)
    members = {"code": error.code, "message": error.message}
    data = encode(members if error.data is None else {**members, "data": error.data})
    return lambda state: core.ended(state, TaskInput.ERROR, error=data, message=error.message)


def _encode(state: TaskState) -> bytes:
    return msgspec.msgpack.encode(state)


_DECODER = msgspec.msgpack.Decoder(TaskState)
