"""A session as authors see it: who the client is, and what can be sent that belongs to no request.

A client of 2026-07-28 has no session: what it says of itself can be read here too, all else
raises `NoSession`.
"""

from typing import Any, Final

import msgspec

from holdfast.engine.exchange import Client
from holdfast.errors import NoSession
from holdfast.protocol.types import (
    LOGGING_LEVELS,
    ClientCapabilities,
    ElicitationCompleteParams,
    Implementation,
    LoggingLevel,
    LoggingMessageParams,
)
from holdfast.protocol.versions import SESSIONLESS
from holdfast.server.context.state import State
from holdfast.server.functions.content import jsonable
from holdfast.server.host import Host

DEFAULT_LEVEL: Final = LOGGING_LEVELS["info"]
"""What a client that never set a level gets: everything but debugging."""
_PLAIN: Final = (str, int, float, bool, type(None))


def log_params(
    session: Client, level: LoggingLevel, data: object, logger: str | None
) -> LoggingMessageParams | None:
    """Return a log message as it travels; None where the client asked for graver ones only.

    Raises:
        ValueError: there is no such level.
    """
    rank = LOGGING_LEVELS.get(level)
    if rank is None:
        raise ValueError(f"{level!r} is no level; levels are {', '.join(LOGGING_LEVELS)}")
    wanted: Any = session.record.level
    if not wanted and session.revision is SESSIONLESS:
        return None
    if rank < LOGGING_LEVELS.get(wanted, DEFAULT_LEVEL):
        return None
    return LoggingMessageParams(
        level=level, data=data if type(data) in _PLAIN else jsonable(data), logger=logger
    )


class SessionView:
    """One session. What it sends goes to the standalone stream; a session that is gone is no error."""

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
        """What names the session in the store. Not its id, which nobody here knows.

        Raises:
            NoSession: the client has none.
        """
        return self._needed("ctx.session.key")

    def _needed(self, what: str) -> str:
        key = self._session.record.key
        if not key:
            raise NoSession(what)
        return key

    @property
    def name(self) -> str:
        """A short name for logs."""
        return self._session.name

    @property
    def client_info(self) -> Implementation:
        """What the client calls itself."""
        client = self._session.record.client
        try:
            return msgspec.convert({"version": "", **client}, Implementation)
        except msgspec.ValidationError:
            # Some clients send odd icons or versions; without a session, even a name may be missing.
            return Implementation(name=str(client.get("name", "")), version=str(client.get("version", "")))

    @property
    def capabilities(self) -> ClientCapabilities:
        """What the client declared it can do."""
        return ClientCapabilities.from_wire(self._session.record.capabilities)

    @property
    def protocol_version(self) -> str:
        """The revision that was agreed on, or that the request names."""
        return self._session.record.version

    @property
    def state(self) -> State:
        """The session's state."""
        engine = self._server.engine
        return State(engine.store, engine.random, self._needed("ctx.session.state"))

    async def notify(self, method: str, params: object = None) -> None:
        """Send any notification."""
        key = self._needed(f"sending {method} outside a request")
        await self._server.engine.sessions.push(key, method, params)

    async def log(self, level: LoggingLevel, data: object, logger: str | None = None) -> None:
        """Send a log message, if the client wants this level."""
        self._needed("ctx.session.log")
        params = log_params(self._session, level, data, logger)
        if params is not None:
            await self.notify("notifications/message", params)

    async def tools_changed(self) -> None:
        """Tell this session alone that its tools have changed."""
        await self.notify("notifications/tools/list_changed")

    async def resources_changed(self) -> None:
        """Tell this session alone that its resources have changed."""
        await self.notify("notifications/resources/list_changed")

    async def prompts_changed(self) -> None:
        """Tell this session alone that its prompts have changed."""
        await self.notify("notifications/prompts/list_changed")

    async def elicitation_complete(self, elicitation_id: str) -> None:
        """Tell the client that the user is done at the URL of this elicitation; nothing where its revision cannot."""
        if self._session.revision is SESSIONLESS:
            return
        await self.notify(
            "notifications/elicitation/complete", ElicitationCompleteParams(elicitation_id=elicitation_id)
        )
