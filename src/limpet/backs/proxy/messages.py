"""The messages of the server that are no answers, and the call, session or listener that receives each of them.

If the server does not name the call, and several calls are in flight or none, a notification goes to the session's
standalone stream; for a client of 2026-07-28 it is dropped. For requests of the server see questions.py.
"""

from typing import Final

import msgspec

from limpet.backs.proxy.call import Call
from limpet.backs.proxy.calls import Calls
from limpet.backs.proxy.clients import Clients
from limpet.backs.proxy.outbox import Outbox, Space
from limpet.backs.proxy.subscriptions import Subscriptions
from limpet.backs.proxy.translation import without_subscription
from limpet.engine.back import Outside
from limpet.ports import Observer
from limpet.protocol.subscriptions import REPORTED, TOPICS, Change, all_changes, list_kinds
from limpet.upstream.negotiation import Agreed
from limpet.upstream.pending import OutgoingRequest
from limpet.wire.jsonrpc import Notification

_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"


class ServerMessages:
    """Passes the notifications of one server on."""

    def __init__(
        self,
        calls: Calls,
        clients: Clients,
        subscriptions: Subscriptions,
        outside: Outside,
        space: Space,
        observer: Observer,
    ) -> None:
        self._calls = calls
        self._clients = clients
        self._subscriptions = subscriptions
        self._outside = outside
        self._outbox = Outbox(self._send_outside, space, observer)
        self._agreed: Agreed | None = None

    def use(self, agreed: Agreed) -> None:
        """Know the lists of the server."""
        self._agreed = agreed

    def close(self) -> None:
        """Drop the messages that wait for a slow client."""
        self._outbox.close()

    def take(self, notification: Notification, origin: OutgoingRequest | None) -> None:
        """Pass a notification on. `origin` is our request whose response carried it."""
        method, params = notification.method, notification.params
        if method == _ACKNOWLEDGED:
            if self._subscriptions.acknowledged():
                self.all_changed()
        elif method == "notifications/cancelled":
            return  # the connection has cancelled the question
        elif (kind := REPORTED.get(method)) is not None:
            detail = without_subscription(params)
            uri = detail.pop("uri", "") if TOPICS[kind].name else ""
            self._report(Change(kind, str(uri), detail))
        elif (call := self._call_of(origin)) is not None:
            call.send(method, params)
        elif self._clients.record is not None:
            self._outbox.put(method, params)

    def _call_of(self, origin: OutgoingRequest | None) -> Call | None:
        """Return the call of a message; None if it is not known."""
        if origin is not None:
            owner = origin.owner
            return owner if isinstance(owner, Call) and owner in self._calls.running else None
        candidates = [call for call in self._calls.running if call.may_ask]
        return candidates[0] if len(candidates) == 1 else None

    async def _send_outside(self, method: str, params: msgspec.Raw) -> None:
        """Send a message that belongs to no call to the session."""
        if self._clients.record is not None:
            await self._outside.notify(self._clients.record.key, method, params)

    # Changes

    def _report(self, change: Change) -> None:
        self._calls.changed(change.kind)
        subscriptions = self._subscriptions
        is_wanted = not change.name or subscriptions.has(change.name)
        self._clients.report(change, subscriptions.sessions(change.name), is_wanted=is_wanted)

    def resources_changed(self) -> None:
        """Report a change of every subscribed resource. Not of lists: some servers' streams break every minute."""
        for change in all_changes((), self._subscriptions.uris):
            self._report(change)

    def all_changed(self) -> None:
        """Report a change of every list, and of every resource that is subscribed to: one may have been missed."""
        kinds = list_kinds(self._agreed.capabilities) if self._agreed is not None else ()
        for change in all_changes(kinds, self._subscriptions.uris):
            self._report(change)
