"""The `limpet` command. An error names the fault, its place and a valid form; a usage error has no traceback.

Most of the time until the first answer is imports, so a command imports only the modules that it uses.
"""

import io
import os
import sys
import warnings
from typing import Final

from limpet.cli import collector

_STOPPED: Final = 130
"""The exit status after Ctrl+C."""
_STDERR: Final = 2


def main() -> None:
    """Run the command line."""
    collector.pause()
    warnings.formatwarning = _warning
    if "--traceback" in sys.argv[: sys.argv.index("--") if "--" in sys.argv else None]:
        os.environ["LIMPET_TRACEBACK"] = "1"  # Worker processes inherit it.
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_closed_files()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that is not UTF-8 shows a question mark instead of a character that it does not have.
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            _run()
        finally:
            # Before the exit status says that it worked. None: standard output is closed.
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:
        # While modules are imported: a command that runs handles it itself.
        sys.exit(_STOPPED)
    except Exception as error:  # noqa: BLE001 - the author's code may raise anything
        from limpet.cli.refusing import end  # noqa: PLC0415 - imported only by this command

        end(error, sys.argv[1:])


def _warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Return a warning in one line. Python reports a forgotten `await` only as such a warning."""
    del line
    hint = f": {_AWAIT}" if str(message).endswith("was never awaited") else ""
    return f"limpet: {filename}:{lineno}: {category.__name__}: {message}{hint}\n"


_AWAIT: Final = "write `await` before the call, in a function that begins with `async def`"


def _open_closed_files() -> None:
    """Open the standard files that the caller has closed, as empty ones: a socket would take their descriptors."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(opened, True)
    os.close(opened)
    sys.stderr = sys.stderr or open(_STDERR, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - until the process ends


def _run() -> None:
    from limpet.cli.words import read  # noqa: PLC0415 - imported only by this command

    asked = read(sys.argv[1:], os.environ)
    if asked is None:
        from limpet.cli.whole import app  # noqa: PLC0415 - imported only by this command

        app()
    else:
        from limpet.cli.asked import run  # noqa: PLC0415 - imported only by this command

        sys.exit(run(asked))
