"""One conversation with the server behind us, and the clients that it serves.

An upstream belongs to one session, or to the 2026-07-28 clients of one principal that declared the same capabilities,
or, if the operator has chosen it (`shared`), to all clients of a principal or of several named ones. A shared server
declares no client capabilities and may not ask: it is not known for which of its clients a question is.

Which era does it speak with a server that has both? The era of its client: a session uses a session of the server, and
a client of 2026-07-28 uses 2026-07-28. So both sides mean the same, and nothing has to be translated. An upstream that
serves clients of both eras (`shared`, `home="any"`) uses 2026-07-28.

    calls.py       the client's requests to the server
    messages.py    the server's notifications to clients; questions.py its requests
    restoring.py   the next session at the server, and the settings of the last one
    clients.py     the clients
"""

import contextlib
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from limpet.backs.proxy.call import unreachable, unusable
from limpet.backs.proxy.calls import Calls
from limpet.backs.proxy.clients import Clients
from limpet.backs.proxy.lists import Lists
from limpet.backs.proxy.messages import ServerMessages
from limpet.backs.proxy.options import ProxyOptions
from limpet.backs.proxy.outbox import ACCOUNT, Space
from limpet.backs.proxy.questions import Questions
from limpet.backs.proxy.restoring import Restoring
from limpet.backs.proxy.subscriptions import Subscriptions
from limpet.backs.proxy.target import Target, UpstreamClient
from limpet.backs.proxy.translation import client_info, without_tasks
from limpet.backs.proxy.turns import UpstreamTurns, needs_turns
from limpet.backs.renaming import LISTED
from limpet.core.ledger import Charge
from limpet.engine.back import Outside
from limpet.engine.caller import Caller
from limpet.engine.handling import COPIES
from limpet.errors import ClientError, LimpetError, NotSent, SignInRequired, VersionRefused
from limpet.ports import Ports
from limpet.protocol.params import LOGGING_LEVELS, LoggingLevel
from limpet.protocol.subscriptions import all_changes, list_kinds
from limpet.stores.base import SessionRecord
from limpet.upstream.connection import Callbacks, Connection, ConnectionOptions
from limpet.upstream.link import LinkEnd, UpstreamLink
from limpet.upstream.negotiation import Agreed, ServerEra
from limpet.upstream.pending import OutgoingRequest
from limpet.upstream.profile import ClientProfile
from limpet.wire.jsonrpc import Notification

_MARK_BYTES: Final = 6
"""Of the mark in the tokens of a server's questions. A wrong mark reaches another server of the same session,
nothing else."""


