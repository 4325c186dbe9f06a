"""Wake-ups from other replicas, and a poll for those that were lost.

A wake-up names the thing to read and carries no data. NOTIFY is only the bell, sent after the commit: rows are the
truth. All wake-ups that are due leave together, in one statement; while it is under way, the next ones gather.

There are two channels: one for all replicas of the namespace, and one for each replica. A replica ignores its own
messages; it has called its callback already when it made the change.

**The probe.** PgBouncer in transaction mode accepts LISTEN and delivers nothing. So the store sends itself a message,
at the start and then from time to time. Until it comes back, the store polls every `QUICK` seconds; after that once a
second, because single wake-ups may be lost: with the process that would have sent them, and with a connection. The log
says which way is used (`store.bell`).
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from typing import Final

from typing_extensions import override

from limpet.errors import StoreError
from limpet.stores.base import WakeUp
from limpet.stores.postgres.connection import PostgresConnection
from limpet.stores.postgres.core import PostgresCore
from limpet.stores.postgres.link import Link
from limpet.stores.shared.answers import Later, Lost
from limpet.stores.shared.server import POLL_SECONDS

QUICK: Final = 0.1
"""Seconds between two polls while wake-ups do not arrive."""
PROBE_SECONDS: Final = 10.0
"""Seconds between two probes."""
PATIENCE: Final = 2.0
"""Seconds for which a probe may be under way."""
_PROBE: Final = "probe"
_MOST: Final = 7_000
"""Bytes of one message. PostgreSQL allows 8,000."""
_WAKEUPS: Final = {kind.value: kind for kind in WakeUp}
ALL: Final = ""
"""In place of a replica: all of them."""


class Bell(PostgresCore):
    """Sends and receives wake-ups."""

    unheard_seconds = QUICK
    _waiting: dict[tuple[str, str], None]
    """Messages that are not sent yet: channel and line."""
    _sending: asyncio.Task[None] | None

    @override
    def forget_all(self) -> None:
        super().forget_all()
        self._waiting, self._sending = {}, None

    # Sending

    def _channel(self, replica: str) -> str:
        """Return the channel of a replica, or that of all of them."""
        return "lp_" + sha256(f"{self._schema}\0{replica}".encode()).hexdigest()[:32]

    def _ring(self, key: str, told: Iterable[tuple[WakeUp, str, str]]) -> None:
        """Send wake-ups soon, after the commit that they belong to."""
        for kind, name, replica in told:
            self._waiting[self._channel(replica), f"{kind.value}\t{key}\t{name}"] = None
        if self._waiting and self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, {}
                # If this fails, the replicas find the changes by polling.
                with suppress(StoreError):
                    await self._run("tell", *self._messages(waiting))
        finally:
            self._sending = None

    def _messages(self, waiting: Iterable[tuple[str, str]]) -> tuple[list[str], list[str]]:
        """Return channels and messages: the lines of a channel, in as few messages as possible."""
        channels: list[str] = []
        messages: list[str] = []
        for channel, line in sorted(waiting):
            if channels and channels[-1] == channel and len(messages[-1]) + len(line) < _MOST:
                messages[-1] += f"\n{line}"
            else:
                channels.append(channel)
                messages.append(f"{self.replica}\n{line}")
        return channels, messages

    # Receiving

    @override
    async def _listen(self) -> None:
        link = Link(self._address.listen, self._observer, self._credentials)
        is_said = False
        while True:
            with suppress(Lost, Later, StoreError):
                connection = await link.listen()
                try:
                    is_said = await self._receive(connection, is_said=is_said)
                finally:
                    self._listening.clear()
                    connection.end()
            await asyncio.sleep(PATIENCE / 2)

    async def _receive(self, connection: PostgresConnection, *, is_said: bool) -> bool:
        """Receive wake-ups as long as probes come back; return whether the log says that they do not."""
        probed = asyncio.Event()

        def take(message: str) -> None:
            if self._take(message, nonce):
                probed.set()

        nonce = self._random.token(6)
        await connection.receive([self._channel(ALL), self._channel(self.replica)], take)
        while not connection.is_closed:
            probed.clear()
            await self._run("tell", [self._channel(self.replica)], [f"{_PROBE}\n{nonce}"])
            try:
                async with asyncio.timeout(PATIENCE):
                    await probed.wait()
            except TimeoutError:
                if not is_said:
                    self._observer.note(
                        "store.bell",
                        way="polling",
                        advice="wake-ups do not arrive: a pooler in transaction mode does not deliver them. "
                        "Name the server itself with listen= in the store's URL",
                    )
                return True
            if not self._listening.is_set():
                self._observer.note("store.bell", way="listen", advice="")
                self._listening.set()
                is_said = False
            await self._quiet(connection)
        return is_said

    async def _quiet(self, connection: PostgresConnection) -> None:
        """Wait until the next probe, or until the connection is lost."""
        for _ in range(round(PROBE_SECONDS / POLL_SECONDS)):
            if connection.is_closed:
                return
            await asyncio.sleep(POLL_SECONDS)

    def _take(self, message: str, nonce: str) -> bool:
        """Pass on the wake-ups of a message; True if it is our own probe."""
        sender, *lines = message.split("\n")
        if sender == _PROBE:
            return lines == [nonce]
        if sender != self.replica:
            for line in lines:
                what, key, name, *_ = *line.split("\t"), "", ""
                # A later release may send kinds that this one does not know.
                if (kind := _WAKEUPS.get(what)) is not None:
                    self.woken(kind, key, name)
        return False

    @override
    async def _disconnect(self) -> None:
        if self._sending is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await asyncio.shield(self._sending)
        await self._lanes.aclose()
