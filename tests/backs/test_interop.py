"""Clients of `mcp` 1 in front of servers that speak only 2026-07-28, and many sessions over children.

Servers of other SDKs behind Limpet are in tests/interop/test_behind.py.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.backs.dropped_sessions import measured
from tests.client.servers import listening
from tests.http.client import http_test
from tests.interop.behind import APPS, environment, limpet, peer, url
from tests.interop.peers import serving
from tests.support import BOUND
from tools.ports import free_port

HERE: Final = Path(__file__).parent
SERVE: Final = [sys.executable, "-m", "limpet", "serve"]
MODERN_ONLY: Final = f"{HERE / 'modern_only.py'}:server"


@contextlib.contextmanager
def served(*target: str) -> Iterator[str]:
    """Run `limpet serve`; its URL."""
    port = free_port()
    with listening([*SERVE, "--http", f"127.0.0.1:{port}", *target], port) as address:
        yield address


@contextlib.contextmanager
def in_front_of_modern(back: str, directory: Path) -> Iterator[str]:
    """Run a server that speaks only 2026-07-28 behind Limpet; the URL of Limpet."""
    if back == "http":
        with served(MODERN_ONLY) as behind, served(behind) as address:
            yield address
    elif back == "stdio":
        with served("--", *SERVE, "--stdio", MODERN_ONLY) as address:
            yield address
    else:
        target = f"{APPS / 'asking.py'}:server"
        with serving(directory, environment(), target, command=limpet("mcp2", "serve")) as port:
            yield url(port)


@pytest.mark.parametrize("back", ["http", "stdio", "hosted"])
def test_a_2025_client_answers_the_questions_of_a_server_that_speaks_only_2026(
    back: str, tmp_path: Path
) -> None:
    with in_front_of_modern(back, tmp_path) as address:
        command = [peer("mcp1"), str(HERE / "peers" / "client1.py"), address, "two", "five"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["2025-11-25 FIRST? SECOND?", "2025-11-25 <0>,<1>,<2>,<3>,<4>"]


@pytest.mark.parametrize("sessions", [60, pytest.param(500, marks=pytest.mark.campaign)])
@http_test
async def test_sessions_over_children_that_are_opened_and_dropped_leave_nothing_behind(sessions: int) -> None:
    before, after = await measured(sessions, warm_up=20)
    assert after.processes == before.processes == 0
    assert after.descriptors <= before.descriptors
    # A session that was kept costs about 33 KiB, with its child's pipes. One that has ended may wait for the garbage
    # collector, which runs rarely: 5 KiB.
    assert after.kilobytes < before.kilobytes + 3_000 + 10 * sessions
