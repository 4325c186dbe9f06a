"""The actions of a back outside of any exchange; the contract is `engine.back.Outside`."""

from collections.abc import Callable
from typing import Any

from limpet.core.ledger import KEPT, WORK, Charge
from limpet.core.lifecycle import SessionInput
from limpet.engine.caller import Caller
from limpet.engine.home import Homes
from limpet.engine.listening import Listening
from limpet.engine.runtime import Runtime
from limpet.engine.sessions import Sessions
from limpet.errors import LifespanEnded
from limpet.protocol.subscriptions import Change, Key
from limpet.stores.base import SessionRecord


class EngineOutside:
    """Reaches the clients of an engine for its back."""

    __slots__ = ("_homes", "_listening", "_runtime", "_sessions", "failed")

    def __init__(
        self,
        runtime: Runtime,
        sessions: Sessions,
        listening: Listening,
        homes: Homes | None,
        failed: Callable[[LifespanEnded], None],
    ) -> None:
        self._runtime = runtime
        self._homes = homes
        self._sessions = sessions
        self._listening = listening
        self.failed: Callable[[LifespanEnded], None] = failed
        """Reports that the back cannot answer any more."""

    async def notify(self, key: str, method: str, params: object) -> None:
        """Send a notification on the standalone stream of a session."""
        await self._sessions.push(key, method, params)

    def changed(self, change: Change, principal: str | None = None) -> None:
        """Report a change to sessions and listeners; with a principal, only to its own."""
        _ = self._sessions.changes.report(change, principal)

    def changed_for(self, key: str, change: Change) -> None:
        """Report a change to one session."""
        self._sessions.changes.for_session(key, change)

    async def ask(self, record: SessionRecord, method: str, params: object) -> Any:
        """Ask the client of a session on its standalone stream."""
        session = self._runtime.local_session(record)
        try:
            return await self._sessions.ask(session, method, params)
        finally:
            self._runtime.release(session)

    def is_read(self, key: str) -> bool:
        """Return True if a connection to this process reads a session's standalone stream, or carries all messages."""
        session = self._runtime.sessions.get(key)
        if session is None or session.duplex is not None:
            return session is not None
        return any(reader.end is None for reader in session.readers.get(session.record.standalone, ()))

    def listened(self, principal: str) -> set[Key]:
        """Return the changes that the present listeners of a principal asked for."""
        return self._listening.keys_of(principal)

    def charge(self, caller: Caller, size: int, *, urgent: bool = False) -> Charge | None:
        """Take memory for something that the back keeps for a caller; if it is urgent, for a call that runs."""
        account = self._runtime.load.account_of(caller)
        return account.take(size, urgent=urgent, light=WORK if urgent else KEPT)

    def close(self, key: str) -> None:
        """Close a session soon, also if nothing of it runs in this process."""
        self._runtime.spawn(self._sessions.close_key(key, SessionInput.SHUTDOWN))

    async def confirm_home(self, key: str) -> bool:
        """Return True if this process must still keep the back's data for a session."""
        return self._homes is None or await self._homes.confirm_home(key)

    async def subscriptions(self, key: str) -> list[str]:
        """Return the resources that a session subscribed to."""
        return await self._runtime.store.subscriptions(key)
