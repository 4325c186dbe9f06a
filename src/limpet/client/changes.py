"""A change that the server reports, and the unread changes of one reader: a list or a resource is different now.

A change does not contain the difference. So two equal changes that were not read yet are kept once, and the number of
unread changes is limited by the kinds that the reader listens to.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from limpet.protocol.subscriptions import REPORTED, TOPICS, ComponentKind


class Change(Struct, frozen=True, kw_only=True):
    """A list or a resource of the server has changed."""

    kind: ComponentKind
    """A list (tools, prompts, resources), or one resource."""
    uri: str = ""
    missed: bool = False
    """True if the connection was broken: it may have changed meanwhile."""


class UnreadChanges:
    """The unread changes of one reader."""

    def __init__(self, kinds: Iterable[ComponentKind], uris: Iterable[str]) -> None:
        self.kinds: frozenset[ComponentKind] = frozenset(kinds)
        self.uris: frozenset[str] = frozenset(uris)
        self.subscribed: set[str] = set()
        """Those of them that this listener holds a subscription to."""
        self._waiting: OrderedDict[Change, None] = OrderedDict()
        self._arrived = asyncio.Event()
        self._failure: Exception | None = None
        self._known = asyncio.Event()

    def wants(self, change: Change) -> bool:
        # The update may name a part of the subscribed resource.
        if change.kind == "resource":
            return any(change.uri.startswith(uri) for uri in self.uris)
        return change.kind in self.kinds

    def offer(self, change: Change) -> None:
        """Add a change if the reader listens to it."""
        if self.wants(change):
            self._waiting[change] = None
            self._arrived.set()

    def missed(self) -> None:
        """Report that everything may have changed."""
        for kind in self.kinds:
            self.offer(Change(kind=kind, missed=True))
        for uri in self.uris:
            self.offer(Change(kind="resource", uri=uri, missed=True))

    def fail(self, error: Exception) -> None:
        """End with an error."""
        self._failure = error
        self._arrived.set()
        self._known.set()

    @property
    def has_failed(self) -> bool:
        """True after `fail`: no change comes any more."""
        return self._failure is not None

    def acknowledge(self) -> None:
        """Note that the server has confirmed the subscription."""
        self._known.set()

    async def acknowledged(self) -> None:
        """Wait until the server has confirmed the subscription, or listening has failed."""
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
        """Return the filter for `subscriptions/listen`."""
        asked: dict[str, Any] = {TOPICS[kind].member: True for kind in self.kinds}
        if self.uris:
            asked[TOPICS["resource"].member] = sorted(self.uris)
        return asked

    def missing_in(self, honoured: Mapping[str, Any]) -> str:
        """Return the parts of the filter that the server has not agreed to, for a log line.

        Empty if it has agreed to all.
        """
        uris = honoured.get(TOPICS["resource"].member)
        agreed = (
            frozenset(uri for uri in uris if isinstance(uri, str)) if isinstance(uris, list) else frozenset()
        )
        lists = [kind for kind in sorted(self.kinds) if honoured.get(TOPICS[kind].member) is not True]
        return ", ".join([*lists, *sorted(self.uris - agreed)])


def change_of(method: str, params: dict[str, Any]) -> Change | None:
    """Return the change that a notification reports; None if it reports none."""
    kind = REPORTED.get(method)
    if kind is None:
        return None
    uri = params.get("uri")
    return Change(kind=kind, uri=uri if kind == "resource" and isinstance(uri, str) else "")
