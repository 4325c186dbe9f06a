"""The objects of a running function: the context, its session, its state, and the controls of the server."""

from holdfast.server.catalog.server_controls import ServerControls
from holdfast.server.context.blocking import BlockingContext, BlockingSession, BlockingState
from holdfast.server.context.context import Context
from holdfast.server.context.current import current_context
from holdfast.server.context.session_view import SessionView
from holdfast.server.context.state import State

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
