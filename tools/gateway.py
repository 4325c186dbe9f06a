"""Ten servers of PyPI, npm and ours at one address, as docs/how-to/gateway.md puts them there: `python -m tools.gateway`.

It installs the packages into build/gateway (a minute, once), serves them with a fixed token, and calls them with clients of both
eras. Then it kills the process of one server and stops that of another one, and calls all of them again. It prints a line for each step,
and ends with status 1 if one has failed.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from limpet import Client
from limpet.errors import LimpetError
from tools.ports import free_port

ROOT: Final = Path(__file__).parents[1]
BUILD: Final = ROOT / "build" / "gateway"
PYPI: Final = ("mcp-server-time", "mcp-server-fetch", "mcp-server-git", "mcp-server-sqlite")
NPM: Final = tuple(
    f"@modelcontextprotocol/server-{name}"
    for name in ("filesystem", "memory", "sequential-thinking", "everything")
)
TOKEN: Final = "a-token-for-this-trial-only"  # noqa: S105 - it is for one process on this machine
FILE: Final = """
http = "127.0.0.1:{port}"
verifier = "people.py:verifier"

[servers.ours]
object = "ours.py:server"
[servers.clock]
command = ["{pypi}/mcp-server-time"]
[servers.web]
command = ["{pypi}/mcp-server-fetch"]
[servers.git]
command = ["{pypi}/mcp-server-git"]
only_tools = ["git_status", "git_log"]
rename_tools = {{ "git_*" = "*" }}
[servers.sqlite]
command = ["{pypi}/mcp-server-sqlite", "--db-path", "data.db"]
[servers.files]
command = ["{npm}/mcp-server-filesystem", "."]
hide_tools = ["write_*"]
[servers.memory]
command = ["{npm}/mcp-server-memory"]
[servers.think]
command = ["{npm}/mcp-server-sequential-thinking"]
[servers.samples]
command = ["{npm}/mcp-server-everything"]
[servers.never]
command = ["sleep", "1000"]
[servers.team]
servers = ["ours", "clock", "web", "git", "sqlite", "files", "memory", "think", "samples", "never"]
"""
PEOPLE: Final = (
    f'from limpet.auth.verifiers import StaticTokens\nverifier = StaticTokens({{"{TOKEN}": "ann"}})\n'
)
OURS: Final = (
    'from limpet import Server\nserver = Server("ours")\nserver.tool(name="on_call")(lambda: "Ann")\n'
)
CALLS: Final[dict[str, dict[str, object]]] = {
    "ours_on_call": {},
    "clock_get_current_time": {"timezone": "UTC"},
    "git_status": {"repo_path": str(ROOT)},
    "files_list_allowed_directories": {},
    "memory_read_graph": {},
    "samples_echo": {"message": "hello"},
}


def install() -> None:
    """Install the packages that are missing."""
    if not (BUILD / "pypi").is_dir():
        subprocess.run([sys.executable, "-m", "venv", BUILD / "pypi"], check=True)
    if not (BUILD / "pypi" / "bin" / PYPI[-1]).exists():
        subprocess.run([BUILD / "pypi" / "bin" / "pip", "install", "-q", *PYPI], check=True)
    if not (BUILD / "npm").is_dir():
        words = ["npm", "install", "--prefix", BUILD / "npm", "--no-save", "--no-audit", "--no-fund", *NPM]
        subprocess.run([*words, "--loglevel=error"], check=True)


@asynccontextmanager
async def gateway() -> AsyncIterator[tuple[str, int]]:
    """Serve the file; yield the URL, and the process id of the gateway."""
    with tempfile.TemporaryDirectory() as made:
        directory, port = Path(made), free_port()
        pypi, npm = BUILD / "pypi" / "bin", BUILD / "npm" / "node_modules" / ".bin"
        (directory / "limpet.toml").write_text(FILE.format(port=port, pypi=pypi, npm=npm))
        (directory / "people.py").write_text(PEOPLE)
        (directory / "ours.py").write_text(OURS)
        node = ROOT / ".node" / "bin"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "limpet", "serve", "limpet.toml", "--log-level", "error"),
            cwd=directory,
            env={**os.environ, "PATH": f"{node}:{os.environ['PATH']}"},
            stderr=asyncio.subprocess.PIPE,
        )
        if process.stderr is None:
            raise RuntimeError("no standard error")
        try:
            async for line in process.stderr:
                text = line.decode()
                if text.lstrip().startswith("behind"):
                    print(text.rstrip())
                if text.lstrip().startswith("clients"):
                    break
            draining = asyncio.ensure_future(process.stderr.read())
            yield f"http://127.0.0.1:{port}/team/mcp", process.pid
            draining.cancel()
        finally:
            process.terminate()
            await process.wait()


def children_of(pid: int, word: str) -> list[int]:
    """Return the processes of a gateway, or below them, whose command has this word."""
    listed = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
    below, _found = {pid}, list[int]()
    for _ in range(4):
        below |= {int(one[0]) for one in rows if int(one[1]) in below}
    return [int(one[0]) for one in rows if int(one[0]) in below and word in one[2]]


async def tried(client: Client, tool: str, arguments: dict[str, object]) -> str:
    """Return in words how a call has ended."""
    try:
        result = await client.call_tool(tool, arguments, timeout=60, raise_on_error=False)
    except LimpetError as error:
        return f"fails: {str(error)[:90]}"
    return "fails: " + result.text[:90] if result.is_error else "works"


async def trial() -> int:
    """Serve and call; return the number of steps that have failed."""
    failed = 0

    def step(name: str, outcome: str, *, expected: str = "works") -> None:
        nonlocal failed
        is_right = outcome.startswith(expected)
        failed += not is_right
        print(f"  {'ok ' if is_right else 'BAD'} {name}: {outcome}")

    async with gateway() as (url, pid):
        for version in ("2025-11-25", "2026-07-28"):
            print(f"a client of {version}")
            async with Client(url, auth=TOKEN, protocol_version=version, timeout=120) as client:
                for tool, arguments in CALLS.items():
                    step(tool, await tried(client, tool, arguments))
                names = {tool.name for tool in await client.list_tools(fresh=True)}
                step(
                    "files_write_file is hidden", "works" if "files_write_file" not in names else "is listed"
                )
                wrong = await tried(client, "files_write_file", {"path": "x", "content": "x"})
                step("files_write_file", wrong, expected="fails")
                for word, number, name in (
                    ("mcp-server-time", signal.SIGKILL, "killed"),
                    ("mcp-server-sequential-thinking", signal.SIGSTOP, "stopped"),
                ):
                    for child in children_of(pid, word):
                        os.kill(child, number)
                    print(f"  {word} {name}")
                for tool, arguments in CALLS.items():
                    if tool == "clock_get_current_time":
                        await tried(
                            client, tool, arguments
                        )  # the call that finds the end of the process may fail
                    step(tool, await tried(client, tool, arguments))
                for child in children_of(pid, "mcp-server-sequential-thinking"):
                    os.kill(child, signal.SIGCONT)
    return failed


if __name__ == "__main__":
    install()
    sys.exit(1 if asyncio.run(trial()) else 0)
