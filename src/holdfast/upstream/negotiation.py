"""The first messages on a link: which era and which version the server speaks.

2026-07-28 has `server/discover`; the revisions before it have `initialize`. With `version="auto"` we send
`server/discover` first. A server of 2026-07-28 answers with its versions, or with an error that only 2026-07-28
defines. Any other answer, with any code, is how some older server answers a method that it does not know: then we
send `initialize`. A few older servers exit when the first message is not `initialize` (`DiedOfProbe`): they are started
again and not probed a second time. Others ignore a method that they do not know: on a pipe we send `initialize` too if
there is no answer for some seconds. A program that starts slowly reads both requests later; then its answer to
`server/discover` decides.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final

import msgspec
from msgspec import Struct

from holdfast.errors import (
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    BadAnswer,
    Broken,
    ClientError,
    McpError,
    NotSent,
    Unauthorized,
    VersionRefused,
)
from holdfast.ports import Observer
from holdfast.protocol.sessionless import SERVER_KEY, VERSION
from holdfast.protocol.versions import LATEST, REVISIONS
from holdfast.upstream.link import Overloaded, UpstreamLink
from holdfast.upstream.profile import ClientProfile
from holdfast.wire.jsonrpc import notification_message

SESSIONLESS_ERRORS: Final = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION})
VERSIONS: Final = ("auto", "sessionless", "sessions", VERSION, *REVISIONS)
"""The versions that a user may choose: either era, one era, or one version."""


class DiedOfProbe(NotSent):
    """The link ended when the server received `server/discover`."""


class ServerEra(Enum):
    """The era that a server speaks."""

    SESSIONLESS = "2026-07-28"
    SESSION = "2025-11-25 or older"


class Agreed(Struct, frozen=True, kw_only=True):
    """The result of the negotiation."""

    version: str
    server: dict[str, Any]
    """Name and version of the server's software, as it says."""
    capabilities: dict[str, Any]
    instructions: str | None = None

    @property
    def is_sessionless(self) -> bool:
        """True for 2026-07-28: no session, and every request carries the client's profile."""
        return self.version not in REVISIONS


class EraMemory:
    """Which servers are known to have sessions, as long as the process lives. They are not probed again."""

    _CAPACITY: Final = 1_024

    def __init__(self) -> None:
        self._with_sessions: OrderedDict[str, None] = OrderedDict()

    def has_sessions(self, server: str) -> bool:
        return server in self._with_sessions

    def learn(self, server: str, *, is_sessionless: bool) -> None:
        """Remember a server's era; the oldest entry is forgotten first."""
        self._with_sessions.pop(server, None)
        if server and not is_sessionless:
            self._with_sessions[server] = None
            if len(self._with_sessions) > self._CAPACITY:
                self._with_sessions.popitem(last=False)


Ask = Callable[[UpstreamLink, str, dict[str, Any]], Awaitable[Any]]
"""Sends one request on a link and returns its result, plain or as `msgspec.Raw`."""


