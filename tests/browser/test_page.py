"""The dashboard in a real Chromium, over a fleet that the test changes."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Final

import pytest
from msgspec.structs import replace

from limpet.ops.views import ReplicaView, UpstreamView
from tests.browser.chromium import Chromium, Tab
from tests.browser.dashboard import CALLS, SESSIONS, count_is, row_shows, rows, signed_in
from tests.browser.fleet import PAGE, TOKEN, Fleet, Served, busy_fleet, call, served, session, tool
from tests.support import async_test, until

HOSTILE: Final = (
    "<img src=x onerror=\"document.title='broken'\">",
    "</td><script>document.title='broken'</script>",
    "\u202eevil \u2067right to left\u2066",
    "line\u2028and\u2029paragraph\u0085separators\r\n\n",
    "x" * 10_000,
    "wide " * 2_000,
    "\u0000\u001b[31m\ud7ff 'quote\" & &lt;b&gt;",
)

LINES: Final = """[...document.querySelectorAll('#upstreams-table td:nth-child(-n + 2)')].map((cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return new Set([...range.getClientRects()].map((line) => line.top)).size;
})"""
"""How many lines the name and the state of each server behind take."""


@pytest.fixture(autouse=True)
def _states_come_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limpet.ops.admin.surface.LIVE_SECONDS", 0.1)


@contextlib.asynccontextmanager
async def opened(browser: Chromium, fleet: Fleet, *, width: int = 1280) -> AsyncIterator[tuple[Tab, Served]]:
    """Open the dashboard with the right token; at the end the page may have complained about nothing."""
    async with served(fleet) as server, browser.tab(width=width) as tab:
        await signed_in(tab, server.url, TOKEN)
        yield tab, server
        assert tab.complaints == []


async def has_no_sideways_scroll(tab: Tab) -> bool:
    return bool(await tab.js("document.documentElement.scrollWidth <= innerWidth"))


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@async_test
async def test_a_wrong_token_is_an_error_of_the_form_and_opens_nothing(
    browser: Chromium, fleet: Fleet
) -> None:
    async with served(fleet) as server, browser.tab() as tab:
        await tab.go(server.url)
        await tab.until("document.activeElement.id === 'token'")
        for wrong, error in {"wrong": "refused this token", "with ü": "not a token"}.items():
            await tab.js("document.querySelector('#token').value = ''")
            await tab.type(wrong)
            await tab.press("Enter")
            await tab.shows("#login-error", error)
            assert not await tab.exists("#dashboard")
            assert await tab.js("document.activeElement.id") == "token"
            assert await tab.js("document.querySelector('#token').ariaInvalid") == "true"
        assert await tab.js("sessionStorage.length") == 0
        assert fleet.observer.named("audit.refused")
        await tab.js("document.querySelector('#token').value = ''")
        await tab.type(TOKEN)
        await tab.press("Enter")
        await tab.shows("#connection", "live")
        # A reload keeps the token; signing out forgets it.
        await tab.go(server.url)
        await tab.shows("#connection", "live")
        await tab.click("#forget")
        await tab.until("document.activeElement.id === 'token'")
        assert await tab.js("sessionStorage.length") == 0


@async_test
async def test_an_empty_fleet_says_that_it_is_empty(browser: Chromium, fleet: Fleet) -> None:
    async with opened(browser, fleet) as (tab, _):
        assert await tab.text("#attention") == "Nothing needs attention."
        shown = await tab.js(
            "[...document.querySelectorAll('section > .empty')].filter((one) => one.checkVisibility()).map((one) => one.innerText)"
        )
        assert [text.split()[:2] for text in shown] == [
            ["Nothing", "was"],
            ["No", "call"],
            ["No", "server"],
            ["No", "session"],
            ["Nothing", "has"],
        ]


@async_test
async def test_the_tables_follow_the_fleet_and_keep_the_focus(browser: Chromium, fleet: Fleet) -> None:
    fleet.sessions = [session(1, state="detached", closes_in=95.0), session(2)]
    async with opened(browser, fleet) as (tab, _):
        await count_is(tab, SESSIONS, 2)
        fleet.calls = [
            call(1, name="slow", age=40.0),
            call(2, name="queued", waits_for="slot", state="queued"),
            call(3, name="trip", waits_for="ask", state="parked"),
            call(4, name="report", age=0.5, state="handed over"),
        ]
        await count_is(tab, CALLS, 4)
        (slow, *_), (head, *_) = await rows(tab, CALLS), await rows(tab, "#calls-table thead tr")
        assert slow.split()[:4] == ["slow", "c0000001", "running", "handler"], head
        for text in ("claude-code", "1f0c22ab", "2025-11-25", "p-77aa", "r1"):
            assert text in slow
        tiles = await tab.text("#tiles")
        for text in ("1 queued · 1 parked · 1 handed over", "1 attached · 1 detached"):
            assert text in tiles
        await tab.js(f"document.querySelector('{CALLS}:nth-child(3) button').focus()")
        fleet.calls.pop(0)
        fleet.calls.insert(0, call(5, name="older", age=900.0))
        await tab.shows(CALLS, "older")
        assert await tab.js("document.activeElement.closest('tr')?.cells[0].innerText") in (
            "queued",
            "trip",
        )
        fleet.counts = {"duplicates refused": 12, "gaps": 3}
        fleet.happen("session.resumed", time.time(), session="s0000001", client="claude-code")
        await tab.shows("#counts-list", "12")
        await tab.shows("#feed-list", "session.resumed")


@async_test
async def test_a_grace_period_counts_down_between_two_states(browser: Chromium, fleet: Fleet) -> None:
    cell = "document.querySelector('[data-label=\"Closes in\"]').innerText"
    fleet.sessions = [session(1, state="detached", closes_in=95.0)]
    fleet.calls = [call(1, age=10.0)]
    async with opened(browser, fleet) as (tab, _):
        await tab.until(f"{cell} === '1 min 35 s'")
        # The source waits now, as it does for a replica that does not answer: the page counts by itself.
        answer, fleet.gate = fleet.gate, asyncio.Event()
        for text in ("1 min 34 s", "1 min 33 s"):
            await tab.until(f"{cell} === '{text}'")
        await tab.until("document.querySelector('[data-label=\"Age\"]').innerText === '12 s'")
        assert not await tab.exists("#stale")
        fleet.gate.set()
        fleet.gate = answer
        await tab.until(f"{cell} === '1 min 35 s'")


@async_test
async def test_a_session_is_closed_and_a_call_cancelled_after_a_confirmation(
    browser: Chromium, fleet: Fleet
) -> None:
    fleet.sessions = [session(1), session(2)]
    fleet.calls = [call(1, name="first", age=9.0), call(2, name="second", age=8.0)]
    async with opened(browser, fleet) as (tab, _):
        await count_is(tab, CALLS, 2)
        # With the mouse: the first answer is no.
        for answer in ("no", "yes"):
            await tab.click(f"{SESSIONS}:nth-child(2) td:last-child button")
            await tab.shows("#confirm-question", "Close session s0000002")
            await tab.click(f"#confirm [value={answer}]")
            await tab.until("!document.querySelector('#confirm').open")
        await count_is(tab, SESSIONS, 1)
        await tab.shows("#notice", "Done: close the session")
        # With keys only: Enter on the button that has the focus keeps the call.
        await tab.js(f"document.querySelector('{CALLS} button').focus()")
        await tab.press("Enter")
        await tab.shows("#confirm-question", "first")
        await tab.press("Enter")
        await tab.until("!document.querySelector('#confirm').open")
        assert fleet.done == ["closed s0000002"]
        await tab.press("Enter")
        await tab.until("document.querySelector('#confirm').open")
        await tab.press("Tab", "Enter")
        await count_is(tab, CALLS, 1)
        assert fleet.done == ["closed s0000002", "cancelled c0000001"]
        assert len(fleet.observer.named("audit.done")) == 2
        # It has ended while the operator decided.
        await tab.click(f"{CALLS} button")
        await tab.until("document.querySelector('#confirm').open")
        fleet.calls.clear()
        await tab.click("#confirm [value=yes]")
        await tab.shows("#notice", "ended already")


@async_test
async def test_hostile_names_are_only_text(browser: Chromium, fleet: Fleet) -> None:
    for number, name in enumerate(HOSTILE):
        fleet.sessions.append(session(number, client=name, replica=name, state=name, principal=name))
        fleet.calls.append(call(number, name=name, client=name, replica=name, waits_for=name, age=99.0))
        fleet.replicas.append(ReplicaView(name, "silent", lease_left=3.0))
        fleet.upstreams.append(UpstreamView(name, 1, name, 0, name))
        fleet.tools.append(tool(name, server=name, errors=200, trouble="failing"))
        fleet.happen(
            "handler.failed", time.time(), client=name, correlation="9c2f0b77aa10", session="s0000001"
        )
    async with opened(browser, fleet) as (tab, _):
        await count_is(tab, CALLS, len(HOSTILE))
        for width in (1280, 320):
            await tab.resize(width, 900)
            assert await has_no_sideways_scroll(tab)
        await tab.click("#calls-table td button")
        await tab.until("document.querySelector('#confirm').open")
        await tab.press("Escape")
        await tab.click(f"{SESSIONS}:nth-child(2) button")
        await tab.until("document.querySelector('#details').open")
        assert await has_no_sideways_scroll(tab)
        assert not await tab.js("document.querySelectorAll('img, td script, li script').length")
        assert "broken" not in await tab.js("document.title")
        assert (
            await tab.js("Math.max(...[...document.querySelectorAll('tr')].map((row) => row.offsetHeight))")
            < 900
        )


@async_test
async def test_a_table_is_sorted_by_the_column_that_is_pressed(browser: Chromium, fleet: Fleet) -> None:
    fleet.tools = [
        tool("search", calls_per_second=9.0),
        tool("orders", calls_per_second=20.0, errors=12),
        tool("audit", calls_per_second=0.5, slowest=3.0),
    ]
    names = "[...document.querySelectorAll('#tools-table tbody td:first-child')].map((one) => one.innerText).join()"
    async with opened(browser, fleet) as (tab, _):
        await tab.until(f"{names} === 'search,orders,audit'")
        orders = {
            ("Tool or method", "ascending"): "audit,orders,search",
            ("Calls", "descending"): "orders,search,audit",
            ("Errors", "descending"): "orders,search,audit",
            ("Slowest now", "descending"): "audit,search,orders",
        }
        head = ""
        for (column, direction), order in orders.items():
            head = f"[...document.querySelectorAll('#tools-table th')].find((one) => one.innerText.startsWith({json.dumps(column)}))"
            await tab.js(f"{head}.querySelector('button').click()")
            assert await tab.js(f"{head}.ariaSort") == direction
            await tab.until(f"{names} === {json.dumps(order)}")
            fleet.tools = [*fleet.tools]
        await tab.js(f"{head}.querySelector('button').click()")
        assert await tab.js(f"{head}.ariaSort") == "ascending"
        await tab.js(f"{head}.querySelector('button').click()")
        assert await tab.js(f"{head}.ariaSort") is None
        await tab.until(f"{names} === 'search,orders,audit'")


@async_test
async def test_a_column_without_a_value_is_hidden(browser: Chromium, fleet: Fleet) -> None:
    fleet.tools = [tool("search")]
    fleet.sessions = [session(1, principal="", log_bytes=0)]
    heads = (
        "[...document.querySelectorAll('#{}-table th')].filter((one) => one.checkVisibility())"
        ".map((one) => one.innerText).join()"
    )
    async with opened(browser, fleet) as (tab, _):
        await tab.until(f"{heads.format('tools')} === 'Tool or method,Calls,Median,95 %'")
        await tab.until(f"{heads.format('sessions')} === 'Session,Client,Era,State,Streams,Replica,Action'")
        fleet.tools = [tool("search", errors=3)]
        fleet.servers = [*fleet.servers, replace(fleet.servers[0], name="files")]
        fleet.sessions = [session(1, principal="p-1", quiet=3.0)]
        await tab.until(
            f"{heads.format('tools')} === 'Tool or method,Server,Calls,Errors,Error rate,Median,95 %'"
        )
        await tab.until(f"{heads.format('sessions')}.includes('Quiet for,Streams,Log,Principal')")


@async_test
async def test_a_problem_leads_to_its_rows(browser: Chromium, fleet: Fleet) -> None:
    fleet.tools = [tool("search"), tool("orders", errors=204, earlier_errors=9, trouble="rising")]
    fleet.calls = [call(1, waits_for="upstream", age=50.0), call(2), call(3, name="upstream-report")]
    fleet.happen("handler.failed", time.time(), tool="orders", error="KeyError: 'bob'")
    fleet.happen("handler.failed", time.time(), tool="search", error="ValueError")
    async with opened(browser, fleet) as (tab, _):
        await tab.shows(
            "#attention .bad",
            "orders\u2069 fails more often: 204 of 240 calls in the last minute (85 %), < 1 %",
        )
        await tab.click("#attention .bad button")
        await count_is(tab, "#tools-table tbody tr", 1)
        await count_is(tab, "#feed-list li", 1)
        await tab.shows("#feed-list", "KeyError: 'bob'")
        assert await tab.js("document.activeElement.id") == "tools"
        await tab.click("#attention .warn button")
        await tab.until("document.activeElement.id === 'calls'")
        await count_is(tab, CALLS, 1)
        await tab.click("#unfilter")
        await count_is(tab, CALLS, 3)
        await count_is(tab, "#tools-table tbody tr", 2)
        # The sentence changes each second, and its button keeps the focus.
        await tab.js("document.querySelector('#attention .warn button').focus()")
        fleet.calls = [call(1, waits_for="upstream", age=90.0)]
        await tab.shows("#attention .warn", "1 min 3")
        assert await tab.js("document.activeElement.innerText") == "Show"


@async_test
async def test_no_line_of_a_chart_crosses_its_labels(browser: Chromium) -> None:
    async with opened(browser, busy_fleet(time.time())) as (tab, _):
        await tab.shows("#errors-legend", "failed 3.0/s")
        for width in (1280, 390):
            await tab.resize(width, 900)
            crossed = await tab.js(
                "[...document.querySelectorAll('.plot')].filter((plot) => [...plot.querySelectorAll('span')].some((label) =>"
                " label.getBoundingClientRect().right > plot.querySelector('svg').getBoundingClientRect().left)).length"
            )
            assert crossed == 0


@async_test
async def test_a_thousand_sessions_are_shown_in_pages(browser: Chromium, fleet: Fleet) -> None:
    fleet.sessions = [session(number, client=f"client-{number}") for number in range(1000)]
    fleet.calls = [call(number, age=float(number)) for number in range(500)]
    async with opened(browser, fleet) as (tab, _):
        await tab.shows("#sessions .count", "1000")
        await count_is(tab, SESSIONS, PAGE)
        seen = await rows(tab, SESSIONS)
        for _ in range(2):
            await tab.click("#next")
            await tab.until(
                f"!{json.dumps(seen[-1].split()[0])}.includes(document.querySelector('{SESSIONS} td').innerText)"
            )
            await tab.until(f"document.querySelector('{SESSIONS} td').innerText === 's{len(seen):07x}'")
            seen += await rows(tab, SESSIONS)
        assert len({row.split()[0] for row in seen}) == 3 * PAGE
        await tab.click("#previous")
        await tab.until(f"document.querySelector('{SESSIONS} td').innerText === 's{PAGE:07x}'")
        # The filter, by its key.
        await tab.press("/")
        await tab.type("client-77")
        await count_is(tab, SESSIONS, 1)
        await tab.shows("#page-number", "1 session of this page match")
        await count_is(tab, CALLS, 0)


@async_test
async def test_a_cut_stream_is_shown_as_stale_until_the_server_is_back(
    browser: Chromium, fleet: Fleet
) -> None:
    fleet.sessions = [session(1)]
    async with opened(browser, fleet) as (tab, server):
        await server.stop()
        await tab.shows("#stale", "Stale since")
        await tab.shows("#connection", "reconnecting")
        assert await tab.js("document.title") == "Stale · Limpet"
        assert len(await rows(tab, SESSIONS)) == 1
        fleet.sessions.append(session(2))
        await server.start()
        await count_is(tab, SESSIONS, 2)
        await tab.shows("#connection", "live")
        assert not await tab.exists("#stale")
        # A server that answers, but cannot read the state.
        fleet.away = True
        await tab.shows("#stale", "the store does not answer")
        fleet.away = False
        await tab.until("document.querySelector('#stale').hidden")


@async_test
async def test_the_events_of_another_process_have_numbers_of_their_own(
    browser: Chromium, fleet: Fleet
) -> None:
    for _ in range(20):
        fleet.happen("session.opened", time.time(), client="before")
    async with opened(browser, fleet) as (tab, _):
        await tab.shows("#feed-list", "before")
        assert await tab.text("#connection") == "live", "one process needs no name"
        fleet.replica, fleet.events = "r2", []
        fleet.replicas *= 2
        fleet.happen("session.opened", time.time(), client="after")
        await tab.shows("#feed-list", "after")
        await tab.shows("#connection", "live, answered by r2")
        assert "before" not in await tab.text("#feed-list")


@async_test
async def test_faults_of_the_fleet_are_sentences_at_the_top(browser: Chromium, fleet: Fleet) -> None:
    async with opened(browser, fleet) as (tab, _):
        first = {
            "handler": "do not return",
            "ask": "wait for an answer",
            "upstream": "wait for the server behind",
            "store": "wait for the store",
            "reader": "does not read its stream",
        }
        for wait, sentence in first.items():
            fleet.calls = [
                call(1, waits_for=wait, age=31.0),
                call(2, waits_for=wait, age=400.0, name="oldest"),
                call(3, waits_for=wait, age=900.0, name="expected", state="handed over"),
            ]
            await tab.shows("#attention", sentence)
            assert "oldest\u2069, called by \u2068claude-code" in await tab.text("#attention")
        fleet.calls = [call(1, waits_for="slot", state="queued", age=0.1)]
        await tab.shows("#attention", "1 call waits for a free slot")
        fleet.calls = []
        live = fleet.replicas[0]
        fleet.replicas = [live, ReplicaView("r2", "silent", lease_left=8.0)]
        await tab.shows("#attention .bad", "does not answer. Its lease ends in")
        fleet.replicas = [live, ReplicaView("r2", "gone")]
        await tab.shows("#attention .bad", "is gone: its lease has ended")
        fleet.happen("loop.blocked", 1.0, function="crawl", place="shop.py:12", seconds="1.0", replica="r1")
        fleet.replicas = [replace(live, loop_delay_max=0.4)]
        await tab.shows(
            "#attention", "was late by 400 ms in the last minute: something blocks its event loop."
        )
        assert "\u2068crawl\u2069 (\u2068shop.py:12\u2069)" in await tab.text("#attention")
        fleet.replicas = [live]
        fleet.upstreams = [
            UpstreamView("files", 0, "failing", 3, "r1", worked=125.0, failed=3.0, reason="no route")
        ]
        await tab.shows("#attention", "The server behind \u2068files\u2069 is \u2068failing")
        await tab.shows("#attention", "\u2068no route\u2069")
        await row_shows(tab, "#upstreams-table tbody tr", "2 min 0", "s ago: no route")
        fleet.upstreams = [
            UpstreamView(
                "team/samples",
                1,
                "connected",
                3,
                "c8be379f5bc8",
                worked=95.0,
                failed=96.0,
                reason="a long reason " * 9,
            )
        ]
        await row_shows(tab, "#upstreams-table tbody tr", "team/samples")
        assert await tab.js(LINES) == [1, 1]
        fleet.upstreams = []
        await tab.shows("#attention", "Nothing needs attention.")
        (shop,) = fleet.servers
        fleet.servers = [replace(shop, is_away=True)]
        fleet.replicas = [live, ReplicaView("r2", "silent")]
        await tab.shows(
            "#attention .bad", "The store of \u2068shop\u2069 (\u2068redis\u2069) does not answer"
        )
        assert "Replica" not in await tab.text("#attention"), "it is asked through the store"
        unknown = "The sessions are not known: their store does not answer."
        await tab.until(
            f"document.querySelector('section:has(#sessions) .empty').textContent === '{unknown}'"
        )
        fleet.servers, fleet.replicas = [shop], [live]
        await tab.shows("#attention", "Nothing needs attention.")
        fleet.tools = [
            tool("orders", calls=10, errors=5, earlier_calls=10, earlier_errors=5, trouble="failing")
        ]
        await tab.shows("#attention .bad", "fails: 10 of 20 calls in the last five minutes (50 %)")
        fleet.tools = []
        fleet.happen("queue.full", time.time(), client="raw", session="1f0c22ab", running="2", queued="1")
        await tab.shows("#attention .warn", "The queue of a session of \u2068raw\u2069 was full")
        fleet.happen("store.unreachable", time.time(), error="refused")
        await tab.shows("#attention .bad", "The store did not answer")
        fleet.happen(
            "verifier.failed",
            time.time(),
            authorization_server="https://id.example",
            reason="answered 500 instead of the keys",
        )
        await tab.shows(
            "#attention",
            "the authorization server \u2068https://id.example\u2069 fails (\u2068answered 500",
        )


@async_test
async def test_events_are_found_by_correlation_id_and_by_session(browser: Chromium, fleet: Fleet) -> None:
    fleet.sessions = [session(1)]
    fleet.happen("handler.failed", time.time(), tool="search", session="s0000001", correlation="9c2f0b77aa10")
    fleet.happen("session.opened", time.time(), session="s0000001")
    for _ in range(500):
        fleet.happen("call.ended", time.time(), tool="quiet")
    async with opened(browser, fleet) as (tab, _):
        await tab.shows("#feed-list", "session.opened")
        assert "call.ended" not in await tab.text("#feed-list")
        await tab.click("#feed-calls")
        await tab.shows("#feed-list", "call.ended")
        for wanted, found in {"9c2f0b77aa10": "#details ol", "nothing/../else": "#notice"}.items():
            await tab.js(
                "document.querySelector('#correlation').value = ''; document.querySelector('#correlation').focus()"
            )
            await tab.type(wanted)
            await tab.press("Enter")
            await tab.until(f"document.querySelector('{found}').checkVisibility()")
            if found != "#notice":
                assert len(await rows(tab, "#details ol li")) == 1
                await tab.press("Escape")
        await tab.click(f"{SESSIONS} button")
        await tab.shows("#details h2", "Session s0000001")
        assert len(await rows(tab, "#details ol li")) == 2
        assert "claude-code" in await tab.text("#details dl")


@async_test
async def test_charts_and_colours_and_a_narrow_window(browser: Chromium) -> None:
    async with opened(browser, busy_fleet(time.time())) as (tab, _):
        await count_is(tab, CALLS, 8)
        for chart, paths in {"rate": 2, "latency": 3}.items():
            assert await tab.js(f"document.querySelectorAll('#{chart} path').length") == paths
            assert "L" in await tab.js(f"document.querySelector('#{chart} path').getAttribute('d')")
        backs = []
        for dark in (False, True):
            await tab.colours(dark=dark)
            backs.append(await tab.js("getComputedStyle(document.documentElement).backgroundColor"))
            for width in (320, 390, 700, 861, 1000, 1280, 2000):
                await tab.resize(width, 800)
                assert await has_no_sideways_scroll(tab), width
        assert backs[0] != backs[1]
        await tab.resize(320, 640)
        assert (await rows(tab, CALLS))[0].startswith("Call") or await tab.js(
            f"getComputedStyle(document.querySelector('{CALLS} td'), '::before').content"
        ) == '"Call"'


@async_test
async def test_the_page_gives_a_silent_server_up_and_asks_again(browser: Chromium, fleet: Fleet) -> None:
    async with opened(browser, fleet) as (tab, _):
        fleet.gate = asyncio.Event()
        asked = fleet.asked
        # The page's own clock runs ahead, so that the test need not wait for it.
        await tab.js(
            "(() => { const now = performance.now.bind(performance); performance.now = () => now() + 20000; })()"
        )
        await tab.shows("#stale", "Stale since")
        await until(lambda: fleet.asked > asked + 1)
        fleet.gate.set()
        await tab.until("document.querySelector('#stale').hidden")
