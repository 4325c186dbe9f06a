"""Words that users of other projects type: the error names ours. And output that cannot be written."""

import errno
import io
import os
import shlex
import subprocess
import sys
from typing import Final

import pytest
from typer.testing import CliRunner

from limpet.cli.whole import app
from tests.command_line import run
from tests.support import BOUND
from tests.unit.cli.test_stores import SMALL

LIMPET: Final = shlex.join([sys.executable, "-m", "limpet"])
OF_SERVER: Final = "lifespan left\n"
"""A line that the served object prints itself."""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "server.py"), "there is no command 'run'; use limpet serve TARGET"),
        (("server.py",), "the command is missing; use limpet serve server.py"),
        (("http://127.0.0.1/mcp", "--json"), "use limpet serve http://127.0.0.1/mcp"),
        (("a/b.py:app",), "use limpet serve a/b.py:app"),
        (("dev", "server.py"), "use limpet serve TARGET --reload"),
        (("serve", "server.py", "--port", "9000"), "serve has no option --port; use --http 127.0.0.1:PORT"),
        (
            ("serve", "server.py", "--transport=http"),
            "serve has no option --transport; use --stdio, or --http",
        ),
    ],
)
def test_a_word_of_another_project_is_an_error_that_names_ours(words: tuple[str, ...], message: str) -> None:
    told = run(*words)
    assert told.status == 2
    assert message in told.err


def test_the_options_of_a_program_are_its_own() -> None:
    told = run("serve", "--http", "wrong:address:", "--", "program", "--port", "9000")
    assert told.status == 2
    assert "--port" not in told.err


def test_an_unknown_command_is_still_an_error_of_usage() -> None:
    result = CliRunner().invoke(app, ["nonsense"])
    assert result.exit_code == 2
    assert "No such command 'nonsense'" in result.output


def test_ctrl_c_while_modules_are_imported_shows_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("limpet.cli.words.read", interrupted)
    told = run("demo")
    assert (told.status, told.err) == (130, "")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("limpet ins", "inspect install"),
        ("limpet serve --work", "--workers"),
        ("limpet serve --response ", "adaptive json sse"),
        ("limpet install --client c", "claude-desktop claude-code cursor codex"),
        ("limpet demo --only ", "parallel duplicate cut replicas"),
        ("limpet check --only para", "parallel"),
        ("limpet call --protocol s", "sessions sessionless"),
    ],
)
def test_a_shell_completes_commands_options_and_values(words: str, offered: str) -> None:
    variables = {
        "_LIMPET_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")),
    }  # fmt: skip
    done = CliRunner().invoke(app, [], env=variables, prog_name="limpet")
    assert done.stdout.split() == offered.split()


class Unwritable(io.StringIO):
    """Standard output that fails, at each write or when its buffer is written."""

    def __init__(self, number: int, *, is_buffered: bool) -> None:
        super().__init__()
        self._error = OSError(number, os.strerror(number))
        self._is_buffered = is_buffered

    def write(self, text: str, /) -> int:
        if not self._is_buffered:
            raise self._error
        return super().write(text)

    def flush(self) -> None:
        if self.getvalue() or not self._is_buffered:
            raise self._error


@pytest.mark.parametrize("is_buffered", [True, False])
@pytest.mark.parametrize(
    "words",
    [
        ("--version",),
        ("--help",),
        ("inspect", SMALL),
        ("inspect", SMALL, "--json"),
        ("install", SMALL, "--client", "cursor", "--dry-run"),
    ],
)
def test_output_that_cannot_be_written_is_one_line(words: tuple[str, ...], is_buffered: bool) -> None:
    full = run(*words, out=Unwritable(errno.ENOSPC, is_buffered=is_buffered))
    assert full.status == 1
    assert (
        full.err.removeprefix(OF_SERVER) == "limpet: the output cannot be written: No space left on device\n"
    )
    closed = run(*words, out=Unwritable(errno.EPIPE, is_buffered=is_buffered))
    assert (closed.status, closed.err.removeprefix(OF_SERVER)) == (1, "")


def test_standard_files_may_be_full_closed_or_of_another_encoding() -> None:
    script = f"""
        {LIMPET} --version > /dev/full; echo $?
        PYTHONIOENCODING=ascii {LIMPET} --help | grep -o 'TARGET TOOL key=value.'
        {LIMPET} serve nowhere.py 2>&-; echo $?
        {LIMPET} serve {SMALL} --stdio >&-; echo $?
    """
    done = subprocess.run(["sh"], input=script, capture_output=True, text=True, timeout=BOUND, check=False)
    assert done.stdout.splitlines() == ["1", "TARGET TOOL key=value?", "2", "2"]
    assert done.stderr.splitlines() == [
        "limpet: the output cannot be written: No space left on device",
        "limpet: stdio cannot be served: standard input or output is closed",
    ]
