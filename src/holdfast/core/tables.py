"""Tables of a session: there are many sessions, and most of them are idle."""

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def remove(table: dict[Key, Value], key: Key) -> None:
    """Remove an entry. A dict that has become empty keeps the memory of its entries until it is cleared."""
    del table[key]
    if not table:
        table.clear()
