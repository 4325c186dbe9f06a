"""Listeners: subscriptions without a session (2026-07-28), and how changes reach them.

The changes that wait for a listener are bounded by its filter: a change that is not sent yet also stands for later
changes of the same name. No task waits for a listener (law 7). A listener that is too far behind is ended, and its
place is free at once.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Final

from limpet.core.changes import ChangeSet
from limpet.core.ledger import KEPT, Charge
from limpet.core.tasks import task_key
from limpet.engine.caller import Caller
from limpet.engine.delivery import Batch
from limpet.engine.runtime import Runtime
from limpet.engine.sessionless_client import SessionlessClient
from limpet.engine.wake import Wake
from limpet.errors import Busy, MissingCapability
from limpet.protocol.sessionless import TASKS
from limpet.protocol.subscriptions import (
    Change,
    Filter,
    Key,
    acknowledged_message,
    change_message,
    completed_message,
    read_filter,
)
from limpet.wire.jsonrpc import Request, RequestId

_ENTRY_BYTES: Final = 256
"""Bytes for one name in the tables that map changes to listeners."""
FLUSH_SECONDS: Final = 1.0
"""Seconds for which a server that stops waits for listeners to take their last message."""


class ListenerEnd(Enum):
    """Why a listener's stream ends."""

    STOPPED = "stopped"
    """The server ends it, with the completion result."""
    EXPIRED = "expired"
    """The caller's token has expired: the client authenticates again."""
    SLOW = "slow"
    """Too many changes wait for it. One was lost, so its connection is closed without a result."""
    LEFT = "left"
    """The client has cancelled it or has disconnected: nothing more is sent."""


class Listener:
    """One subscription: a source of messages that are in memory (`delivery.py`)."""

    __slots__ = ("_acknowledged", "_completed", "_waiting", "charge", "end", "filter", "on_slow", "owner",
                 "subscription", "wake")  # fmt: skip

    def __init__(
        self,
        subscription: RequestId,
        owner: str,
        honoured: Filter,
        limit: int,
        charge: Charge | None = None,
    ) -> None:
        self.subscription: RequestId = subscription
        self.owner: str = owner
        self.filter: Filter = honoured
        self.end: ListenerEnd | None = None
        self.wake: Wake = Wake()
        """Set when there is something to take, and when it has ended."""
        self.on_slow: Callable[[], None] | None = None
        """Called when it is too far behind, to end a write that waits for its client."""
        self._acknowledged = self._completed = False
        self._waiting = ChangeSet(limit)
        self.charge: Charge | None = charge
        """The memory that its filter takes."""

    def add(self, change: Change) -> bool:
        """Add a change; False if too many wait already."""
        if self.end is None:
            if not self._waiting.add(change):
                return False
            self.wake.set()
        return True

    def stop(self, end: ListenerEnd) -> None:
        """End it; the first reason counts."""
        if self.end is None:
            self.end = end
            self.wake.set()

    def check_end(self) -> bool:
        """True if the completion result was taken, or its connection gets no more messages."""
        return self._completed or self.end is ListenerEnd.SLOW or self.end is ListenerEnd.LEFT

    async def take(self) -> Batch | None:
        """Return the changes that wait.

        The first batch begins with the acknowledgement, the last ends with the completion.
        """
        messages = self.messages()
        return Batch(messages, finished=self._completed) if messages else None

    def written(self, batch: Batch) -> None:
        """Nothing to do: a change that was taken is forgotten."""

    async def wait(self, seconds: float | None) -> bool:
        """Wait for a change, or for the end. False: the time has passed without either."""
        return await self.wake.wait(seconds)

    def messages(self) -> list[bytes]:
        """Return the messages of the next batch."""
        if self.check_end():
            return []
        messages = [change_message(self.subscription, change) for change in self._waiting.take()]
        if not self._acknowledged:
            self._acknowledged = True
            messages.insert(0, acknowledged_message(self.subscription, self.filter))
        if self.end is not None:
            self._completed = True
            messages.append(completed_message(self.subscription))
        return messages


