"""What a client is told of by itself: changes, coalesced. Pure but for the waking.

A change says that something is different, not how: two of the same that nobody has read yet are one.
So what waits for a slow reader is bounded by what it listens to.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final, Literal

from msgspec import Struct

Kind = Literal["tools", "prompts", "resources", "resource"]
KINDS: Final[dict[str, Kind]] = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
    "notifications/resources/updated": "resource",
}
FILTERS: Final[dict[Kind, str]] = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}


class Change(Struct, frozen=True, kw_only=True):
    """Something the server offers is different now."""

    kind: Kind
    """A list (tools, prompts, resources), or one resource."""
    uri: str = ""
    missed: bool = False
    """The connection was broken meanwhile: it may have changed."""


class Listener:
    """One reader's changes."""

    def __init__(self, kinds: Iterable[Kind], uris: Iterable[str]) -> None:
        self.kinds: frozenset[Kind] = frozenset(kinds)
        self.uris: frozenset[str] = frozenset(uris)
        self._waiting: OrderedDict[Change, None] = OrderedDict()
        self._arrived = asyncio.Event()
        self._failure: Exception | None = None
        self._known = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Listener {sorted(self.kinds)}, {len(self.uris)} resources, {len(self._waiting)} waiting>"

    def wants(self, change: Change) -> bool:
        # A resource's update may name a part of what was subscribed to.
        if change.kind == "resource":
            return any(change.uri.startswith(uri) for uri in self.uris)
        return change.kind in self.kinds

    def offer(self, change: Change) -> None:
        """Take a change, if it is wanted."""
        if self.wants(change):
            self._waiting[change] = None
            self._arrived.set()

    def missed(self) -> None:
        """Take note that everything may have changed."""
        for kind in self.kinds:
            self.offer(Change(kind=kind, missed=True))
        for uri in self.uris:
            self.offer(Change(kind="resource", uri=uri, missed=True))

    def fail(self, error: Exception) -> None:
        """End with an error."""
        self._failure = error
        self._arrived.set()
        self._known.set()

    def acknowledge(self) -> None:
        """The server listens to what we listen to."""
        self._known.set()

    async def acknowledged(self) -> None:
        """Wait until the server knows, or cannot be told."""
        await self._known.wait()

    async def next(self) -> Change:
        """Wait for the next change."""
        while not self._waiting:
            if self._failure is not None:
                raise self._failure
            self._arrived.clear()
            await self._arrived.wait()
        return self._waiting.popitem(last=False)[0]

    def filter(self) -> dict[str, Any]:
        """Return what `subscriptions/listen` is asked for."""
        asked: dict[str, Any] = {FILTERS[kind]: True for kind in self.kinds}
        if self.uris:
            asked["resourceSubscriptions"] = sorted(self.uris)
        return asked


def change_of(method: str, params: dict[str, Any]) -> Change | None:
    """Return the change a notification tells of, if it tells of one."""
    kind = KINDS.get(method)
    if kind is None:
        return None
    uri = params.get("uri")
    return Change(kind=kind, uri=uri if kind == "resource" and isinstance(uri, str) else "")
