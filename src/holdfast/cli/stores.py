"""Stores on the command line: shown without secrets; a private one if none is named."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from holdfast.errors import ConfigError
from holdfast.stores.base import Store
from holdfast.stores.sqlite_address import parse
from holdfast.stores.urls import SCHEMES

_FILE: Final = "store.db"


def shown(store: Store | str, namespace: str) -> str:
    """Return a text for a server's store: the file of an SQLite store, else its URL without secrets."""
    if not isinstance(store, str):
        return repr(store)
    if store.partition(":")[0] == "sqlite":
        return f"SQLite file {parse(store, namespace).path}"
    return redacted(store)


def redacted(url: str) -> str:
    """Return a store's URL without user, password and query."""
    scheme, separator, place = url.partition("://")
    # A password may contain any character, also @ and /: split at the last one.
    _, at, host = place.rpartition("@")
    return f"{scheme}{separator}{'***@' if at else ''}{host.partition('?')[0]}"


def check(url: str) -> None:
    """Refuse an invalid URL of a store, without showing a possible password.

    Raises:
        ConfigError: the URL is not valid.
    """
    scheme, colon, _ = url.partition(":")
    if not colon or scheme not in SCHEMES:
        named = f"{scheme}:" if colon else redacted(url)
        known = ", ".join(f"{scheme}:" for scheme in SCHEMES)
        raise ConfigError(f"--store {named} is not the URL of a store: it must begin with one of {known}")
    with contextlib.suppress(ValueError):
        _ = urlsplit(url).port
        return
    if "," not in url:
        raise ConfigError(f"--store {redacted(url)}: the port is not a number")


@contextlib.contextmanager
def private_store() -> Iterator[str]:
    """Make a store in a directory that only this user can read; it is removed when the server ends."""
    with temporary_directory("holdfast-") as home:
        yield f"sqlite:///{Path(home, _FILE).as_posix()}"


def temporary_directory(prefix: str) -> tempfile.TemporaryDirectory[str]:
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


class PrivateStoreUser:
    """A worker that uses a private store. If the parent was killed, the last worker removes the store."""

    def __init__(self, url: str) -> None:
        import fcntl  # noqa: PLC0415 - missing on some systems

        self._home = parse(url).path.parent
        self._handle = os.open(self._home, os.O_RDONLY)
        fcntl.flock(self._handle, fcntl.LOCK_SH)

    def remove_if_last(self) -> None:
        """Remove the store, unless another worker still uses it."""
        import fcntl  # noqa: PLC0415 - missing on some systems

        fcntl.flock(self._handle, fcntl.LOCK_UN)
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
