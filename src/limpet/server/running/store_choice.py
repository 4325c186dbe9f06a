"""The choice of the store: the given one, the one of a URL, or memory."""

from limpet.config import Limits
from limpet.engine.observed_store import unobserved
from limpet.ports import Observer
from limpet.stores.base import NoState, NoTasks, Store, refuse_state, refuse_tasks
from limpet.stores.urls import open_store


def check_parts(store: Store, *, needs_state: bool, needs_tasks: bool) -> None:
    """Check that the store has the parts that the server's settings and tools need.

    Raises:
        ConfigError: the store lacks a part; the message names the part and the setting or tool that needs it.
    """
    store = unobserved(store)
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
