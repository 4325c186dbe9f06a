"""Listeners of session events: `@server.on_opened` and similar. Their exceptions are logged and not sent to clients."""

import inspect
from collections.abc import Callable
from typing import Any, Final

from limpet.engine.author_errors import ends_the_task
from limpet.ports import Observer
from limpet.server.context.session_view import SessionView
from limpet.server.functions.signature import is_async
from limpet.server.functions.threads import in_thread

EVENTS: Final = ("opened", "detached", "reattached", "closed", "roots_changed")
SessionListener = Callable[..., Any]
"""Takes the session, and for `closed` the reason if it has a second parameter. Plain functions run in a thread."""


class SessionListeners:
    """Listeners by event, in the order they were added."""

    def __init__(self) -> None:
        self._hooks: dict[str, list[tuple[SessionListener, int]]] = {event: [] for event in EVENTS}

    def add(self, event: str, hook: SessionListener) -> None:
        """Add a listener."""
        try:
            taken = len(inspect.signature(hook).parameters)
        except ValueError:
            taken = 1
        self._hooks[event].append((hook, taken))

    def has(self, event: str) -> bool:
        """Return True if the event has a listener."""
        return bool(self._hooks[event])

    async def call(self, event: str, session: SessionView, *reason: str, observer: Observer) -> None:
        """Call each listener of the event in order; log their exceptions."""
        for hook, taken in self._hooks[event]:
            arguments = (session, *reason)[:taken]
            try:
                if is_async(hook):
                    await hook(*arguments)
                else:
                    await in_thread(hook, *arguments)
            except BaseException as error:  # a failing listener must not stop the others
                if ends_the_task(error):
                    raise
                observer.note("listener.failed", session=session.name, event_name=event, error=error)
