"""Following a call that was handed over: until it ends, for a while, at any replica.

The tool `collect` does it, and so does a retry.

The store has the task of the call (`tasks.py`), so nothing here knows where the call runs. Each change of the task sets
a wake-up; because wake-ups get lost, the task is also read from time to time.

    request (collect, or a retry with the ticket)      task in the store            the call
    ─────────────────────────────────────────────      ─────────────────────        ────────────────
    read the task ◀──────────────────────────────────  progress, asks      ◀──────  reports, asks
    report progress, ask the client itself
    answers       ──────────────────────────────────▶  answers             ──────▶  goes on
    return its result, or the time is over ◀─────────  the end             ◀──────  returns

A question is shown by one request at a time: the first that finds it. If the client does not answer within the time of
that request, the question stays in the task, and the next request asks again. A request of 2026-07-28 that asks is
answered with the question, and its client may never come back: so a later request asks too, and the first answer
counts.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from limpet.core.rounds import Asked
from limpet.core.tasks import TaskState, TaskStatus, task_key
from limpet.engine.exchange import Exchange
from limpet.engine.rounds import RoundWriter
from limpet.engine.runtime import Runtime
from limpet.engine.tasks import REFUSED_KEY, Tasks
from limpet.engine.wake import Wake
from limpet.errors import AskError, AskRefused, CallEnded, Cancelled, McpError
from limpet.protocol.params import progress_token
from limpet.protocol.versions import SESSIONLESS

LOOK_SECONDS: Final = 2.0
"""How often a task is read if no wake-up comes."""

_decode_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_error: Final = msgspec.json.Decoder(dict[str, Any]).decode


class Collecting:
    """Follows tasks for requests."""

    def __init__(self, runtime: Runtime, tasks: Tasks) -> None:
        self._runtime = runtime
        self._tasks = tasks
        self._asking: dict[tuple[str, str], Exchange] = {}
        """By key and name of an ask: the request of this process that shows it to its client."""
        self._waiting: Counter[str] = Counter()
        """By owner: how many requests wait for a task. Those that wait for their client do not count."""
        self._waits: dict[asyncio.Task[Any] | None, Wake] = {}
        """By task of a request: what wakes it up. A request that is not here any more answers at once."""

    async def follow(self, exchange: Exchange, ticket: str, seconds: float, asking: float) -> TaskState:
        """Return the task when it has ended, or after so many seconds.

        Meanwhile report its progress and ask its questions.

        `asking`: how long the client may take for an answer. Requests of one client beyond the number of its calls do
        not wait.

        Raises:
            UnknownTask: the caller has no such task.
            StoreBusy: the store does not work.
        """
        self._tasks.check(ticket, exchange.caller)
        owner, now = exchange.caller.owner, asyncio.get_running_loop().time
        is_one_too_many = self._waiting[owner] >= self._runtime.settings.limits.running
        deadline = now() + (0.0 if is_one_too_many else seconds)
        self._count(owner, 1)
        me = asyncio.current_task()
        try:
            with self._tasks.watched(ticket) as wake:
                self._waits[me] = wake
                while True:
                    wake.clear()
                    state = await self._tasks.get(ticket, exchange.caller.key)
                    if state.is_terminal:
                        return state
                    await self._report(exchange, state)
                    if await self._ask(exchange, ticket, state.asks, asking):
                        continue
                    left = deadline - now()
                    if left <= 0 or me not in self._waits:
                        return state
                    await wake.wait(min(left, LOOK_SECONDS))
        finally:
            self._waits.pop(me, None)
            self._count(owner, -1)

    async def end_waits(self, seconds: float) -> None:
        """Let all requests answer what they know now; return when they have, or after so many seconds.

        This process stops. Their tasks may run in other processes, which the clients ask next.
        """
        waits, self._waits = self._waits, {}
        for wake in waits.values():
            wake.set()
        if tasks := [task for task in waits if task is not None]:
            await asyncio.wait(tasks, timeout=seconds)

    def _count(self, owner: str, number: int) -> None:
        self._waiting[owner] += number
        if not self._waiting[owner]:
            del self._waiting[owner]

    async def _report(self, exchange: Exchange, state: TaskState) -> None:
        """Send the progress of the task, if the client wants progress and this is new."""
        meta = exchange.request.params.get("_meta")
        token = progress_token(meta if type(meta) is dict else None)
        done, last = state.progress, exchange.progress
        if token is None or done is None or (last is not None and done <= last):
            return
        exchange.progress = done
        params: dict[str, Any] = {"progressToken": token, "progress": done}
        if state.total is not None:
            params["total"] = state.total
        if state.message:
            params["message"] = state.message
        await exchange.notify("notifications/progress", params)

    # Questions

    async def _ask(self, exchange: Exchange, ticket: str, asks: Mapping[str, Asked], seconds: float) -> bool:
        """Ask the client all questions of a task that no other request asks; True: the task has answers now."""
        key, owner = task_key(ticket), exchange.caller.owner
        mine = {name: asked for name, asked in asks.items() if not _is_shown(self._asking.get((key, name)))}
        if not mine or exchange.has_ended:
            return False
        self._asking |= {(key, name): exchange for name in mine}
        self._count(owner, -1)
        try:
            found = await asyncio.gather(*(self._one(exchange, asked, seconds) for asked in mine.values()))
        finally:
            self._count(owner, 1)
            for name in mine:
                if self._asking.get((key, name)) is exchange:
                    del self._asking[key, name]
        answers = {name: value for name, value in zip(mine, found, strict=True) if value is not None}
        if answers:
            await self._tasks.update(ticket, exchange.caller.key, answers)
        return bool(answers)

    async def _one(self, exchange: Exchange, asked: Asked, seconds: float) -> Any:
        """Return the client's answer, or its error in the place of one; None: it gave none."""
        limit = None if exchange.session.revision is SESSIONLESS else seconds
        try:
            return await exchange.ask(asked.method, asked.params, timeout=limit)
        except CallEnded:
            raise
        except AskRefused as error:
            return {REFUSED_KEY: [error.code, error.message, error.data]}
        except AskError as error:
            self._runtime.observer.note("task.unasked", method=asked.method, error=error)
            return None

    # Ends

    def result_of(self, exchange: Exchange, state: TaskState) -> bytes:
        """Return the result of a task that has ended, exactly as the call had it.

        Raises:
            McpError: the error of the call; Cancelled if it was cancelled.
        """
        if state.status is TaskStatus.CANCELLED:
            raise Cancelled("the call was cancelled")
        if state.status is TaskStatus.FAILED:
            error = _decode_error(state.error)
            raise McpError(error["code"], error["message"], error.get("data"))
        is_sessionless = exchange.session.revision is SESSIONLESS
        members = _decode_members(state.result)
        if ("resultType" in members) is is_sessionless:
            return state.result
        # The call was made in the other era.
        members.pop("resultType", None)
        return msgspec.json.encode({"resultType": "complete", **members} if is_sessionless else members)


def _is_shown(asking: Exchange | None) -> bool:
    """True if a connection of the request that asks a question is open. A parked request has none."""
    return asking is not None and not (isinstance(asking.writer, RoundWriter) and asking.writer.is_parked)
