"""The second look at the file: what bells that this process has not heard would have said.

How a bell is lost. A bell is a row of `ring`, written in the transaction of the change that it tells of,
and it is deleted after some seconds. A process that is paused for longer than that (SIGSTOP, a
frozen host) finds the row gone when it looks again; so does one whose connection to the file failed.

How that is noticed. Rows of `ring` are numbered without a gap. A listener counts the rows between the last
number it heard and the newest one: fewer rows than numbers means that bells are lost, and then everything
that waits in this process is compared with the file. Asks are compared every second as well: an answer was
accepted with 202, so it must reach its handler whatever happens to bells.

Why nothing is missed. A thing is noted here after its transaction has committed, and each comparison is a
transaction that begins later; a change that comes after the comparison has a bell with a higher number.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from msgspec import Struct

from holdfast.errors import StoreUnavailable
from holdfast.stores.base import OnWake, WakeUp
from holdfast.stores.sqlite.transaction import AddressedWakeUp, Step, Transaction, replica_of

LOOK_SECONDS: Final = 1.0
"""How often asks that wait for an answer are compared with the file."""


class Submit(Protocol):
    """Runs a step in the worker's thread."""

    def __call__(self, step: Step, *, writes: bool) -> asyncio.Future[Any]:
        """Return what the step will have returned."""
        ...


class Waiting(Struct):
    """What waits in this process for something to happen in one session."""

    running: set[str] = set()
    """Streams of exchanges that run here."""
    readers: dict[str, int] = {}
    """Streams that are read here, and the generation of their newest reader here."""
    asks: set[str] = set()

    def is_empty(self) -> bool:
        """Tell whether nothing waits."""
        return not (self.running or self.readers or self.asks)


class Watch:
    """What waits in this process, by session. It belongs to the event loop; `look` runs in the worker's thread."""

    def __init__(self) -> None:
        self._by_key: dict[str, Waiting] = {}
        self._on_wake: OnWake | None = None
        self._submit: Submit | None = None

    def bind(self, on_wake: OnWake, submit: Submit) -> None:
        """Ring this bell for what is found; `submit` runs a step in the worker's thread."""
        self._on_wake, self._submit = on_wake, submit

    def wake(self, what: WakeUp, key: str, name: str) -> None:
        """Ring the bell; what has rung is watched no longer."""
        if what is WakeUp.ANSWER:
            self.drop(key, ask=name)
        elif what is WakeUp.CLOSED:
            self.forget(key)
        if self._on_wake is not None:
            self._on_wake(what, key, name)

    def of(self, key: str) -> Waiting:
        """Return what waits in a session, to add to it."""
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = Waiting()
        return found

    def drop(self, key: str, *, running: str = "", reader: tuple[str, int] = ("", 0), ask: str = "") -> None:
        """Forget what no longer waits."""
        found = self._by_key.get(key)
        if found is not None:
            found.running.discard(running)
            # A newer reader of the same stream stays.
            if found.readers.get(reader[0]) == reader[1]:
                del found.readers[reader[0]]
            found.asks.discard(ask)
            if found.is_empty():
                del self._by_key[key]

    def forget(self, key: str) -> None:
        """Forget a session that is closed."""
        self._by_key.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self._by_key.clear()

    def look_at_asks(self) -> None:
        """Ring for asks that were answered."""
        asks = [(key, Waiting(asks=set(found.asks))) for key, found in self._by_key.items() if found.asks]
        if asks:
            self._look(asks, self._wake_all)

    def look_at_everything(self) -> None:
        """Ring for all that may have changed: bells are lost, and it is not known which."""
        waiting = [
            (key, Waiting(set(found.running), dict(found.readers), set(found.asks)))
            for key, found in self._by_key.items()
        ]
        self._look(waiting, self._wake_lost)

    def _look(self, waiting: list[tuple[str, Waiting]], done: Callable[[asyncio.Future[Any]], None]) -> None:
        # A store that is closing has nothing to ring for.
        if self._submit is not None:
            with suppress(StoreUnavailable):
                self._submit(partial(look, waiting=waiting), writes=False).add_done_callback(done)

    def _wake_lost(self, looked: asyncio.Future[Any]) -> None:
        if looked.cancelled() or looked.exception() is None:
            self._wake_all(looked, WakeUp.FORWARD, WakeUp.NEWS)
        else:
            # The lost bells are counted as heard: nothing but this leads to another look.
            asyncio.get_running_loop().call_later(LOOK_SECONDS, self.look_at_everything)

    def _wake_all(self, looked: asyncio.Future[Any], *more: WakeUp) -> None:
        if looked.cancelled() or looked.exception() is not None:
            return
        rings: list[AddressedWakeUp] = [*looked.result(), *((ring, "", "") for ring in more)]
        for rung in rings:
            self.wake(*rung)


def look(tx: Transaction, waiting: Iterable[tuple[str, Waiting]]) -> list[AddressedWakeUp]:
    """Return the bells that this process should have heard by now. Some of them it may have heard."""
    rings: list[AddressedWakeUp] = []
    for key, here in waiting:
        sid = tx.one("SELECT sid FROM session WHERE key = ?", key)
        if sid is None:
            rings.append((WakeUp.CLOSED, key, ""))
            continue
        for stream in {*here.running, *here.readers}:
            rings += [(what, key, stream) for what in _of_stream(tx, sid, stream)]
        rings += [(WakeUp.ANSWER, key, ask) for ask in here.asks if not _is_open(tx, sid, ask)]
    return rings


def _of_stream(tx: Transaction, sid: int, stream: str) -> Iterable[WakeUp]:
    row = tx.execute(
        "SELECT running AND cancelled, reader FROM exchange WHERE sid = ? AND stream = ?", (sid, stream)
    ).fetchone()
    is_cancelled, reader = (False, None) if row is None else row
    if is_cancelled:
        yield WakeUp.CANCEL
    if reader is not None and replica_of(reader) != tx.identity.replica:
        yield WakeUp.TAKEN
    yield WakeUp.STREAM


def _is_open(tx: Transaction, sid: int, ask: str) -> bool:
    """Tell whether an ask is there and has no answer yet."""
    return tx.one("SELECT 1 FROM ask WHERE sid = ? AND ask = ? AND answer IS NULL", sid, ask) is not None
