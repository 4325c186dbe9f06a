"""The SQLite store: one file, several processes of one host."""

from holdfast.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
