"""Wake-ups that a process has missed: paused for too long, or cut off from its file, it looks by itself."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest

from limpet.core.lifecycle import SessionInput
from limpet.stores.base import Answered, Attached, Claim, Claimed, WakeUp
from limpet.stores.sqlite import SqliteStore, worker
from limpet.stores.sqlite.transaction import WAKEUP_SECONDS, Transaction
from limpet.testing import VirtualClock
from limpet.testing.store.bench import KEY, OTHER, PRINCIPAL, record
from tests.sqlite.support import store_path
from tests.support import BOUND, async_test

AddressedWakeUp = tuple[WakeUp, str, str]


class TwoStores:
    """Two processes' stores on one file, and the wake-ups of the first."""

    def __init__(self, path: Path) -> None:
        self.path, self.clock = path, VirtualClock()
        self.here, self.there = (
            SqliteStore(path, clock=self.clock, replica=name) for name in ("here", "there")
        )
        self.wakeups: list[AddressedWakeUp] = []
        self._more = asyncio.Event()
        self.here.bind(self._woken)

    def _woken(self, *wakeup: object) -> None:
        self.wakeups.append(wakeup)  # type: ignore[arg-type]
        self._more.set()

    async def until(self, *wanted: AddressedWakeUp) -> None:
        """Wait until all of these have arrived."""
        async with asyncio.timeout(BOUND):
            while not set(wanted) <= set(self.wakeups):
                self._more.clear()
                await self._more.wait()

    @contextmanager
    def paused(self, failure: Exception | None = None) -> Iterator[None]:
        """Keep the first one's thread from listening, as SIGSTOP does; or let its connection fail."""
        may_go = threading.Event()

        def stand_still(tx: Transaction) -> None:
            may_go.wait()
            if failure is not None:
                raise failure

        still = self.here._worker.submit(stand_still, writes=False)
        still.add_done_callback(lambda done: done.exception())
        try:
            yield
        finally:
            may_go.set()

    async def forget_wakeups(self) -> None:
        """Let so much time pass that wake-ups are deleted."""
        self.clock.advance(WAKEUP_SECONDS + 1)
        await self.there.sweep()


@asynccontextmanager
async def two_stores() -> AsyncIterator[TwoStores]:
    with store_path() as path:
        both = TwoStores(path)
        async with aclosing(both.here), aclosing(both.there):
            for key in (KEY, OTHER):
                await both.here.open(record(key), evict=False)
                assert isinstance(await both.here.claim(key, PRINCIPAL, Claim(1, "a", b"body")), Claimed)
                assert await both.here.ask(key, "a.1", "a")
            yield both


@async_test
async def test_a_paused_process_notices_every_change_that_it_missed() -> None:
    async with two_stores() as both:
        attached = await both.here.attach(KEY, PRINCIPAL, None, None)
        assert isinstance(attached, Attached)
        with both.paused():
            assert await both.there.answer(KEY, PRINCIPAL, "a.1", b"d", b"yes") is Answered.FIRST
            await both.there.cancel(KEY, PRINCIPAL, 1)
            assert isinstance(await both.there.attach(KEY, PRINCIPAL, None, None), Attached)
            await both.there.close(OTHER, SessionInput.DELETED)
            await both.forget_wakeups()
        await both.until(
            (WakeUp.ANSWER, KEY, "a.1"),
            (WakeUp.CANCEL, KEY, "a"),
            (WakeUp.TAKEN, KEY, attached.record.standalone),
            (WakeUp.CLOSED, OTHER, ""),
            (WakeUp.FORWARD, "", ""),
            (WakeUp.NEWS, "", ""),
        )
        assert await both.here.take_answer(KEY, "a.1") == b"yes"


@async_test
async def test_an_answer_reaches_its_ask_without_any_wake_up() -> None:
    async with two_stores() as both:
        with both.paused():
            assert await both.there.answer(KEY, PRINCIPAL, "a.1", b"d", b"yes") is Answered.FIRST
            with closing(sqlite3.connect(both.path)) as connection:
                connection.execute("UPDATE ring SET origin = 'here'")
                connection.commit()
        await both.until((WakeUp.ANSWER, KEY, "a.1"))
        assert (WakeUp.ANSWER, OTHER, "a.1") not in both.wakeups


@async_test
async def test_wake_ups_sent_while_the_connection_failed_arrive_afterwards() -> None:
    broken = sqlite3.OperationalError("disk I/O error")
    broken.sqlite_errorcode = sqlite3.SQLITE_IOERR
    async with two_stores() as both:
        with both.paused(broken):
            await both.there.cancel(KEY, PRINCIPAL, 1)
        await both.here.sessions()
        await both.until((WakeUp.CANCEL, KEY, "a"))


@async_test
async def test_a_process_that_has_missed_nothing_sends_no_extra_wake_up() -> None:
    async with two_stores() as both:
        with both.paused():
            await both.there.cancel(KEY, PRINCIPAL, 1)
        await both.until((WakeUp.CANCEL, KEY, "a"))
        await both.there.announce("news", b"")
        await both.until((WakeUp.NEWS, "", ""))
        # A session with an ask is read again every second, so a slow machine sends CANCEL twice. What is not known to be
        # lost is not guessed: FORWARD is sent only then.
        assert set(both.wakeups) == {(WakeUp.CANCEL, KEY, "a"), (WakeUp.NEWS, "", "")}


@async_test
async def test_a_process_that_is_never_idle_receives_wake_ups_with_its_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "POLL", BOUND)
    async with two_stores() as both:
        await both.here.sessions()
        await both.there.announce("news", b"")
        await both.here.sessions()
        await both.until((WakeUp.NEWS, "", ""))


@async_test
async def test_a_reader_that_was_superseded_here_does_not_take_the_watch_of_the_newer_one() -> None:
    async with two_stores() as both:
        old, new = [await both.here.attach(KEY, PRINCIPAL, None, None) for _ in range(2)]
        assert isinstance(old, Attached)
        assert isinstance(new, Attached)
        standalone = old.record.standalone
        await both.here.detach(KEY, standalone, old.generation, None, broke=False)
        with both.paused():
            assert isinstance(await both.there.attach(KEY, PRINCIPAL, None, None), Attached)
            await both.forget_wakeups()
        await both.until((WakeUp.TAKEN, KEY, standalone))
