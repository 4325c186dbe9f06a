"""What the parts of the engine share: the things passed in, the live sessions, the tasks."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from holdfast.config import Settings
from holdfast.engine.back import Back
from holdfast.engine.load import Load
from holdfast.engine.session import Channel, Session
from holdfast.ports import Clock, Observer, Random
from holdfast.protocol.quirks import Quirks
from holdfast.stores.base import SessionRecord, Store


class Runtime:
    """One engine's world."""

    __slots__ = (
        "back",
        "clock",
        "load",
        "observer",
        "on_gone",
        "quirks",
        "random",
        "sessions",
        "settings",
        "store",
        "tasks",
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
        quirks: Mapping[str, Quirks],
    ) -> None:
        self.back = back
        self.settings = settings
        self.load = Load(settings.limits)
        self.store = store
        self.clock = clock
        self.random = random
        self.observer = observer
        self.quirks = quirks
        self.sessions: dict[str, Session] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.on_gone: Callable[[Session], None] = lambda _: None
        """Called with a session that was found to be closed by another replica."""

    def adopt(self, record: SessionRecord, channel: Channel | None = None) -> Session:
        """Return what lives here of a session, beginning it if nothing did."""
        session = self.sessions.get(record.key)
        if session is None:
            session = self.sessions[record.key] = Session(record, self.settings, channel)
        elif self.store.is_shared:
            # Another replica may have changed it.
            session.record = record
        return session

    def release(self, session: Session) -> None:
        """Forget a session of which nothing lives here, where the store is shared: any replica may have the next request."""
        if self.store.is_shared and session.is_quiet and self.sessions.get(session.record.key) is session:
            del self.sessions[session.record.key]

    def returned(self, session: Session) -> None:
        """Tell that a detached session came back."""
        self.observer.note("session.reattached", session=session.name)
        session.tell(lambda: self.back.reattached(session))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something on its own; the engine keeps hold of it and ends it with itself."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Nobody waits for it: only the log can tell.
            self.observer.note("work.failed", error=error)

    async def finish(self, seconds: float) -> None:
        """Wait for everything that was spawned, and what that spawns; after so long, end what is left."""
        now = asyncio.get_running_loop().time
        deadline = now() + seconds
        while self.tasks and now() < deadline:
            await asyncio.wait(self.tasks, timeout=deadline - now())
        for task in self.tasks:
            task.cancel()
