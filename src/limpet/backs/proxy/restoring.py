"""What follows when the server has lost our session, its process has ended, or a session changes its home.

The connection opens another link: for the next call, and for a lost session of a URL also without a call
(`Reconnection`). Each call that was in flight has ended with one error. Before the next call, the new session gets the
log level and the subscriptions of the old one, and the client receives `list_changed` for every list, and an update of
every subscribed resource: the new process may offer something else, and a change may have been missed. With `strict`
the client's session is closed instead.

Why a session is opened without a call: a client that only listens must receive the changes. It is opened after a pause:
a server that restarts loses all sessions at once, so the pauses are random. The pauses grow, and the attempts end after
ATTEMPTS, even if each new session is lost at once. A session that lasted STEADY_SECONDS makes both start again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from limpet.backs.proxy.clients import Clients
from limpet.backs.proxy.subscriptions import Subscriptions
from limpet.errors import LimpetError
from limpet.ports import Ports
from limpet.upstream.backoff import Backoff
from limpet.upstream.connection import Connection
from limpet.upstream.link import EndReason, LinkEnd, UpstreamLink
from limpet.upstream.negotiation import Agreed
from limpet.upstream.profile import ClientProfile

PAUSES: Final = (1.0, 60.0)
"""The first and the longest pause, in seconds."""
ATTEMPTS: Final = 10
STEADY_SECONDS: Final = 60.0


class Reconnection:
    """Opens the next link of one upstream."""

    def __init__(self, connect: Callable[[], Awaitable[object]], ports: Ports) -> None:
        self._connect = connect
        self._clock, random, self._observer = ports
        self._backoff = Backoff(random, PAUSES)
        self._left = ATTEMPTS
        self._connected_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def soon(self) -> None:
        """Open the next link after a pause, unless that is under way. Does not wait."""
        if self._clock.now() - self._connected_at > STEADY_SECONDS:
            self._left = ATTEMPTS
            self._backoff.worked()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._left:
            self._left -= 1
            await asyncio.sleep(self._backoff.pause())
            try:
                await self._connect()
            except LimpetError as error:
                self._observer.note("upstream.not_reconnected", error=error)
                continue
            self._connected_at = self._clock.now()
            return


class Restoring:
    """Restores the connection of one upstream, and the settings of its clients."""

    def __init__(
        self,
        connection: Connection,
        profile: ClientProfile,
        clients: Clients,
        subscriptions: Subscriptions,
        ports: Ports,
        *,
        strict: bool,
    ) -> None:
        self.is_over: bool = False
        """True if the connection has ended and will not be opened again."""
        self._connection = connection
        self._profile = profile
        self._clients = clients
        self._subscriptions = subscriptions
        self._observer = ports.observer
        self._strict = strict
        self._reconnection = Reconnection(connection.link, ports)

    def close(self) -> None:
        """Open no other link."""
        self._reconnection.close()

    def ended(self, end: LinkEnd) -> None:
        """Take the end of a link: open the next one, or close the sessions of the clients."""
        if end.reason is EndReason.CLOSED:
            return
        self._observer.note("upstream.ended", reason=end.reason.value, status=end.exit_status)
        if self._strict:
            self.is_over = True
            self._clients.close()
        elif end.reason is EndReason.SESSION_GONE and self._clients.may_listen:
            self._reconnection.soon()

    async def at(self, link: UpstreamLink, agreed: Agreed) -> None:
        """Give the server's new session the log level and the subscriptions of the old one."""
        if agreed.is_sessionless:
            return
        wanted: list[tuple[str, dict[str, Any]]] = []
        if self._profile.level is not None and "logging" in agreed.capabilities:
            wanted.append(("logging/setLevel", {"level": self._profile.level}))
        wanted += [("resources/subscribe", {"uri": uri}) for uri in self._subscriptions.uris]
        for method, params in wanted:
            await self.noting(method, link.request(self._connection.outgoing(link, method, params)))

    async def subscribe(self, session: str, uris: list[str], agreed: Agreed) -> None:
        """Subscribe to the resources that a session had subscribed to."""

        async def subscribe() -> None:
            for uri in uris:
                await self.noting("resources/subscribe", self._subscriptions.add(uri, agreed, session))

        await self.in_time(subscribe())

    async def in_time(self, restoring: Coroutine[Any, Any, None]) -> None:
        """Restore settings; give up after `times.patience`, because the calls of the session wait for it."""
        try:
            async with asyncio.timeout(self._connection.times.patience):
                await restoring
        except TimeoutError as error:
            self._observer.note("upstream.not_restored", error=error)

    async def noting(self, method: str, request: Awaitable[object]) -> None:
        """Send a request; if it fails, note it and continue."""
        try:
            await request
        except LimpetError as error:
            self._observer.note("upstream.not_restored", method=method, error=error)
