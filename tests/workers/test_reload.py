"""`limpet serve --reload`: a changed file is served by a new process, and no client loses its session, call or connection."""

import asyncio
import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from limpet.cli.process_options import ProcessOptions
from limpet.cli.reloading import PAUSE, WatchedFiles
from limpet.cli.worker import Job
from limpet.cli.workers import Supervisor, WorkerProcess
from tests.command_line import run
from tests.http.client import http_test
from tests.support import BOUND, async_test, until, virtual_test
from tests.workers.fleet import Anywhere, Fleet, Journey, at_every, children, fleet, lives

SECOND = 1_700_000_000_000_000_000
NUMBERS = itertools.count(1)
SERVER = """
import asyncio
from limpet import Context, Server
from parts import WORD

server = Server("reloaded")

@server.tool
async def word(ctx: Context) -> str:
    return f"{WORD} {await ctx.state.incr('n')}"

@server.tool
async def plain() -> str:
    return WORD

@server.tool
async def later() -> str:
    import imported_by_a_call
    return imported_by_a_call.WORD

@server.tool
async def wait_for(file: str, ctx: Context) -> str:
    from pathlib import Path
    step = 0
    while not Path(file).exists():
        step += 1
        await ctx.progress(step, None, "0")
        await asyncio.sleep(0.05)
    return WORD
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a server, and a module that it imports."""
    (tmp_path / "app.py").write_text(SERVER)
    save(tmp_path, "WORD = 'one'\n")
    return tmp_path


def save(place: Path, text: str, name: str = "parts.py") -> None:
    """Write a file as editors do: under another name, which then replaces it. All saves are in one second."""
    moment = SECOND + next(NUMBERS)
    (place / "saved").write_text(text)
    os.utime(place / "saved", ns=(moment, moment))
    (place / "saved").rename(place / name)


def lines(running: Fleet, beginning: str) -> Callable[[], list[str]]:
    return lambda: [line for line in running.output().splitlines() if line.startswith(f"limpet: {beginning}")]


@http_test
async def test_a_session_calls_the_new_code_and_a_running_call_ends_with_the_old_one(place: Path) -> None:
    with fleet("--reload", target=str(place / "app.py"), env={"PYTHONDONTWRITEBYTECODE": ""}) as running:
        assert "when one of 2 files changes" in running.output()
        client = await at_every((running.port,))
        assert await client.call("word") == "one 1"
        running_call = Journey(client, "wait_for", file=str(place / "enough"))
        answered = asyncio.create_task(running_call.run())
        await until(lambda: bool(running_call.messages))
        (old,) = running.workers()
        # A burst: each save is complete, and only the last one counts. On a busy machine it could last longer than two looks.
        running.tell(signal.SIGSTOP)
        for word in ("two", "three", "four"):
            save(place, f"WORD = '{word}'\n")
        running.tell(signal.SIGCONT)
        reloaded = lines(running, "reloaded")
        await until(lambda: len(reloaded()) == 1)
        assert reloaded() == [f"limpet: reloaded: {place / 'parts.py'} changed"]
        # A connection that is open may be answered by the old process for a second.
        await until(lambda: running_call.resumed > 0)
        assert await client.call("word") == "four 2"
        assert lives(old), "it waits for its call"
        (place / "enough").touch()
        assert await answered == "one"
        # A process that has ended is a child until its parent has noticed it.
        await until(lambda: old not in running.workers())
        # Broken: the error is shown, and the worker goes on.
        (serving,) = running.workers()
        save(place, "WORD = (\n")
        refused = lines(running, "not reloaded")
        await until(lambda: len(refused()) == 1)
        assert "SyntaxError" in running.output()
        assert f'File "{place / "parts.py"}", line 1' in running.output()
        assert "the former code goes on serving" in running.output()
        assert await client.call("word") == "four 3"
        await until(lambda: running.workers() == [serving])
        # Good again. Its size and its second are those of the version before, which Python may have compiled.
        save(place, "WORD = 'five'\n")
        await until(lambda: len(reloaded()) == 2)
        await until(lambda: not lives(serving))
        assert await client.call("word") == "five 4"
        # A module that a call imports is watched too.
        save(place, "WORD = 'early'\n", "imported_by_a_call.py")
        assert await client.call("later") == "early"
        (place / "imported_by_a_call.py").write_text("WORD = 'late'\n")
        await until(lambda: len(reloaded()) == 3)
        assert reloaded()[2] == f"limpet: reloaded: {place / 'imported_by_a_call.py'} changed"
        assert running.end() == 0
        assert "Traceback" not in running.output().rpartition("SyntaxError")[2]


