"""State that belongs to a principal instead of a session, and so works in both eras: under handles, or its own.

A handle is a name nobody can guess, made here and carried by the client. The store knows its
hash only; it works only for the principal that it was made for. A principal's own state needs no
handle: its name in the store is derived from the principal.
"""

from hashlib import sha256

from holdfast.config import LOOPBACK_HOSTS, HttpSettings
from holdfast.engine.exchange import Exchange
from holdfast.errors import ConfigError, HandleNotFound, StateError
from holdfast.ports import Random
from holdfast.server.context.state import State
from holdfast.stores.scopes import own_scope

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


def principal_state(exchange: Exchange, random: Random, ttl: float) -> State:
    """Return the principal's own state; its first use in a request begins it, or starts its time again.

    Replicas that begin it at once begin one: the store makes no second scope of a name.
    """
    principal = exchange.session.record.principal
    scope = own_scope(principal)

    async def begin() -> None:
        if not await exchange.store.open_scope(scope, principal, ttl):
            raise StateError(
                "too many principals have state here (Limits.principal_states); nothing was begun"
            )

    return State(exchange.store, random, scope, begin)


def check_strangers(settings: HttpSettings) -> None:
    """Refuse to keep one state for anonymous clients that may be different people.

    Raises:
        ConfigError: other machines may call, by a setting or through a proxy under another name.
    """
    if settings.allow_anonymous or set(settings.allowed_hosts) - set(LOOPBACK_HOSTS):
        raise ConfigError(
            'state="principal" needs a verifier where other machines may call (allow_anonymous, allowed_hosts): '
            "all anonymous clients are one principal and would share one state"
        )


def _scope(handle: str) -> str:
    return sha256(handle.encode(errors="replace")).hexdigest()
