"""Our own server passes every probe, on every store, and no session stays."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from limpet import Client
from limpet.testing import check
from tests.http.serving import limpet_serve
from tests.programs import program
from tests.redis_server import redis_server
from tests.support import async_test

APP = "tests/checking/app.py:server"


@pytest.fixture(params=["memory", "sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        match request.param:
            case "sqlite":
                yield f"sqlite:{tmp_path / 'sessions.db'}"
            case "redis":
                program("redis-server")
                yield stack.enter_context(redis_server()).url
            case _:
                yield "memory"


def test_our_server_passes_every_probe_on_every_store_and_keeps_no_session(store: str) -> None:
    options = () if store == "memory" else ("--store", store)

    @async_test
    async def attempt() -> None:
        report = await check(url)
        others = {row.probe for row in report.rows if row.verdict != "pass"}
        unused = {"authorization", "handed-over"}
        assert others == unused, f"the server has no tokens, no slow calls, and passes the rest: {report}"
        assert report.passed
        assert (report.server, report.versions, report.tool) == (
            "kitchen 2",
            ("2025-11-25", "2026-07-28"),
            "look",
        )
        assert report.seconds < 55
        async with Client(url, protocol_version="sessions") as client:
            status = await client.call_tool("status")
        assert status.text == "1 open, called look", "the session of this client is the only one"

    with limpet_serve(APP, "--log-level", "error", *options) as running:
        url = f"http://127.0.0.1:{running.port}/mcp"
        attempt()


def test_our_server_keeps_the_result_of_a_slow_call_beyond_its_session() -> None:
    @async_test
    async def attempt() -> None:
        report = await check(url, only=["handed-over"])
        row = report.row("handed-over")
        assert (row.verdict, "collected in another one" in row.happened) == ("pass", True), str(report)

    with limpet_serve(APP, "--log-level", "error", "--hand-over", "0.03") as running:
        url = f"http://127.0.0.1:{running.port}/mcp"
        attempt()
