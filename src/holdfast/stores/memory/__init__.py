"""The memory store: see `holdfast.stores.memory.store`."""

from holdfast.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
