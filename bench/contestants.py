"""The table of contestants: which servers are measured, and how each of them is started.

All of them have the same tools: `echo` returns its text, `events` sends progress and returns the number, `asks` asks the
client several questions at the same time and joins the answers, `finished` counts the calls of `events` that have ended.
The bare application has only `echo`. A contestant runs with its own defaults, except for the kind of its answers (JSON or
SSE) and a limit of sessions that is lower than the workload needs.
"""

import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent
PEERS: Final = ROOT / ".peers"
NODE: Final = ROOT / ".node" / "bin" / "node"
SERVER_CORE, LOAD_CORE = "0", "1"

Mode = Literal["json", "sse", "2026"]
"""Answers as JSON in a session, answers as SSE in a session, or 2026-07-28."""


class Contestant(NamedTuple):
    """A server: its name, the command that runs it on $PORT, and how it is called."""

    name: str
    command: list[str]
    folder: Path
    modern: bool = False
    """Whether each request stands alone (2026-07-28), or belongs to a session."""
    env: Mapping[str, str] = {}
    """Variables beside those of this process and $PORT."""
    core: str = SERVER_CORE
    has_workers: bool = False
    """Whether the processes that it starts answer too: their processor time counts."""


class Surroundings(Protocol):
    """What a contestant may need beside itself; started when it is first asked for."""

    python: str
    """The interpreter of our own contestants: it has limpet and its development tools."""

    def redis(self) -> str:
        """Return the URL of a Redis that keeps nothing on disk."""

    def sqlite(self) -> str:
        """Return the URL of a new SQLite file."""

    def postgres(self, synchronous: str) -> str:
        """Return the URL of a PostgreSQL with this `synchronous_commit`."""

    def upstream(self) -> str:
        """Return the URL of the echo server behind the proxies; it runs on the core of the load generator."""


Entry = Callable[[Surroundings], Contestant]

# Our own


def limpet(
    name: str, *options: str, target: str = "echo.py:server", python: str = sys.executable
) -> Contestant:
    """Return `limpet serve` with options; every setting that is not named has its default."""
    serve = [python, "-m", "limpet", "serve", target, "--http", "127.0.0.1:{port}"]
    return Contestant(name, [*serve, *options], HERE / "servers")


def bare(name: str, python: str = sys.executable) -> Contestant:
    """Return the bare ASGI application under uvicorn: it reads the headers, decodes, calls, encodes, and nothing else."""
    return Contestant(name, [python, "limit_asgi.py"], HERE / "limits")


LIMIT: Final = bare("bare uvicorn")
LIMPET: Final = limpet("limpet")
MODERN: Final = LIMPET._replace(name="limpet 2026", modern=True)

# The peers


def peer(name: str, home: str, *command: str, env: Mapping[str, str] | None = None) -> Contestant:
    """Return a program in the environment of a peer (tools/install-peers.sh)."""
    program = [str(PEERS / home / "bin" / command[0]), *command[1:]]
    return Contestant(name, program, HERE / "peers", env=env or {})


def mcp_proxy(name: str, *program: str) -> Contestant:
    """Return the package `mcp-proxy` in front of a program."""
    return peer(
        name, "mcp-proxy", "mcp-proxy", "--port", "{port}", "--log-level", "ERROR", "--pass-environment", "--", *program
    )  # fmt: skip


def supergateway(name: str, *program: str) -> Contestant:
    """Return the npm package `supergateway` in front of a program, with a child for each session."""
    script = PEERS / "supergateway" / "node_modules" / "supergateway" / "dist" / "index.js"
    options = ["--outputTransport", "streamableHttp", "--stateful", "--port", "{port}", "--logLevel", "none"]
    return Contestant(
        name, [str(NODE), str(script), "--stdio", shlex.join(program), *options], HERE / "peers"
    )


