"""A child process that reads and writes lines. It and its own children never outlive us.

The process group. The command is often only a starter: `npx` or `uv` starts the real server as its own child. A
signal to the starter would leave the server running. So the child gets its own session and process group
(`start_new_session`; the group's number is the child's pid), and every signal goes to the whole group.

Stopping has three stages, each with `close_seconds`:

    1. close the child's standard input        a well-behaved server exits
    2. SIGTERM to the group                    a server that ignores its input exits
    3. SIGKILL to the group                    nothing can ignore it

A stage is over when no process of the group is left. The system reports only the exit of the child itself, so we poll
the group (`killpg` with signal 0). `aclose` runs in its own task: cancelling the caller does not stop it halfway.

If we are killed ourselves, the guard of our process stops the group (`guard.py`).

The child inherits its three pipes and no other open file. asyncio closes the others; uvloop does not, and even gives
the child a second copy of each pipe. With a copy, the child's output would stay open after the child has closed it.

The end. The child has ended when it has exited, or when it has closed its output. A process that it started may still
hold its output open, so we close our side after the exit, when a read has waited DYING_SECONDS and nothing has come.
While no read waits, bytes may still be in the pipe: a slow client stops the reading.

Standard error is read all the time, or the child would block; its last STDERR_BYTES are kept for error messages. On
Windows there are no groups and no guard: only the child itself is stopped.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from typing_extensions import override

from limpet.errors import Broken, ConfigError, LineTooLong, NotSent
from limpet.transports.guard import GUARD
from limpet.transports.stdio import STDERR
from limpet.wire.lines import LineBuffer, Reserve

STDERR_BYTES: Final = 64 * 1024
STDERR_LINE: Final = 2_000
"""The most bytes of one line of stderr that are reported."""
UNWRITTEN: Final = 16 * 1024
"""Bytes in our buffer at which a line waits until they have left. `drain` never waits below it."""
CHUNK: Final = 64 * 1024
POLL_SECONDS: Final = 0.02
DYING_SECONDS: Final = 0.5
"""How long we wait for the exit status and the rest of stderr after a child has closed its output."""
WORDS: Final = (12, 2_000)
"""The most lines and characters of stderr in an error message."""
POSIX: Final = os.name == "posix"
INHERITED: Final = (
    "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TEMP", "TERM", "TMPDIR", "USER",
    "APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE",
    "SYSTEMDRIVE", "SYSTEMROOT", "TMP", "USERNAME", "USERPROFILE",
)  # fmt: skip
"""The environment variables that a child inherits: enough to run, without our secrets."""


class ChildLimits(Struct, frozen=True, kw_only=True):
    """The resources that a child, and each process that it starts, may use; None: as much as this process.

    Linux only.
    """

    memory: int | None = None
    """Bytes of its private memory (RLIMIT_DATA). Address space that is only reserved does not count: Node.js
    reserves much."""
    cpu: int | None = None
    """Seconds of processor time in its whole life; then it gets SIGXCPU, and ends."""
    files: int | None = None
    """Open files and sockets."""

    def set_for(self, pid: int) -> None:
        """Limit a process. Those that it starts from now on inherit the limits.

        Raises:
            NotSent: the system refuses a limit.
        """
        import resource  # noqa: PLC0415 - POSIX only

        kinds = {
            resource.RLIMIT_DATA: self.memory,
            resource.RLIMIT_CPU: self.cpu,
            resource.RLIMIT_NOFILE: self.files,
        }
        for kind, most in kinds.items():
            if most is not None:
                try:
                    resource.prlimit(pid, kind, (most, most))
                except ProcessLookupError:
                    return  # It has ended already.
                except (OSError, ValueError) as error:
                    raise NotSent(f"cannot limit the program to {most}: {error}") from error


class ChildOptions(Struct, frozen=True, kw_only=True):
    """How to run the server."""

    env: Mapping[str, str] | None = None
    """Variables in addition to those that every child inherits (INHERITED)."""
    cwd: str | Path | None = None
    message_bytes: int = 16 * 1024 * 1024
    """The longest line; a longer one is skipped and reported."""
    on_stderr: Callable[[str], None] | None = None
    """Receives each line that the child writes to stderr. Must not wait and must not raise."""
    quotes_stderr: bool = True
    """Errors quote the last lines of stderr. False: errors reach other people than the owner of the child."""
    limits: ChildLimits | None = None
    close_seconds: float = 2.0
    """How long each stage of stopping may take."""


class Child:
    """A running server and its three pipes. Call `start` first, `aclose` last."""

    def __init__(
        self,
        command: Sequence[str],
        options: ChildOptions = ChildOptions(),  # noqa: B008
        reserve: Reserve | None = None,
    ) -> None:
        if not command:
            raise ConfigError("a command needs the name of a program")
        self._command = list(command)
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self._lines: deque[bytes | LineTooLong] = deque()
        self._buffer = LineBuffer(options.message_bytes, keeps_edges=True, reserve=reserve)
        self._waiting: object | None = None
        """Stands for the read that waits for output."""
        self._turn = asyncio.Lock()
        self._listening: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._exited = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None
        self._stderr = bytearray()

    def __repr__(self) -> str:
        return f"<Child {self._command[0]} {self._process}>"

    @property
    def stderr(self) -> str:
        """The last part of the child's stderr."""
        return bytes(self._stderr).decode("utf-8", "replace")

    @property
    def exit_status(self) -> int | None:
        """The exit status, negative for a signal; None while the process runs."""
        return self._process.returncode if self._process is not None else None

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its group."""
        return self._running.pid

    async def start(self) -> None:
        """Start the process.

        Raises:
            NotSent: it cannot be started.
        """
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        options: dict[str, Any] = {"start_new_session": True} if POSIX else {}
        try:
            with GUARD.starting() as watch:
                self._process = await _start_process(
                    self._exited,
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=inherited | dict(self._options.env or {}),
                    cwd=self._options.cwd,
                    **options,
                )
                watch(self._process.pid)
        except OSError as error:
            raise NotSent(self._unstartable(error)) from error
        loop = asyncio.get_running_loop()
        self._listening = loop.create_task(self._keep_stderr())
        self._ending = loop.create_task(self._end_output(self._process))
        if self._options.limits is not None:
            try:
                self._options.limits.set_for(self._process.pid)
            except NotSent:
                await self.aclose()
                raise

    def _unstartable(self, error: OSError) -> str:
        program, cwd = self._command[0], self._options.cwd
        if cwd is not None and not Path(cwd).is_dir():
            return f"cannot start {program}: there is no directory {cwd}"
        if isinstance(error, FileNotFoundError):
            return f"cannot start {program}: there is no such program (a URL begins with http:// or https://)"
        return f"cannot start {program}: {error.strerror or error}"

    async def read(self) -> bytes:
        """Return the next line; b"" when the child has ended and its stderr was read (up to DYING_SECONDS).

        Raises:
            LineTooLong: a line was over the limit. The next call returns the line after it.
        """
        stdout = self._process.stdout if self._process is not None else None
        while not self._lines:
            self._waiting = object()
            try:
                chunk = await stdout.read(CHUNK) if stdout is not None else b""
            finally:
                self._waiting = None
            if not chunk:
                await self._die()
                return b""
            self._lines.extend(self._buffer.feed(chunk))
        line = self._lines.popleft()
        if isinstance(line, LineTooLong):
            raise line
        return line

    async def write(self, message: bytes) -> None:
        """Write a line; wait while the child does not read.

        A line is written only when those before it have left our buffer, up to a few KiB: a child that does not read
        costs the memory of one line, even if many callers gave up waiting.

        Raises:
            Broken: the child has closed its input.
        """
        stdin = self._process.stdin if self._process is not None else None
        try:
            if stdin is None or (pipe := stdin.transport).is_closing():
                raise BrokenPipeError
            if self._turn.locked() or pipe.get_write_buffer_size() > UNWRITTEN:
                async with self._turn:
                    await stdin.drain()
                    if pipe.is_closing():
                        raise BrokenPipeError
                    pipe.write(message + b"\n")
                    await stdin.drain()
                return
            pipe.write(message + b"\n")
            if pipe.get_write_buffer_size() > UNWRITTEN or pipe.is_closing():
                await stdin.drain()
        except (ConnectionError, RuntimeError):
            # A child that has just exited: its last lines of stderr may still be in the pipe.
            await self._die()
            raise Broken(f"{self._command[0]} no longer reads; {self.last_words}") from None

    @property
    def last_words(self) -> str:
        """The exit status of the child, and the last lines of its stderr unless they are secret, for error messages."""
        lines, characters = WORDS
        status = self.exit_status
        ended = f"it ended with status {status}; " if status is not None else ""
        said = "\n".join(self.stderr.strip().splitlines()[-lines:])[-characters:]
        if not self._options.quotes_stderr:
            return f"{ended}its stderr is in the log"
        if said:
            return f"{ended}the end of its stderr:\n{said}"
        # The usual reason: the file defines a server and does not run it.
        hint = " (a server's file has to start the server: server.run())" if status == 0 else ""
        return f"{ended}it wrote nothing to stderr{hint}"

    async def _die(self) -> None:
        """Wait up to DYING_SECONDS for the exit of a child that has closed a pipe, and for the rest of its stderr."""
        if self._listening is None or self._closing is not None:
            return
        ending = asyncio.ensure_future(self._running.wait())
        await asyncio.wait(
            {ending, self._listening}, timeout=DYING_SECONDS, return_when=asyncio.ALL_COMPLETED
        )
        ending.cancel()

    async def _end_output(self, process: asyncio.subprocess.Process) -> None:
        """End our side of the child's output after its exit: a process that it started may hold the other side open."""
        await self._exited.wait()
        waiting = None
        while waiting is None or waiting is not self._waiting:
            waiting = self._waiting
            await asyncio.sleep(DYING_SECONDS)
        output = _transport(process).get_pipe_transport(1)
        if output is not None:
            output.close()

    async def aclose(self) -> None:
        """Stop the child and everything it started. Cancelling this call does not interrupt it."""
        if self._process is None:
            return
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._stop(self._process))
        await asyncio.shield(self._closing)

    @property
    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise ConfigError("the child has not been started")
        return self._process

    # Stopping

    async def _stop(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is not None:
            process.stdin.close()
        await self._ends(process)
        if self._lives(process):
            self._signal(process, signal.SIGTERM)
            await self._ends(process)
        if self._lives(process):
            self._signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))
        await process.wait()
        GUARD.leave(process.pid)
        tasks = {task for task in (self._listening, self._ending) if task is not None}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        # A process that left the group may still hold the other ends of the pipes; we close ours.
        _transport(process).close()

    async def _ends(self, process: asyncio.subprocess.Process) -> None:
        """Wait for the end of the whole group, at most one stage long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._options.close_seconds):
                await process.wait()
                # The system reports only the exit of the child itself; the group has to be polled.
                while self._lives(process):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_SECONDS)

    @staticmethod
    def _lives(process: asyncio.subprocess.Process) -> bool:
        if not POSIX:
            return process.returncode is None
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            # macOS returns this for a group of zombies.
            return process.returncode is None
        return True

    @staticmethod
    def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if POSIX:
                os.killpg(process.pid, number)
            else:
                process.terminate()

    async def _keep_stderr(self) -> None:
        stderr = self._running.stderr
        line = b""
        while stderr is not None and (chunk := await stderr.read(CHUNK)):
            self._stderr += chunk
            del self._stderr[:-STDERR_BYTES]
            if self._options.on_stderr is not None:
                *lines, line = (line + chunk).split(b"\n")
                for one in lines:
                    self._options.on_stderr(one[:STDERR_LINE].decode("utf-8", "replace"))
                line = line[-STDERR_LINE:]


class _Protocol(asyncio.subprocess.SubprocessStreamProtocol):
    """Reports the exit of a process at once.

    `Process.wait` of some releases of Python waits for the end of the pipes too.
    """

    def __init__(self, exited: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=CHUNK, loop=loop)
        self._exited = exited

    @override
    def process_exited(self) -> None:
        super().process_exited()
        self._exited.set()


async def _start_process(
    exited: asyncio.Event, command: Sequence[str], **options: Any
) -> asyncio.subprocess.Process:
    """Start a process as `asyncio.create_subprocess_exec` does; `exited` is set when it has exited."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, asyncio.BaseEventLoop):
        options["preexec_fn"] = _keep_pipes_only
    transport, protocol = await loop.subprocess_exec(lambda: _Protocol(exited, loop), *command, **options)
    return asyncio.subprocess.Process(transport, protocol, loop)


def _keep_pipes_only() -> None:
    """In the new process, before its program starts: let the program inherit only standard input, output and error.

    uvloop copies the pipes to these three afterwards, so the others are only marked here.
    """
    open_files = Path("/dev/fd")
    for file in open_files.iterdir() if open_files.is_dir() else ():
        if int(file.name) > STDERR:
            with contextlib.suppress(OSError):  # the descriptor of this listing is closed already
                os.set_inheritable(int(file.name), False)  # noqa: FBT003 - the parameter has no name


def _transport(process: asyncio.subprocess.Process) -> asyncio.SubprocessTransport:
    transport: asyncio.SubprocessTransport = process._transport  # type: ignore[attr-defined]
    return transport
