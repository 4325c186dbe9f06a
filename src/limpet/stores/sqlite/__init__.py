"""The SQLite store: one file, several processes of one host."""

from limpet.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
