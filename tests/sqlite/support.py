"""The place of the files of these tests, and functions that read them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a directory of a random name is made in it


@contextmanager
def store_path() -> Iterator[Path]:
    """Give a path for a store, in memory where the system has such a place: tests wait for no disk."""
    with TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as directory:
        yield Path(directory) / "store.db"


def counts(path: Path) -> dict[str, int]:
    """Return how many rows each table has, of those that have any."""
    with closing(sqlite3.connect(path)) as connection:
        names = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        ]
        found = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}
    return {name: count for name, count in found.items() if count}
