"""A command that cannot run, or cannot write its output: one line, and commands to use instead if they are known."""

import contextlib
import errno
import logging
import os
import shlex
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import Final, NoReturn

from limpet.cli.value_places import with_places
from limpet.errors import ConfigError, Exposed, LifespanEnded
from limpet.ops import tracebacks

WRONG: Final = 2
"""The exit status of a command that cannot be run as it is. Running it again would fail in the same way."""
_FAILED: Final = 1
_UNWRITABLE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE})
"""The errors of a write to standard output: a full disk, a quota, a limit, a lost terminal, a reader that has closed
the pipe."""
_ALL_ADDRESSES: Final = ("0.0.0.0", "::", "")  # noqa: S104 - recognised, not bound
_WIDTH: Final = 23


def end(error: Exception, words: Sequence[str]) -> NoReturn:
    """End a command that has raised an error. `words` are those of the command line, without the program.

    Raises:
        SystemExit: the error has been shown.
        Exception: the error is a fault of Limpet.
    """
    # The lines of the log come first: another thread writes them.
    logging.shutdown()
    if isinstance(error, ConfigError):
        refuse(error, words)
    if isinstance(error, LifespanEnded):
        # The log has the cause.
        sys.exit(f"limpet: {error}")
    if isinstance(error, OSError):
        lose_output(error)
    fail(error)


def refuse(error: ConfigError, words: Sequence[str]) -> NoReturn:
    """Print an error, and end with status 2. `words` are those of the command line, without the program.

    Raises:
        SystemExit: always.
    """
    where = tracebacks.place(error)
    text = with_places(str(error), words, os.environ)
    if tracebacks.is_whole():
        print(tracebacks.text(error), end="", file=sys.stderr)
    print(f"limpet: {f'{where}: ' if where else ''}{text}", file=sys.stderr)
    if isinstance(error, Exposed):
        for label, line in remedies(error, words):
            print(f"  {label:<{_WIDTH}} {line}", file=sys.stderr)
    sys.exit(WRONG)


def fail(error: Exception) -> NoReturn:
    """End with status 1 after an error of the author's code, which is shown in one line.

    Raises:
        SystemExit: the author's code has raised it.
        Exception: the error is another one, or everything shall be shown.
    """
    if tracebacks.is_whole() or not tracebacks.place(error):
        raise error
    print(f"limpet: {tracebacks.one_line(error)} {tracebacks.HINT}", file=sys.stderr)
    sys.exit(_FAILED)


def lose_output(error: OSError) -> None:
    """End with status 1 if standard output cannot be written, and with one line on standard error.

    A closed pipe is silent.

    Raises:
        SystemExit: the output cannot be written.
    """
    if error.errno not in _UNWRITABLE or error.filename is not None:
        return
    # The interpreter would try again at its end, and report the same error.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno != errno.EPIPE:
        print(f"limpet: the output cannot be written: {error.strerror}", file=sys.stderr)
    sys.exit(_FAILED)


def remedies(error: Exposed, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield commands that work, each with the clients that it serves."""
    named = ("--allow-host", _host(error.host)) if error.lacks_host else ()
    if not error.lacks_verifier:
        yield "use", _command(words, *named)
        return
    if "--fd" not in words:
        yield "for this machine only", _command(_on_loopback(words, error.port))
    yield "for clients with tokens", _command(words, *named, "--verifier", "auth.py:verify")
    if error.anonymous:
        yield "for everyone", _command(words, *named, "--allow-anonymous")


def _host(bound: str) -> str:
    """Return a name by which clients may call: the address, or the name of this machine if all addresses are bound."""
    host = socket.gethostname() if bound in _ALL_ADDRESSES else bound
    return f"[{host}]" if ":" in host else host


def _command(words: Sequence[str], *more: str) -> str:
    """Return the command with more options, which come before a program after `--`."""
    at = words.index("--") if "--" in words else len(words)
    return shlex.join(["limpet", *words[:at], *more, *words[at:]])


def _on_loopback(words: Sequence[str], port: int | None) -> list[str]:
    """Return the words with this port of the loopback address."""
    at = words.index("--") if "--" in words else len(words)
    rest, own = iter(words[:at]), list[str]()
    for word in rest:
        if word == "--http":
            next(rest, None)
        elif not word.startswith("--http="):
            own.append(word)
    return [*own, "--http", f"127.0.0.1:{port or 0}", *words[at:]]
