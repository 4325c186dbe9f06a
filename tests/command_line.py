"""The command line in this process: its output, and its exit status."""

import contextlib
import io
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from limpet.cli import main, target
from tests.process_state import process_as_before


class Done(NamedTuple):
    """The output of a command, and its exit status."""

    status: int
    out: str
    err: str


class Terminal(io.StringIO):
    """An operator that types an answer."""

    def isatty(self) -> bool:
        return True


def run(*words: str, typed: str | None = None, out: io.StringIO | None = None) -> Done:
    """Run the command line in this process."""
    out, err = out or io.StringIO(), io.StringIO()
    stdin = io.StringIO() if typed is None else Terminal(typed)
    with (
        process_as_before(),
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", ["limpet", *words])
        patch.setattr(sys, "stdin", stdin)
        patch.setattr(sys, "path", [*sys.path])
        # Each run imports its target again, because a server starts only once.
        files: dict[Path, ModuleType] = {}
        patch.setattr(target, "_FILES", files)
        try:
            main.main()
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
        finally:
            for module in files.values():
                del sys.modules[module.__name__]
    return Done(status, out.getvalue(), err.getvalue())
