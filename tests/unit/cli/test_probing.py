"""The first connection to a server behind: its result is in the banner before anything is served."""

import contextlib
import sys
from collections.abc import AsyncIterator

import pytest

from limpet.cli.behind import FilePart, ServerSource
from limpet.cli.config.plan import Endpoint
from limpet.cli.options import Options
from limpet.cli.prepared import Prepared
from limpet.cli.probing import probing
from limpet.errors import ConfigError
from limpet.server.running.operations import Operations
from tests.support import BOUND, async_test

WORKS = """
import json, sys
for line in sys.stdin:
    said = json.loads(line)
    if said.get("method") == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "shop", "version": "3"}}
        print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": result}), flush=True)
    elif "id" in said:
        error = {"code": -32601, "message": "unknown"}
        print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "error": error}), flush=True)
"""
FAILS = "import sys; sys.exit('no database')"
URL = "http://127.0.0.1:9/mcp"


@contextlib.asynccontextmanager
async def tried(
    source: ServerSource, name: str = "", operations: Operations | None = None, **options: object
) -> AsyncIterator[str]:
    """Try a server, and give the line of the banner while it could serve."""
    endpoint = Endpoint(name=name, source=source, options=Options(**options))  # type: ignore[arg-type]
    prepared = Prepared((endpoint,), operations)
    (server,) = prepared.servers.values()
    await server.engine.ensure_started()
    try:
        async with probing(prepared, None):
            yield "\n".join(prepared.report("http://127.0.0.1:1").servers[0].behind)
    finally:
        await server.engine.aclose()


def program(code: str) -> ServerSource:
    return ServerSource(command=(sys.executable, "-c", code))


@async_test
async def test_a_program_that_works_is_named_as_it_calls_itself() -> None:
    async with tried(program(WORKS), children=1) as line:
        assert line == "answers as shop 3 (2025-11-25)"


@async_test
async def test_a_program_of_the_command_line_that_fails_ends_the_start_with_its_last_words() -> None:
    with pytest.raises(ConfigError) as refused:
        async with tried(program(FAILS)):
            pass
    said = str(refused.value)
    assert "does not work as an MCP server" in said
    assert "it ended with status 1" in said
    assert "no database" in said
    assert "--no-probe" in said


@async_test
async def test_a_program_that_never_answers_is_given_up_after_the_start_timeout() -> None:
    with pytest.raises(ConfigError, match=r"did not answer within 0.5 s of its start \(.*--start-timeout\)"):
        async with tried(program("import time; time.sleep(600)"), start_timeout=0.5):
            pass


@pytest.mark.parametrize(
    ("source", "name", "options", "line"),
    [
        (program(FAILS), "shop", {}, "fails: cannot connect"),
        (ServerSource(url=URL), "", {}, f"fails: cannot connect to {URL}"),
        (program(FAILS), "", {"probe": False}, ""),
        (
            program(FAILS),
            "",
            {"env": {"KEY": "header:X-Key"}},
            "not tried: it needs a value from the request",
        ),
        (ServerSource(url=URL), "", {"oauth": True}, "not tried: the first client signs in"),
    ],
)
@async_test
async def test_other_servers_are_served_with_any_result(
    source: ServerSource, name: str, options: dict[str, object], line: str
) -> None:
    async with tried(source, name, None, **options) as shown:
        assert shown.startswith(line)
        assert bool(shown) == bool(line)


@async_test
async def test_the_health_of_a_server_that_was_tried_is_known() -> None:
    operations = Operations()
    async with tried(ServerSource(url=URL), "far", operations), operations.source() as source:
        (seen,) = (await source.state("", 0)).upstreams
        assert (seen.server, seen.state, seen.worked) == ("far", "failing", None)
        assert seen.failed is not None
        assert f"cannot connect to {URL}" in seen.reason
        found = {(sample.family, sample.labels): sample.value for sample in await source.metrics()}
    assert found["limpet_upstream_last_success_timestamp_seconds", ("far",)] == 0
    assert found["limpet_upstream_last_failure_timestamp_seconds", ("far", "unreachable")] > 1e9


@async_test
async def test_each_part_of_a_server_is_tried_and_the_whole_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("limpet.cli.probing.URL_SECONDS", BOUND)
    parts = tuple(
        FilePart(name=name, prefix=name, source=source, options=options, where=name)
        for name, source, options in (
            ("shop", program(WORKS), Options()),
            ("broken", program(FAILS), Options()),
            ("web", ServerSource(url=URL), Options()),
            ("quiet", program(WORKS), Options(probe=False)),
        )
    )
    async with tried(ServerSource(name="all", parts=parts), "all") as lines:
        assert lines.startswith("shop: answers as shop 3 (2025-11-25)\nbroken: fails: ")
        assert "no database\nweb: fails: cannot connect" in lines
        assert "quiet" not in lines
