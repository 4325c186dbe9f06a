"""Holdfast: an MCP runtime for Python whose sessions hold."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

from holdfast.auth import Principal, Verifier
from holdfast.auth.authorizer import Authorizer, Challenge
from holdfast.config import HttpSettings, Limits, Settings, Times
from holdfast.errors import (
    AskError,
    AskRefused,
    AskTimeout,
    BackPressureError,
    Broken,
    CallTimeout,
    CapabilityMissing,
    ClientError,
    ConfigError,
    HandleNotFound,
    HoldfastError,
    McpError,
    NoBackChannel,
    NoSession,
    NotSent,
    OutcomeUnknown,
    SessionGone,
    StateError,
    ToolError,
    UrlElicitationRequired,
)
from holdfast.protocol.types import (
    Annotations,
    Completion,
    EmbeddedResource,
    Icon,
    ResourceLink,
    SamplingMessage,
    TextContent,
    ToolAnnotations,
)
from holdfast.server.app import Server
from holdfast.server.authoring.caching import Cache
from holdfast.server.authoring.middleware import CallNext, MiddlewareRequest
from holdfast.server.authoring.routes import HttpRequest, HttpResponse
from holdfast.server.context.asks import Want
from holdfast.server.context.context import Context
from holdfast.server.context.elicitation import Elicited, UrlElicitation
from holdfast.server.context.session_view import SessionView
from holdfast.server.functions.content import (
    AssistantMessage,
    Audio,
    File,
    Image,
    Message,
    ToolResult,
    UserMessage,
)
from holdfast.server.functions.depends import Depends
from holdfast.server.functions.input_required import InputRequired

if TYPE_CHECKING:
    from holdfast.client.client import Client
    from holdfast.client.listening import Change
    from holdfast.client.results import InputNeeded, ToolCallResult
    from holdfast.upstream.settings import ClientLimits, ClientTimes

__all__ = [
    "Annotations",
    "AskError",
    "AskRefused",
    "AskTimeout",
    "AssistantMessage",
    "Audio",
    "Authorizer",
    "BackPressureError",
    "Broken",
    "Cache",
    "CallNext",
    "CallTimeout",
    "CapabilityMissing",
    "Challenge",
    "Change",
    "Client",
    "ClientError",
    "ClientLimits",
    "ClientTimes",
    "Completion",
    "ConfigError",
    "Context",
    "Depends",
    "Elicited",
    "EmbeddedResource",
    "File",
    "HandleNotFound",
    "HoldfastError",
    "HttpRequest",
    "HttpResponse",
    "HttpSettings",
    "Icon",
    "Image",
    "InputNeeded",
    "InputRequired",
    "Limits",
    "McpError",
    "Message",
    "MiddlewareRequest",
    "NoBackChannel",
    "NoSession",
    "NotSent",
    "OutcomeUnknown",
    "Principal",
    "ResourceLink",
    "SamplingMessage",
    "Server",
    "SessionGone",
    "SessionView",
    "Settings",
    "StateError",
    "TextContent",
    "Times",
    "ToolAnnotations",
    "ToolCallResult",
    "ToolError",
    "ToolResult",
    "UrlElicitation",
    "UrlElicitationRequired",
    "UserMessage",
    "Verifier",
    "Want",
    "__version__",
]

_LATER = {
    "Change": "holdfast.client.listening",
    "Client": "holdfast.client.client",
    "ClientLimits": "holdfast.upstream.settings",
    "ClientTimes": "holdfast.upstream.settings",
    "InputNeeded": "holdfast.client.results",
    "ToolCallResult": "holdfast.client.results",
}
"""Where the client's names live. They are imported when they are asked for: a server needs none of them."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
