"""Subscriptions in the memory store: the sessions that want updates of a resource."""

from collections import defaultdict

from holdfast.stores.kept import Kept, growth
from holdfast.stores.memory.sessions import SessionTable


class SubscriptionMethods(SessionTable):
    """subscribe, unsubscribe, subscriptions, subscribers."""

    _kept: Kept

    def __init__(self) -> None:
        super().__init__()
        self._subscribers: defaultdict[str, set[str]] = defaultdict(set)

    async def subscribe(self, key: str, uri: str) -> bool:
        """Remember a subscription."""
        session = self._sessions.get(key)
        if session is None:
            return False
        if uri not in session.subscriptions:
            size = sum(len(known.encode()) for known in (*session.subscriptions, uri))
            if (
                len(session.subscriptions) >= self._limits.subscriptions
                or size > self._limits.subscription_bytes
            ):
                return False
            if not session.keep(growth(None, len(uri.encode())), self._kept):
                return False
            session.subscriptions |= {uri}
            self._subscribers[uri].add(key)
        return True

    async def unsubscribe(self, key: str, uri: str) -> None:
        """Forget a subscription."""
        session = self._sessions.get(key)
        if session is not None and uri in session.subscriptions:
            session.subscriptions -= {uri}
            session.keep(growth(len(uri.encode()), None), self._kept)
        self._forget_subscriber(uri, key)

    async def subscriptions(self, key: str) -> list[str]:
        """Return the resources that a session subscribed to."""
        session = self._sessions.get(key)
        return sorted(session.subscriptions) if session is not None else []

    async def subscribers(self, uri: str) -> list[str]:
        """Return the keys of the sessions that have subscribed."""
        return list(self._subscribers.get(uri, ()))

    def _forget_subscriber(self, uri: str, key: str) -> None:
        keys = self._subscribers.get(uri)
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self._subscribers[uri]
