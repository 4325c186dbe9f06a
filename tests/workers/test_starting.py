"""Workers that cannot start: one that hangs is ended, and the others serve on; if none can start, clients are refused."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from limpet.cli import workers
from limpet.cli.process_options import ProcessOptions
from limpet.cli.worker import Job
from limpet.cli.workers import Supervisor, WorkerProcess
from tests.support import BOUND, async_test, until, wait_until
from tests.workers.fleet import children, fleet, lives

SERVER = """
import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

from limpet import Server

MOOD = Path(__file__).with_name("mood")


@asynccontextmanager
async def lifespan():
    mood = MOOD.read_text()
    if mood == "hangs":
        await asyncio.sleep(3600)
    if mood == "fails":
        raise RuntimeError("the database is down")
    yield


server = Server("moody", lifespan=lifespan)
"""


@pytest.fixture
def mood(tmp_path: Path) -> Path:
    """The file that decides how a worker starts; the server is beside it."""
    (tmp_path / "server.py").write_text(SERVER)
    file = tmp_path / "mood"
    file.write_text("serves")
    return file


def test_a_hangup_works_although_the_worker_of_the_one_before_hangs(mood: Path) -> None:
    target = f"{mood.with_name('server.py')}:server"
    # Longer than the test: the second signal ends the hung worker, not the limit.
    options = ("--workers", "2", "--log-level", "warning", "--start-limit", "3600")
    with fleet(*options, target=target) as running:
        old = running.workers()
        mood.write_text("hangs")
        running.tell(signal.SIGHUP)
        wait_until(lambda: len(running.workers()) == 3)
        [hung] = set(running.workers()) - set(old)
        mood.write_text("serves")
        running.tell(signal.SIGHUP)
        wait_until(lambda: "every worker was replaced" in running.output())
        wait_until(lambda: len(running.workers()) == 2)
        assert not set(running.workers()) & {*old, hung}
        assert not lives(hung)


def test_a_parent_whose_workers_cannot_start_closes_the_socket_and_says_why(mood: Path) -> None:
    target = f"{mood.with_name('server.py')}:server"
    with fleet("--workers", "2", target=target) as running:
        mood.write_text("fails")
        for worker in running.workers():
            os.kill(worker, signal.SIGKILL)
        assert running.popen.wait(BOUND) == 1
        assert "the database is down" in running.output()
        assert "no worker can start, so the socket is closed" in running.output()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", running.port))


def test_a_server_whose_first_worker_hangs_ends_and_says_why(mood: Path) -> None:
    mood.write_text("hangs")
    words = [
        str(mood.with_name("server.py")),
        "--workers",
        "2",
        "--http",
        "127.0.0.1:0",
        "--start-limit",
        "0.1",
    ]
    ended = subprocess.run(
        [sys.executable, "-m", "limpet", "serve", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=BOUND,
    )
    assert ended.returncode == 1
    assert "has not started within 0.1 s (--start-limit) and is ended" in ended.stderr


@async_test
async def test_a_worker_that_does_not_start_in_time_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    job = Job(endpoints=(), process=ProcessOptions(), sockets=())
    supervisor = Supervisor(job, 1, start_limit=0.05)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import time; time.sleep(3600)", stdin=asyncio.subprocess.DEVNULL
    )
    ours, theirs = socket.socketpair()
    with theirs:
        worker = WorkerProcess(1, process, *await asyncio.open_unix_connection(sock=ours))
        assert not await supervisor._wait_ready(worker)
        worker.close()
    assert process.returncode == -signal.SIGTERM
    assert "has not started within 0.05 s (--start-limit) and is ended" in caplog.text


@async_test
async def test_a_worker_that_hangs_is_killed_in_the_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "MARGIN", 0.1)
    supervisor = Supervisor(Job(endpoints=(), process=ProcessOptions(), sockets=()), 1)
    process = await asyncio.create_subprocess_exec("sleep", "3600")
    process.send_signal(signal.SIGSTOP)
    # Of two signals that wait, the kernel delivers SIGTERM first.
    await until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    ours, theirs = socket.socketpair()
    with theirs:
        worker = WorkerProcess(1, process, *await asyncio.open_unix_connection(sock=ours))
        supervisor._alive.add(worker)
        supervisor._places[1] = worker
        supervisor._stop(signal.SIGTERM)
        assert await supervisor._end() == 1, "the exit status"
        worker.close()
    assert process.returncode == -signal.SIGKILL
    assert "did not end in time and is killed" in caplog.text


@pytest.mark.parametrize("where", ["create_subprocess_exec", "open_unix_connection"])
@async_test
async def test_no_worker_that_was_starting_outlives_its_parent(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """It would hold the socket, and clients would wait in its queue."""
    supervisor = Supervisor(Job(endpoints=(), process=ProcessOptions(), sockets=()), 1)
    reached, may_go_on, pids = asyncio.Event(), asyncio.Event(), set[int]()
    others = children(os.getpid())
    real = getattr(asyncio, where)

    async def late(*words: Any, **options: Any) -> Any:
        made = await real(*words, **options)
        pids.update(set(children(os.getpid())) - set(others))
        reached.set()
        await may_go_on.wait()
        return made

    monkeypatch.setattr(asyncio, where, late)
    supervisor._spawn(supervisor._begin(1))
    await reached.wait()
    supervisor.give_up(1)
    ending = asyncio.create_task(supervisor._end())
    await asyncio.sleep(0)
    may_go_on.set()
    assert await ending == 1
    assert pids
    assert not any(map(lives, pids))
