"""Which upstream serves a client: opened once, found again, ended when it is no longer used.

    client                                             its upstream
    ───────────────────────────────────────────────    ──────────────────────────────────────────────────────
    a session                                          its own, until the session closes, or until it was unused for
                                                       `session_idle`; the next request opens another one
    a session, with `home="any"`                       as a 2026-07-28 client
    2026-07-28, with a principal                       one for the principal and the declared capabilities
    2026-07-28, anonymous, only this machine calls     the same: all of them are one principal
    2026-07-28, anonymous, other machines call         one for each exchange
    2026-07-28, with a conversation (`affinity`)       one for the principal, the capabilities and the conversation
    any of them, with `shared`                         one for the principal, and `idle_seconds` after its last session;
                                                       one for several principals only if they are named.
                                                       Anonymous clients of other machines: as above

Values of a client that its upstream is made with (a header that we pass on, a variable of a child) are part of the
key too. Opening is a single flight: calls that arrive while an upstream opens wait for the same opening. After a
failed opening there is no entry, and the next call tries again.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from math import inf
from typing import Any, Final

import msgspec

from limpet.backs.proxy.options import ProxyOptions
from limpet.backs.proxy.target import UpstreamClient
from limpet.backs.proxy.upstream import Upstream
from limpet.errors import LimpetError, McpError, UpstreamUnavailable
from limpet.ports import Clock, Observer
from limpet.supervision import supervise

Restore = Callable[[Upstream], Awaitable[None]]
"""Prepares a new upstream of a session that has existed before."""
Key = tuple[str, bytes]
"""The key of a session and no bytes; or the key of a principal and the capabilities of its client."""
_SWEEP_SECONDS: Final = 5.0
"""How often unused upstreams and subscriptions are searched for."""
_SETTLED_SECONDS: Final = 30.0
"""How long a subscription at the server is kept although no listener of 2026-07-28 is known for it. The back subscribes
before the engine knows the listener, so a new subscription looks unused for a moment."""
_HOME_SECONDS: Final = 60.0
"""How often a session's upstream asks whether its session is still open, and its home still this process."""
Listened = Callable[[str], set[tuple[Any, str]]]
"""Returns the changes that the listeners of a principal subscribed to."""


def session_key_of(session: str) -> Key:
    """Return the key of a session's own upstream."""
    return session, b""


def shared_key_of(client: UpstreamClient, also: bytes = b"", together: frozenset[str] = frozenset()) -> Key:
    """Return the key of the upstream of all clients of one principal that declared the same capabilities.

    `also` are further values that they share. `together` are the subjects of principals that share one upstream.
    """
    declared = msgspec.json.encode(client.capabilities, order="deterministic")
    principal = client.caller.principal
    if client.is_shared and principal is not None and principal.subject in together:
        # No key of a principal or of a session has a space.
        return f"shared {principal.issuer}", declared + also
    return client.caller.key, declared + also + client.caller.conversation.encode()


