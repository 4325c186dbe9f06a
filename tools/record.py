"""Record `limpet serve` and `limpet demo` in pseudo terminals, for the README: docs/pictures/*.svg.

python -m tools.record [NAME…]

The commands are typed into a real bash. build/recordings/*.cast is the same for `asciinema play`. The demo runs in .peers/mcp2, so
that it has the column of the official SDK (`make peers`). Port 8000 must be free.
"""

import contextlib
import json
import os
import pty
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from fcntl import ioctl
from pathlib import Path
from typing import Final, NamedTuple

from tools.recording_svg import Picture, Window, svg
from tools.terminal import Screen

ROOT: Final = Path(__file__).parents[1]
PICTURES: Final = ROOT / "docs" / "pictures"
CASTS: Final = ROOT / "build" / "recordings"
URL: Final = "http://127.0.0.1:8000/mcp"
PROMPT: Final = "\x1b]133;A\x07"
"""An invisible mark in the prompt: bash is ready for the next command."""
KEY_SECONDS: Final = 0.025
READ_SECONDS: Final = 1.2
"""How long a result stays before the next command."""
LIMIT: Final = 90.0
LONGEST_PAUSE: Final = 1.5
PICTURE_SECONDS: Final = 0.25
"""The shortest time between two pictures of the SVG."""


class Step(NamedTuple):
    """A command that is typed."""

    command: str
    window: int = 0
    until: str = ""
    """The output after which the recording goes on; empty: the next prompt."""


class Recording(NamedTuple):
    """What is typed, and where."""

    title: str
    steps: tuple[Step, ...]
    windows: tuple[str, ...] = ("",)
    """The titles of the terminals. The first is empty if there is one: it gets the title of the recording."""
    columns: int = 110
    rows: int = 30
    python: str = ".venv/bin/python"


RECORDINGS: Final = {
    "serve": Recording(
        "limpet serve and limpet call",
        (
            Step("limpet serve examples/everything.py:server", until='"mcpServers"'),
            Step(f"limpet call {URL} echo text='hello, world'", window=1),
            Step(f"limpet call {URL} ticks n=8 interval=0.25", window=1),
            Step(f"limpet call {URL} bump key=visits --protocol sessions", window=1),
        ),
        windows=("make serve", "another terminal"),
        columns=122,
        rows=22,
    ),
    "demo": Recording("limpet demo", (Step("limpet demo"),), python=".peers/mcp2/bin/python"),
}

Output = list[tuple[float, str]]
"""What a terminal received, with the time of each part in seconds."""


