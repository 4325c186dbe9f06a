"""`limpet serve FILE`: several servers in one real process, of every kind, for clients of both eras."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from limpet import Client, LimpetError
from tests.command_line import run
from tests.http.client import Client as RawClient
from tests.http.client import Connection
from tests.http.serving import Process, limpet_serve
from tests.support import BOUND, async_test

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
NAMED: Final = str(HERE / "named.py")
ALL: Final = ("one", "two", "behind", "native", "guarded")
ERAS: Final = ("sessions", "sessionless")


def text_of_file(upstream: int) -> str:
    program = f"command = [{json.dumps(sys.executable)}, {json.dumps(NAMED)}]"
    return f"""
[times]
drain = 5

[servers.one]
{program}
env = {{ NAME = "one" }}

[servers.two]
{program}
env = {{ NAME = "two" }}
concurrency = 1

[servers.behind]
url = "http://127.0.0.1:{upstream}/mcp"

[servers.native]
object = "{NAMED}:server"

[servers.guarded]
object = "{HERE / "other.py"}"
verifier = "{NAMED}:verify"
path = "/under/guard"

[servers.broken]
command = ["/nowhere/no-such-program"]
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One process with two programs, a URL, two objects, and a program that does not exist."""
    file = tmp_path_factory.mktemp("several") / "limpet.toml"
    program = tmp_path_factory.mktemp("upstream") / "app.py"
    program.write_text(Path(NAMED).read_text().replace('"native"', '"behind"'))
    with limpet_serve(str(program)) as upstream:
        file.write_text(text_of_file(upstream.port))
        with limpet_serve(str(file)) as process:
            yield process
            assert process.terminate(BOUND) == 0, process.output()


def url_of(served: Process, name: str) -> str:
    path = "under/guard" if name == "guarded" else f"{name}/mcp"
    return f"http://127.0.0.1:{served.port}/{path}"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", ALL)
@async_test
async def test_every_server_answers_clients_of_both_eras(served: Process, name: str, era: str) -> None:
    token = "right" if name == "guarded" else None
    async with Client(url_of(served, name), protocol_version=era, auth=token) as client:
        assert (await client.call_tool("who")).text == name


@async_test
async def sessions_do_not_cross(port: int) -> None:
    first = await RawClient.opened(port, path="/one/mcp")
    assert await first.call("who") == "one"
    for other in ("/two/mcp", "/native/mcp", "/behind/mcp"):
        stranger = RawClient(port, path=other)
        stranger.session_id = first.session_id
        response = await stranger.start("who")
        assert response.status == 404
        response.connection.cut()
        assert await stranger.delete() == 404
    assert await first.call("who") == "one"
    assert await first.delete() == 204


def test_a_session_of_one_server_is_unknown_to_the_others(served: Process) -> None:
    sessions_do_not_cross(served.port)


@async_test
async def test_a_program_that_cannot_start_is_an_error_for_its_own_clients_only(served: Process) -> None:
    with pytest.raises(LimpetError, match="no-such-program"):
        async with Client(url_of(served, "broken"), protocol_version="sessions"):
            pass
    async with Client(url_of(served, "one"), protocol_version="sessions") as client:
        assert (await client.call_tool("who")).text == "one"


@async_test
async def test_a_verifier_of_the_file_guards_its_server_and_no_other(served: Process) -> None:
    for token, status in (("", 401), ("wrong", 401), ("right", 200)):
        client = RawClient(served.port, path="/under/guard", token=token)
        response = await client.post({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert response.status == (status if status == 401 else 400), "without a session id a ping is refused"
        response.connection.cut()


@async_test
async def test_probes_answer_for_all_and_other_paths_name_nothing(served: Process) -> None:
    connection = await Connection.open(served.port)
    for path, status, body in (
        ("/healthz", 200, b"alive\n"),
        ("/readyz", 200, b"ready\n"),
        ("/mcp", 404, b"no endpoint at this path"),
        ("/", 404, b"no endpoint at this path"),
    ):
        response = await connection.request("GET", {}, path=path)
        assert response.status == status
        assert body in await response.body()
    connection.cut()


def test_the_banner_lists_every_server_with_its_url(served: Process) -> None:
    shown = served.output()
    for name in (*ALL, "broken"):
        assert url_of(served, name) in shown
    assert NAMED not in shown.partition("clients")[0], "arguments of a program may be secrets"


def test_stdio_serves_one_server_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "limpet.toml"
    file.write_text(text_of_file(1))
    refused = run("serve", str(file), "--stdio")
    assert refused.status == 2
    assert "--stdio serves one server: choose it with --only NAME; the file has one, two" in refused.err
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "x", "version": "1"},
        },
    }
    answered = subprocess.run(
        [sys.executable, "-m", "limpet", "serve", str(file), "--stdio", "--only", "native"],
        input=json.dumps(hello) + "\n",
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert json.loads(answered.stdout.splitlines()[0])["result"]["serverInfo"]["name"] == "native"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('object = "none.py"', "[servers.bad] there is no file"),
        (f'object = "{NAMED}:none"', "[servers.bad] "),
        (
            f'object = "{NAMED}"\nconcurrency = 1',
            "[servers.bad] concurrency is for a server in front of another one",
        ),
        (f'object = "{NAMED}"\nverifier = "{NAMED}:none"', "has no function 'none'"),
        (
            f'object = "{NAMED}"\nstore = "redis://127.0.0.1:1"',
            "[servers.bad] the store redis://127.0.0.1:1 cannot be used",
        ),
        (f'object = "{NAMED}"\npath = "/good/mcp"', "/good/mcp belongs to bad and to good"),
        (f'object = "{NAMED}"\nstore = "sqlite:///s.db"\nnamespace = "good"', "would share their sessions"),
        (
            'url = "http://h"\ntoken_env = "NOT_SET_AT_ALL"',
            "[servers.bad] token_env NOT_SET_AT_ALL: this variable is not set",
        ),
    ],
)
def test_a_server_that_cannot_work_is_refused_at_start_by_its_name(
    table: str, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "limpet.toml"
    good = f'[servers.good]\nobject = "{HERE / "other.py"}"\nstore = "sqlite:///s.db"'
    file.write_text(f"{good}\n[servers.bad]\n{table}")
    refused = run("serve", str(file), "--http", "127.0.0.1:0")
    assert (refused.status, refused.out) == (2, ""), refused.err
    assert said in refused.err
    assert "Traceback" not in refused.err


def test_workers_serve_every_server_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "limpet.toml"
    file.write_text(
        f'workers = 2\n[servers.native]\nobject = "{NAMED}"\n[servers.other]\nobject = "{HERE / "other.py"}"\n'
        f'[servers.program]\ncommand = [{json.dumps(sys.executable)}, "{NAMED}"]\nenv = {{ NAME = "program" }}'
    )

    @async_test
    async def call(port: int) -> None:
        native = await RawClient.opened(port, path="/native/mcp")
        other = await RawClient.opened(port, path="/other/mcp")
        program = await RawClient.opened(port, path="/program/mcp")
        for client, said in ((native, "native"), (other, "guarded"), (program, "program")):
            # Each call has a connection of its own: both workers get some.
            assert {await client.call("who") for _ in range(8)} == {said}
        other.path = "/native/mcp"
        response = await other.start("who")
        assert response.status == 404
        response.connection.cut()

    with limpet_serve(str(file)) as process:
        call(process.port)
        process.tell(signal.SIGTERM)
        assert process.ended(BOUND) == 0, process.output()


def test_the_servers_of_an_mcp_json_are_served(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    entry = {"command": sys.executable, "args": [NAMED], "env": {"NAME": "from json"}}
    file.write_text(json.dumps({"mcpServers": {"My Server": entry}}))

    @async_test
    async def call(port: int) -> None:
        async with Client(f"http://127.0.0.1:{port}/My-Server/mcp") as client:
            assert (await client.call_tool("who")).text == "from json"

    with limpet_serve(str(file)) as process:
        call(process.port)


def test_the_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    # The example calls `limpet`, as a user with an active environment would.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")

    @async_test
    async def call(port: int) -> None:
        for name, tool in (("weather", "forecast"), ("everything", "echo")):
            async with Client(f"http://127.0.0.1:{port}/{name}/mcp") as client:
                assert tool in {listed.name for listed in await client.list_tools()}

    with limpet_serve(str(ROOT / "examples" / "limpet.toml")) as process:
        call(process.port)