class Upstream:
    """A connection to the server behind us, with the calls that run on it. Call `open` first, `aclose` last."""

    def __init__(
        self,
        target: Target,
        client: UpstreamClient,
        options: ProxyOptions,
        outside: Outside,
        space: Space,
        ports: Ports,
        charge: Charge,
    ) -> None:
        client = replace(client, passed=target.passing.of(client.caller.headers))
        self.client: UpstreamClient = client
        self.clients: Clients = Clients(client, outside)
        self._charge = charge
        self._reading: Charge | None = None
        """For a long message of a program that is being read."""
        self._outside = outside
        self._clock, random, self._observer = ports
        self._profile = _profile(client)
        turns = UpstreamTurns(options.queued) if needs_turns(target, client) else None
        self._questions = Questions(turns, outside, self.clients, random.token(_MARK_BYTES))
        self._connection = self._connection_to(target, options, ports)
        lists = Lists(
            options.list_bytes,
            self._clock,
            lambda: self._connection.standalone,
            lambda size: outside.charge(client.caller, size),
        )
        self.calls: Calls = Calls(
            self._connection, target, client, self._questions, options, space, ports, lists
        )
        self.subscriptions: Subscriptions = Subscriptions(
            self._connection, self.calls.control, self._clock, self._observer
        )
        self._messages = ServerMessages(
            self.calls, self.clients, self.subscriptions, outside, space, self._observer
        )
        self._restoring = Restoring(
            self._connection, self._profile, self.clients, self.subscriptions, ports, strict=options.strict
        )
        self._agreed: Agreed | None = None

    def _connection_to(self, target: Target, options: ProxyOptions, ports: Ports) -> Connection:
        return Connection(
            target.connector(self.client),
            self._profile,
            Callbacks(
                on_request=self._questions.answer,
                on_notification=self._received,
                on_end=self._ended,
                on_reconnected=self._reconnected,
                on_missed=self._missed,
                reserve=self._reserve,
                charge=lambda size: self._outside.charge(self._payer, size),
            ),
            options=ConnectionOptions(
                version=target.version,
                first=ServerEra.SESSION if self.client.session else ServerEra.SESSIONLESS,
                raw_results=True,
                reconnect=not options.strict,
                limits=target.limits,
                times=target.times,
            ),
            eras=target.eras,
            ports=ports,
        )

    @property
    def _payer(self) -> Caller:
        """The client that the messages of the server are charged to. Those of a shared one belong to no client."""
        return Caller(ACCOUNT) if self.client.is_shared else self.client.caller

    def _reserve(self, size: int) -> bool:
        """Charge a message of which so many bytes have arrived; 0: it is complete, or was dropped."""
        if not size:
            if self._reading is not None:
                self._reading.free()
            return True
        if self._reading is None:
            self._reading = self._outside.charge(self._payer, 0, urgent=True)
        return self._reading is not None and self._reading.grow(size * COPIES, urgent=True)

    @property
    def is_over(self) -> bool:
        """True if its connection has ended and will not be opened again."""
        return self._restoring.is_over

    @property
    def is_asking(self) -> bool:
        """True if the server waits for an answer of a client."""
        return bool(self._questions.open)

    @property
    def agreed(self) -> Agreed:
        """The result of the negotiation with the server."""
        if self._agreed is None:
            raise NotSent("the upstream is not open")
        return self._agreed

    async def open(self) -> None:
        """Connect and negotiate. Call `aclose` also if this raises or is cancelled.

        Raises:
            McpError: the server cannot be reached, or its answer is not usable.
        """
        try:
            agreed = await self._connection.open()
        except NotSent as error:
            self._observer.note("upstream.unreachable", error=error)
            raise unreachable(error) from error
        except (ClientError, VersionRefused) as error:
            if not isinstance(error, SignInRequired):
                self._observer.note("upstream.unusable", error=error)
            raise unusable(error) from error
        self._observer.note("upstream.opened")
        self._use(agreed)
        await self.subscriptions.ready()
        self.calls.used_at = self._clock.now()

    def _use(self, agreed: Agreed) -> None:
        self._agreed = agreed
        for part in (self.calls, self._messages):
            part.use(agreed)
        self.subscriptions.start(agreed)

    async def aclose(self) -> None:
        """End the conversation."""
        for part in (self._restoring, self.subscriptions, self._messages, self.calls):
            part.close()
        try:
            await self._connection.aclose()
        finally:
            self._reserve(0)
            self._charge.free()

    async def find_components(self) -> bool:
        """Return True if the server lists a component.

        Raises:
            McpError: the server's error, or ours in its place.
        """
        for method, (member, kind, _) in LISTED.items():
            if kind in self.agreed.capabilities:
                result = await self.calls.control(method, {})
                if msgspec.json.decode(cast("bytes", result), type=dict[str, Any]).get(member):
                    return True
        return False

    async def set_level(self, level: LoggingLevel) -> None:
        """Ask the server for log messages of this level and above.

        A shared upstream never asks for fewer than before.
        """
        present = self._profile.level
        if (
            not self.client.session
            and present is not None
            and LOGGING_LEVELS[present] <= LOGGING_LEVELS[level]
        ):
            return
        self._profile.level = level
        if not self.agreed.is_sessionless and "logging" in self.agreed.capabilities:
            await self.calls.control("logging/setLevel", {"level": level})

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification of the client to the server.

        It is dropped if the server's era does not know it, or if it is for another server.
        """
        known = self._questions.progress(params) if method == "notifications/progress" else params
        if known is not None and not self.agreed.is_sessionless:
            with contextlib.suppress(LimpetError):
                await self._connection.notify(method, known)

    # The connection is made before the parts that take its messages.

    def _received(self, notification: Notification, origin: OutgoingRequest | None) -> None:
        self._messages.take(notification, origin)

    def _missed(self) -> None:
        self._messages.resources_changed()

    def _ended(self, end: LinkEnd) -> None:
        # Half a message ends with its program.
        self._reserve(0)
        self._restoring.ended(end)

    # Sessions that come and go

    async def _reconnected(self, link: UpstreamLink) -> None:
        """Give the server's new session the settings of the old one, and report that its lists may differ."""
        agreed = self._connection.agreed
        if agreed is None:
            return
        self._use(agreed)
        try:
            await self._restoring.at(link, agreed)
        finally:
            self._messages.all_changed()

    async def restore(self, record: SessionRecord, uris: list[str]) -> None:
        """Give the server the settings that a session had at its former home: the log level and the subscriptions.

        The client receives `list_changed` for every list, because another upstream may offer something else, and an
        update of every resource that it subscribed to, because a change may have been missed.
        """
        self.clients.record = record
        restoring = self._restoring
        if record.level:
            request = self.set_level(record.level)  # type: ignore[arg-type]
            await restoring.in_time(restoring.noting("logging/setLevel", request))
        await restoring.subscribe(record.key, uris, self.agreed)
        self._messages.all_changed()

    async def join(self, session: str, uris: list[str] | None) -> None:
        """Let a session share this upstream; one that had another upstream before brings its subscriptions.

        It receives the same messages as in `restore`.
        """
        self.clients.sessions.add(session)
        if uris is not None:
            await self._restoring.subscribe(session, uris, self.agreed)
            for change in all_changes(list_kinds(self.agreed.capabilities), uris):
                self._outside.changed_for(session, change)

    def leave(self, session: str) -> None:
        """Forget a session that has shared this upstream."""
        self.clients.sessions.discard(session)
        self.subscriptions.leave(session, self.agreed)


def _profile(client: UpstreamClient) -> ClientProfile:
    return ClientProfile(
        client_info(client.info),
        without_tasks(client.capabilities, extension=not client.session),
        repeats_extensions=not client.session,
        meta=client.meta,
    )
