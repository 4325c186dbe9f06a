"""The first messages on a link: which era and which version the server speaks.

2026-07-28 has `server/discover`; the revisions before it have `initialize`. Each of them asks the server whether it
speaks that era. With `version="auto"` the question of the preferred era (`first`) comes first, and the other one only
if the server refuses it. So a server that speaks both eras is used in the preferred one.

What is a refusal? A server of 2026-07-28 answers `server/discover` with its versions, or with an error that only
2026-07-28 defines. Any other answer, with any code, is how some older server answers a method that it does not know. In
the same way any error for `initialize` can be the answer of a server without sessions. Some errors say nothing about
the era, and end the negotiation: missing credentials, a busy server, and for `initialize` a connection that breaks.

A few servers exit when they receive a message that they do not expect (`DiedOfProbe`): they are started again, and not
asked that question a second time. Others ignore it: on a duplex we ask the second question too if `server/discover` has
no answer for some seconds, or `initialize` for several times as long. A program that starts slowly reads both later;
then its first answer that is no refusal decides.

A refusal is remembered (`EraMemory`), and that question is then asked last. So it costs one request, once.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from enum import Enum
from typing import Any, Final

import msgspec
from msgspec import Struct

from limpet.errors import (
    BUSY,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    BadAnswer,
    Broken,
    ClientError,
    LimpetError,
    McpError,
    NotSent,
    Unauthorized,
    VersionRefused,
)
from limpet.ports import Observer
from limpet.protocol.sessionless import SERVER_KEY, VERSION
from limpet.protocol.versions import LATEST, OLDEST, REVISIONS
from limpet.upstream.link import Overloaded, UpstreamLink
from limpet.upstream.profile import ClientProfile
from limpet.wire.jsonrpc import notification_message

SESSIONLESS_ERRORS: Final = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION})
SPOKEN: Final = frozenset({*REVISIONS, OLDEST})
"""The revisions with sessions that a server may choose. OLDEST is only for servers: we do not offer it."""
REFUSALS: Final = frozenset({METHOD_NOT_FOUND, INVALID_REQUEST, INVALID_PARAMS, *SESSIONLESS_ERRORS})
"""Codes by which a server says that it does not know `initialize`. Other errors may be gone at the next attempt."""
_READ: Final = frozenset(
    {
        *("protocolVersion", "capabilities", "serverInfo", "instructions", "_meta"),
        *("supportedVersions", "resultType", "ttlMs", "cacheScope"),
    }
)
"""The members of the server's description that Limpet reads, or sends with its own value."""
SLOW_STARTS: Final = 6
"""`initialize` may stay unanswered for this many times the `probe` seconds: programs that start slowly, and may end at
`server/discover`, are more frequent than programs that ignore it."""
VERSIONS: Final = ("auto", "sessionless", "sessions", VERSION, *REVISIONS)
"""The versions that a user may choose: either era, one era, or one version."""


class ServerEra(Enum):
    """An era that a server may speak."""

    SESSIONLESS = "2026-07-28"
    SESSION = "2025-11-25 or older"


class DiedOfProbe(NotSent):
    """The link ended when the server was asked for `era`."""

    def __init__(self, message: str, era: ServerEra) -> None:
        super().__init__(message)
        self.era = era


class Agreed(Struct, frozen=True, kw_only=True):
    """The result of the negotiation."""

    version: str
    server: dict[str, Any]
    """Name and version of the server's software, as it says."""
    capabilities: dict[str, Any]
    instructions: str | None = None
    others: dict[str, Any] = {}
    """Members of the server's answer that the protocol does not define, and its `_meta`."""

    @property
    def is_sessionless(self) -> bool:
        """True for 2026-07-28: no session, and every request carries the client's profile."""
        return self.version == VERSION


class EraMemory:
    """Which eras servers have refused, as long as the process lives."""

    _CAPACITY: Final = 1_024

    def __init__(self) -> None:
        self._refused: OrderedDict[str, frozenset[ServerEra]] = OrderedDict()

    def refused(self, server: str) -> frozenset[ServerEra]:
        """Return the eras that a server has refused."""
        return self._refused.get(server, frozenset())

    def learn(self, server: str, refused: Iterable[ServerEra], spoken: ServerEra | None) -> None:
        """Remember the eras that a server refuses, and the one that it speaks; the oldest entry is forgotten first.

        A server that refuses both speaks the transport of 2024-11-05.
        """
        known = (self._refused.pop(server, frozenset[ServerEra]()) | {*refused}) - {spoken}
        if server and known:
            self._refused[server] = known
            if len(self._refused) > self._CAPACITY:
                self._refused.popitem(last=False)


