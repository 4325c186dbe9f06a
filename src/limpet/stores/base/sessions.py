"""Sessions: opened, found, changed, closed once; and the resources that a session wants updates of.

A session is open until it is closed. The store closes it when it is due (`sweep`) or when its principal needs the place
(`open`), the engine closes it for every other reason (`close`). It is due in these cases:

- A detached session ends `grace` seconds after the later of its break and its last settled exchange (GRACE_OVER).
- A session without a reader ends `idle` seconds after the last sign of its client (IDLE). Signs are `open`, `find`,
  `claim`, `settle`, `attach` and `detach`. A reader that stays keeps the session from becoming idle.
- Every session ends `lifetime` seconds after `open` (EXPIRED), also with a reader. If two are due, the earlier counts.
- An exchange in flight defers all of them: work counts as life (law 8). The session ends soon after the work.

`limpet.core.rules.clock.SessionClock.due` computes this.
"""

from typing import Final, Protocol

from limpet.core.lifecycle import SessionInput
from limpet.core.records import Closed, Ending, Found, Refusal, SessionRecord, Status
from limpet.core.rules import life
from limpet.core.rules.document import Document, replica_of
from limpet.core.rules.state import growth
from limpet.stores.backend import Backend

LINGER_SECONDS: Final = 10.0
"""How long a stream of a closed session stays readable for the reader that it had."""
LINGER_SHARE: Final = 8
"""Such streams have at most this part of `Limits.streams_bytes`, in addition to it. Beyond that, the oldest go."""


class SessionPart(Backend, Protocol):
    """The calls for sessions."""

    async def open(self, record: SessionRecord, *, evict: bool) -> list[Closed] | Refusal:
        """Keep a new session. Returns the sessions that were evicted for it, or FULL.

        There is no room if the store has `Limits.sessions`, or, with `evict`, the principal has
        `Limits.sessions_per_principal`. With `evict`, one session of the same principal is closed to make room. Only
        a session without an exchange in flight and without a reader is a candidate; the one whose client was silent
        for the longest time is chosen. A session of another principal is never evicted. If the key is open already,
        nothing changes and an empty list is returned.
        """

    async def find(self, key: str, principal: str) -> Found | None:
        """Return the session and record a sign of its client. None if it is unknown, closed or another principal's."""
        return await self.apply(key, None, life.find, principal, self.now())

    async def look(self, key: str) -> Status | None:
        """Return an open session; None if no session is open under the key.

        The engine also uses it to see whether a session is open. Nothing of it reaches a client.
        """
        return await self.apply(key, None, life.look, self.now())

    async def change(self, key: str, *, level: str | None = None, initialized: bool | None = None) -> None:
        """Set the fields of the record that are not None. An unknown or closed session is ignored."""
        await self.apply(key, None, life.change, level, initialized)

    async def close(self, key: str, reason: SessionInput, ending: Ending | None = None) -> Closed | None:
        """Close a session and forget everything of it; send CLOSED, also to its home. None if it is unknown or closed.

        Every exchange in flight ends in the same step, with `ending` as the last event of its stream if it has one.
        From now on each call for the session answers as for an unknown one, with one exception: a stream that has a
        reader now, and that is complete now, can still be `read` for LINGER_SECONDS, at any replica. All such
        streams together have at most one part in LINGER_SHARE of `Limits.streams_bytes`; the oldest are deleted first.
        A session opened later under the same key cannot `attach` to them.
        """
        return await self.end(key, lambda _: reason, ending)

    async def sweep(self) -> list[Closed]:
        """Close the sessions that are due and forget everything else whose time is over.

        Each closed session is returned by one call only, even if several callers sweep at once.
        """
        closed: list[Closed] = []
        for key in await self.due():
            ended = await self.end(key, self._examine)
            if ended is not None:
                closed.append(ended)
        return closed

    def _examine(self, doc: Document) -> SessionInput | None:
        return life.examine(doc, self.now())

    async def sessions(self, principal: str | None = None) -> list[str]:
        """Return the keys of all open sessions, or of the open sessions of one principal."""

    async def subscribe(self, key: str, uri: str) -> bool:
        """Subscribe the session to the updates of a resource. A second call changes nothing and returns True.

        False if the session is unknown or closed, or at a limit: `Limits.subscriptions`,
        `Limits.subscription_bytes` in UTF-8, or its principal's total (`limpet.core.rules.state`).
        """
        cost, spare = growth(None, len(uri.encode())), await self.spare_kept(key)
        return await self.apply(key, False, life.subscribe, uri, cost, self._limits, spare)  # noqa: FBT003

    async def unsubscribe(self, key: str, uri: str) -> None:
        """End a subscription. An unknown one is ignored."""
        await self.apply(key, False, life.unsubscribe, uri, growth(None, len(uri.encode())))  # noqa: FBT003

    async def subscribers(self, uri: str) -> list[str]:
        """Return the keys of the open sessions that want updates of a resource."""

    async def take_home(self, key: str, expected: str) -> SessionRecord | None:
        """Make this replica the home of a session if its home is `expected`. Not a sign of the client.

        Returns the record as it is now: its home is this replica, or another one that was faster. None if the session
        is unknown or closed. With this replica as `expected` nothing changes: the caller learns the home.
        """
        return await self.apply(key, None, life.take_home, expected, replica_of(self.me))

    async def subscriptions(self, key: str) -> list[str]:
        """Return the resources that a session subscribed to, for its new home. Empty if it is unknown or closed."""
        return sorted(await self.apply(key, frozenset[str](), life.subscriptions))