class Upstreams:
    """The upstreams of one process."""

    def __init__(
        self,
        make: Callable[[UpstreamClient], Upstream],
        options: ProxyOptions,
        listened: Listened,
        confirm_home: Callable[[str], Awaitable[bool]],
        clock: Clock,
        observer: Observer,
    ) -> None:
        self._make = make
        self._options = options
        self._listened = listened
        self._confirm_home = confirm_home
        self._clock = clock
        self._observer = observer
        self._by_key: dict[Key, asyncio.Task[Upstream]] = {}
        self.of_session: dict[str, Upstream] = {}
        """Those that are open and belong to one session, by its key."""
        self._single: set[asyncio.Task[Upstream]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.Task[None] | None = None
        self.is_failing: bool = False
        """The last attempt to open one has failed."""

    def __len__(self) -> int:
        return len(self._by_key) + len(self._single)

    @property
    def starting(self) -> int:
        """How many of them have not been negotiated yet."""
        return sum(not opening.done() for opening in (*self._by_key.values(), *self._single))

    def start(self) -> None:
        """Begin to end those that are unused."""
        self._sweeping = supervise("sweep of upstreams", self._sweep, self._observer)

    async def stop(self) -> None:
        """End all of them."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for key in list(self._by_key):
            self.end(key)
        for opening in list(self._single):
            self._end_soon(_end(opening))
        await self.settled()

    async def settled(self) -> None:
        """Wait until those that are being ended have ended."""
        while self._ending:
            await asyncio.wait(self._ending)

    def find(self, key: Key) -> Upstream | None:
        """Return the upstream of a key, if it is open."""
        opening = self._by_key.get(key)
        if opening is None or not opening.done() or opening.cancelled() or opening.exception() is not None:
            return None
        return opening.result()

    def opened(self) -> list[Upstream]:
        """Return every open upstream that has a key."""
        return [upstream for key in self._by_key if (upstream := self.find(key)) is not None]

    async def get(self, key: Key, client: UpstreamClient, restore: Restore | None = None) -> Upstream:
        """Return the upstream of a key; open it if it does not exist, and prepare it with `restore`.

        Raises:
            McpError: it cannot be opened.
        """
        found = self.find(key)
        if found is not None:
            if not found.is_over:
                found.calls.used_at = self._clock.now()
                return found
            self.end(key)
        opening = self._by_key.get(key)
        if opening is None:
            self._check_room()
            opening = asyncio.get_running_loop().create_task(self._open(client, restore))
            self._by_key[key] = opening
            opening.add_done_callback(lambda done: self._take_opened(key, done))
        # One client that gives up must not end the opening for the others.
        upstream = await asyncio.shield(opening)
        upstream.calls.used_at = self._clock.now()
        return upstream

    @contextlib.asynccontextmanager
    async def single(self, client: UpstreamClient) -> AsyncIterator[Upstream]:
        """Open an upstream for one exchange, and end it afterwards."""
        self._check_room()
        opening = asyncio.get_running_loop().create_task(self._open(client))
        self._single.add(opening)
        try:
            yield await opening
        finally:
            self._single.discard(opening)
            self._end_soon(_end(opening))

    def end(self, key: Key) -> None:
        """End the upstream of a key, if there is one. Does not wait."""
        opening = self._removed(key)
        if opening is not None:
            self._end_soon(_end(opening))

    def leave(self, key: Key) -> None:
        """End the upstream of a key as soon as no call runs on it; later calls do not get it. Does not wait."""
        opening = self._removed(key)
        if opening is not None:
            self._end_soon(_end_used(opening))

    def _removed(self, key: Key) -> asyncio.Task[Upstream] | None:
        if not key[1]:
            self.of_session.pop(key[0], None)
        return self._by_key.pop(key, None)

    def _check_room(self) -> None:
        # A child that is being stopped may need seconds, and a new session must not wait for that. But a client that
        # opens and closes sessions quickly must not get any number of processes.
        if max(len(self), len(self._ending)) >= self._options.upstreams:
            self._observer.note("upstream.refused", upstreams=len(self))
            raise UpstreamUnavailable(
                "Busy: this server has its limit of connections to the server behind it; try again later",
                retry_after=30,
            )

    async def _open(self, client: UpstreamClient, restore: Restore | None = None) -> Upstream:
        upstream = self._make(client)
        try:
            try:
                await upstream.open()
            except McpError:
                self.is_failing = True
                raise
            self.is_failing = False
            if restore is not None:
                await restore(upstream)
        except BaseException:
            # Also if it is cancelled, because its session was closed meanwhile: no process may be left.
            await upstream.aclose()
            raise
        return upstream

    def _take_opened(self, key: Key, opening: asyncio.Task[Upstream]) -> None:
        failed = opening.cancelled() or opening.exception() is not None
        if self._by_key.get(key) is not opening:
            return
        if failed:
            del self._by_key[key]
        elif not key[1]:
            self.of_session[key[0]] = opening.result()

    def _end_soon(self, ending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._quietly(ending))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _quietly(self, ending: Coroutine[Any, Any, None]) -> None:
        try:
            await ending
        except LimpetError as error:
            self._observer.note("upstream.ended_badly", error=error)

    async def _look_for_sessions(self) -> None:
        """End upstreams of sessions that are closed or have another home: the wake-up about it can be lost."""
        for key in list(self._by_key):
            upstream = self.find(key)
            for session in tuple(upstream.clients.sessions) if upstream is not None else ():
                # A session that is not stored yet comes back with its first request.
                if upstream is not None and not await self._confirm_home(session):
                    upstream.leave(session)
            # Without a record the session may not be stored yet.
            is_of_session = (
                upstream is not None and upstream.client.session and upstream.clients.record is not None
            )
            if is_of_session and not await self._confirm_home(key[0]):
                self.leave(key)

    def _is_resting(self, upstream: Upstream, now: float) -> bool:
        """True if its sessions have not used an upstream for so long that it may end.

        They miss no change: none has subscribed.
        """
        limit = self._options.session_idle
        if limit is None or not (upstream.client.session or upstream.clients.sessions):
            return False
        is_used = upstream.calls.is_used or upstream.is_asking or upstream.subscriptions.uris
        return not is_used and upstream.calls.used_at < now - limit

    async def _sweep(self) -> None:
        """End what is unused. It waits for the store, and for no server: one that hangs must not delay the others."""
        next_look = self._clock.now() + _HOME_SECONDS
        while True:
            await asyncio.sleep(
                min(_SWEEP_SECONDS, self._options.idle_seconds, self._options.session_idle or inf)
            )
            now = self._clock.now()
            if now >= next_look:
                await self._look_for_sessions()
                next_look = now + _HOME_SECONDS
            for key in list(self._by_key):
                upstream = self.find(key)
                if upstream is not None and self._is_resting(upstream, now):
                    self._observer.note("upstream.rests")
                    self.leave(key)
                    continue
                if upstream is None or upstream.client.session:
                    continue
                listened = set[tuple[Any, str]]().union(*map(self._listened, upstream.clients.principals))
                is_used = upstream.calls.is_used or upstream.clients.sessions
                is_idle = upstream.calls.used_at < now - self._options.idle_seconds and not is_used
                if upstream.is_over or (is_idle and not listened):
                    self.end(key)
                    continue
                is_listened = partial(_has_resource, listened)
                upstream.subscriptions.sweep(upstream.agreed, now - _SETTLED_SECONDS, is_listened)


def _has_resource(listened: set[tuple[Any, str]], uri: str) -> bool:
    return ("resource", uri) in listened


async def _end_used(opening: asyncio.Task[Upstream]) -> None:
    """End an upstream after its last call."""
    if opening.done() and not opening.cancelled() and opening.exception() is None:
        await opening.result().calls.unused()
    await _end(opening)


async def _end(opening: asyncio.Task[Upstream]) -> None:
    """End an upstream, also one that is still being opened."""
    if not opening.done():
        opening.cancel()
    await asyncio.wait({opening})
    if not opening.cancelled() and opening.exception() is None:
        await opening.result().aclose()
