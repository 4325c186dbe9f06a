"""Changes of lists and resources on their way to clients: none is lost, and no sender waits for a client.

    a server, a back          Changes                                       clients
    ────────────────          ──────────────────────────────────────        ────────────────────────────────────────────
    report(change)     ──▶    spread: announce it, find the sessions  ──▶   listeners of every process (`listening.py`)
                                    │
    for_session(change) ──────▶  the set of one session               ──▶   its standalone stream (`standalone.py`)

A change says that something is different now; it does not say what. So equal changes that wait are one, and a set of
them (`core/changes.py`) is bounded by what its client has subscribed to. Each session that cannot take its changes at
once has such a set, and a task that sends it and ends when it is empty. The task waits for an unavailable store, and
for a client that reads slowly; other sessions do not wait for it (law 7). A change is taken out of the set before it is
sent: an equal change that comes meanwhile may be newer than what the client reads, so it is sent too.

When a change could be lost, `missed` takes its place: all lists of the session and all resources that it has subscribed
to are reported as changed. This happens

    - if a set is full. That needs changes of resources that the session has not subscribed to: some servers send them;
    - if events of the session's log were dropped before its client has read them: the reader finds the gap.

The messages of a set go to the log in parts that are small against it, and the task waits for a reader that is half a
log behind. So they cannot push each other out of the log of a client that reads.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from limpet.core.changes import ChangeSet
from limpet.engine.listening import Listening
from limpet.engine.outages import retried
from limpet.engine.runtime import Runtime
from limpet.engine.session import HIDDEN
from limpet.engine.standalone import Standalone
from limpet.errors import LimpetError, StoreUnavailable
from limpet.protocol.subscriptions import TOPICS, Change, Key, all_changes, encode_change
from limpet.wire.jsonrpc import notification_message

_PART: Final = 64
"""Messages of one append."""


class Changes:
    """The changes that have not reached the streams of their clients yet."""

    def __init__(self, runtime: Runtime, standalone: Standalone, listening: Listening) -> None:
        self._runtime = runtime
        self._standalone = standalone
        self._listening = listening
        self._sets: dict[str, _Waiting] = {}
        """By session. An entry exists as long as its task."""
        self._reports: dict[tuple[Key, str | None], tuple[Change, asyncio.Future[None]]] = {}
        """The changes that are not spread yet, by key and principal."""
        self._is_spreading = False

    def __repr__(self) -> str:
        return f"<Changes of {len(self._sets)} sessions, {len(self._reports)} reports>"

    async def send(self, key: str, change: Change) -> None:
        """Report a change to one session: at once if possible, so that it comes before the messages that follow it."""
        if key not in self._sets and not self._standalone.is_late(key):
            try:
                await self._standalone.append(key, [_message(change)], patience=0)
            except StoreUnavailable:
                pass
            else:
                return
        self.for_session(key, change)

    def for_session(self, key: str, change: Change) -> None:
        """Report a change to one session. Does not wait."""
        waiting = self._waiting(key)
        if not waiting.changes.add(change) and not waiting.is_everything:
            self._runtime.observer.note("changes.merged", session=key[:8])
            waiting.is_everything = True

    def missed(self, key: str) -> None:
        """Report to one session that everything may have changed. Does not wait."""
        self._waiting(key).is_everything = True

    def report(self, change: Change, principal: str | None = None) -> asyncio.Future[None]:
        """Report a change to the sessions and listeners that asked for it, or only to those of one principal.

        Does not wait. The result is done when the change is on its way to each of them.
        """
        name = change.key, principal
        known = self._reports.get(name)
        spread = asyncio.get_running_loop().create_future() if known is None else known[1]
        self._reports[name] = change, spread
        if not self._is_spreading:
            self._is_spreading = True
            self._runtime.spawn(self._spread())
        return spread

    # To all

    async def _spread(self) -> None:
        try:
            while self._reports:
                name = next(iter(self._reports))
                change, spread = self._reports.pop(name)
                try:
                    await self._spread_one(change, name[1])
                except LimpetError as error:
                    self._runtime.observer.note("changes.failed", error=error)
                finally:
                    if not spread.done():
                        spread.set_result(None)
        finally:
            self._is_spreading = False

    async def _spread_one(self, change: Change, principal: str | None) -> None:
        store = self._runtime.store
        if store.is_shared:
            name, event = self._runtime.random.token(12), encode_change(change, principal)
            await retried(lambda: store.announce(name, event))
        else:
            self._listening.send(change, principal)
        message = _message(change)
        for key in await retried(lambda: self._concerned(change, principal)):
            # A session whose changes wait, or whose client may be behind, must not delay the others.
            if key in self._sets or self._standalone.may_wait(key):
                self.for_session(key, change)
            else:
                await self._standalone.append(key, [message])

    async def _concerned(self, change: Change, principal: str | None) -> Iterable[str]:
        """Return the sessions that receive a change: those that a list is for, or that subscribed to a resource.

        Sessions do not share a resource of one principal: a back that has such resources calls `for_session` itself.
        The
        store names the sessions: where it is shared, a session may live in no process between two requests.
        """
        store = self._runtime.store
        if change.kind == "resource":
            return await store.subscribers(change.name) if principal is None else ()
        return (
            ()
            if TOPICS[change.kind].name
            else [key for key in await store.sessions(principal) if not key.startswith(HIDDEN)]
        )

    # To one session

    def _waiting(self, key: str) -> "_Waiting":
        waiting = self._sets.get(key)
        if waiting is None:
            limits = self._runtime.settings.limits
            changes = ChangeSet(limits.subscriptions + len(TOPICS), limits.subscription_bytes)
            waiting = self._sets[key] = _Waiting(changes)
            self._runtime.spawn(self._send(key, waiting))
        return waiting

    async def _send(self, key: str, waiting: "_Waiting") -> None:
        """Send the changes of a session until none waits, or the session is gone."""
        try:
            while messages := [_message(change) for change in await self._take(key, waiting)]:
                for part in self._parts(messages):
                    await self._standalone.room(key)
                    if not await self._standalone.append(key, part):
                        return
        finally:
            del self._sets[key]

    async def _take(self, key: str, waiting: "_Waiting") -> list[Change]:
        if not waiting.is_everything:
            return waiting.changes.take(_PART)
        waiting.is_everything = False
        uris = await retried(lambda: self._runtime.store.subscriptions(key))
        everything = all_changes(self._runtime.back.lists(key), uris)
        return list({change.key: change for change in (*everything, *waiting.changes.take())}.values())

    def _parts(self, messages: list[bytes]) -> Iterable[list[bytes]]:
        """Divide messages into parts of at most an eighth of a log, so that the wait for a reader comes in time."""
        limits = self._runtime.settings.limits
        most, most_bytes = min(_PART, max(1, limits.stream_events // 8)), limits.stream_bytes // 8
        part: list[bytes] = []
        size = 0
        for message in messages:
            if part and (len(part) >= most or size + len(message) > most_bytes):
                yield part
                part, size = [], 0
            part.append(message)
            size += len(message)
        if part:
            yield part


class _Waiting:
    """The changes of one session."""

    __slots__ = ("changes", "is_everything")

    def __init__(self, changes: ChangeSet) -> None:
        self.changes = changes
        self.is_everything = False
        """True if everything must be reported as changed."""


def _message(change: Change) -> bytes:
    return notification_message(TOPICS[change.kind].method, change.params or None)
