"""State that belongs to a principal instead of a session, so that it works in both eras: under handles, or its own.

A handle is an unguessable name that the server makes and the client carries. The store has only its hash, and it
works only for the principal that it was made for. A principal's own state needs no handle: its key in the store is
derived from the principal.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from limpet.config import HttpSettings
from limpet.core.rules.areas import own_area
from limpet.errors import ConfigError, HandleNotFound, StateError
from limpet.ports import Random
from limpet.server.context.state import State

if TYPE_CHECKING:
    from limpet.stores.base import StatePart

_MAX_HANDLE = 128
"""The handles that this module makes are shorter."""


async def open_handle(store: StatePart, random: Random, principal: str, ttl: float) -> str:
    """Create state that is kept for `ttl` seconds without use, and return its handle.

    Raises:
        StateError: the store has no room for more.
        ValueError: `ttl` is not a positive number.
    """
    if not 0 < ttl < float("inf"):
        raise ValueError(f"ttl={ttl!r}: state is kept for a number of seconds above 0")
    handle = random.token(24)
    if not await store.open_area(_area(handle), principal, ttl):
        raise StateError(
            "too many handles are in use (Limits.sessions, Limits.sessions_per_principal); no handle was created"
        )
    return handle


async def find_handle(store: StatePart, random: Random, principal: str, handle: str) -> State:
    """Return the state under a handle; its time to live starts again.

    Raises:
        HandleNotFound: this principal has no state under this handle.
    """
    area = _area(handle[:_MAX_HANDLE])
    if not await store.find_area(area, principal):
        raise HandleNotFound
    return State(store, random, area)


def principal_state(store: StatePart, random: Random, principal: str, ttl: float) -> State:
    """Return the principal's own state; its first use in a request creates it, or restarts its time to live.

    If two replicas create it at the same time, they get the same state: the store has one area for each name.
    """
    area = own_area(principal)

    async def begin() -> None:
        if not await store.open_area(area, principal, ttl):
            raise StateError("too many principals have state here (Limits.sessions); no state was created")

    return State(store, random, area, begin)


def check_strangers(settings: HttpSettings) -> None:
    """Refuse one shared state for anonymous clients that may be different people.

    Raises:
        ConfigError: other machines may call: `allow_anonymous` is set, or a Host other than loopback is allowed.
    """
    if settings.serves_strangers:
        raise ConfigError(
            'state="principal" needs a verifier where other machines may call (allow_anonymous, allowed_hosts): '
            "all anonymous clients are one principal and would share one state"
        )


def _area(handle: str) -> str:
    return sha256(handle.encode(errors="replace")).hexdigest()
