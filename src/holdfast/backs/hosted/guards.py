"""A handler of a hosted object that raises any exception costs its own call, and neither its run nor the process.

The frameworks turn an `Exception` of a handler into an error for the client. Anything else passes: a stray
`CancelledError` ends the run and with it every call of the session, and `sys.exit` ends the event loop and with it every
session of the process (`engine/author_errors.py`). So, while we serve, each handler has a guard around it: `mcp` 2 has a list of
middleware for that, and in `mcp` 1 we replace the handlers. Afterwards the object is as before.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.engine.author_errors import ends_the_task
from holdfast.ports import Observer

Handler = Callable[..., Awaitable[Any]]


class Guards:
    """The guards of one `lowlevel.Server`. Call `set` first, `remove` last."""

    def __init__(self, server: Any, observer: Observer) -> None:
        self._server = server
        self._observer = observer
        self._handlers: dict[Any, tuple[Handler, Handler]] = {}
        """By the type of the request, in `mcp` 1: the handler of the author, and the guard in its place."""

    def set(self) -> None:
        """Put the guards around the handlers."""
        middleware = getattr(self._server, "middleware", None)
        if isinstance(middleware, list):
            middleware.insert(0, self._pass)
            return
        handlers: dict[Any, Handler] = getattr(self._server, "request_handlers", {})
        self._handlers = {kind: (own, self._guarded(own)) for kind, own in handlers.items()}
        handlers.update({kind: guard for kind, (_, guard) in self._handlers.items()})

    def remove(self) -> None:
        """Restore the object. A handler that its author has replaced meanwhile stays."""
        middleware = getattr(self._server, "middleware", None)
        if isinstance(middleware, list) and self._pass in middleware:
            middleware.remove(self._pass)
        for kind, (own, guard) in self._handlers.items():
            if self._server.request_handlers.get(kind) is guard:
                self._server.request_handlers[kind] = own

    async def _pass(self, context: Any, call_next: Handler) -> Any:
        return await self._run(call_next, context)

    def _guarded(self, handler: Handler) -> Handler:
        async def guard(request: Any) -> Any:
            return await self._run(handler, request)

        return guard

    async def _run(self, handler: Handler, given: Any) -> Any:
        try:
            return await handler(given)
        except Exception:
            raise
        except BaseException as error:
            if ends_the_task(error):
                raise
            self._observer.note("hosted.handler_failed", server=self._server.name, error=error)
            raise RuntimeError(f"the function failed with {type(error).__name__}") from error
