"""The short name of a call, for the log and the dashboard."""

from hashlib import sha256

from holdfast.engine.exchange import Exchange, SessionExchange


def call_name(exchange: Exchange, began: float | None) -> str:
    """Return a short name without a meaning for clients and other processes.

    A call without a session gets its key late, so its address in memory and the time of its start are used instead.
    """
    own = exchange.key if isinstance(exchange, SessionExchange) else f"{id(exchange)} {began}"
    return sha256(own.encode()).hexdigest()[:12]
