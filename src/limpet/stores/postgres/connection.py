"""One connection to PostgreSQL. The driver has opened it: host, TLS, password.

Then this class receives in place of the driver.

One statement is under way at a time, for one or several arguments: all of them are one transaction and one round trip.
Its answer calls a function, in the turn of the event loop in which it arrives; no task waits in between.

A statement is prepared once for a connection, with its first arguments and in the same round trip. Only the first use
in a process takes another one, which asks for the types. Nearly every commit has the same answer, byte by byte: it is
decoded once (`_usual`). Where a pooler gives the connection to others after each transaction, no statement can stay
prepared (`is_shared`): each is sent in whole, again in one round trip.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from typing_extensions import override

from limpet.errors import StoreError
from limpet.stores.postgres import wire
from limpet.stores.postgres.refusals import translated
from limpet.stores.shared.answers import Lost

_SHORT: Final = 1_000
Rows = list[Sequence[Any]]
OnAnswer = Callable[["PostgresConnection", list[Rows], Exception | None], None]
"""Called with the rows for each of the arguments, or with the failure: Lost, if it may have been executed; Later or
StoreError, if it was not."""


def _ignore(message: str) -> None:
    """Take no notice of a wake-up."""


class PostgresConnection(asyncio.Protocol):
    """One connection."""

    def __init__(
        self, driver: Any, known: dict[str, wire.Description] | None = None, *, is_shared: bool = False
    ) -> None:
        """Take the place of the driver.

        `known`: the statements that the server has described, here or on another connection.
        """
        self._driver = driver
        self._known = {} if known is None else known
        self.is_shared: bool = is_shared
        """Others have it after each transaction."""
        self._names: dict[str, bytes] = {}
        """The prepared statements of this connection."""
        self._messages = wire.MessageCutter()
        self._statement = ""
        self._many: Sequence[Sequence[Any]] = ()
        self._on_answer: OnAnswer | None = None
        """Of the statement that is under way."""
        self._on_message: Callable[[str], None] = _ignore
        self._results: list[Rows] = []
        self._description: wire.Description | None = None
        self._parameters = b""
        self._error: Exception | None = None
        self._usual: tuple[bytes, str, list[Rows]] = b"", "", []
        """The last short answer that came whole: its bytes, its statement, and what they mean."""
        self._whole = b""
        """What has arrived last, if it may be such an answer."""
        self._is_fresh = False
        """Nothing of the answer has come yet."""
        self.is_closed: bool = False
        """It cannot be used any more."""
        self._transport: asyncio.WriteTransport = driver._transport
        self._transport.set_protocol(self)

    # Sending

    def begin(self, statement: str, many: Sequence[Sequence[Any]], on_answer: OnAnswer) -> None:
        """Run a statement for each of several arguments. Nothing else may be under way.

        Raises:
            ValueError, TypeError, struct.error: an argument cannot be encoded; nothing was sent.
        """
        description, name = self._known.get(statement), self._names.get(statement)
        parts: list[bytes] = []
        if name is None:
            name = b"" if self.is_shared else b"h%d" % len(self._names)
            parts.append(wire.parse(name, statement))
        if description is None:
            parts.append(wire.describe(name))
        else:
            parts += [wire.execute(name, description, arguments) for arguments in many]
        parts.append(wire.SYNC)
        self._statement, self._many, self._on_answer = statement, many, on_answer
        self._description = description
        self._is_fresh = True
        self._transport.write(b"".join(parts))

    async def fetch(self, statement: str, arguments: Sequence[Any]) -> Rows:
        """Run a statement; return its rows.

        Raises:
            Lost: no answer came; it may have been executed.
            Later, StoreError: it was not executed.
        """
        [rows] = await self._wait(lambda on_answer: self.begin(statement, [arguments], on_answer))
        return rows

    async def script(self, text: str) -> None:
        """Run several statements in one transaction. As `fetch`."""

        def begin(on_answer: OnAnswer) -> None:
            self._on_answer, self._description, self._statement = on_answer, None, ""
            self._transport.write(wire.query(text))

        await self._wait(begin)

    async def receive(self, channels: Sequence[str], on_message: Callable[[str], None]) -> None:
        """Receive wake-ups from now on. As `fetch`."""
        self._on_message = on_message
        await self.script(";".join(f'LISTEN "{channel}"' for channel in channels))

    async def _wait(self, begin: Callable[[OnAnswer], None]) -> list[Rows]:
        if self.is_closed:
            raise Lost("the connection was closed")
        done: asyncio.Future[list[Rows]] = asyncio.get_running_loop().create_future()

        def answer(_: PostgresConnection, results: list[Rows], error: Exception | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(results)
            else:
                done.set_exception(error)

        begin(answer)
        try:
            return await done
        except asyncio.CancelledError:
            # An answer that comes later would belong to the next statement.
            self.end()
            raise

    # Receiving

    @override
    def data_received(self, data: bytes) -> None:
        if self.is_closed:
            return
        is_whole, self._is_fresh = self._is_fresh and not self._messages.is_partial, False
        usual, statement, results = self._usual
        if is_whole and data == usual and self._statement is statement and self._on_answer is not None:
            on_answer, self._on_answer = self._on_answer, None
            on_answer(self, results, None)
            return
        self._whole = data if is_whole and len(data) < _SHORT and data.endswith(wire.END) else b""
        try:
            for kind, body in self._messages.feed(data):
                self._take(kind, body)
        except Exception as error:  # noqa: BLE001 - what follows cannot be understood either
            self._error = self._error or error
            self.end()

    def _take(self, kind: int, body: bytes) -> None:
        if kind == wire.ROW:
            if self._description is not None:
                self._results[-1].append(wire.row(body, self._description))
        elif kind == wire.BOUND:
            self._results.append([])
        elif kind == wire.READY:
            self._ready()
        elif kind == wire.REFUSED:
            self._error = wire.refusal(body)
            if self._on_answer is None:
                # It ends the connection, for example before a restart.
                self.end()
        else:
            self._learn(kind, body)

    def _learn(self, kind: int, body: bytes) -> None:
        if kind == wire.PARSED:
            if not self.is_shared:
                self._names[self._statement] = b"h%d" % len(self._names)
        elif kind == wire.PARAMETERS:
            self._parameters = body
            self._known[self._statement] = wire.described(body, b"")
        elif kind == wire.COLUMNS and self._statement:
            self._known[self._statement] = wire.described(self._parameters, body)
        elif kind == wire.NOTIFIED:
            self._on_message(wire.notification(body))

    def _ready(self) -> None:
        """The statement has ended, or its types are known now."""
        results, self._results = self._results, []
        error, self._error = self._error, None
        on_answer, statement = self._on_answer, self._statement
        if on_answer is None:
            return
        self._on_answer = None
        if error is None and statement and self._description is None:
            try:
                self.begin(statement, self._many, on_answer)
            except Exception as failure:  # noqa: BLE001 - it goes to the sender of the statement
                error = failure
            else:
                return
        self._many = ()
        if error is not None:
            failed = (
                translated(error) if isinstance(error, wire.ServerRefusal) else StoreError("the store failed")
            )
            failed.__cause__ = error
            error = failed
        elif self._whole and self._on_message is _ignore:
            self._usual = self._whole, statement, results
        on_answer(self, results, error)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._error = self._error or exc
        self.end()

    def end(self) -> None:
        """Close it at once. A statement that is under way is lost."""
        if self.is_closed:
            return
        self.is_closed = True
        self._driver.terminate()
        if self._on_answer is not None:
            on_answer, self._on_answer = self._on_answer, None
            lost = Lost(str(self._error or "the connection was closed"))
            lost.__cause__ = self._error
            on_answer(self, [], lost)
