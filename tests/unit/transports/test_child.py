"""Children: spoken to in lines, stopped in stages, their stderr kept, and never orphaned."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Final

import pytest

from limpet.errors import Broken, ConfigError, LineTooLong, NotSent
from limpet.transports import child as child_module
from limpet.transports.child import STDERR_BYTES, Child, ChildOptions
from limpet.transports.guard import GUARD, Guard
from limpet.transports.loops import new_loop
from tests.support import BOUND, async_test, until, wait_until

ROOT: Final = Path(__file__).parents[3]
QUICK: Final = ChildOptions(close_seconds=0.3)
ECHO: Final = "import sys\nfor line in sys.stdin: print(line.strip()[::-1], flush=True)"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@async_test
async def test_lines_travel_both_ways_and_the_end_is_reported() -> None:
    child = Child(python(ECHO))
    await child.start()
    await child.write(b"abc")
    assert await child.read() == b"cba"
    await child.aclose()
    assert await child.read() == b""
    with pytest.raises(Broken):
        await child.write(b"too late")


@async_test
async def test_a_line_over_the_limit_is_reported_and_the_next_one_read() -> None:
    code = "print('x' * 5000, flush=True); print('short', flush=True); import sys; sys.stdin.read()"
    child = Child(python(code), ChildOptions(message_bytes=1000))
    async with aclosing(child):
        await child.start()
        with pytest.raises(LineTooLong):
            await child.read()
        assert await child.read() == b"short"


@async_test
async def test_a_child_that_does_not_read_costs_the_memory_of_one_line_even_if_many_writers_gave_up() -> None:
    child = Child(python("import time; time.sleep(1000)"), QUICK)
    async with aclosing(child):
        await child.start()
        line = b"x" * 300_000
        writers = [asyncio.create_task(child.write(line)) for _ in range(20)]
        await asyncio.wait(writers, timeout=0.05)
        for writer in writers:
            writer.cancel()
        await asyncio.wait(writers)
        again = asyncio.create_task(child.write(line))
        await asyncio.wait({again}, timeout=0.05)
        assert not again.done()
        assert child._running.stdin is not None
        assert child._running.stdin.transport.get_write_buffer_size() <= len(line) + 1
        again.cancel()


@async_test
async def test_the_end_of_stderr_is_kept_and_is_part_of_the_error_when_the_child_dies() -> None:
    code = "import sys; sys.stderr.write('x' * 200_000 + '\\nlast words'); sys.stderr.flush()"
    child = Child(python(code))
    async with aclosing(child):
        await child.start()
        assert await child.read() == b""
        await until(lambda: "last words" in child.stderr)
        assert len(child.stderr) <= STDERR_BYTES
        assert child.last_words.startswith("it ended with status 0; the end of its stderr:\n")
        assert child.last_words.endswith("x\nlast words")
        assert len(child.last_words) < 2_100


@async_test
async def test_an_error_quotes_no_stderr_that_is_for_the_log_only() -> None:
    child = Child(python("import sys; sys.exit('the secret')"), ChildOptions(quotes_stderr=False))
    async with aclosing(child):
        await child.start()
        assert await child.read() == b""
        await until(lambda: "the secret" in child.stderr)
        assert child.last_words == "it ended with status 1; its stderr is in the log"


@async_test
async def test_a_failed_write_waits_for_the_reason_that_the_child_gives_when_it_exits() -> None:
    # The pause is the subject: the write fails before the child has said why.
    code = "import os, sys, time; os.close(0); print(1, flush=True); time.sleep(0.2); sys.exit('no such key')"
    child = Child(python(code), QUICK)
    async with aclosing(child):
        await child.start()
        assert await child.read() == b"1"
        with pytest.raises(Broken, match="status 1; the end of its stderr:\nno such key"):
            await child.write(b"{}")


@async_test
async def test_a_file_that_only_defines_its_server_fails_with_advice_to_run_it() -> None:
    child = Child(python("server = object()"))
    async with aclosing(child):
        await child.start()
        assert await child.read() == b""
        assert child.last_words == (
            "it ended with status 0; it wrote nothing to stderr (a server's file has to start the server: server.run())"
        )


@pytest.mark.parametrize(
    ("code", "stages"),
    [
        ("import sys; sys.stdin.read()", 0),
        ("import time; time.sleep(100)", 1),
        ("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(100)", 2),
    ],
)  # fmt: skip
@async_test
async def test_a_child_is_stopped_by_end_of_input_then_sigterm_then_sigkill(code: str, stages: int) -> None:
    child = Child(python(code), QUICK)
    await child.start()
    if "deaf" in code:
        assert await child.read() == b"deaf"
    started = time.monotonic()
    await child.aclose()
    assert stages * 0.3 <= time.monotonic() - started < stages * 0.3 + 40
    assert not is_alive(child.pid)


GRANDCHILD: Final = "import subprocess, sys; p = subprocess.Popen(['sleep', '1000']); print(p.pid, flush=True); sys.stdin.read()"


@async_test
async def test_processes_started_by_a_child_end_with_it() -> None:
    child = Child(python(GRANDCHILD), QUICK)
    await child.start()
    grandchild = int(await child.read())
    assert is_alive(grandchild)
    await child.aclose()
    assert not is_alive(child.pid)
    assert not is_alive(grandchild)


@async_test
async def test_the_end_of_a_child_is_read_although_a_process_that_it_started_holds_its_output() -> None:
    child = Child(python(GRANDCHILD.replace("sys.stdin.read()", "sys.exit(3)")), QUICK)
    await child.start()
    grandchild = int(await child.read())
    assert await child.read() == b""
    assert child.exit_status == 3
    assert is_alive(grandchild)
    await child.aclose()
    assert not is_alive(grandchild)


def test_a_child_inherits_its_three_pipes_and_no_other_open_file_also_on_the_loop_of_serve() -> None:
    async def run() -> None:
        inherited = os.dup(0)
        os.set_inheritable(inherited, True)
        # The descriptor 3 is the listing itself.
        child = Child(python("import os; print(sorted(os.listdir('/proc/self/fd')))"), QUICK)
        await child.start()
        assert await child.read() == b"['0', '1', '2', '3']"
        await child.aclose()
        os.close(inherited)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(run(), BOUND))


@async_test
async def test_all_output_of_a_child_that_has_exited_is_read_however_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child_module, "DYING_SECONDS", 0.01)
    # We read ahead once, and at most the 65,536 bytes that a pipe holds. The rest is in the pipe when the child exits.
    monkeypatch.setattr(child_module, "CHUNK", 1_000)
    child = Child(python("import sys; sys.stdout.writelines(['x' * 9_499 + '\\n'] * 7)"), QUICK)
    async with aclosing(child):
        await child.start()
        await child._exited.wait()
        # Real time is the subject: later than the time that is left to the output of a child that has exited.
        await asyncio.sleep(0.1)
        assert [len(await child.read()) for _ in range(8)] == [9_499] * 7 + [0]


@async_test
async def test_being_cancelled_does_not_stop_the_stopping() -> None:
    child = Child(python("import time; time.sleep(100)"), QUICK)
    await child.start()
    closing = asyncio.create_task(child.aclose())
    await until(lambda: child._closing is not None)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await child.aclose()
    assert not is_alive(child.pid)


PARENT: Final = f"""
import asyncio, os, sys, time
from limpet.transports.child import Child, ChildOptions
from limpet.transports.guard import GUARD
async def main():
    deaf = {GRANDCHILD!r}.replace("sys.stdin.read()", "import time; time.sleep(1000)")
    children = [Child([sys.executable, "-c", deaf], ChildOptions(close_seconds=0.1)) for _ in range(3)]
    pids = []
    for child in children:
        await child.start()
        pids += [child.pid, int(await child.read())]
    await children[1].aclose()
    if forked := os.fork():
        print(forked, GUARD.pid, *pids, flush=True)
    time.sleep(1000)
