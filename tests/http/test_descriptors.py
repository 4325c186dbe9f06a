"""A process with few descriptors: it serves the connections that fit, and continues after it had no descriptor left."""

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from typing_extensions import override

from limpet import Server
from limpet.config import HttpSettings, Limits
from limpet.fronts.http.http1.start_and_stop import Service
from limpet.fronts.http.serve import RESERVE, connections_that_fit
from tests.http import serving
from tests.http.test_sockets import PROBE, SMALL, exchanged
from tests.support import async_test, until, wait_until

FITS: Final = 100
UNLIMITED: Final = resource.RLIM_INFINITY


@pytest.fixture(scope="module")
def few() -> Iterator[serving.Process]:
    """A server that may open 200 descriptors, and at its start only 64."""
    with serving.limpet_serve(str(SMALL), descriptors=(64, 2 * FITS)) as running:
        yield running


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def is_served(port: int) -> bool:
    try:
        return exchanged(connect(port), PROBE).endswith(b"ready\n")
    except OSError:
        return False


def test_connections_that_do_not_fit_get_503_and_a_warning_says_the_number(few: serving.Process) -> None:
    with contextlib.ExitStack() as stack:
        # The connection of the helper that started the server may still be open.
        wait_until(lambda: is_served(few.port))
        held = [stack.enter_context(connect(few.port)) for _ in range(FITS)]
        over = exchanged(connect(few.port), b"")
        assert over.startswith(b"HTTP/1.1 503 ")
        assert exchanged(held.pop(), PROBE).endswith(b"ready\n")
        wait_until(lambda: is_served(few.port))
    assert few.output().count("serves 100 connections at once, not 10000") == 1
    assert few.output().count("raise the hard limit") == 1
    # Lines that come soon after a write are written together, a little later.
    wait_until(lambda: "audit.refused" in few.output())


def test_a_process_without_a_free_descriptor_is_quiet_and_serves_again_when_there_are_some(
    few: serving.Process,
) -> None:
    wait_until(lambda: is_served(few.port))
    before = few.output()
    used = max(int(number.name) for number in Path(f"/proc/{few.pid}/fd").iterdir())
    resource.prlimit(few.pid, resource.RLIMIT_NOFILE, (used + 3, 2 * FITS))
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(few.port)) for _ in range(20)]
        assert held[-1].recv(1) == b""
        begun = busy(few.pid)
        # Real time is the subject: a loop that tries again and again would use the processor all the time.
        time.sleep(0.5)
        assert busy(few.pid) - begun < 0.1
        resource.prlimit(few.pid, resource.RLIMIT_NOFILE, (2 * FITS, 2 * FITS))
        wait_until(lambda: is_served(few.port))
    assert few.output() == before


def busy(pid: int) -> float:
    """Return the seconds that a process has used the processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


class Exhausted(socket.socket):
    """A listening socket of a process that has no descriptor left."""

    tried = 0
    is_out = True

    @override
    def accept(self) -> tuple[socket.socket, Any]:
        self.tried += 1
        if self.is_out:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


@async_test
async def test_asyncio_without_a_free_descriptor_tries_once_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("asyncio.constants.ACCEPT_RETRY_DELAY", 0.1)
    errors: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    with Exhausted() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        async with Service(Server("few").front(HttpSettings())).running([listener]):
            begun = loop.time()
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.getsockname()[1])
            writer.write(PROBE)
            await until(lambda: listener.tried >= 3)
            assert listener.tried <= 2 + (loop.time() - begun) / 0.1
            assert len(errors) == listener.tried
            listener.is_out = False
            assert (await reader.read()).endswith(b"ready\n")
            writer.close()


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "fitting"),
    [
        (1_024, 20_000, 20_000, 10_000),
        (1_024, 1_000_000, 65_536, 10_000),
        (1_024, UNLIMITED, 10_000 + RESERVE, 10_000),
        (1_024, 4_096, 4_096, 4_096 - RESERVE),
        (1_024, 1_024, 1_024, 512),
        (256, 300, 300, 150),
        (UNLIMITED, UNLIMITED, None, 10_000),
        (10_000 + RESERVE, 20_000, None, 10_000),
        (10_000 + RESERVE - 1, 20_000, 20_000, 10_000),
    ],
)
def test_the_soft_limit_is_raised_if_it_is_too_low(
    soft: int,
    hard: int,
    raised: int | None,
    fitting: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: made.append(limits))
    with caplog.at_level(logging.WARNING, "limpet"):
        assert connections_that_fit(10_000) == fitting
    assert made == ([] if raised is None else [(raised, hard)])
    assert len(caplog.records) == (fitting < 1_000)


def test_an_operator_who_chose_a_limit_is_warned_if_it_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4_096, 4_096))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    with caplog.at_level(logging.WARNING, "limpet"):
        assert connections_that_fit(Limits().connections) == 4_096 - RESERVE
        assert not caplog.records
        assert connections_that_fit(20_000) == 4_096 - RESERVE
    assert "serves 3584 connections at once, not 20000" in caplog.text


def test_a_limit_that_cannot_be_raised_or_does_not_exist_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: int, _limits: tuple[int, int]) -> None:
        raise ValueError("above the limit of the system")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, UNLIMITED))
    monkeypatch.setattr(resource, "setrlimit", refused)
    assert connections_that_fit(10_000) == 512
    monkeypatch.setitem(sys.modules, "resource", None)
    assert connections_that_fit(10_000) == 10_000