Question = Callable[[UpstreamLink], Coroutine[Any, Any, Agreed]]
"""Asks the server on a link for one era."""
Ask = Callable[[UpstreamLink, str, dict[str, Any]], Awaitable[Any]]
"""Sends one request on a link and returns its result, plain or as `msgspec.Raw`."""


class Negotiation:
    """Negotiates on each new link of one connection."""

    def __init__(
        self,
        profile: ClientProfile,
        version: str,
        first: ServerEra,
        memory: tuple[EraMemory, str],
        ask: Ask,
        observer: Observer,
    ) -> None:
        """Prepare the questions. `memory` is a memory of eras, and the name of the server in it."""
        self._profile = profile
        self._version = version
        self._first = first
        self._memory, self._server = memory
        self._ask = ask
        self._observer = observer

    @property
    def expects_older(self) -> bool:
        """True if the server is known to speak only the transport of 2024-11-05."""
        return self._memory.refused(self._server) >= {*ServerEra}

    @property
    def may_be_older(self) -> bool:
        """True if the user accepts 2024-11-05."""
        return self._version in {"auto", "sessions"}

    def learn_older(self) -> None:
        """Remember that the server speaks only the transport of 2024-11-05."""
        self._memory.learn(self._server, ServerEra, None)

    def _eras(self) -> list[ServerEra]:
        """Return the eras to ask for, in order."""
        if self._version in REVISIONS or self._version == "sessions":
            return [ServerEra.SESSION]
        if self._version != "auto":
            return [ServerEra.SESSIONLESS]
        refused = self._memory.refused(self._server)
        return sorted(ServerEra, key=lambda era: (era in refused, era is not self._first))

    async def negotiate(
        self, link: UpstreamLink, probe_seconds: float | None, *, died: ServerEra | None = None
    ) -> Agreed:
        """Find the era and the version. `died`: another link has ended when the server was asked for this era.

        Raises:
            VersionRefused: client and server have no version in common, or not the one that the user asked for.
            DiedOfProbe: the server ended when it was asked for an era, and can be asked for the other one.
        """
        eras = self._eras()
        asking = [era for era in eras if era is not died]
        known: dict[ServerEra, Question] = {
            ServerEra.SESSION: self._initialize,
            ServerEra.SESSIONLESS: self._discover,
        }
        questions = _Questions(known, link)
        try:
            agreed = await questions.ask(asking, probe_seconds)
        except Broken as error:
            if len(asking) == 1 or not link.lost:
                raise
            raise DiedOfProbe(f"cannot connect: {error}", questions.suspect) from error
        finally:
            await questions.aclose()
        link.is_sessionless, link.version = agreed.is_sessionless, agreed.version
        spoken = ServerEra.SESSIONLESS if agreed.is_sessionless else ServerEra.SESSION
        if len(eras) > 1:
            self._learn(spoken, questions.refused, died)
        return agreed

    def _learn(self, spoken: ServerEra, refused: set[ServerEra], died: ServerEra | None) -> None:
        if spoken in self._memory.refused(self._server):
            self._observer.note("client.era_changed", era=spoken.value)
        # A server can end for other reasons too. After `server/discover` it is believed, because each probe costs a
        # process. After `initialize` it is not: every later session would lose its own era.
        if died is ServerEra.SESSIONLESS:
            refused = refused | {died}
        self._memory.learn(self._server, refused, spoken)

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
        if version not in SPOKEN or (self._version in REVISIONS and version != self._version):
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
            others=_others(result),
        )

    async def _initialize(self, link: UpstreamLink) -> Agreed:
        """Open a session.

        Raises:
            _Refused: the server may have no sessions.
        """
        try:
            return await self.initialize(link)
        except (McpError, ClientError) as error:
            if _says_nothing(error):
                raise
            is_certain = error.code in REFUSALS if isinstance(error, McpError) else True
            raise _Refused(error, is_certain=is_certain) from error

    async def _discover(self, link: UpstreamLink) -> Agreed:
        """Send `server/discover`.

        Raises:
            _Refused: the server does not speak 2026-07-28.
            VersionRefused: a server of 2026-07-28 or later, and no version in common.
        """
        link.is_sessionless, link.version = True, VERSION
        result: dict[str, Any] = {}
        is_certain = True
        try:
            result = _plain(await self._ask(link, "server/discover", {}))
            era = judge_result(result)
        except (McpError, ClientError, Broken) as error:
            if _says_nothing(error) or link.lost:
                raise
            # A server that broke once may answer the next time.
            era, is_certain = judge_error(error), not isinstance(error, Broken)
        if era is ServerEra.SESSION:
            raise _Refused(VersionRefused(f"the server does not speak {VERSION}"), is_certain=is_certain)
        return Agreed(
            version=VERSION,
            server=_members(_members(result.get("_meta")).get(SERVER_KEY)),
            capabilities=_members(result.get("capabilities")),
            instructions=result.get("instructions"),
            others=_others(result),
        )


