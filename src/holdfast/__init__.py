"""Holdfast: an MCP runtime for Python whose sessions hold."""

__version__ = "0.1.0"

from holdfast.auth import Principal, Verifier
from holdfast.config import HttpSettings, Limits, Settings, Times
from holdfast.errors import (
    AskError,
    AskRefused,
    AskTimeout,
    BackPressureError,
    CapabilityMissing,
    ConfigError,
    HandleNotFound,
    HoldfastError,
    McpError,
    NoBackChannel,
    NoSession,
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
from holdfast.server.caching import Cache
from holdfast.server.content import AssistantMessage, Audio, File, Image, Message, ToolResult, UserMessage
from holdfast.server.context import Context
from holdfast.server.depends import Depends
from holdfast.server.elicitation import Elicited, UrlElicitation
from holdfast.server.input_required import InputRequired
from holdfast.server.inputs import Want
from holdfast.server.middleware import CallNext, MiddlewareRequest
from holdfast.server.routes import HttpRequest, HttpResponse
from holdfast.server.session_view import SessionView

__all__ = [
    "Annotations",
    "AskError",
    "AskRefused",
    "AskTimeout",
    "AssistantMessage",
    "Audio",
    "BackPressureError",
    "Cache",
    "CallNext",
    "CapabilityMissing",
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
    "InputRequired",
    "Limits",
    "McpError",
    "Message",
    "MiddlewareRequest",
    "NoBackChannel",
    "NoSession",
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
    "ToolError",
    "ToolResult",
    "UrlElicitation",
    "UrlElicitationRequired",
    "UserMessage",
    "Verifier",
    "Want",
    "__version__",
]
