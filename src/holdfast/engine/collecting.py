"""Following a call that was handed over: until it ends, for a while, at any replica. The tool `collect` does it, and so does a retry.

The store has the task of the call (`tasks.py`), so nothing here knows where the call runs. Each change of the task sets a wake-up;
because wake-ups get lost, the task is also read from time to time.

    request (collect, or a retry with the ticket)      task in the store            the call
    ─────────────────────────────────────────────      ─────────────────────        ────────────────
    read the task ◀──────────────────────────────────  progress, asks      ◀──────  reports, asks
    report progress, ask the client itself
    answers       ──────────────────────────────────▶  answers             ──────▶  goes on
    return its result, or the time is over ◀─────────  the end             ◀──────  returns

A question is shown by one request at a time: the first that finds it. If the client does not answer within the time of
that request, the question stays in the task, and the next request asks again.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.core.rounds import Asked
from holdfast.core.tasks import Status, TaskState, task_key
from holdfast.engine.exchange import Exchange
from holdfast.engine.runtime import Runtime
from holdfast.engine.tasks import REFUSED_KEY, Tasks
from holdfast.errors import AskError, AskRefused, CallEnded, Cancelled, McpError, UnknownTask
from holdfast.protocol.params import progress_token
from holdfast.protocol.versions import SESSIONLESS

LOOK_SECONDS: Final = 2.0
"""How often a task is read if no wake-up comes."""

_decode_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_error: Final = msgspec.json.Decoder(dict[str, Any]).decode


class Collecting:
    """Follows tasks for requests."""

    def __init__(self, runtime: Runtime, tasks: Tasks) -> None:
        self._runtime = runtime
        self._tasks = tasks
        self._asking: set[tuple[str, str]] = set()
        """Key and name of the asks that a request of this process shows to its client now."""
        self._waiting: dict[str, int] = {}
        """By owner: how many requests wait for a task."""

    def __repr__(self) -> str:
        return f"<Collecting {sum(self._waiting.values())} requests wait>"

    def check(self, exchange: Exchange, ticket: str) -> None:
        """Check that the caller has the scopes of the call.

        Raises:
            UnknownTask: the caller may not know them.
            InsufficientScope: a scope is missing.
        """
        access = self._runtime.access
        scopes = access.marked(ticket, exchange.caller)
        if scopes is None:
            raise UnknownTask
        access.demand(scopes, exchange.caller, exchange.request.id)

    async def follow(self, exchange: Exchange, ticket: str, seconds: float, asking: float) -> TaskState:
        """Return the task when it has ended, or after so many seconds. Meanwhile report its progress and ask its questions.

        `asking`: how long the client may take for an answer. Requests of one client beyond the number of its calls do not wait.

        Raises:
            UnknownTask: the caller has no such task.
            StoreBusy: the store does not work.
        """
        self.check(exchange, ticket)
        owner, now = exchange.caller.owner, asyncio.get_running_loop().time
        waiting = self._waiting.get(owner, 0)
        deadline = now() + (seconds if waiting < self._runtime.settings.limits.running else 0.0)
        self._waiting[owner] = waiting + 1
        try:
            with self._tasks.watched(ticket) as wake:
                while True:
                    wake.clear()
                    state = await self._tasks.get(ticket, exchange.caller.key)
                    if state.is_terminal:
                        return state
                    await self._report(exchange, state)
                    if await self._ask(exchange, ticket, state.asks, asking):
                        continue
                    left = deadline - now()
                    if left <= 0:
                        return state
                    await wake.wait(min(left, LOOK_SECONDS))
        finally:
            self._waiting[owner] -= 1
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
        key = task_key(ticket)
        mine = {name: asked for name, asked in asks.items() if (key, name) not in self._asking}
        if not mine or exchange.has_ended:
            return False
        self._asking |= {(key, name) for name in mine}
        try:
            found = await asyncio.gather(*(self._one(exchange, asked, seconds) for asked in mine.values()))
        finally:
            self._asking -= {(key, name) for name in mine}
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
        if state.status is Status.CANCELLED:
            raise Cancelled("the call was cancelled")
        if state.status is Status.FAILED:
            error = _decode_error(state.error)
            raise McpError(error["code"], error["message"], error.get("data"))
        if exchange.session.revision is not SESSIONLESS:
            return state.result
        members = _decode_members(state.result)
        if "resultType" in members:
            return state.result
        return msgspec.json.encode({"resultType": "complete", **members})
