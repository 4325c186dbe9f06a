"""The present link to a server: found, agreed upon, and found again when it is lost, once for everybody.

Whoever meets a lost link asks for the next one; the first to ask makes it, the others wait for the
same one. What was under way on the old link ends there.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, Protocol

from holdfast.client.backoff import Backoff
from holdfast.client.calls import Call
from holdfast.client.eras import Agreed, Verdict, judge_error, judge_result
from holdfast.client.hello import Hello
from holdfast.client.link import Link, Overloaded
from holdfast.client.settings import ClientTimes
from holdfast.errors import (
    BadAnswer,
    Broken,
    ClientError,
    McpError,
    NotSent,
    Unauthorized,
    VersionRefused,
)
from holdfast.ports import Clock, Observer, Random
from holdfast.protocol.sessionless import SERVER_KEY, VERSION
from holdfast.protocol.versions import LATEST, REVISIONS
from holdfast.wire.jsonrpc import notification_message


class _DiedOfProbe(NotSent):
    """The link was lost when the server was asked for its era."""


class Dialer(Protocol):
    """Makes links to one server."""

    remembered_as: str
    """What the server's era is remembered by; empty: by nothing."""
    probe_seconds: float | None
    """How long a probe may stay unanswered: a pipe has no status that says no."""
    answer_seconds: float | None
    """How long the whole handshake may take; None: as long as any call."""

    @property
    def last_words(self) -> str:
        """What is known of a server that does not answer."""
        ...

    async def dial(self) -> Link:
        """Return a new link on which nothing has been said.

        Raises:
            NotSent: the server cannot be reached.
        """
        ...

    async def aclose(self) -> None:
        """Let go of everything."""
        ...


class EraMemory:
    """Which servers turned out to be of the session era, for as long as the process lives."""

    _CAPACITY: Final = 1_024

    def __init__(self) -> None:
        self._legacy: OrderedDict[str, None] = OrderedDict()

    def is_legacy(self, server: str) -> bool:
        return server in self._legacy

    def learn(self, server: str, *, is_modern: bool) -> None:
        """Remember a server's era; the longest known is forgotten first."""
        self._legacy.pop(server, None)
        if server and not is_modern:
            self._legacy[server] = None
            if len(self._legacy) > self._CAPACITY:
                self._legacy.popitem(last=False)