def typescript(name: str, env: Mapping[str, str]) -> Contestant:
    """Return the TypeScript SDK's server on node:http."""
    packages = {"PACKAGES": str(PEERS / "typescript"), "NODE_ENV": "production"}
    return Contestant(name, [str(NODE), "echo_of_typescript.mjs"], HERE / "peers", env={**packages, **env})


def in_mode(mode: Mode) -> dict[str, Entry]:
    """Return the contestants that answer in a mode."""
    modern, kind = mode == "2026", {"MODE": "sse" if mode == "sse" else "json"}
    response = ("--response", "sse") if mode == "sse" else ()
    entries: dict[str, Entry] = {
        "bare uvicorn": lambda s: bare("bare uvicorn", s.python)._replace(env=kind, modern=modern),
        "limpet": lambda s: limpet("limpet", *response, python=s.python)._replace(modern=modern),
        "typescript": lambda _: typescript("typescript", {**kind, "MODERN": "1" if modern else ""})._replace(
            modern=modern
        ),
        "mcp2": lambda _: peer("mcp2", "mcp2", "python", "echo_of_mcp2.py", env=kind)._replace(modern=modern),
        "fastmcp": lambda _: peer("fastmcp", "fastmcp", "python", "echo_of_fastmcp.py", env=kind)._replace(
            modern=modern
        ),
    }
    if not modern:
        entries["mcp1"] = lambda _: peer("mcp1", "mcp1", "python", "echo_of_mcp1.py", env=kind)
    return entries


def with_telemetry(*, modern: bool) -> dict[str, Entry]:
    """Return our server without telemetry, with a log line for each call, and with metrics and the admin surface as well."""
    admin = ("--admin", "127.0.0.1:0")
    token = {"LIMPET_ADMIN_TOKEN": "a-token-for-measurements-only"}

    def entry(name: str, *options: str) -> Entry:
        return lambda s: limpet(name, *options, python=s.python)._replace(modern=modern, env=token)

    return {
        "telemetry off": entry("telemetry off", "--log-level", "error"),
        "logs": entry("logs"),
        "logs and metrics": entry("logs and metrics", *admin),
    }


def with_stores(*options: str) -> dict[str, Entry]:
    """Return Limpet with each of its stores."""
    return {
        "memory": lambda s: limpet("memory", *options, python=s.python),
        "sqlite": lambda s: limpet("sqlite", "--store", s.sqlite(), *options, python=s.python),
        "redis": lambda s: limpet("redis", "--store", s.redis(), *options, python=s.python),
        **{
            name: _on_postgres(name, mode, *options)
            for name, mode in (("postgres", "on"), ("postgres off", "off"))
        },
    }


def _on_postgres(name: str, mode: str, *options: str) -> Entry:
    return lambda s: limpet(name, "--store", s.postgres(mode), *options, python=s.python)


def with_workers() -> dict[str, Entry]:
    """Return one process and two workers, both with SQLite, which workers need to share their sessions."""
    return {
        "one process": lambda s: limpet("one process", "--store", s.sqlite(), python=s.python),
        "two workers": lambda s: limpet(
            "two workers", "--store", s.sqlite(), "--workers", "2", python=s.python
        )._replace(has_workers=True),
    }


def with_tools() -> dict[str, Entry]:
    """Return our server with its own tools only, and with thousands more."""

    def entry(name: str, more: int) -> Entry:
        return lambda s: limpet(name, python=s.python)._replace(env={"MORE_TOOLS": str(more)})

    return {"4 tools": entry("4 tools", 0), "5,000 tools": entry("5,000 tools", 4_996)}


# In front of another server

ECHO: Final = str(HERE / "servers" / "echo.py") + ":server"
PROGRAM: Final = [
    "taskset", "-c", LOAD_CORE, sys.executable, "-m", "limpet", "serve", ECHO, "--stdio", "--log-level", "error",
]  # fmt: skip