class Negotiation:
    """Negotiates on each new link of one connection."""

    def __init__(
        self, profile: ClientProfile, version: str, eras: EraMemory, ask: Ask, observer: Observer
    ) -> None:
        self._profile = profile
        self._version = version
        self._eras = eras
        self._ask = ask
        self._observer = observer

    @property
    def is_automatic(self) -> bool:
        """True if the user accepts both eras."""
        return self._version == "auto"

    async def negotiate(self, link: UpstreamLink, remembered_as: str, probe_seconds: float | None) -> Agreed:
        """Find the era and the version.

        Raises:
            VersionRefused: client and server have no version in common, or not the one that the user asked for.
            DiedOfProbe: the server ended when it was asked for its era.
        """
        if self._version in REVISIONS or self._version == "sessions":
            return await self.initialize(link)
        if self.is_automatic and self._eras.has_sessions(remembered_as):
            try:
                return await self.initialize(link)
            except (McpError, ClientError) as error:
                if isinstance(error, Unauthorized):
                    raise
                self._observer.note("client.era_changed", error=error)
        if self.is_automatic:
            return await self._discover_or_initialize(link, probe_seconds)
        agreed = await self._discover(link)
        if agreed is None:
            raise VersionRefused(f"the server does not speak {VERSION}")
        return agreed

    async def initialize(self, link: UpstreamLink) -> Agreed:
        """Open a session.

        Raises:
            VersionRefused: the server asks for a version that we do not speak, or not the one that the user asked for.
        """
        wanted = self._version if self._version in REVISIONS else LATEST.name
        link.is_sessionless, link.version = False, wanted
        result = _plain(await self._ask(link, "initialize", self._profile.initialize(wanted)))
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        if not isinstance(version, str):
            raise BadAnswer("the server's response to initialize contains no protocolVersion")
        if version not in REVISIONS or (self._version in REVISIONS and version != self._version):
            raise VersionRefused(
                f"the server asks for protocol {version[:20]}, which this client does not speak"
            )
        link.version = version
        await link.notify(notification_message("notifications/initialized"))
        await link.settled()
        return Agreed(
            version=version,
            server=_members(result.get("serverInfo")),
            capabilities=_members(result.get("capabilities")),
            instructions=result.get("instructions"),
        )

    async def _discover_or_initialize(self, link: UpstreamLink, probe_seconds: float | None) -> Agreed:
        """Send `server/discover`, and `initialize` if the answer says so or is late."""
        loop = asyncio.get_running_loop()
        probe = loop.create_task(self._discover(link))
        opening: asyncio.Task[Agreed] | None = None
        try:
            if not await _is_done(probe, probe_seconds):
                opening = loop.create_task(self.initialize(link))
                await asyncio.wait({probe, opening}, return_when=asyncio.FIRST_COMPLETED)
                if opening.done() and opening.exception() is not None:
                    await _is_done(probe, probe_seconds)
            if not probe.done() or (agreed := probe.result()) is None:
                return await (opening or self.initialize(link))
            link.is_sessionless, link.version = True, VERSION
            return agreed
        finally:
            tasks = (probe,) if opening is None else (probe, opening)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _discover(self, link: UpstreamLink) -> Agreed | None:
        """Send `server/discover`; None if the server has sessions."""
        link.is_sessionless, link.version = True, VERSION
        try:
            result = _plain(await self._ask(link, "server/discover", {}))
            era = judge_result(result)
        except (Unauthorized, Overloaded):
            # These say nothing about the server's era.
            raise
        except (McpError, ClientError, Broken) as error:
            if link.lost:
                raise DiedOfProbe(f"cannot connect: {error}") from error
            era, result = judge_error(error), {}
        if era is ServerEra.SESSION:
            return None
        meta = result.get("_meta")
        return Agreed(
            version=VERSION,
            server=_members(meta.get(SERVER_KEY)) if isinstance(meta, dict) else {},
            capabilities=_members(result.get("capabilities")),
            instructions=result.get("instructions"),
        )


def judge_result(result: Any) -> ServerEra:
    """Return the era of a server by its response to `server/discover`."""
    versions = result.get("supportedVersions") if isinstance(result, dict) else None
    if not isinstance(versions, list):
        return ServerEra.SESSION
    return choose(versions)


def judge_error(error: Exception) -> ServerEra:
    """Return the era of a server by its error for `server/discover`.

    Raises:
        VersionRefused: a server of 2026-07-28 or later, and no version in common.
        McpError: a server of 2026-07-28 that refuses for another reason. Trying the other era would not help.
    """
    if not isinstance(error, McpError) or error.code not in SESSIONLESS_ERRORS:
        return ServerEra.SESSION
    if error.code != UNSUPPORTED_VERSION:
        raise error
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    return choose(supported if isinstance(supported, list) else [])


def choose(supported: list[Any]) -> ServerEra:
    """Choose between the versions that a server offers.

    Raises:
        VersionRefused: we do not support any of them.
    """
    if VERSION in supported:
        return ServerEra.SESSIONLESS
    if any(version in REVISIONS for version in supported if isinstance(version, str)):
        return ServerEra.SESSION
    offered = ", ".join(str(version)[:20] for version in supported[:10]) or "nothing"
    raise VersionRefused(
        f"no protocol version in common: the server offers {offered}; we speak {VERSION}, {', '.join(REVISIONS)}"
    )


async def _is_done(task: asyncio.Task[Any], seconds: float | None) -> bool:
    return bool((await asyncio.wait({task}, timeout=seconds))[0])


def _plain(result: Any) -> Any:
    return msgspec.json.decode(result) if isinstance(result, msgspec.Raw) else result


def _members(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