class _Refused(LimpetError):
    """The server does not speak an era. `is_certain`: it will not speak it later either."""

    def __init__(self, reason: LimpetError, *, is_certain: bool) -> None:
        super().__init__(str(reason))
        self.reason = reason
        self.is_certain = is_certain


class _Questions:
    """The questions on one link: one for each era."""

    def __init__(self, questions: Mapping[ServerEra, Question], link: UpstreamLink) -> None:
        self._questions = questions
        self._link = link
        self._asked: dict[ServerEra, asyncio.Task[Agreed]] = {}
        self._refusals: dict[ServerEra, _Refused] = {}

    @property
    def refused(self) -> set[ServerEra]:
        """The eras that the server certainly does not speak."""
        return {era for era, refusal in self._refusals.items() if refusal.is_certain}

    @property
    def suspect(self) -> ServerEra:
        """The era whose question may have ended the server: `initialize` only if it was the only one."""
        return ServerEra.SESSIONLESS if ServerEra.SESSIONLESS in self._asked else ServerEra.SESSION

    async def ask(self, eras: list[ServerEra], seconds: float | None) -> Agreed:
        """Ask for one era after the other until the server speaks one. `seconds`: how long one may stay unanswered."""
        left = list(eras)
        while True:
            waiting = {task for task in self._asked.values() if not task.done()}
            has_answer = bool(waiting) and await self._wait(waiting, self._limit(left, seconds))
            if (agreed := self._agreed()) is not None:
                return agreed
            if not has_answer:
                if not left:
                    raise self._refusal()
                era = left.pop(0)
                asking = self._questions[era](self._link)
                self._asked[era] = asyncio.get_running_loop().create_task(asking)

    def _limit(self, left: list[ServerEra], seconds: float | None) -> float | None:
        """Return how long the present question may stay unanswered; None: nothing can be done but wait."""
        opening = self._asked.get(ServerEra.SESSION)
        if not left and (opening is None or not opening.done()):
            return None
        return seconds * SLOW_STARTS if seconds is not None and left and opening is not None else seconds

    @staticmethod
    async def _wait(waiting: set["asyncio.Task[Agreed]"], seconds: float | None) -> bool:
        done, _ = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)

    def _agreed(self) -> Agreed | None:
        """Return the first answer that is no refusal."""
        for era, task in self._asked.items():
            if task.done() and era not in self._refusals:
                try:
                    return task.result()
                except _Refused as refusal:
                    self._refusals[era] = refusal
        return None

    def _refusal(self) -> LimpetError:
        """Return the error of the negotiation: the answer to `initialize` says more than the other one."""
        refusals = self._refusals
        return (refusals.get(ServerEra.SESSION) or refusals[ServerEra.SESSIONLESS]).reason

    async def aclose(self) -> None:
        """Leave unanswered questions."""
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)


def _says_nothing(error: Exception) -> bool:
    """True if an error says nothing about the eras of a server."""
    return isinstance(error, Unauthorized | Overloaded) or (
        isinstance(error, McpError) and error.code == BUSY
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
    if any(version in SPOKEN for version in supported if isinstance(version, str)):
        return ServerEra.SESSION
    offered = ", ".join(str(version)[:20] for version in supported[:10]) or "nothing"
    raise VersionRefused(
        f"no protocol version in common: the server offers {offered}; we speak {VERSION}, {', '.join(REVISIONS)}"
    )


def _plain(result: Any) -> Any:
    return msgspec.json.decode(result) if isinstance(result, msgspec.Raw) else result


def _others(result: dict[str, Any]) -> dict[str, Any]:
    others = {name: value for name, value in result.items() if name not in _READ}
    meta = {name: value for name, value in _members(result.get("_meta")).items() if name != SERVER_KEY}
    return {**others, "_meta": meta} if meta else others


def _members(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
