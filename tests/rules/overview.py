"""Operators see sessions as they are: one by its key, all of them in pages, and their totals. Seeing changes nothing."""

from msgspec.structs import replace

from limpet.core.lifecycle import SessionInput, SessionState
from limpet.core.rules.state import ENTRY_BYTES
from limpet.stores.base import Listing, Status, Totals
from limpet.testing.store.bench import (
    GRACE,
    IDLE,
    KEY,
    LIFETIME,
    OTHER,
    PRINCIPAL,
    Bench,
    Contract,
    record,
    scenario,
)


async def _seen(bench: Bench) -> Status:
    """Return a session that must be open. Its times are compared in whole seconds."""
    status = await bench.store.look(KEY)
    assert status is not None
    closes_in = None if status.closes_in is None else round(status.closes_in)
    return replace(status, closes_in=closes_in, quiet=round(status.quiet))


class OverviewRules(Contract):
    """look, sessions_after, totals."""

    @scenario()
    async def test_a_look_shows_the_record_and_how_long_the_session_stays_open(self, bench: Bench) -> None:
        await bench.open()
        assert await _seen(bench) == Status(record(), SessionState.ATTACHED, IDLE, 0, 0, 0, 0, 0)
        assert await bench.store.look(OTHER) is None
        await bench.store.change(KEY, level="debug")
        assert (await _seen(bench)).record.level == "debug"
        await bench.store.close(KEY, SessionInput.DELETED)
        assert await bench.store.look(KEY) is None, "a closed session is not shown"

    @scenario()
    async def test_a_look_is_no_sign_of_the_client(self, bench: Bench) -> None:
        await bench.open()
        bench.clock.advance(IDLE - 1)
        assert (await _seen(bench)).closes_in == 1
        quiet = [round(status.quiet) for status in (await bench.store.sessions_after("", limit=1)).sessions]
        assert quiet == [IDLE - 1]
        bench.clock.advance(2)
        assert (await _seen(bench)).closes_in == 0, "it is due, and no sweep has closed it yet"
        assert await bench.sweep() == [(KEY, SessionInput.IDLE)]

    @scenario()
    async def test_a_look_shows_calls_and_readers_and_the_bytes_of_logs(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        await bench.append("a", fence, 1, b"12345678")
        status = await _seen(bench)
        assert (status.closes_in, status.readers, status.running) == (None, 1, 1)
        assert status.log_bytes >= len("12345678")
        assert (await bench.store.totals()).sessions == 1
        await bench.store.settle(KEY, "a", fence, None)
        assert await _seen(bench) == Status(record(), SessionState.ATTACHED, IDLE, 0, 0, 0, 0, 0)

    @scenario()
    async def test_a_look_shows_the_kept_bytes(self, bench: Bench) -> None:
        await bench.open()
        await bench.store.subscribe(KEY, "test://uri")
        assert (await _seen(bench)).kept_bytes == ENTRY_BYTES + len("test://uri")
        assert (await bench.store.totals()).kept_bytes >= ENTRY_BYTES + len("test://uri")
        await bench.store.unsubscribe(KEY, "test://uri")
        assert (await _seen(bench)).kept_bytes == 0
        await bench.store.close(KEY, SessionInput.DELETED)
        assert (await bench.store.totals()).kept_bytes == 0

    @scenario()
    async def test_a_detached_session_shows_how_much_of_its_grace_is_left(self, bench: Bench) -> None:
        await bench.open()
        attached = await bench.attach()
        assert (await _seen(bench)).closes_in == LIFETIME, "a reader keeps it from becoming idle"
        await bench.store.detach(KEY, f"{KEY}-standalone", attached.generation, None, broke=True)
        status = await _seen(bench)
        assert (status.state, status.closes_in, status.readers) == (SessionState.DETACHED, GRACE, 0)
        bench.clock.advance(20)
        assert (await _seen(bench)).closes_in == GRACE - 20
        await bench.begin(1, "a")
        status = await _seen(bench)
        assert (status.state, status.closes_in, status.running) == (SessionState.ATTACHED, None, 1)

    @scenario()
    async def test_totals_count_the_detached_sessions(self, bench: Bench) -> None:
        assert await bench.store.totals() == Totals(0, 0, 0)
        for key in ("1", "2", "3"):
            await bench.open(key)
            attached = await bench.attach(key=key)
            await bench.store.detach(key, f"{key}-standalone", attached.generation, None, broke=True)
        await bench.open("4")
        assert await bench.store.totals() == Totals(4, 3, 0)
        assert await bench.store.find("1", PRINCIPAL) is not None
        assert await bench.store.totals() == Totals(4, 2, 0), "its client came back"
        await bench.begin(1, "a", key="2")
        assert await bench.store.totals() == Totals(4, 1, 0)
        await bench.attach(key="3")
        assert await bench.store.totals() == Totals(4, 0, 0)

    @scenario()
    async def test_totals_forget_closed_sessions(self, bench: Bench) -> None:
        await bench.open()
        attached = await bench.attach()
        await bench.store.detach(KEY, f"{KEY}-standalone", attached.generation, None, broke=True)
        await bench.store.close(KEY, SessionInput.DELETED)
        assert await bench.store.totals() == Totals(0, 0, 0)

    @scenario()
    async def test_a_listing_goes_by_keys_page_after_page(self, bench: Bench) -> None:
        for key in ("c1", "a1", "b2", "b1", "d1"):
            await bench.open(key)
        pages, after = [], ""
        while True:
            page = await bench.store.sessions_after(after, limit=2)
            pages.append([status.record.key for status in page.sessions])
            # Neither a session that closes nor a new one moves the others to another page.
            await bench.store.close(pages[0][0], SessionInput.DELETED)
            await bench.open(f"a{len(pages) + 1}")
            if not (after := page.after):
                break
        assert pages == [["a1", "b1"], ["b2", "c1"], ["d1"]]
        assert await bench.store.sessions_after("d1", limit=2) == Listing([], "")

    @scenario()
    async def test_a_listing_finds_sessions_by_the_beginning_of_their_keys(self, bench: Bench) -> None:
        for key in ("b111-1", "a222-2", "b111-3", "c000-4"):
            await bench.open(key)
        page = await bench.store.sessions_after("b111", limit=3)
        assert [status.record.key for status in page.sessions] == ["b111-1", "b111-3", "c000-4"]
        assert page.sessions[0] == await bench.store.look("b111-1")
