"""Notices that a file of the open database is not the one in the directory any more.

SQLite does not notice that a file which it has open was deleted or replaced (a cleaner of /tmp, an operator, a restored
backup). It continues with the old file, which no other process can open any more. A process that starts later, or
connects again, uses the new one: the replicas would not see each other, and everything in the old file would be lost at
the end of the last process. So the worker checks the database file before each transaction, which takes about 2 µs. A
new file with our tables is used from then on; without a file every command fails.

The other two files (the log of changes and its index) can be removed alone. Then the processes that have them open, and
those that make new ones, would overwrite each other's pages. The worker checks them once a second.
"""

import os
from pathlib import Path
from typing import Final

File = tuple[int, int] | None
"""The device and the number of a file; None: it does not exist."""
_BESIDE: Final = ("-wal", "-shm")


class Files:
    """The files of one connection."""

    __slots__ = ("_beside", "_database", "_name")

    def __init__(self, path: Path) -> None:
        self._name = str(path.absolute())
        self._database: File = None
        self._beside: tuple[File, ...] = ()

    def are_opened(self, database: File) -> None:
        """Record the files of a new connection.

        `database` is the file before it was opened: it may be another one by now.
        """
        self._database = database
        self._beside = self._beside_now()

    @property
    def database(self) -> File:
        """The database file in the directory."""
        return _file(self._name)

    def is_replaced(self) -> bool:
        """True if the database is not the opened one any more."""
        return _file(self._name) != self._database

    def are_replaced(self) -> bool:
        """True if a file is not the opened one any more."""
        return self.is_replaced() or self._beside_now() != self._beside

    def _beside_now(self) -> tuple[File, ...]:
        return tuple(_file(self._name + end) for end in _BESIDE)


def _file(name: str) -> File:
    try:
        # Not a path object, which would double the time.
        found = os.stat(name)  # noqa: PTH116
    except OSError:
        return None
    return found.st_dev, found.st_ino
