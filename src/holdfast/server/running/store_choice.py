"""The choice of the store: the given one, the one of a URL, or memory."""

import hashlib
import re
from typing import Final

from holdfast.config import Limits
from holdfast.ports import Observer
from holdfast.stores.base import NoState, NoTasks, Store, refuse_state, refuse_tasks
from holdfast.stores.urls import open_store

_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_OTHER: Final = re.compile(r"[^A-Za-z0-9._-]+")


def namespace_of(name: str) -> str:
    """Return the namespace of a server's records: its name, or its valid characters with a hash."""
    if _PLAIN.fullmatch(name):
        return name
    return f"{_OTHER.sub('-', name)[:48]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def distinct_namespace(name: str, whole: str) -> str:
    """Return the namespace of a server that is known by a short name, and by a whole description that may hold a secret."""
    return namespace_of(f"{name[:48]}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}")


def check_parts(store: Store, *, needs_state: bool, needs_tasks: bool) -> None:
    """Check that the store has the parts that the server's settings and tools need.

    Raises:
        ConfigError: the store lacks a part; the message names the part and the setting or tool that needs it.
    """
    if needs_state and isinstance(store, NoState):
        refuse_state(store)
    if needs_tasks and isinstance(store, NoTasks):
        refuse_tasks(store)


def store_for(
    store: Store | str | None, *, limits: Limits, namespace: str, observer: Observer
) -> Store | None:
    """Return the store; None for the engine's default, memory.

    Raises:
        ConfigError: the URL is unknown, or the package of its store is not installed.
        StoreUnavailable: the file of the store cannot be opened now.
    """
    if not isinstance(store, str):
        return store
    return open_store(store, limits=limits, namespace=namespace, observer=observer)
