"""State under handles: it belongs to a principal instead of a session, and so works in both eras.

A handle is a name nobody can guess, made here and carried by the client. The store knows its
hash only; who presents it must be the principal it was made for.
"""

from hashlib import sha256

from holdfast.engine.exchange import Exchange
from holdfast.errors import HandleNotFound, StateError
from holdfast.ports import Random
from holdfast.server.state import State

_MAX_HANDLE = 128
"""No handle of ours is longer."""


async def open_handle(exchange: Exchange, random: Random, ttl: float | None, default: float) -> str:
    """Begin state and return its handle.

    Raises:
        StateError: the store has no room for more.
        ValueError: that is no time to keep something.
    """
    seconds = default if ttl is None else ttl
    if not 0 < seconds < float("inf"):
        raise ValueError(f"ttl={ttl!r}: state is kept for a number of seconds above 0")
    handle = random.token(24)
    principal = exchange.session.record.principal
    if not await exchange.store.open_scope(_scope(handle), principal, seconds):
        raise StateError("too many handles are in use; nothing was begun")
    return handle


async def find_handle(exchange: Exchange, random: Random, handle: str) -> State:
    """Return the state under a handle; its time starts again.

    Raises:
        HandleNotFound: there is none for this principal.
    """
    scope, principal = _scope(handle[:_MAX_HANDLE]), exchange.session.record.principal
    if not await exchange.store.find_scope(scope, principal):
        raise HandleNotFound
    return State(exchange.store, random, scope)


def _scope(handle: str) -> str:
    return sha256(handle.encode(errors="replace")).hexdigest()
