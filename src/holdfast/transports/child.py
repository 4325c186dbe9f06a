"""A child process spoken to in lines: started in a group of its own, stopped in stages, never orphaned.

Closing asks politely (its input ends), then firmly (SIGTERM), then not at all (SIGKILL), and always
reaches the whole group: a server started by `npx` or `uv` is a grandchild. If we ourselves are killed,
a guard takes over: a shell that waits for the other end of a pipe to close, which the system does for
the dead. What the child writes to stderr is kept to a bound.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from holdfast.errors import Broken, ConfigError, NotSent, WireError
from holdfast.wire.lines import LineBuffer

STDERR_BYTES: Final = 64 * 1024
CHUNK: Final = 64 * 1024
POLL_SECONDS: Final = 0.02
DYING_SECONDS: Final = 0.5
"""How long a child that has closed its output is given to end and to finish what it writes to stderr."""
WORDS: Final = (12, 2_000)
"""Lines and characters of stderr that an error quotes."""
POSIX: Final = os.name == "posix"
INHERITED: Final = (
    "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TEMP", "TERM", "TMPDIR", "USER",
    "APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE",
    "SYSTEMDRIVE", "SYSTEMROOT", "TMP", "USERNAME", "USERPROFILE",
)  # fmt: skip
"""What a child sees of our environment: enough to run, none of our secrets."""
# The group's number comes first; a second line means that all is well; the end of the pipe, that we are dead.
GUARD: Final = (
    'read group || exit 0; read word && exit 0; kill -TERM -"$group"; sleep 2; kill -KILL -"$group"'
)


class ChildOptions(Struct, frozen=True, kw_only=True):
    """How to run the server."""

    env: Mapping[str, str] | None = None
    """Added to what every child inherits (see INHERITED)."""
    cwd: str | Path | None = None
    message_bytes: int = 16 * 1024 * 1024
    """The longest line taken; a longer one is skipped."""
    close_seconds: float = 2.0
    """How long each stage of stopping waits for the next."""


class Child:
    """A running server and its three pipes. Call `start` first, `aclose` last."""

    def __init__(self, command: Sequence[str], options: ChildOptions = ChildOptions()) -> None:  # noqa: B008
        if not command:
            raise ConfigError("a command needs at least the program's name")
        self._command = list(command)
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self._guard: _Guard | None = None
        self._lines: deque[bytes] = deque()
        self._buffer = LineBuffer(options.message_bytes)
        self._listening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._stderr = bytearray()
        self.skipped: int = 0
        """Lines that were over the limit."""

    def __repr__(self) -> str:
        return f"<Child {self._command[0]} {self._process}>"

    @property
    def stderr(self) -> str:
        """The end of what the child wrote to stderr."""
        return bytes(self._stderr).decode("utf-8", "replace")

    @property
    def exit_status(self) -> int | None:
        """The exit status, negative for a signal; None while the process runs."""
        return self._process.returncode if self._process is not None else None

    @property
    def pid(self) -> int:
        """The process's number, which is also its group's."""
        return self._running.pid

    async def start(self) -> None:
        """Start the process.

        Raises:
            NotSent: it cannot be started.
        """
        guard = _Guard() if POSIX else None
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        options: dict[str, Any] = {"start_new_session": True} if POSIX else {}
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=inherited | dict(self._options.env or {}),
                cwd=self._options.cwd,
                **options,
            )
        except OSError as error:
            if guard is not None:
                guard.dismiss()
            raise NotSent(self._unstartable(error)) from error
        if guard is not None:
            guard.watch(self._process.pid)
        self._guard = guard
        self._listening = asyncio.get_running_loop().create_task(self._keep_stderr())

    def _unstartable(self, error: OSError) -> str:
        program, cwd = self._command[0], self._options.cwd
        if cwd is not None and not Path(cwd).is_dir():
            return f"cannot start {program}: there is no directory {cwd}"
        if isinstance(error, FileNotFoundError):
            return f"cannot start {program}: there is no such program (a URL begins with http:// or https://)"
        return f"cannot start {program}: {error.strerror or error}"

    async def read(self) -> bytes:
        """Return the next line; b"" once the child has closed its output, and had a moment for its last words."""
        stdout = self._running.stdout
        while not self._lines:
            chunk = await stdout.read(CHUNK) if stdout is not None else b""
            if not chunk:
                await self._die()
                return b""
            for line in self._buffer.feed(chunk):
                if isinstance(line, WireError):
                    self.skipped += 1
                else:
                    self._lines.append(line)
        return self._lines.popleft()

    async def write(self, message: bytes) -> None:
        """Write a line; waits while the child is behind.

        Raises:
            Broken: the child no longer reads.
        """
        stdin = self._running.stdin
        try:
            if stdin is None or stdin.is_closing():
                raise BrokenPipeError
            stdin.write(message + b"\n")
            await stdin.drain()
        except (ConnectionError, RuntimeError):
            raise Broken(f"{self._command[0]} no longer reads; {self.last_words}") from None

    @property
    def last_words(self) -> str:
        """How the child ended, if it has, and the end of its stderr, for messages."""
        lines, characters = WORDS
        status = self.exit_status
        ended = f"it ended with status {status}; " if status is not None else ""
        said = "\n".join(self.stderr.strip().splitlines()[-lines:])[-characters:]
        if said:
            return f"{ended}the end of its stderr:\n{said}"
        # What a file does that only defines its server.
        hint = " (a server's file has to start the server: server.run())" if status == 0 else ""
        return f"{ended}it wrote nothing to stderr{hint}"

    async def _die(self) -> None:
        """Wait a moment for the end of a child that has closed its output, and of its stderr."""
        if self._listening is None or self._closing is not None:
            return
        ending = asyncio.ensure_future(self._running.wait())
        await asyncio.wait(
            {ending, self._listening}, timeout=DYING_SECONDS, return_when=asyncio.ALL_COMPLETED
        )
        ending.cancel()

    async def aclose(self) -> None:
        """Stop the child and everything it started. Being cancelled does not stop the stopping."""
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
        if self._guard is not None:
            self._guard.dismiss()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait({self._listening})
        # Whoever escaped the group may hold the pipes' other ends; we hold ours no longer.
        _transport(process).close()

    async def _ends(self, process: asyncio.subprocess.Process) -> None:
        """Wait for the end of the whole group, for as long as a stage may take."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._options.close_seconds):
                await process.wait()
                # Only the leader's end is told to us; the group's has to be looked for.
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
            # macOS says this of a group of zombies.
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
        while stderr is not None and (chunk := await stderr.read(CHUNK)):
            self._stderr += chunk
            del self._stderr[:-STDERR_BYTES]


class _Guard:
    """A shell that ends the group if we die before we dismiss it."""

    def __init__(self) -> None:
        # A session of its own: what ends ours must not end the guard.
        self._is_watching = False
        self._shell = subprocess.Popen(  # noqa: S603 - a constant
            ["/bin/sh", "-c", GUARD],
            stdin=subprocess.PIPE,
            # What it would say is that the group is gone already.
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={"PATH": os.defpath},
        )

    def watch(self, group: int) -> None:
        self._is_watching = True
        self._say(f"{group}\n")

    def dismiss(self) -> None:
        # The first line would be taken for the group's number.
        if self._is_watching:
            self._say("well\n")
        if self._shell.stdin is not None:
            self._shell.stdin.close()
        self._shell.wait()

    def _say(self, words: str) -> None:
        if self._shell.stdin is not None:
            with contextlib.suppress(OSError):
                self._shell.stdin.write(words.encode())
                self._shell.stdin.flush()


def _transport(process: asyncio.subprocess.Process) -> asyncio.SubprocessTransport:
    transport: asyncio.SubprocessTransport = process._transport  # type: ignore[attr-defined]
    return transport