def in_front(
    name: str, *target: str, options: tuple[str, ...] = (), python: str = sys.executable
) -> Contestant:
    """Return Limpet in front of a URL, or of a program after `--`."""
    serve = [python, "-m", "limpet", "serve", "--http", "127.0.0.1:{port}"]
    return Contestant(name, [*serve, *options, *target], HERE / "servers")


def with_servers() -> dict[str, Entry]:
    """Return Limpet in front of one, ten and a hundred servers at one address."""

    def entry(name: str, count: int) -> Entry:
        return lambda s: limpet(name, target="gateway.py:server", python=s.python)._replace(
            env={"UPSTREAM": s.upstream(), "SERVERS": str(count)}
        )

    return {name: entry(name, count) for count, name in SERVERS.items()}


SERVERS: Final = {1: "1 server", 10: "10 servers", 100: "100 servers"}


def _twice(url: str) -> Contestant:
    """Return an mcp-proxy that serves over HTTP a second one, which has the URL: one alone cannot do both."""
    program = str(PEERS / "mcp-proxy" / "bin" / "mcp-proxy")
    second = [program, "--log-level", "ERROR", "--transport", "streamablehttp", url]
    return mcp_proxy("mcp-proxy twice", "taskset", "-c", LOAD_CORE, *second)


BEFORE_URL: Final[dict[str, Entry]] = {
    "direct": lambda s: limpet("direct", python=s.python),
    "remote": lambda s: in_front("remote", s.upstream(), python=s.python),
    "remote 2026": lambda s: in_front("remote 2026", s.upstream(), python=s.python)._replace(modern=True),
    "remote to 2025": lambda s: in_front(
        "remote to 2025", s.upstream(), options=("--upstream-version", "sessions"), python=s.python
    ),
    "fastmcp's proxy": lambda s: peer(
        "fastmcp's proxy", "fastmcp", "python", "proxy_of_fastmcp.py", env={"UPSTREAM": s.upstream()}
    ),
    "mcp-proxy of stdio": lambda _: mcp_proxy("mcp-proxy of stdio", *PROGRAM),
    "mcp-proxy twice": lambda s: _twice(s.upstream()),
}
BEFORE_PROGRAM: Final[dict[str, Entry]] = {
    "direct": lambda s: limpet("direct", python=s.python),
    "process": lambda s: in_front("process", "--", *PROGRAM, python=s.python),
    "process 2026": lambda s: in_front("process 2026", "--", *PROGRAM, python=s.python)._replace(modern=True),
    "mcp-proxy": lambda _: mcp_proxy("mcp-proxy", *PROGRAM),
    "supergateway": lambda _: supergateway("supergateway", *PROGRAM),
}


def _hosted(framework: str) -> Contestant:
    """Return Limpet as the host of a framework's object, in the environment of the framework."""
    serve = limpet("", target=f"echo_of_{framework}.py:mcp").command[1:]
    source = {"PYTHONPATH": str(ROOT / "src")}
    return peer(f"hosted {framework}", framework, "python", *serve, env=source)


BEFORE_OBJECT: Final[dict[str, Entry]] = {
    "mcp1": lambda _: peer("mcp1", "mcp1", "python", "echo_of_mcp1.py"),
    "hosted mcp1": lambda _: _hosted("mcp1"),
    "mcp2": lambda _: peer("mcp2", "mcp2", "python", "echo_of_mcp2.py"),
    "hosted mcp2": lambda _: _hosted("mcp2"),
    "fastmcp": lambda _: peer("fastmcp", "fastmcp", "python", "echo_of_fastmcp.py"),
    "hosted fastmcp": lambda _: _hosted("fastmcp"),
}
OURS: Final = frozenset({
    "bare uvicorn", "limpet", "memory", "sqlite", "redis", "postgres", "postgres off", "direct",
    "one process", "two workers", "4 tools", "5,000 tools", "telemetry off", "logs", "logs and metrics", *SERVERS.values(),
})  # fmt: skip