class Listening:
    """All listeners of this process, by the changes that they asked for."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._by_key: dict[Key, dict[Listener, None]] = {}
        self._listeners: dict[Listener, float | None] = {}
        """Each with the date at which its token expires."""
        self._owners: Counter[str] = Counter()
        self.task_ids: dict[str, str] = {}
        """Ids of the tasks that have listeners here, by the keys that the store's wake-ups name."""
        self._empty: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._listeners)

    async def open(
        self, client: SessionlessClient, request: Request, caller: Caller, expires: float | None = None
    ) -> Listener:
        """Begin to listen, until the date `expires` at the latest.

        Raises:
            InvalidParams: the filter is malformed.
            MissingCapability: it needs a capability that its client did not declare.
            InsufficientScope: the caller lacks the scope of a resource or task.
            Stopping: the server is stopping.
            Busy: there are too many listeners, of this principal or in total.
        """
        limits = self._runtime.settings.limits
        wanted = read_filter(request.params, limits.subscriptions, limits.subscription_bytes)
        if wanted.names.get("task") and not _knows_tasks(client):
            raise MissingCapability({"extensions": {TASKS: {}}})
        self._runtime.access.judge(request, caller)
        owner = client.record.principal
        self._check_room(owner, request, caller)
        honoured = await self._runtime.back.honoured(client, wanted, caller)
        # Other listeners may have been added while the back was asked.
        self._check_room(owner, request, caller)
        charge = self._charge(caller, honoured)
        listener = Listener(request.id, owner, honoured, limits.listener_changes, charge)
        self._add(listener, expires)
        return listener

    def _charge(self, caller: Caller, honoured: Filter) -> Charge:
        size = honoured.size + len(honoured.keys) * _ENTRY_BYTES
        charge = self._runtime.load.account_of(caller).take(size, light=KEPT)
        if charge is None:
            self._runtime.observer.note("listen.refused", listeners=len(self))
            raise Busy(
                "Busy: the filters of all listeners take too much memory; close one, or try again later",
                retry_after=30,
            )
        return charge

    def _check_room(self, owner: str, request: Request, caller: Caller) -> None:
        limits = self._runtime.settings.limits
        if self._runtime.refuses(request, caller):
            raise self._runtime.stopping()
        # Anonymous clients are not one principal: they share the places of the process.
        if len(self) >= limits.listeners or (owner and self._owners[owner] >= limits.listeners_per_principal):
            self._runtime.observer.note("listen.refused", listeners=len(self))
            raise Busy("Busy: too many listeners; close one, or try again later", retry_after=30)

    def _add(self, listener: Listener, expires: float | None) -> None:
        self._listeners[listener] = expires
        self._owners[listener.owner] += 1
        for key in listener.filter.keys:
            self._by_key.setdefault(key, {})[listener] = None
            if key[0] == "task":
                self.task_ids[task_key(key[1])] = key[1]

    def send(self, change: Change, principal: str | None = None) -> None:
        """Add a change to the listeners that asked for it, or only to those of one principal. Does not wait."""
        for listener in list(self._by_key.get(change.key, ())):
            if principal is not None and listener.owner != principal:
                continue
            if not listener.add(change):
                self._drop(listener)

    def send_all(self) -> None:
        """Report every change that listeners asked for: some were missed.

        The states of tasks are compared elsewhere.
        """
        for kind, name in list(self._by_key):
            if kind != "task":
                self.send(Change(kind, name))

    def keys_of(self, principal: str) -> set[Key]:
        """Return the changes that the listeners of a principal asked for."""
        return {
            key for listener in self._listeners if listener.owner == principal for key in listener.filter.keys
        }

    def owners(self, key: Key) -> set[str]:
        """Return the principals that listen for a change."""
        return {listener.owner for listener in self._by_key.get(key, ())}

    def _drop(self, listener: Listener) -> None:
        self._runtime.observer.note("listen.dropped", waiting=self._runtime.settings.limits.listener_changes)
        listener.stop(ListenerEnd.SLOW)
        self.leave(listener)
        if listener.on_slow is not None:
            listener.on_slow()

    def leave(self, listener: Listener) -> None:
        """Free a listener's place. Safe to call twice."""
        listener.stop(ListenerEnd.LEFT)
        if listener not in self._listeners:
            return
        del self._listeners[listener]
        if listener.charge is not None:
            listener.charge.free()
        self._owners[listener.owner] -= 1
        if not self._owners[listener.owner]:
            del self._owners[listener.owner]
        for key in listener.filter.keys:
            self._by_key[key].pop(listener)
            if not self._by_key[key]:
                del self._by_key[key]
                self.task_ids.pop(task_key(key[1]), None)
        if self._empty is not None and not self._listeners:
            self._empty.set()

    # Beginning and ending

    async def sweep(self) -> None:
        """End the listeners whose token has expired: their clients authenticate again."""
        now = self._runtime.clock.wall()
        for listener, expires in self._listeners.items():
            if expires is not None and expires <= now:
                listener.stop(ListenerEnd.EXPIRED)

    async def stop(self) -> None:
        """End the listeners, and wait a moment for them to take the completion result.

        No more are accepted from now on.

        Called before anything waits for handlers: a listener never ends by itself.
        """
        for listener in self._listeners:
            listener.stop(ListenerEnd.STOPPED)
        if self._listeners:
            self._empty = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._empty.wait()


def _knows_tasks(client: SessionlessClient) -> bool:
    extensions = client.capabilities.get("extensions")
    return isinstance(extensions, dict) and TASKS in extensions