@http_test
async def test_the_new_file_that_breaks_the_server_is_watched_and_so_is_a_start_that_hangs(
    place: Path,
) -> None:
    with fleet("--reload", target=str(place / "app.py")) as running:
        client = await Anywhere.opened(running.port)
        # The fault is in a file that no worker has loaded.
        save(place, "WORD = (\n", "more.py")
        save(place, "from more import WORD\n")
        await until(lambda: len(lines(running, "not reloaded")()) == 1)
        save(place, "import time\nprint('it hangs', flush=True)\nwhile True: time.sleep(1)\n", "more.py")
        await until(lambda: "it hangs" in running.output())
        save(place, "WORD = 'right'\n", "more.py")
        await until(lambda: len(lines(running, "reloaded")()) == 1)
        await until(lambda: len(running.workers()) == 1)
        assert await client.call("word") == "right 1"


@http_test
async def test_a_program_and_a_file_of_servers_are_reloaded_too(place: Path) -> None:
    (place / "run.py").write_text("from app import server\nserver.run()\n")
    table = f"[servers.a]\npath = '/mcp'\ncommand = ['{sys.executable}', 'run.py']\n"
    (place / "limpet.toml").write_text(table)
    with fleet("--reload", target=str(place / "limpet.toml")) as running:
        client = await Anywhere.opened(running.port)
        assert await client.call("plain") == "one"
        (place / "parts.py").write_text("WORD = 'two'\n")
        os.utime(place / "run.py")
        reloaded = lines(running, "reloaded")
        await until(lambda: len(reloaded()) == 1)
        assert f"{place / 'run.py'} changed" in reloaded()[0]
        await until(lambda: len(running.workers()) == 1)
        assert await client.call("plain") == "two"
        save(place, f"{table}colour = 'red'\n", "limpet.toml")
        await until(lambda: "the key colour is unknown" in running.output())
        save(place, f"{table}\n[servers.b]\nobject = 'app.py'\n", "limpet.toml")
        await until(lambda: len(reloaded()) == 2)
        await until(lambda: len(running.workers()) == 1)
        other = await Anywhere.opened(running.port, path="/b/mcp")
        assert await other.call("plain") == "two"


MANY = 700


