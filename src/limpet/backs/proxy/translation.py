"""Messages of one era in the form of the other. Pure: bytes and dictionaries in, bytes and dictionaries out.

The differences between the eras, and how this module treats them:

    member                         2025 revisions                 2026-07-28
    ────────────────────────────   ────────────────────────────   ──────────────────────────────────────────────
    the client's name              once, in `initialize`          `_meta` of every request: removed, the upstream
                                                                  connection adds the values of its own era
    the result's kind              absent                         `resultType`: added or removed
    how long a result is valid     mostly absent                  `ttlMs`, `cacheScope`: added (not kept), removed
    the server's name              once, in `initialize`          `_meta` of every result: added or left
    questions to the client        requests of the server         `input_required` results: see call.py
    a resource that does not exist error -32002                   error -32602: translated for 2026-07-28 clients
    tasks                          absent, or another form        pass if client and server are of 2026-07-28,
                                                                  else refused and not declared
    any other member, capability   passes                         passes
    or extension

A result is not decoded if it can pass unchanged. Members are added in front of the text of the others.
"""

from typing import Any, Final

import msgspec

from limpet.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    RESOURCE_NOT_FOUND,
    URL_ELICITATION_REQUIRED,
    McpError,
)
from limpet.protocol.idempotency import KEY
from limpet.protocol.sessionless import (
    CACHEABLE,
    CAPABILITIES_KEY,
    CLIENT_KEY,
    LEVEL_KEY,
    SERVER_KEY,
    SUBSCRIPTION_KEY,
    SUSPENDABLE,
    VERSION_KEY,
)
from limpet.protocol.tasks import without_extension
from limpet.wire.jsonrpc import encode

_OWN_META: Final = frozenset({VERSION_KEY, CLIENT_KEY, CAPABILITIES_KEY, LEVEL_KEY, KEY})
"""The members of `_meta` in which a 2026-07-28 client describes itself; and its idempotency key, which is ours to
keep: at the server behind us all our clients may be one principal."""
_NOT_SENT: Final = frozenset({"requestState", "inputResponses", "task"})
"""Params of calls that are not sent on: those of retries, which the engine has used, and the request to run as a
task."""
_SESSIONLESS_MEMBERS: Final = ("resultType", "ttlMs", "cacheScope")
_ADDED: Final = tuple(f'"{name}"'.encode() for name in (*_SESSIONLESS_MEMBERS, "_meta"))
"""The names of the members that a 2025 result gets. Some servers send them in sessions too: then theirs stay."""
_NOT_KEPT: Final = {"ttlMs": 0, "cacheScope": "private"}

_Members = dict[str, msgspec.Raw]
_decode_members = msgspec.json.Decoder(_Members).decode


class _Kind(msgspec.Struct):
    """The members of a 2026-07-28 result that say whether it is the final one."""

    resultType: str = "complete"  # noqa: N815 - as it travels
    requestState: str | None = None  # noqa: N815
    inputRequests: dict[str, Any] | None = None  # noqa: N815


_decode_kind = msgspec.json.Decoder(_Kind).decode


class InputRequired(msgspec.Struct, frozen=True):
    """A result that asks the client for input (2026-07-28)."""

    state: str | None
    requests: dict[str, Any]


def request_params(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return a client's params without its description, its progress token, and the members of retries and tasks."""
    meta = params.get("_meta")
    not_sent = _NOT_SENT if method in SUSPENDABLE else frozenset[str]()
    if type(meta) is not dict and not not_sent & params.keys():
        return params
    kept = {name: value for name, value in params.items() if name != "_meta" and name not in not_sent}
    own = {name: value for name, value in meta.items() if name not in _OWN_META} if type(meta) is dict else {}
    own.pop("progressToken", None)
    return {**kept, "_meta": own} if own else kept


def input_required(result: bytes) -> InputRequired | None:
    """Return the input that a 2026-07-28 result requests from the client; None if the result is final."""
    if b"input_required" not in result:
        return None
    try:
        kind = _decode_kind(result)
    except msgspec.DecodeError:
        return None
    if kind.resultType != "input_required":
        return None
    return InputRequired(kind.requestState, kind.inputRequests or {})


def for_sessions(result: bytes) -> bytes:
    """Return a 2026-07-28 result as clients of the 2025 revisions know it."""
    members = _decode_members(result)
    for name in _SESSIONLESS_MEMBERS:
        members.pop(name, None)
    return encode(members)


class SessionlessForm:
    """Gives results of a 2025 server the members that 2026-07-28 requires. They are encoded once."""

    __slots__ = ("_meta", "_plain")

    def __init__(self, server: dict[str, Any]) -> None:
        self._meta = {SERVER_KEY: server}
        self._plain = {
            is_cacheable: encode(
                {"resultType": "complete", **(_NOT_KEPT if is_cacheable else {}), "_meta": self._meta}
            )[:-1]
            for is_cacheable in (False, True)
        }

    def of(self, method: str, result: bytes) -> bytes:
        """Return the result of a request in the form of 2026-07-28."""
        if any(name in result for name in _ADDED):
            members = _decode_members(result)
            own = msgspec.json.decode(members["_meta"]) if "_meta" in members else {}
            members.pop("resultType", None)
            meta = {**self._meta, **own} if isinstance(own, dict) else self._meta
            hints = _NOT_KEPT if method in CACHEABLE else {}
            return encode({"resultType": "complete", **hints, **members, "_meta": meta})
        others = result.lstrip()[1:].lstrip()
        return self._plain[method in CACHEABLE] + (others if others.startswith(b"}") else b"," + others)


def client_info(info: dict[str, Any]) -> dict[str, Any]:
    """Return a client's description with the members that 2025 servers require. In 2026-07-28 it is optional."""
    return {"name": "unknown", "version": "unknown", **info}


def error_for(method: str, error: McpError) -> McpError:
    """Return an error of 2025 in the form of 2026-07-28.

    That has no codes for a missing resource and for a page to open.
    """
    if error.code == URL_ELICITATION_REQUIRED:
        return McpError(INVALID_REQUEST, error.message, error.data)
    if error.code == RESOURCE_NOT_FOUND and method == "resources/read":
        return McpError(INVALID_PARAMS, error.message, error.data)
    return error


def without_subscriptions(capabilities: dict[str, Any]) -> dict[str, Any]:
    """Return the capabilities of a server without subscriptions to resources."""
    resources = capabilities.get("resources")
    if not isinstance(resources, dict) or "subscribe" not in resources:
        return capabilities
    return {**capabilities, "resources": {k: v for k, v in resources.items() if k != "subscribe"}}


def without_subscription(params: dict[str, Any]) -> dict[str, Any]:
    """Return the params of a change without the name of the subscription (2026-07-28), which is ours."""
    meta = params.get("_meta")
    kept = {name: value for name, value in params.items() if name != "_meta"}
    own = (
        {name: value for name, value in meta.items() if name != SUBSCRIPTION_KEY}
        if type(meta) is dict
        else {}
    )
    return {**kept, "_meta": own} if own else kept


def without_tasks(capabilities: dict[str, Any], *, extension: bool = False) -> dict[str, Any]:
    """Return capabilities without the tasks of 2025-11-25, and without those of 2026-07-28 unless `extension`."""
    kept = {name: value for name, value in capabilities.items() if name != "tasks"}
    return kept if extension else without_extension(kept)