class Connection:
    """One client's connection to one server, through all its links."""

    def __init__(
        self,
        dialer: Dialer,
        hello: Hello,
        version: str,
        eras: EraMemory,
        times: ClientTimes,
        ports: tuple[Clock, Random, Observer],
    ) -> None:
        self._dialer = dialer
        self._hello = hello
        self._version = version
        self._eras = eras
        self._times = times
        self._clock, self._random, self._observer = ports
        self._link: Link | None = None
        self._finding: asyncio.Task[Link] | None = None
        self._numbers: Iterator[int] = iter(range(1, 2**53))
        self._closed = False
        self.agreed: Agreed | None = None
        self.on_found: Callable[[Link], Awaitable[None]] | None = None
        """Called with every link after the first, before anybody else uses it."""

    def __repr__(self) -> str:
        return f"<Connection {self._link}>"

    def number(self) -> int:
        """Mint a request's id."""
        return next(self._numbers)

    async def open(self) -> None:
        """Connect for the first time. A server that cannot be reached is an error at once."""
        self._link = await self._reach()

    async def link(self) -> Link:
        """Return a link that works, as far as anybody knows.

        Raises:
            HoldfastError: none could be had.
        """
        link = self._link
        if link is not None and not link.lost:
            return link
        if self._closed:
            raise ClientError("the client is closed")
        if self._finding is None:
            self._finding = asyncio.get_running_loop().create_task(self._find(link))
            self._finding.add_done_callback(self._found)
        return await asyncio.shield(self._finding)

    def distrust(self, link: Link) -> None:
        """Negotiate again before the next call: the server no longer speaks as it did."""
        if link is self._link:
            link.lost = True

    async def aclose(self) -> None:
        """End the conversation."""
        self._closed = True
        if self._finding is not None:
            self._finding.cancel()
            await asyncio.wait({self._finding})
        link, self._link = self._link, None
        if link is not None:
            await link.aclose()
        await self._dialer.aclose()

    # Finding

    def _found(self, finding: asyncio.Task[Link]) -> None:
        self._finding = None
        if not finding.cancelled():
            # Read, so that nobody is told of a failure that everybody was told.
            finding.exception()

    async def _find(self, lost: Link | None) -> Link:
        if lost is not None:
            await lost.aclose(goodbye=False)
        backoff = Backoff(self._random, self._times.backoff)
        deadline = self._clock.now() + self._times.patience
        while True:
            try:
                link = await self._reach()
            except NotSent as error:
                pause = backoff.pause(error.retry_after)
                if self._clock.now() + pause > deadline:
                    raise
                await asyncio.sleep(pause)
                continue
            if self.on_found is not None:
                await self.on_found(link)
            self._link = link
            self._observer.note("client.reconnected", version=link.version)
            return link

    async def _reach(self) -> Link:
        """Return a new link, with everything agreed upon.

        Raises:
            NotSent: the server cannot be reached, or the handshake broke: nothing of the caller's was sent.
        """
        try:
            link = await self._shake_hands(self._negotiate)
        except _DiedOfProbe as error:
            if self._version != "auto":
                raise
            # Some servers of the session era end when the first request is not `initialize`.
            self._observer.note("client.died_of_probe", error=error)
            link = await self._shake_hands(self._initialize)
        if self._version == "auto":
            self._eras.learn(self._dialer.remembered_as, is_modern=link.is_modern)
        return link

    async def _shake_hands(self, agree: Callable[[Link], Awaitable[Agreed]]) -> Link:
        bound = asyncio.timeout(self._dialer.answer_seconds)
        link = await self._dialer.dial()
        try:
            async with bound:
                self.agreed = await agree(link)
        except BaseException as error:
            failure = self._failure(error, is_late=bound.expired())
            await link.aclose(goodbye=False)
            if failure is not None:
                raise failure from error
            raise
        return link

    def _failure(self, error: BaseException, *, is_late: bool) -> NotSent | None:
        """Return the error that the caller gets for a handshake that broke; None: the error itself."""
        if is_late and isinstance(error, TimeoutError):
            seconds = self._dialer.answer_seconds
            return NotSent(
                f"the server did not answer within {seconds:g} s of its start (ClientTimes.connect); "
                f"{self._dialer.last_words}"
            )
        if isinstance(error, Broken):
            wait = error.retry_after if isinstance(error, Overloaded) else None
            return NotSent(f"cannot connect: {error}", wait)
        return None

    # Agreeing

    async def _negotiate(self, link: Link) -> Agreed:
        """Find the era and the version.

        Raises:
            VersionRefused: there is none in common, or not the one that was asked for.
        """
        if self._version in REVISIONS or self._version == "legacy":
            return await self._initialize(link)
        if self._version == "auto" and self._eras.is_legacy(self._dialer.remembered_as):
            try:
                return await self._initialize(link)
            except (McpError, ClientError) as error:
                if isinstance(error, Unauthorized):
                    raise
                self._observer.note("client.era_changed", error=error)
        agreed = await self._discover(link)
        if agreed is not None:
            return agreed
        if self._version != "auto":
            raise VersionRefused(f"the server does not speak {VERSION}")
        return await self._initialize(link)

    async def _discover(self, link: Link) -> Agreed | None:
        """Probe; None if the server is of the session era."""
        link.is_modern, link.version = True, VERSION
        try:
            async with asyncio.timeout(self._dialer.probe_seconds):
                result = await self._ask(link, "server/discover", {})
            verdict = judge_result(result)
        except (Unauthorized, Overloaded):
            # Neither says anything of the server's era.
            raise
        except (McpError, ClientError, Broken, TimeoutError) as error:
            if link.lost:
                raise _DiedOfProbe(f"cannot connect: {error}") from error
            verdict, result = judge_error(error), {}
        if verdict is Verdict.LEGACY:
            return None
        meta = result.get("_meta")
        server = meta.get(SERVER_KEY) if isinstance(meta, dict) else None
        return Agreed(
            version=VERSION,
            server=server if isinstance(server, dict) else {},
            capabilities=_members(result.get("capabilities")),
            instructions=result.get("instructions"),
        )

    async def _initialize(self, link: Link) -> Agreed:
        wanted = self._version if self._version in REVISIONS else LATEST.name
        link.is_modern, link.version = False, wanted
        result = await self._ask(link, "initialize", self._hello.initialize(wanted))
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        if not isinstance(version, str):
            raise BadAnswer("the server's answer to initialize names no protocol version")
        if version not in REVISIONS or (self._version in REVISIONS and version != self._version):
            raise VersionRefused(f"the server wants protocol {version[:20]}, which is not spoken here")
        link.version = version
        await link.notify(notification_message("notifications/initialized"))
        await link.settled()
        return Agreed(
            version=version,
            server=_members(result.get("serverInfo")),
            capabilities=_members(result.get("capabilities")),
            instructions=result.get("instructions"),
        )

    async def _ask(self, link: Link, method: str, params: dict[str, Any]) -> Any:
        stamped = self._hello.stamp(
            params, version=link.version, is_modern=link.is_modern, progress_token=None
        )
        return await link.request(Call(self.number(), method, stamped, None), {})


def _members(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