@pytest.mark.parametrize(
    ("file", "fault", "said"),
    [
        ("parts.py", "WORD = oops\n", "nothing is served until the error above is fixed"),
        ("app.py", "import os\nos._exit(3)\n", "ended with status 3"),
        ("app.py", "import sys, time\nprint('hangs', file=sys.stderr)\ntime.sleep(600)\n", "hangs"),
    ],
)
@http_test
async def test_a_server_that_cannot_start_is_tried_again_when_it_is_saved(
    place: Path, file: str, fault: str, said: str
) -> None:
    right = (place / file).read_text()
    save(place, fault, file)
    command = [
        sys.executable,
        "-m",
        "limpet",
        "serve",
        str(place / "app.py"),
        "--reload",
        "--http",
        "127.0.0.1:0",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        seen = ""
        while said not in seen:
            seen = process.stderr.readline()
            assert seen, "it has ended"
        save(place, right, file)
        while "(Ctrl+C stops)" not in seen or "serving" not in seen:
            seen = process.stderr.readline()
            assert seen, "it has ended"
        process.send_signal(signal.SIGINT)
        process.stderr.read()
    assert process.returncode == 0


@http_test
async def test_links_many_modules_and_a_failed_start_with_a_thread_are_handled(place: Path) -> None:
    # The names of the modules are longer than the buffer of an asyncio reader.
    package = "package_" + "x" * 100
    (place / package).mkdir()
    (place / package / "__init__.py").write_text(
        f"import importlib\nfor n in range({MANY}): importlib.import_module(f'{package}.m{{n}}')\n"
    )
    for number in range(MANY):
        (place / package / f"m{number}.py").touch()
    for number in (1, 2):
        (place / f"v{number}.py").write_text(f"import {package}\n{SERVER}# {number * 10}\n")
    (place / "link.py").symlink_to("v1.py")
    with fleet("--reload", target=str(place / "link.py")) as running:
        assert f"when one of {MANY + 3} files changes" in running.output()
        # Another release of the server, as a deployment switches it.
        (place / "next").symlink_to("v2.py")
        (place / "next").rename(place / "link.py")
        await until(lambda: len(lines(running, "reloaded")()) == 1)
        await until(lambda: len(running.workers()) == 1)
        # The thread keeps the process, which cannot serve.
        save(
            place, "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\noops\n"
        )
        await until(lambda: len(lines(running, "not reloaded")()) == 1)
        await until(lambda: len(running.workers()) == 1)


@http_test
async def test_a_worker_whose_import_hangs_ends_with_a_killed_parent_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    app, home = tmp_path / "app.py", tmp_path / "home"
    home.mkdir()
    app.write_text(
        "import time\nfrom pathlib import Path\nPath(__file__ + '.began').touch()\ntime.sleep(600)\n"
    )
    words = [sys.executable, "-m", "limpet", "serve", str(app), "--reload", "--http", "127.0.0.1:0"]
    with subprocess.Popen(words, env={**os.environ, "TMPDIR": str(home)}) as process:
        await until(Path(f"{app}.began").exists)
        (worker,) = children(process.pid)
        assert len(list(home.iterdir())) == 1
        process.kill()
    await until(lambda: not lives(worker))
    assert list(home.iterdir()) == []


@async_test
async def test_a_new_worker_that_is_not_needed_any_more_ends_its_calls_first() -> None:
    """It may serve already: its report is on its way."""
    told: list[signal.Signals] = []
    made: list[WorkerProcess] = []
    begun = asyncio.Event()
    job = Job(endpoints=(), process=ProcessOptions(), sockets=())
    supervisor = Supervisor(job, 1)
    ours, theirs = socket.socketpair()

    async def started(number: int, job: Job | None = None) -> WorkerProcess:
        process = await asyncio.create_subprocess_exec("sleep", "600")
        worker = WorkerProcess(number, process, *await asyncio.open_unix_connection(sock=ours))

        def tell(number: signal.Signals) -> None:
            told.append(number)
            process.send_signal(number)

        vars(worker)["tell"] = tell
        begun.set()
        made.append(worker)
        return worker

    vars(supervisor)["_start"] = started
    renewing = asyncio.ensure_future(supervisor.renew(()))
    await begun.wait()
    renewing.cancel()
    await asyncio.gather(renewing, return_exceptions=True)
    await until(lambda: bool(told) and not supervisor._tasks)
    assert told == [signal.SIGTERM]
    made[0].close()
    theirs.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["app.py", "--stdio"], "leave out --stdio, or --reload"),
        (["app.py", "--workers", "2"], "leave out --workers 2"),
        (["https://example.com/mcp"], "--reload has no file to watch"),
        (["--", "npx", "-y", "some-server"], "--reload has no file to watch"),
    ],
)
def test_a_combination_that_has_no_meaning_is_refused(words: list[str], said: str) -> None:
    at = words.index("--") if "--" in words else len(words)
    told = run("serve", *words[:at], "--reload", *words[at:])
    assert (told.status, said in told.err) == (2, True), told.err


def test_a_store_of_one_process_is_refused(place: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "limpet",
        "serve",
        str(place / "app.py"),
        "--reload",
        "--http",
        "127.0.0.1:0",
    ]
    told = subprocess.run(
        [*command, "--store", "memory:"], capture_output=True, text=True, timeout=BOUND, check=False
    )
    assert told.returncode == 2
    assert "need a shared store" in told.stderr


@virtual_test
async def test_a_burst_of_saves_is_one_change(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("0")
    files = WatchedFiles()
    files.watch([str(file)], since=file.stat().st_mtime + 1)
    assert files.changed() == []
    saved = asyncio.ensure_future(files.saved())
    for number in range(1, 6):
        os.utime(file, ns=(number, number))
        await asyncio.sleep(PAUSE)
        assert not saved.done()
    await saved
    assert files.take() == [str(file)]
    assert files.changed() == []


def test_a_file_that_is_missing_for_a_moment_has_not_changed(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("0")
    files = WatchedFiles()
    files.watch([str(file)], since=file.stat().st_mtime + 1)
    file.unlink()
    assert files.changed() == []
    file.write_text("01")
    assert files.changed() == [str(file)]


def test_a_file_that_changed_while_a_worker_read_it_counts_as_changed(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("0")
    files = WatchedFiles()
    files.watch([str(file)], since=file.stat().st_mtime - 1)
    assert files.take() == [str(file)]
    files.watch([str(file)], since=file.stat().st_mtime - 1)
    assert files.changed() == [], "it is known by now"