asyncio.run(main())
"""


def test_no_orphan_of_any_child_is_left_when_we_are_killed_also_if_a_process_forked_from_us_lives_on() -> (
    None
):
    with subprocess.Popen(python(PARENT), stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        assert parent.stdout is not None
        forked, guard, *pids = [int(word) for word in parent.stdout.readline().split()]
        stopped, living = pids[2:4], pids[:2] + pids[4:]
        try:
            assert all(map(is_alive, [forked, guard, *living]))
            assert not any(map(is_alive, stopped))
            os.kill(parent.pid, signal.SIGKILL)
            wait_until(lambda: not any(map(is_alive, [guard, *living])))
        finally:
            os.kill(forked, signal.SIGKILL)


@async_test
async def test_children_share_one_guard_which_ends_with_the_last_of_them() -> None:
    assert GUARD.pid is None
    children = [Child(python(ECHO)) for _ in range(3)]
    guards: set[int | None] = set()
    for child in children:
        await child.start()
        guards.add(GUARD.pid)
    [guard] = guards
    assert guard is not None
    for child in children:
        assert is_alive(guard)
        await child.aclose()
    await until(lambda: not is_alive(guard))
    assert GUARD.pid is None


@async_test
async def test_a_child_that_cannot_start_leaves_no_guard() -> None:
    with pytest.raises(NotSent):
        await Child(["/no/such/program"]).start()
    assert GUARD.pid is None


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP])
def test_a_guard_that_has_ended_or_does_not_read_is_replaced_and_knows_every_group(
    fate: signal.Signals,
) -> None:
    watched = Guard()
    sleepers = [subprocess.Popen(["sleep", "1000"], start_new_session=True) for _ in range(2)]
    try:
        with watched.starting() as watch:
            watch(sleepers[0].pid)
        first = watched.pid
        assert first is not None
        os.kill(first, fate)
        if fate is signal.SIGKILL:
            wait_until(lambda: not is_alive(first))
        with watched.starting() as watch:
            watch(sleepers[1].pid)
            for number in range(20_000 if fate is signal.SIGSTOP else 0):  # the pipe is full long before
                watched._say("+", 2**30 + number)
        assert watched.pid not in {None, first}
        assert not is_alive(first)
        assert watched._shell is not None
        assert watched._shell.stdin is not None
        watched._shell.stdin.close()  # as the kernel does when we are dead
        for sleeper in sleepers:
            assert sleeper.wait(timeout=BOUND) == -signal.SIGTERM
        watched._shell.wait(timeout=BOUND)
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


@async_test
async def test_a_program_that_does_not_exist_was_not_started() -> None:
    with pytest.raises(NotSent, match="cannot start"):
        await Child(["/no/such/program"]).start()
    with pytest.raises(ConfigError):
        Child([])


@async_test
async def test_a_child_gets_its_given_environment_and_not_our_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OUR_SECRET", "1")
    code = "import os; print('OUR_SECRET' in os.environ, os.environ.get('GIVEN'), os.getcwd(), flush=True)"
    child = Child(python(code), ChildOptions(env={"GIVEN": "yes"}, cwd="/"))
    async with aclosing(child):
        await child.start()
        assert await child.read() == b"False yes /"
