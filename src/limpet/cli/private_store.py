"""A private store, in a directory that only this user can read: of workers, of a reloaded server, of the demo."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from limpet.errors import ConfigError
from limpet.ports import SystemClock
from limpet.stores.sqlite_address import parse

_FILE: Final = "store.db"
_NEW_SECONDS: Final = 60.0


@contextlib.contextmanager
def private_store() -> Iterator[str]:
    """Make a store in a directory that only this user can read; it is removed when the server ends."""
    with _temporary_directory("limpet-") as home:
        yield f"sqlite:///{Path(home, _FILE).as_posix()}"


def _temporary_directory(prefix: str) -> tempfile.TemporaryDirectory[str]:
    """Make a directory that only this user can read.

    Raises:
        ConfigError: it cannot be made.
    """
    try:
        return tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    except OSError as error:
        raise ConfigError(
            f"no temporary directory can be made: {error}. Set TMPDIR to a directory that can be written"
        ) from None


@contextlib.contextmanager
def locked_directory(prefix: str) -> Iterator[str]:
    """Make a directory for a store that only this user can read, and lock it; it is removed at the end.

    Directories with the same prefix whose processes were killed are removed too: no process locks them.

    Raises:
        ConfigError: it cannot be made.
    """
    with _temporary_directory(prefix) as home, contextlib.ExitStack() as stack:
        if sys.platform != "win32":
            stack.callback(os.close, _locked(home))
            _remove_abandoned(Path(home).parent, prefix)
        yield home


def _remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove directories of killed processes: no process locks them, and they have only files of a store."""
    for home in parent.glob(f"{prefix}????????"):
        with contextlib.suppress(OSError):
            # A new directory may be without its lock for a moment.
            is_old = home.stat().st_mtime < SystemClock().wall() - _NEW_SECONDS
            if is_old and all(file.name.startswith("store.") for file in home.iterdir()):
                handle = _locked(home)
                _remove_if_unused(home, handle)
                os.close(handle)


def _locked(home: Path | str) -> int:
    """Take a shared lock of a directory; return its descriptor. It ends with the process.

    Raises:
        OSError: it is not a directory, or cannot be opened.
    """
    import fcntl  # noqa: PLC0415 - missing on some systems

    handle = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    fcntl.flock(handle, fcntl.LOCK_SH)
    return handle


def _remove_if_unused(home: Path, handle: int) -> None:
    """Remove a directory unless another process has locked it. `handle` is our own lock."""
    import fcntl  # noqa: PLC0415 - missing on some systems

    with contextlib.suppress(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(home, ignore_errors=True)


class PrivateStoreUser:
    """A worker that uses a private store. If the parent was killed, the last worker removes the store."""

    def __init__(self, url: str) -> None:
        self._home = parse(url).path.parent
        self._handle = _locked(self._home)

    def remove_if_last(self) -> None:
        """Remove the store, unless another worker still uses it."""
        _remove_if_unused(self._home, self._handle)


def check_system() -> None:
    """Refuse workers on a system whose processes cannot inherit a listening socket.

    Raises:
        ConfigError: this system cannot do it.
    """
    if sys.platform == "win32":
        raise ConfigError(
            "--workers and --reload need a system whose processes can share a socket; this system cannot"
        )
