"""Calls through a server in front of another one: ours beside fastmcp's proxy and the package `mcp-proxy`.

    python -m bench.proxies [url|program|object …] [--rounds 5] [--seconds 3]

All servers of a group are measured in one run, in slices that alternate; every answer is verified. The server that is
measured has one core. The load generator has the other core, together with the server behind. The peers are those of
`make peers`, each with its own defaults, and with JSON answers where they have such an option.

    url       the echo server of bench/servers behind a URL. `mcp-proxy` cannot serve a URL over HTTP: it serves a
              program over HTTP, or a URL over stdio. So it is measured with the echo server as its program, and twice:
              one that serves the other one, which has the URL.
    program   the same echo server as a program on stdio
    object    the echo tool of another framework, hosted by us, beside the HTTP server of the framework
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Collection

from bench.contest import HOLDFAST, LOAD_CORE, ROOT, Contestant, Slice, contest, ratio, running

PEERS = ROOT.parent / ".peers"
ECHO = str(ROOT / "servers" / "echo.py") + ":server"
PROGRAM = [
    "taskset", "-c", LOAD_CORE, sys.executable, "-m", "holdfast", "serve", ECHO, "--stdio", "--log-level", "error",
]  # fmt: skip
DIRECT = HOLDFAST._replace(name="direct")
IN_FLIGHT = (32, 1)


def ours(name: str, *target: str, options: tuple[str, ...] = ()) -> Contestant:
    """Return Holdfast in front of a target."""
    serve = [*HOLDFAST.command[:2], "--http", "127.0.0.1:{port}", "--log-level", "error", *options]
    return HOLDFAST._replace(name=name, command=[*serve, *target])


def peer(name: str, home: str, *command: str, env: dict[str, str] | None = None) -> Contestant:
    """Return a program in the environment of a peer."""
    return Contestant(
        name, [str(PEERS / home / "bin" / command[0]), *command[1:]], ROOT / "peers", env=env or {}
    )


def mcp_proxy(name: str, *program: str) -> Contestant:
    """Return the package `mcp-proxy` in front of a program."""
    return peer(
        name, "mcp-proxy", "mcp-proxy", "--port", "{port}", "--log-level", "ERROR", "--pass-environment", "--", *program
    )  # fmt: skip


def before_url(url: str) -> list[Contestant]:
    """Return the proxies in front of a URL."""
    as_program = [
        str(PEERS / "mcp-proxy" / "bin" / "mcp-proxy"),
        "--log-level",
        "ERROR",
        "--transport",
        "streamablehttp",
        url,
    ]
    remote = ours("remote", url)
    return [
        DIRECT,
        remote,
        remote._replace(name="remote 2026", modern=True),
        ours("remote to 2025", url, options=("--upstream-version", "legacy")),
        peer("fastmcp's proxy", "fastmcp", "python", "proxy_of_fastmcp.py", env={"UPSTREAM": url}),
        mcp_proxy("mcp-proxy of stdio", *PROGRAM),
        mcp_proxy("mcp-proxy twice", "taskset", "-c", LOAD_CORE, *as_program),
    ]


def before_program(_url: str) -> list[Contestant]:
    """Return the proxies in front of a program."""
    process = ours("process", "--", *PROGRAM)
    return [
        DIRECT,
        process,
        process._replace(name="process 2026", modern=True),
        mcp_proxy("mcp-proxy", *PROGRAM),
    ]


def before_object(_url: str) -> list[Contestant]:
    """Return each framework's own HTTP server, and Holdfast in the environment of the framework."""
    source = str(ROOT.parent / "src")
    found = []
    for framework in ("mcp1", "mcp2", "fastmcp"):
        file = f"echo_of_{framework}.py"
        serve = ours("", f"{file}:mcp").command[1:]
        found += [
            peer(framework, framework, "python", file),
            peer(
                f"hosted {framework}",
                framework,
                "python",
                "-m",
                "holdfast",
                *serve,
                env={"PYTHONPATH": source},
            ),
        ]
    return found


GROUPS: dict[str, tuple[Callable[[str], list[Contestant]], tuple[tuple[str, str], ...]]] = {
    "url": (
        before_url,
        (
            ("remote", "direct"),
            ("remote 2026", "direct"),
            ("remote to 2025", "direct"),
            ("remote", "fastmcp's proxy"),
            ("remote", "mcp-proxy of stdio"),
            ("remote", "mcp-proxy twice"),
        ),
    ),
    "program": (before_program, (("process", "direct"), ("process", "mcp-proxy"))),
    "object": (before_object, tuple((f"hosted {name}", name) for name in ("mcp1", "mcp2", "fastmcp"))),
}


def show(slices: dict[str, list[Slice]], pairs: tuple[tuple[str, str], ...]) -> None:
    """Print the median of each server, and the ratios of pairs: the median of all rounds, and their range."""
    for name, measured in slices.items():
        rate, cpu, p50, p99 = (statistics.median(column) for column in zip(*measured, strict=True))
        print(f"  {name:20s}{rate:9,.0f} calls/s {cpu:8.1f} µs CPU  p50 {p50:8,.0f} µs  p99 {p99:8,.0f} µs")
    for one, other in pairs:
        if one in slices and other in slices:
            each = [a.per_second / b.per_second for a, b in zip(slices[one], slices[other], strict=True)]
            print(f"  {one} / {other}: {ratio(slices, one, other):.2f} ({min(each):.2f} to {max(each):.2f})")


def measure(
    group: str,
    *,
    rounds: int,
    seconds: float,
    only: Collection[str] = (),
    in_flight: tuple[int, ...] = IN_FLIGHT,
    warm_up: int = 1,
) -> None:
    """Measure one group, or only some of its servers, and print it."""
    made, pairs = GROUPS[group]
    with running([HOLDFAST._replace(core=LOAD_CORE)]) as (behind,):
        contestants = [one for one in made(behind.url) if not only or one.name in only]
        for connections in in_flight:
            found = contest(
                contestants, connections=connections, rounds=rounds, seconds=seconds, warm_up=warm_up
            )
            print(f"{group}: echo, {connections} in flight, every answer verified, median of {rounds} rounds")
            show(found, pairs)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.proxies", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("groups", nargs="*", help=f"{', '.join(GROUPS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="length of one slice")
    parser.add_argument("--only", nargs="+", default=(), help="names of servers")
    options = parser.parse_args()
    for group in options.groups or GROUPS:
        measure(group, rounds=options.rounds, seconds=options.seconds, only=options.only)


if __name__ == "__main__":
    main()
