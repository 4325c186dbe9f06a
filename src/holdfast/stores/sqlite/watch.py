"""Compares local waits with the file, because a wake-up of another process may be missed.

How a wake-up is missed. A wake-up for another process is a row of the table `ring`, written in the transaction of the
change, and deleted after some seconds. A process that is paused for longer (SIGSTOP, a frozen host) finds the row
deleted when it reads again. So does a process whose connection to the file failed for longer.

How that is noticed. The rows of `ring` are numbered without a gap. A listener counts the rows between the last number
it has read and the newest one: fewer rows than numbers means that it missed some. Then it compares everything that
waits in this process with the file. Asks are also compared every second: the client's answer was accepted with 202, so
it must reach its handler even if every wake-up is lost.

Why nothing is missed forever. `Watch` records a wait after the transaction that began it, and each comparison is a
transaction that begins later. So a change either comes before the comparison, which sees it, or after it, and then its
wake-up has a higher number than those that were counted. A comparison that fails is repeated.

The watched things of each session: exchanges that run here (they may be cancelled), streams that are read here (they
may have new events, or another replica may have taken the reader's place), and asks that wait here. An entry is
removed when its exchange settles, its reader detaches, or its ask is answered or withdrawn; the session's end removes
all. An unnecessary entry costs a comparison; a missing entry could leave a handler waiting, so entries are added
before the call returns to the engine.
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
        """Return a future of the step's result."""
        ...


class Waiting(Struct):
    """The waits of this process in one session."""

    running: set[str] = set()
    """Streams of exchanges that run here."""
    readers: dict[str, int] = {}
    """Streams that are read here, and the generation of their newest reader here."""
    asks: set[str] = set()

    def is_empty(self) -> bool:
        """Return True if nothing waits."""
        return not (self.running or self.readers or self.asks)


class Watch:
    """The waits of this process, by session. It belongs to the event loop; `look` runs in the worker's thread."""

    def __init__(self) -> None:
        self._by_key: dict[str, Waiting] = {}
        self._on_wake: OnWake | None = None
        self._submit: Submit | None = None

    def bind(self, on_wake: OnWake, submit: Submit) -> None:
        """Send the wake-ups to `on_wake`; `submit` runs a step in the worker's thread."""
        self._on_wake, self._submit = on_wake, submit

    def wake(self, kind: WakeUp, key: str, name: str) -> None:
        """Send a wake-up; an answered ask or a closed session is no longer watched."""
        if kind is WakeUp.ANSWER:
            self.drop(key, ask=name)
        elif kind is WakeUp.CLOSED:
            self.forget(key)
        if self._on_wake is not None:
            self._on_wake(kind, key, name)

    def of(self, key: str) -> Waiting:
        """Return the waits in a session, to add to them."""
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = Waiting()
        return found

    def drop(self, key: str, *, running: str = "", reader: tuple[str, int] = ("", 0), ask: str = "") -> None:
        """Forget waits that are over."""
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
        """Send wake-ups for asks that were answered."""
        asks = [(key, Waiting(asks=set(found.asks))) for key, found in self._by_key.items() if found.asks]
        if asks:
            self._look(asks, self._wake_all)

    def look_at_everything(self) -> None:
        """Send wake-ups for everything that may have changed: some were missed, and it is not known which."""
        waiting = [
            (key, Waiting(set(found.running), dict(found.readers), set(found.asks)))
            for key, found in self._by_key.items()
        ]
        self._look(waiting, self._wake_lost)

    def _look(self, waiting: list[tuple[str, Waiting]], done: Callable[[asyncio.Future[Any]], None]) -> None:
        # A store that is closing wakes nothing.
        if self._submit is not None:
            with suppress(StoreUnavailable):
                self._submit(partial(look, waiting=waiting), writes=False).add_done_callback(done)

    def _wake_lost(self, looked: asyncio.Future[Any]) -> None:
        if looked.cancelled() or looked.exception() is None:
            self._wake_all(looked, WakeUp.FORWARD, WakeUp.NEWS)
        else:
            # The missed rows count as read: without this there would be no second comparison.
            asyncio.get_running_loop().call_later(LOOK_SECONDS, self.look_at_everything)

    def _wake_all(self, looked: asyncio.Future[Any], *more: WakeUp) -> None:
        if looked.cancelled() or looked.exception() is not None:
            return
        wakeups: list[AddressedWakeUp] = [*looked.result(), *((kind, "", "") for kind in more)]
        for wakeup in wakeups:
            self.wake(*wakeup)


def look(tx: Transaction, waiting: Iterable[tuple[str, Waiting]]) -> list[AddressedWakeUp]:
    """Return the wake-ups that this process should have received by now. It may have received some of them."""
    wakeups: list[AddressedWakeUp] = []
    for key, here in waiting:
        sid = tx.one("SELECT sid FROM session WHERE key = ?", key)
        if sid is None:
            wakeups.append((WakeUp.CLOSED, key, ""))
            continue
        for stream in {*here.running, *here.readers}:
            wakeups += [(kind, key, stream) for kind in _of_stream(tx, sid, stream)]
        wakeups += [(WakeUp.ANSWER, key, ask) for ask in here.asks if not _is_open(tx, sid, ask)]
    return wakeups


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
    """Return True if an ask exists and has no answer yet."""
    return tx.one("SELECT 1 FROM ask WHERE sid = ? AND ask = ? AND answer IS NULL", sid, ask) is not None
