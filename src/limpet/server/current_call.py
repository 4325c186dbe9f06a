"""The call whose function runs, for code that does not get it as a parameter (`context/current.py`)."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from limpet.engine.exchange import Exchange
    from limpet.server.catalog.server_controls import ServerControls
    from limpet.server.host import Host

CURRENT: Final[ContextVar[tuple[Exchange, ServerControls, Host] | None]] = ContextVar(
    "limpet_context", default=None
)
"""The parts of a context."""
