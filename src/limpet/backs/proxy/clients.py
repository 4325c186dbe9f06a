"""The clients that one upstream serves, and who of them learns of a change at the server."""

from limpet.backs.proxy.target import UpstreamClient
from limpet.engine.back import Outside
from limpet.protocol.subscriptions import Change
from limpet.stores.base import SessionRecord


class Clients:
    """One session; or the clients of principals, and the sessions that share the upstream."""

    def __init__(self, client: UpstreamClient, outside: Outside) -> None:
        self.first: UpstreamClient = client
        """The one for which the upstream was opened."""
        self.record: SessionRecord | None = None
        """Its session, after it was stored."""
        self.sessions: set[str] = set()
        """The keys of the sessions that share it."""
        self.principals: set[str] = {client.caller.key}
        """The keys of the principals that have used it."""
        self._outside = outside

    @property
    def may_listen(self) -> bool:
        """True if one of them may wait for changes."""
        return bool(self.first.session or self._outside.listened(self.first.caller.key))

    def report(self, change: Change, sessions: list[str], *, is_wanted: bool) -> None:
        """Report a change to the session.

        Or, if it `is_wanted`, to these sessions and to the listeners of the principals.
        """
        if self.record is not None:
            self._outside.changed_for(self.record.key, change)
        elif not self.first.session and is_wanted:
            for session in sessions:
                self._outside.changed_for(session, change)
            for principal in self.principals:
                self._outside.changed(change, principal)

    def close(self) -> None:
        """Close their sessions: the server has lost its own, and they are strict."""
        for key in {*self.sessions, *([self.record.key] if self.record is not None else ())}:
            self._outside.close(key)
