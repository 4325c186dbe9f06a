"""`SessionView`: a session as authors see it. It describes the client and sends notifications outside requests.

A client of 2026-07-28 has no session: its info, capabilities and version can be read here too, and all other
members raise `NoSession`.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

import msgspec

from limpet.errors import NoSession
from limpet.protocol.types import (
    LOGGING_LEVELS,
    ClientCapabilities,
    ElicitationCompleteParams,
    Implementation,
    LoggingLevel,
    LoggingMessageParams,
)
from limpet.protocol.versions import SESSIONLESS
from limpet.server.context.state import State
from limpet.server.functions.content import jsonable
from limpet.server.host import Host

if TYPE_CHECKING:
    from limpet.engine.exchange import Client

DEFAULT_LEVEL: Final = LOGGING_LEVELS["info"]
"""The level of a client in a session that has not set one."""
_PLAIN: Final = (str, int, float, bool, type(None))


def log_params(
    session: Client, level: LoggingLevel, data: object, logger: str | None
) -> LoggingMessageParams | None:
    """Return the parameters of a log message; None if the client does not want messages of this level.

    Raises:
        ValueError: the level is unknown.
    """
    rank = LOGGING_LEVELS.get(level)
    if rank is None:
        raise ValueError(f"{level!r} is not a level; levels are {', '.join(LOGGING_LEVELS)}")
    wanted: Any = session.record.level
    if not wanted and session.revision is SESSIONLESS:
        return None
    if rank < LOGGING_LEVELS.get(wanted, DEFAULT_LEVEL):
        return None
    return LoggingMessageParams(
        level=level, data=data if type(data) in _PLAIN else jsonable(data), logger=logger
    )


class SessionView:
    """A session.

    It sends on the standalone stream; sending to a closed session has no effect and raises no exception.
    """

    __slots__ = ("_server", "_session")

    def __init__(self, session: Client, server: Host) -> None:
        self._session = session
        self._server = server

    def __repr__(self) -> str:
        return f"<SessionView {self.name} of {self.client_info.name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SessionView) and other._identity == self._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> object:
        return self._session.record.key or self._session

    @property
    def key(self) -> str:
        """The key of the session in the store. It is not the session id, which the server does not keep.

        Raises:
            NoSession: the client has no session.
        """
        return self._needed("ctx.session.key")

    def _needed(self, operation: str) -> str:
        key = self._session.record.key
        if not key:
            raise NoSession(operation)
        return key

    @property
    def name(self) -> str:
        """A short name for logs."""
        return self._session.name

    @property
    def client_info(self) -> Implementation:
        """The name and version that the client sent."""
        client = self._session.record.client
        try:
            return msgspec.convert({"version": "", **client}, Implementation)
        except msgspec.ValidationError:
            # Some clients send odd icons or versions; without a session, even a name may be missing.
            return Implementation(name=str(client.get("name", "")), version=str(client.get("version", "")))

    @property
    def capabilities(self) -> ClientCapabilities:
        """The capabilities that the client declared."""
        # A copy: sessions that declared the same share one object.
        return ClientCapabilities.from_wire(deepcopy(self._session.record.capabilities))

    @property
    def protocol_version(self) -> str:
        """The negotiated protocol version; without a session, the version of the request."""
        return self._session.record.version

    @property
    def state(self) -> State:
        """The session's state. Raises NoSession for a client without a session."""
        engine = self._server.engine
        return State(engine.state, engine.random, self._needed("ctx.session.state"))

    async def notify(self, method: str, params: object = None) -> None:
        """Send a notification. Raises NoSession for a client without a session."""
        key = self._needed(f"sending {method} outside a request")
        await self._server.engine.sessions.push(key, method, params)

    async def log(self, level: LoggingLevel, data: object, logger: str | None = None) -> None:
        """Send a log message if the client wants this level."""
        self._needed("ctx.session.log")
        params = log_params(self._session, level, data, logger)
        if params is not None:
            await self.notify("notifications/message", params)

    async def elicitation_complete(self, elicitation_id: str) -> None:
        """Notify the client that the user has finished at the URL of this elicitation. No effect in 2026-07-28."""
        if self._session.revision is SESSIONLESS:
            return
        await self.notify(
            "notifications/elicitation/complete", ElicitationCompleteParams(elicitation_id=elicitation_id)
        )
