"""The dashboard over the real product: two `limpet serve --admin` processes that share a Redis."""

import asyncio
import contextlib
import json
import signal
from collections.abc import Iterator

import pytest

from tests.browser.chromium import Chromium, Tab
from tests.browser.dashboard import CALLS, SESSIONS, act_on, count_is, row_is_gone, row_shows, rows, signed_in
from tests.browser.product import TOKEN, admin_url, detached, operated
from tests.command_line import Done, run
from tests.http.client import Client, http_test
from tests.redis_server import needs_redis, redis_server
from tests.support import until
from tests.workers.fleet import Fleet

pytestmark = needs_redis


@pytest.fixture(scope="module")
def replicas() -> Iterator[tuple[Fleet, Fleet]]:
    """Two processes; the tests open the dashboard of the first one, and the last test kills the second one."""
    with redis_server() as redis, contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(operated("--store", redis.url)) for _ in range(2))
        yield first, second


@http_test
async def test_work_of_another_replica_is_seen_live_and_cancelled(
    browser: Chromium, replicas: tuple[Fleet, Fleet]
) -> None:
    here, there = replicas
    async with browser.tab() as tab:
        await signed_in(tab, admin_url(here), TOKEN)
        await count_is(tab, "#replicas-table tbody tr", 2)
        client = await Client.opened(there.port, name="far-client")
        await row_shows(tab, SESSIONS, "far-client", "attached")
        response = await client.start("steps", n=10_000, seconds=0.1)
        await row_shows(tab, CALLS, "steps", "far-client", "handler")
        await act_on(tab, CALLS, "steps", "far-client")
        answer = await response.answer()
        assert answer["error"]["code"] == -32800
        await row_is_gone(tab, CALLS, "steps")
        assert tab.complaints == []


@http_test
async def test_a_detached_session_counts_down_and_is_closed(
    browser: Chromium, replicas: tuple[Fleet, Fleet]
) -> None:
    here, there = replicas
    async with browser.tab() as tab:
        await signed_in(tab, admin_url(here), TOKEN)
        client = await detached(there.port, "asleep")
        await row_shows(tab, SESSIONS, "asleep", "detached", "min")
        before = await _closes_in(tab)
        await until(lambda: _is_less(tab, before))
        await act_on(tab, SESSIONS, "asleep")
        await row_is_gone(tab, SESSIONS, "asleep")
        response = await client.get()
        assert response.status == 404
        await tab.shows("#feed-list", "session.closed")


@http_test
async def test_the_command_line_shows_and_closes_the_same_sessions(
    replicas: tuple[Fleet, Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = replicas

    async def sessions(*words: str) -> Done:
        return await asyncio.to_thread(run, "sessions", *words)

    monkeypatch.setenv("LIMPET_ADMIN_TOKEN", TOKEN)
    monkeypatch.setenv("LIMPET_ADMIN_URL", admin_url(here))
    client = await detached(there.port, "far-away")

    async def far_away() -> tuple[str, str]:
        listed = json.loads((await sessions("ls", "--json")).out)
        ((name, state),) = [(one["id"], one["state"]) for one in listed if one["client"] == "far-away"]
        return name, state

    async def is_detached() -> bool:
        return (await far_away())[1] == "detached"

    # A call that comes before the end of the connection is noticed keeps the session attached.
    await until(is_detached)
    await client.call("who")
    await client.start("steps", n=10_000, seconds=0.1)
    name, _ = await far_away()

    async def is_shown() -> bool:
        # A busy replica may not answer in time: it is asked again.
        shown = (await sessions("show", name)).out
        wanted = ("session.opened", "session.detached", "tool=who", "steps", "handler")
        return all(text in shown for text in wanted)

    await until(is_shown)
    assert (await sessions("close", name, "--yes")).status == 0
    assert (await sessions("close", name, "--yes")).status == 1
    closed = (await sessions("show", name)).out
    assert "is closed." in closed
    assert "session.closed" in closed


async def _closes_in(tab: Tab) -> int:
    minutes, seconds = await tab.js(
        "document.querySelector('#sessions-table .warn').closest('tr').querySelector('[data-label=\"Closes in\"]')"
        ".innerText.match(/\\d+/g)"
    )
    return int(minutes) * 60 + int(seconds)


async def _is_less(tab: Tab, before: int) -> bool:
    return await _closes_in(tab) <= before - 2


@http_test
async def test_a_thousand_real_sessions_are_shown_in_pages(
    browser: Chromium, replicas: tuple[Fleet, Fleet]
) -> None:
    here, there = replicas
    ports = [here.port, there.port]
    for first in range(0, 1000, 50):
        await asyncio.gather(
            *(Client.opened(ports[one % 2], name=f"many-{first + one}") for one in range(50))
        )
    async with browser.tab() as tab:
        await signed_in(tab, admin_url(here), TOKEN)
        await tab.until("Number(document.querySelector('#sessions .count').innerText) >= 1000")
        seen: set[str] = set()
        for page in range(1, 4):
            await tab.shows("#page-number", f"page {page},")
            await tab.until(f"!{sorted(seen)!r}.includes(document.querySelector('{SESSIONS} td').innerText)")
            shown = {row.split()[0] for row in await rows(tab, SESSIONS)}
            assert not shown & seen
            seen |= shown
            await tab.click("#next")
        assert len(seen) > 100


@http_test
async def test_a_killed_replica_is_recognised_and_its_call_ends(
    browser: Chromium, replicas: tuple[Fleet, Fleet]
) -> None:
    here, there = replicas
    client = await Client.opened(there.port, name="unlucky")
    async with browser.tab() as tab:
        await signed_in(tab, admin_url(here), TOKEN)
        await client.start("steps", n=10_000, seconds=0.1)
        await row_shows(tab, CALLS, "steps", "unlucky")
        there.tell(signal.SIGKILL)
        await tab.until(
            "/does not answer|is gone/.test(document.querySelector('#attention .bad')?.innerText ?? '')"
        )
        await row_is_gone(tab, CALLS, "steps")
        await row_shows(tab, "#replicas-table tbody tr", "gone")
        await tab.shows("#feed-list", "exchange.reaped")
        await tab.shows("#connection", "live")
