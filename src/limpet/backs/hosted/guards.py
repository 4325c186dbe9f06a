"""A handler of a hosted object that raises any exception costs its own call, and neither its run nor the process.

The frameworks turn an `Exception` of a handler into an error for the client. Anything else passes: `sys.exit` ends the
event loop and with it every session of the process, and a `CancelledError` ends the run and with it every call of the
session. So, while we serve, each handler has a guard around it: `mcp` 2 has a list of middleware for that, and in `mcp`
1 we replace the handlers. Afterwards the object is as before.

Which cancellations pass. The frameworks, and we, end a call by a cancel scope of anyio around its handler: then each
await in the handler raises `CancelledError`, and the guard lets it pass. Any other cancellation comes from the
handler's own code:

    asyncio.current_task().cancel()     raised at the next await, maybe only after the handler has returned
    a scope that is never left          every await of the task raises, also in the framework after the handler
    await of a cancelled task           raised once

After the handler the guard leaves such scopes and takes such a cancellation back, so the framework sees neither.
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, Final

from limpet.ports import Observer

Handler = Callable[..., Awaitable[Any]]
TABLES: Final = ("request_handlers", "notification_handlers")
"""The tables of handlers of `mcp` 1."""


class Guards:
    """The guards of one `lowlevel.Server`. Call `set` first, `remove` last."""

    def __init__(self, server: Any, observer: Observer) -> None:
        self._server = server
        self._observer = observer
        self._scopes = _Scopes()
        self._handlers: list[tuple[dict[Any, Handler], Any, Handler, Handler]] = []
        """In `mcp` 1: the table, the type of the message, the handler of the author, and the guard in its place."""

    def set(self) -> None:
        """Put the guards around the handlers."""
        middleware = getattr(self._server, "middleware", None)
        if isinstance(middleware, list):
            middleware.insert(0, self._pass)
            return
        for name in TABLES:
            table: dict[Any, Handler] = getattr(self._server, name, {})
            self._handlers += [(table, kind, own, self._guarded(own)) for kind, own in table.items()]
        for table, kind, _, guard in self._handlers:
            table[kind] = guard

    def remove(self) -> None:
        """Restore the object. A handler that its author has replaced meanwhile stays."""
        middleware = getattr(self._server, "middleware", None)
        if isinstance(middleware, list) and self._pass in middleware:
            middleware.remove(self._pass)
        for table, kind, own, guard in self._handlers:
            if table.get(kind) is guard:
                table[kind] = own

    async def _pass(self, context: Any, call_next: Handler) -> Any:
        return await self._run(call_next, context)

    def _guarded(self, handler: Handler) -> Handler:
        async def guard(request: Any) -> Any:
            return await self._run(handler, request)

        return guard

    async def _run(self, handler: Handler, given: Any) -> Any:
        task: Any = asyncio.current_task()
        scope = self._scopes.of(task)
        try:
            result = await handler(given)
        except BaseException as error:
            if asyncio._get_running_loop() is None:
                # The event loop has ended, and the interpreter closes this coroutine.
                raise
            if await self._scopes.restore(task, scope) or isinstance(error, Exception):
                raise
            self._observer.note("hosted.handler_failed", server=self._server.name, error=error)
            raise RuntimeError(_message(error)) from error
        if task.cancelling() or self._scopes.of(task) is not scope:
            await self._scopes.restore(task, scope)
        return result


def _message(error: BaseException) -> str:
    failed = f"the function failed with {type(error).__name__}"
    return (
        f"{failed}, but its call was not cancelled" if isinstance(error, asyncio.CancelledError) else failed
    )


class _Scopes:
    """The cancel scopes (anyio) of the task that handles a call."""

    def __init__(self) -> None:
        self._effective_deadline = import_module("anyio").current_effective_deadline
        # Not public. Without it only a scope that is never left ends the run, as it does without us.
        self._states: Any = getattr(import_module("anyio._backends._asyncio"), "_task_states", {})

    def of(self, task: Any) -> Any:
        """Return the innermost scope of a task; None if there is none."""
        state = self._states.get(task)
        return state.cancel_scope if state is not None else None

    async def restore(self, task: Any, scope: Any) -> bool:
        """Leave every scope inside of `scope`, and take back a cancellation by the handler's own code.

        `task` is this task.

        Return True, with no cancellation taken back, if the call was cancelled by a scope around its handler.
        """
        while (inner := self.of(task)) is not scope and inner is not None:
            inner.__exit__(None, None, None)
        if self._effective_deadline() == -math.inf:
            return True
        if task.cancelling():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            while task.cancelling():
                task.uncancel()
        return False
