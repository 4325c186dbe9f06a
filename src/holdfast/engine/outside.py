"""What a back may do outside of any exchange; the contract is `engine.back.Outside`."""

from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.core.lifecycle import Input
from holdfast.engine.listening import Listening
from holdfast.engine.runtime import Runtime
from holdfast.engine.sessions import Sessions
from holdfast.protocol.subscriptions import Change, Key
from holdfast.stores.base import SessionRecord

Changed = Callable[[Change, str | None], Awaitable[None]]


class EngineOutside:
    """Reaches the clients of an engine for its back."""

    __slots__ = ("_changed", "_listening", "_runtime", "_sessions")

    def __init__(self, runtime: Runtime, sessions: Sessions, listening: Listening, changed: Changed) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._listening = listening
        self._changed = changed

    async def notify(self, key: str, method: str, params: object) -> None:
        """Send a notification on the standalone stream of a session."""
        await self._sessions.push(key, method, params)

    async def changed(self, change: Change, principal: str | None = None) -> None:
        """Report a change to sessions and listeners; with a principal, only to its own."""
        await self._changed(change, principal)

    async def ask(self, record: SessionRecord, method: str, params: object) -> Any:
        """Ask the client of a session on its standalone stream."""
        session = self._runtime.local_session(record)
        try:
            return await self._sessions.ask(session, method, params)
        finally:
            self._runtime.release(session)

    def listened(self, principal: str) -> set[Key]:
        """Return what the present listeners of a principal listen for."""
        return self._listening.keys_of(principal)

    def close(self, key: str) -> None:
        """Close a session that lives here, soon."""
        session = self._runtime.sessions.get(key)
        if session is not None:
            self._runtime.spawn(self._sessions.close(session, Input.SHUTDOWN))
