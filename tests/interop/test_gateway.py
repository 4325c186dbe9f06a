"""Ten servers of one file at one address, for real clients of both eras: one is killed, one is slow, and one never starts."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from limpet import Client, McpError
from tests.http.client import Client as RawClient
from tests.http.serving import limpet_serve
from tests.interop.oauth.processes import authority, client
from tests.interop.peers import serving
from tests.support import BOUND, async_test
from tools.ports import free_port

ROOT: Final = Path(__file__).parents[2]
CLIENTS: Final = ROOT / "tests" / "interop" / "clients"
SMALL: Final = ROOT / "tests" / "backs" / "several" / "small.py"
NAMED: Final = ROOT / "tests" / "backs" / "named.py"
COMMANDS: Final = {
    "mcp2": [str(ROOT / ".peers/mcp2/bin/python"), str(CLIENTS / "gateway.py"), "mcp2"],
    "fastmcp": [str(ROOT / ".peers/fastmcp/bin/python"), str(CLIENTS / "gateway.py"), "fastmcp"],
    "ts2": [str(ROOT / ".node/bin/node"), str(CLIENTS / "gateway.mjs")],
}
MODES: Final = ("auto", "legacy")
VERSIONS: Final = ["2026-07-28", "2025-11-25"]
HEALTHY: Final = ("native", "p1", "p2", "p3", "p4", "behind")
ILL: Final = ("mortal", "slow", "never", "gone")


def text_of_file(directory: Path, upstream: int) -> str:
    def program(name: str, *words: str) -> str:
        command = [sys.executable, "-I", "-S", str(SMALL), name, *words]
        return f"[servers.{name}]\ncommand = {json.dumps(command)}\nprobe = false\nproxy = {{ included_seconds = 2 }}\n"

    return "\n".join(
        (
            "[times]\ndrain = 5\n",
            f'[servers.native]\nobject = "{NAMED}"\n',
            *(program(name) for name in HEALTHY if name.startswith("p")),
            f'[servers.behind]\nurl = "http://127.0.0.1:{upstream}/mcp"\n',
            program("mortal", str(directory / "dead")),
            program("slow", "slow"),
            program("never", "never"),
            f'[servers.gone]\nurl = "http://127.0.0.1:{free_port()}/mcp"\n',
            f"[servers.all]\nservers = {json.dumps([*HEALTHY, *ILL])}\n",
        )
    )


@async_test
async def killed(url: str) -> None:
    """Kill one of the servers by its own tool, and see that only its components are gone."""
    async with Client(url, protocol_version="sessions") as client:
        await until_listed(client, {f"{name}_who" for name in (*HEALTHY, "mortal")})
        with pytest.raises(McpError):
            await client.call_tool("mortal_die")
        names = {tool.name for tool in await client.list_tools(fresh=True)}
        assert "mortal_who" not in names
        assert "p1_who" in names


async def until_listed(client: Client, wanted: set[str]) -> None:
    while not wanted <= {tool.name for tool in await client.list_tools(fresh=True)}:
        pass


def test_ten_servers_at_one_address_serve_clients_of_both_eras_while_four_of_them_are_ill(
    tmp_path: Path,
) -> None:
    file = tmp_path / "limpet.toml"
    program = tmp_path / "app.py"
    program.write_text(NAMED.read_text().replace('"native"', '"behind"'))
    with limpet_serve(str(program)) as upstream:
        file.write_text(text_of_file(tmp_path, upstream.port))
        with limpet_serve(str(file)) as process:
            url = f"http://127.0.0.1:{process.port}/all/mcp"
            killed(url)
            tools = ",".join(f"{name}_who" for name in HEALTHY)
            running = {
                peer: subprocess.Popen(
                    [*command, url, tools, *MODES], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                )
                for peer, command in COMMANDS.items()
            }
            try:
                for peer, client in running.items():
                    printed, errors = client.communicate(timeout=BOUND)
                    assert client.returncode == 0, f"{peer}: {printed}\n{errors}\n{process.output()}"
                    talks = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
                    assert [talk["version"] for talk in talks] == VERSIONS, peer
                    for talk in talks:
                        assert talk["texts"] == {f"{name}_who": name for name in HEALTHY}
                        prefixes = {name.partition("_")[0] for name in talk["tools"]}
                        assert not prefixes & {"mortal", "never", "gone"}
            finally:
                for client in running.values():
                    client.kill()
            assert process.terminate(BOUND) == 0, process.output()
            log = process.output()
    for name in ("never", "slow"):
        assert any("upstream.late" in line and f"all/{name}" in line for line in log.splitlines()), log
    assert any("upstream.unreachable" in line and "all/gone" in line for line in log.splitlines()), log


def test_users_sign_in_to_a_gateway_that_a_file_describes(tmp_path: Path) -> None:
    port, file = free_port(), tmp_path / "limpet.toml"
    url = f"http://127.0.0.1:{port}/all/mcp"
    small = json.dumps([sys.executable, "-I", "-S", str(SMALL), "small"])

    @async_test
    async def refused() -> None:
        response = await RawClient(port, path="/all/mcp").post(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        )
        assert response.status == 401
        assert 'scope="mail.read"' in response.headers["www-authenticate"]
        response.connection.cut()

    with authority(tmp_path, url) as provider:
        file.write_text(
            f'oidc_issuer = "{provider.issuer}"\n[servers.native]\nobject = "{NAMED}"\n[servers.small]\ncommand = {small}\n'
            f'[servers.all]\nservers = ["native", "small"]\npublic_url = "{url}"\noidc_scopes = ["mail.read"]\n'
        )
        with serving(tmp_path, {}, str(file), port=port):
            refused()
            user = client("mcp2", url, tmp_path)
            try:
                assert user.line() == {"step": "connected"}
                for tool, text in (("native_who", "native"), ("small_who", "small")):
                    user.say(tool)
                    said = user.line()
                    for era in ("legacy", "auto"):
                        assert text in str(said[era]), said
                        assert "error" not in said[era]
            finally:
                user.kill()
        asked = [event["scope"] for event in provider.seen() if event["event"] == "agreed"]
    assert asked
    assert all("mail.read" in scope for scope in asked)