class Terminal:
    """A bash in a pseudo terminal, and its output so far."""

    def __init__(self, recording: Recording, home: Path) -> None:
        shim = home / "limpet"
        python = ROOT / recording.python
        shim.write_text(f'#!/bin/sh\nexec "{python}" -W ignore -m limpet "$@"\n')
        shim.chmod(0o755)
        environment = {
            "PATH": f"{home}:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT / "src"),
            "HOME": str(home),
            "TERM": "xterm",
            "LANG": "C.UTF-8",
            "PS1": r"\[\e[1;32m\e]133;A\a\]$\[\e[0m\] ",
        }
        self.output: Output = []
        self._rest = b""
        self.pid, self._end = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execve("/bin/bash", ["bash", "--noprofile", "--norc", "--noediting", "-i"], environment)  # noqa: S606
        size = struct.pack("HHHH", recording.rows, recording.columns, 0, 0)
        ioctl(self._end, termios.TIOCSWINSZ, size)
        self._begun = time.monotonic()

    def type(self, text: str) -> None:
        """Type a command as a person does."""
        for key in f"{text}\n":
            os.write(self._end, key.encode())
            self.read(KEY_SECONDS)

    def read(self, seconds: float) -> None:
        """Take the output of the next seconds."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self._end], [], [], left)[0]:
                self._take()

    def count(self, text: str) -> int:
        """Return how often a text has come."""
        return "".join(part for _, part in self.output).count(text)

    def close(self) -> None:
        """End bash and every program that it has started."""
        os.write(self._end, b"\x03")  # Ctrl+C ends a program that still runs.
        self.read(READ_SECONDS)
        os.write(self._end, b"exit\n")
        with_end = time.monotonic() + LIMIT
        while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > with_end:
                os.kill(self.pid, signal.SIGKILL)
            if select.select([self._end], [], [], 0.05)[0]:
                try:
                    os.read(self._end, 65_536)
                except OSError:
                    continue
        os.close(self._end)

    def _take(self) -> None:
        data = self._rest + os.read(self._end, 65_536)
        text = data.decode(errors="ignore")
        # A character or a control sequence may be incomplete: it waits for its rest.
        whole = text[: text.rindex("\x1b")] if "\x1b" in text[-12:] and not _is_complete(text) else text
        self._rest = data[len(whole.encode()) :]
        if whole:
            self.output.append((time.monotonic() - self._begun, whole))


def _is_complete(text: str) -> bool:
    last = text[text.rindex("\x1b") :]
    return last[-1] == "\x07" if last[1:2] == "]" else any(one.isalpha() for one in last[1:])


def recorded(recording: Recording) -> list[Output]:
    """Run a recording and return the output of each terminal."""
    with tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as stack:
        terminals = []
        for _ in recording.windows:
            terminals.append(Terminal(recording, Path(home)))
            stack.callback(terminals[-1].close)
        _wait(terminals, lambda: all(terminal.count(PROMPT) for terminal in terminals))
        for step in recording.steps:
            typed = terminals[step.window]
            sign = step.until or PROMPT
            wanted = typed.count(sign) + 1
            typed.type(step.command)
            _wait(terminals, lambda: typed.count(sign) >= wanted)  # noqa: B023 - called at once
        return [list(terminal.output) for terminal in terminals]


def _wait(terminals: Sequence[Terminal], reached: Callable[[], bool]) -> None:
    """Take the output of all terminals until a condition is true, and then for the time that a reader needs."""
    until = time.monotonic() + LIMIT
    while not reached():
        if time.monotonic() > until:
            raise TimeoutError(
                f"not reached within {LIMIT:g} s: {[terminal.output[-3:] for terminal in terminals]}"
            )
        for terminal in terminals:
            terminal.read(0.02)
    until = time.monotonic() + READ_SECONDS
    while time.monotonic() < until:
        for terminal in terminals:
            terminal.read(0.02)


def shortened(outputs: Sequence[Output]) -> list[Output]:
    """Return the outputs without the marks of the prompts and without long pauses of all terminals."""
    made: list[Output] = [[] for _ in outputs]
    now = before = 0.0
    parts = sorted((at, window, text) for window, output in enumerate(outputs) for at, text in output)
    for at, window, text in parts:
        now += min(at - before, LONGEST_PAUSE)
        before = at
        if shown := text.replace(PROMPT, ""):
            made[window].append((now, shown))
    return made


def cast(recording: Recording, output: Output) -> str:
    """Return the output of one terminal in the format of asciinema, version 2."""
    head = {"version": 2, "width": recording.columns, "height": recording.rows, "title": recording.title}
    lines = [head, *([round(at, 3), "o", text] for at, text in output)]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def pictures(recording: Recording, output: Output) -> Iterator[Picture]:
    """Yield the different screens of a terminal, not more than four in a second."""
    screen = Screen(recording.columns, recording.rows)
    yield Picture(0.0, screen.rows())
    shown = screen.rows()
    begins = 0.0
    ends = [at for at, _ in output[1:]] + [float("inf")]
    for (at, text), end in zip(output, ends, strict=True):
        screen.feed(text)
        lasts = end - at >= PICTURE_SECONDS or end - begins >= 2 * PICTURE_SECONDS
        if lasts and (rows := screen.rows()) != shown:
            shown, begins = rows, at
            yield Picture(at, rows)


def main(names: Sequence[str]) -> None:
    """Write the files."""
    CASTS.mkdir(parents=True, exist_ok=True)
    for name in names or RECORDINGS:
        recording = RECORDINGS[name]
        outputs = shortened(recorded(recording))
        windows = []
        for title, output in zip(recording.windows, outputs, strict=True):
            place = CASTS / (f"{name}-{title.replace(' ', '-')}.cast" if title else f"{name}.cast")
            place.write_text(cast(recording, output), encoding="utf-8")
            windows.append(Window(title or recording.title, list(pictures(recording, output))))
        picture = svg(windows, recording.columns, recording.title)
        (PICTURES / f"{name}.svg").write_text(picture, encoding="utf-8")
        print(f"{name}: {outputs[-1][-1][0]:.0f} s, {len(picture) // 1024} KiB")


if __name__ == "__main__":
    main(sys.argv[1:])
