"""Errors of an author's code as an author wants to read them: file and line, without frames of Limpet.

`LIMPET_TRACEBACK=1` (`--traceback`) shows every frame.
"""

import asyncio
import contextlib
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

VARIABLE: Final = "LIMPET_TRACEBACK"
"""The variable that shows every frame. Worker processes inherit it."""
HINT: Final = "(--traceback shows everything)"
_OURS: Final = str(Path(__file__).parents[1]) + os.sep
_STANDARD: Final = str(Path(os.__file__).parent) + os.sep
_BETWEEN: Final = (
    _OURS,
    str(Path(asyncio.__file__).parent) + os.sep,
    contextlib.__file__,
    f"{_STANDARD}importlib{os.sep}",
    "<frozen ",
    "uvloop" + os.sep,
)
"""Where the frames between two functions of an author are: here, in asyncio, in the import system."""
_INSTALLED: Final = f"{os.sep}site-packages{os.sep}"
_COMMAND_LINE: Final = tuple(f"{_INSTALLED}{name}{os.sep}" for name in ("typer", "click"))


def is_whole() -> bool:
    """True if every frame shall be shown."""
    return bool(os.environ.get(VARIABLE))


def is_ours(error: BaseException) -> bool:
    """True if Limpet has raised an error, and not the author's code or a library that it uses."""
    entries = list(_entries(error.__traceback__))
    return bool(entries) and entries[-1].tb_frame.f_code.co_filename.startswith(_OURS)


def place(error: BaseException) -> str:
    """Return the file and line of the innermost frame that is the author's, else of a library.

    Empty if there is none.
    """
    found = outside = ""
    for entry in _entries(error.__traceback__):
        file = entry.tb_frame.f_code.co_filename
        if not file.startswith(_BETWEEN) and not any(part in file for part in _COMMAND_LINE):
            outside = line_of(file, entry.tb_lineno)
            if not file.startswith(_STANDARD) and _INSTALLED not in file:
                found = outside
    return found or outside


def line_of(file: str, line: int) -> str:
    """Return a place in a file, relative to the working directory if the file is in it."""
    with contextlib.suppress(ValueError, OSError):
        file = str(Path(file).relative_to(Path.cwd()))
    return f"{file}:{line}"


def one_line(error: BaseException) -> str:
    """Return an error in one line: the author's place, its type if it is not ours, its text."""
    text = " ".join(str(error).split())
    kind = "" if is_ours(error) else type(error).__name__
    words = [
        place(error),
        f"{kind}: {text}" if kind and text else text or kind,
        *getattr(error, "__notes__", ()),
    ]
    return ": ".join(word for word in words if word)


def text(error: BaseException) -> str:
    """Return a traceback, without the frames between two functions of the author."""
    report = traceback.TracebackException.from_exception(error)
    if not is_whole():
        _trim(report)
    return "".join(report.format())


def _trim(report: traceback.TracebackException) -> None:
    frames = [frame for frame in report.stack if not frame.filename.startswith(_BETWEEN)]
    report.stack = traceback.StackSummary.from_list(frames)
    for other in (report.__cause__, report.__context__, *(report.exceptions or ())):
        if other is not None:
            _trim(other)


def trimmed(error: BaseException) -> BaseException:
    """Return the error with those frames only that are the author's, for an exception that leaves Limpet."""
    if not is_whole():
        kept: TracebackType | None = None
        for entry in reversed(list(_entries(error.__traceback__))):
            if not entry.tb_frame.f_code.co_filename.startswith(_BETWEEN):
                kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
        error.__traceback__ = kept
    return error


def _entries(entry: TracebackType | None) -> Iterator[TracebackType]:
    while entry is not None:
        yield entry
        entry = entry.tb_next
