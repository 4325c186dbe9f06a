"""Protocol 2026-07-28: no session, every request names its client and its capabilities.

Pure: the members of a request's `_meta`, and the errors this revision defines.
"""

from typing import Any, Final

from msgspec import Struct

from limpet.errors import InvalidParams
from limpet.protocol.idempotency import KEY, read_key
from limpet.protocol.params import LOGGING_LEVELS
from limpet.protocol.versions import REVISIONS, SESSIONLESS

VERSION: Final = SESSIONLESS.name
SUPPORTED: Final = (VERSION, *REVISIONS)

PREFIX: Final = "io.modelcontextprotocol/"
VERSION_KEY: Final = PREFIX + "protocolVersion"
CLIENT_KEY: Final = PREFIX + "clientInfo"
CAPABILITIES_KEY: Final = PREFIX + "clientCapabilities"
LEVEL_KEY: Final = PREFIX + "logLevel"
SERVER_KEY: Final = PREFIX + "serverInfo"
SUBSCRIPTION_KEY: Final = PREFIX + "subscriptionId"
TASKS: Final = PREFIX + "tasks"
"""The identifier of the tasks extension."""


SUSPENDABLE: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The requests whose answer may ask for input first."""
CACHEABLE: Final = frozenset(
    {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }
)
"""The methods whose results carry caching hints."""
NAMED: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The parameter that the Mcp-Name header mirrors."""


class RequestMeta(Struct, frozen=True, gc=False):
    """A request's description of itself and its client."""

    version: str
    capabilities: dict[str, Any]
    client: dict[str, Any]
    level: str
    """The lowest level of log messages it wants; empty: none at all."""
    key: str | None = None
    """Its idempotency key."""


def typed_result(kind: str, server: Any, members: dict[str, Any]) -> dict[str, Any]:
    """Return a result with its type and the name of its server."""
    return {"resultType": kind, "_meta": {SERVER_KEY: server}, **members}


def declared_version(params: dict[str, Any]) -> str | None:
    """Return the version a request's `_meta` names; None if it names none and so is not of this era."""
    meta = params.get("_meta")
    version = meta.get(VERSION_KEY) if type(meta) is dict else None
    return version if type(version) is str else None


def read_meta(params: dict[str, Any]) -> RequestMeta:
    """Return a request's description of itself and its client.

    Raises:
        InvalidParams: a required field is missing or malformed.
    """
    meta = params.get("_meta")
    if type(meta) is not dict:
        raise InvalidParams(
            f"Invalid params: _meta must be an object with {VERSION_KEY} and {CAPABILITIES_KEY}"
        )
    version, capabilities = meta.get(VERSION_KEY), meta.get(CAPABILITIES_KEY)
    client, level = meta.get(CLIENT_KEY), meta.get(LEVEL_KEY, "")
    if type(version) is not str:
        raise InvalidParams(f"Invalid params: _meta needs {VERSION_KEY}, a string such as {VERSION}")
    if type(capabilities) is not dict:
        raise InvalidParams(f"Invalid params: _meta needs {CAPABILITIES_KEY}, an object")
    if client is not None and type(client) is not dict:
        raise InvalidParams(f"Invalid params: {CLIENT_KEY} must be an object")
    if type(level) is not str or (LEVEL_KEY in meta and level not in LOGGING_LEVELS):
        raise InvalidParams(f"Invalid params: {LEVEL_KEY} must be a log level")
    key = meta.get(KEY)
    return RequestMeta(version, capabilities, client or {}, level, None if key is None else read_key(key))
