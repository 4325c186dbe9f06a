"""The objects of a running function: the context, its session, its state, and the controls of the server."""

from limpet.server.catalog.server_controls import ServerControls
from limpet.server.context.blocking import BlockingContext, BlockingSession, BlockingState
from limpet.server.context.context import Context
from limpet.server.context.current import current_context
from limpet.server.context.session_view import SessionView
from limpet.server.context.state import State

__all__ = [
    "BlockingContext",
    "BlockingSession",
    "BlockingState",
    "Context",
    "ServerControls",
    "SessionView",
    "State",
    "current_context",
]
