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
from limpet.stores.sqlite_address import parse

_FILE: Final = "store.db"


@contextlib.contextmanager
def private_store(prefix: str = "limpet-") -> Iterator[str]:
    """Make a store in a directory that only this user can read; it is removed when the server ends.

    Raises:
        ConfigError: the directory cannot be made.
    """
    try:
        directory = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    except OSError as error:
        raise ConfigError(
            f"no temporary directory can be made: {error}. Set TMPDIR to a directory that can be written"
        ) from None
    with directory as home:
        yield f"sqlite:///{Path(home, _FILE).as_posix()}"


class PrivateStoreUser:
    """A worker that uses a private store. If the parent was killed, the last worker removes the store."""

    def __init__(self, url: str) -> None:
        """Take a shared lock of the store's directory. It ends with the process.

        Raises:
            OSError: it is not a directory, or cannot be opened.
        """
        import fcntl  # noqa: PLC0415 - missing on some systems

        self._home = parse(url).path.parent
        self._handle = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        fcntl.flock(self._handle, fcntl.LOCK_SH)

    def remove_if_last(self) -> None:
        """Remove the store, unless another worker still uses it."""
        import fcntl  # noqa: PLC0415 - missing on some systems

        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(self._home, ignore_errors=True)


def check_system() -> None:
    """Refuse workers on a system whose processes cannot inherit a listening socket.

    Raises:
        ConfigError: this system cannot do it.
    """
    if sys.platform == "win32":
        raise ConfigError(
            "--workers and --reload need a system whose processes can share a socket; this system cannot"
        )
