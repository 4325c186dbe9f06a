"""One table of the methods of both eras: the sender, the capability and the treatment of each."""

from enum import Enum
from typing import Final

from msgspec import Struct


class From(Enum):
    """Who sends a method."""

    CLIENT = "client"
    SERVER = "server"
    BOTH = "both"


class Method(Struct, frozen=True):
    """One row."""

    name: str
    sender: From = From.CLIENT
    notification: bool = False
    capability: str = ""
    """The capability that the receiver must have declared, as a path."""
    begins: bool = False
    """It begins work: a session, a call or a listener. A server that stops refuses it, and serves the others: they read, or
    belong to a session or a call that exists."""
    control: bool = False
    """Passes even when every slot is taken (law 10)."""
    sessions: bool = True
    """True if the revisions with sessions have it (2025-03-26 to 2025-11-25)."""
    sessionless: bool = True
    """True if 2026-07-28 has it."""


METHODS: Final[dict[str, Method]] = {
    method.name: method
    for method in (
        Method("initialize", begins=True, control=True, sessionless=False),
        Method("ping", From.BOTH, control=True, sessionless=False),
        Method("server/discover", sessions=False),
        Method("subscriptions/listen", begins=True, sessions=False),
        Method("tasks/get", capability="extensions.io.modelcontextprotocol/tasks", sessions=False),
        Method("tasks/update", capability="extensions.io.modelcontextprotocol/tasks", sessions=False),
        Method("tasks/cancel", capability="extensions.io.modelcontextprotocol/tasks", sessions=False),
        Method("tools/list", capability="tools"),
        Method("tools/call", begins=True, capability="tools"),
        Method("resources/list", capability="resources"),
        Method("resources/templates/list", capability="resources"),
        Method("resources/read", capability="resources"),
        Method("resources/subscribe", capability="resources.subscribe", sessionless=False),
        Method("resources/unsubscribe", capability="resources.subscribe", sessionless=False),
        Method("prompts/list", capability="prompts"),
        Method("prompts/get", capability="prompts"),
        Method("completion/complete", capability="completions"),
        Method("logging/setLevel", capability="logging", sessionless=False),
        Method("sampling/createMessage", From.SERVER, capability="sampling"),
        Method("elicitation/create", From.SERVER, capability="elicitation"),
        Method("roots/list", From.SERVER, capability="roots"),
        Method("notifications/initialized", notification=True, sessionless=False),
        Method("notifications/cancelled", From.BOTH, notification=True),
        Method("notifications/progress", From.BOTH, notification=True),
        Method("notifications/roots/list_changed", notification=True, sessionless=False),
        Method("notifications/message", From.SERVER, notification=True, capability="logging"),
        Method("notifications/tools/list_changed", From.SERVER, notification=True),
        Method("notifications/resources/list_changed", From.SERVER, notification=True),
        Method("notifications/resources/updated", From.SERVER, notification=True),
        Method("notifications/prompts/list_changed", From.SERVER, notification=True),
        Method("notifications/elicitation/complete", From.SERVER, notification=True, sessionless=False),
        Method("notifications/subscriptions/acknowledged", From.SERVER, notification=True, sessions=False),
        Method("notifications/tasks", From.SERVER, notification=True, sessions=False),
    )
}

NOT_IN_SESSIONS: Final = frozenset(name for name, method in METHODS.items() if not method.sessions)
NOT_SESSIONLESS: Final = frozenset(name for name, method in METHODS.items() if not method.sessionless)
CONTROL: Final = frozenset(name for name, method in METHODS.items() if method.control)
WITHOUT_WORK: Final = frozenset(name for name, method in METHODS.items() if not method.begins)
"""What a server that stops still serves. A method that it does not know may have any effect, and is not among them."""
