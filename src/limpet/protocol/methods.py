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
    """It begins work: a session, a call or a listener. A server that stops refuses it, and serves the others: they
    read, or belong to a session or a call that exists."""
    repeatable: bool = False
    """It may be sent twice, by the definition of the protocol: it only reads, or sets what is set already. So it is
    sent again if it is unknown whether it was executed."""
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
        Method("ping", From.BOTH, repeatable=True, control=True, sessionless=False),
        Method("server/discover", repeatable=True, sessions=False),
        Method("subscriptions/listen", begins=True, sessions=False),
        Method(
            "tasks/get",
            repeatable=True,
            capability="extensions.io.modelcontextprotocol/tasks",
            sessions=False,
        ),
        Method(
            "tasks/update",
            repeatable=True,
            capability="extensions.io.modelcontextprotocol/tasks",
            sessions=False,
        ),
        Method(
            "tasks/cancel",
            repeatable=True,
            capability="extensions.io.modelcontextprotocol/tasks",
            sessions=False,
        ),
        Method("tools/list", repeatable=True, capability="tools"),
        Method("tools/call", begins=True, capability="tools"),
        Method("resources/list", repeatable=True, capability="resources"),
        Method("resources/templates/list", repeatable=True, capability="resources"),
        Method("resources/read", repeatable=True, capability="resources"),
        Method("resources/subscribe", repeatable=True, capability="resources.subscribe", sessionless=False),
        Method("resources/unsubscribe", repeatable=True, capability="resources.subscribe", sessionless=False),
        Method("prompts/list", repeatable=True, capability="prompts"),
        Method("prompts/get", repeatable=True, capability="prompts"),
        Method("completion/complete", repeatable=True, capability="completions"),
        Method("logging/setLevel", repeatable=True, capability="logging", sessionless=False),
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
REPEATABLE: Final = frozenset(name for name, method in METHODS.items() if method.repeatable)
CONTROL: Final = frozenset(name for name, method in METHODS.items() if method.control)
WITHOUT_WORK: Final = frozenset(name for name, method in METHODS.items() if not method.begins)
"""What a server that stops still serves. A method that it does not know may have any effect, and is not among them."""
