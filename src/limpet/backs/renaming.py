"""The names of components in messages: of requests, of lists, and of the URIs in results.

Pure: messages in, messages out.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from limpet.core.names import NameKind
from limpet.protocol.subscriptions import TOPICS
from limpet.wire.jsonrpc import encode

Rename = Callable[[NameKind, str], str]
"""Returns another name of a component."""
Show = Callable[[NameKind, str], str | None]
"""Returns the name of a component for clients; None: it is hidden."""

_NAMED: Final[dict[str, tuple[NameKind, str]]] = {
    "tools/call": ("tools", "name"),
    "prompts/get": ("prompts", "name"),
    "resources/read": ("resources", "uri"),
    "resources/subscribe": ("resources", "uri"),
    "resources/unsubscribe": ("resources", "uri"),
}
"""By request: the kind of the component that it names, and the parameter."""
LISTED: Final[dict[str, tuple[str, NameKind, str]]] = {
    "tools/list": ("tools", "tools", "name"),
    "prompts/list": ("prompts", "prompts", "name"),
    "resources/list": ("resources", "resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "resources", "uriTemplate"),
}
"""By request: the member of the result that has the list, the kind of its items, and the member that names an item."""
WITH_URIS: Final = frozenset({"tools/call", "prompts/get", "resources/read", "tasks/get"})
"""Requests whose results may have URIs of resources, besides lists."""
_LISTENED: Final = TOPICS["resource"].member
_MARKS: Final = (b'"uri"', b"esourceUri", b"outputTemplate")
"""A result without one of these has no URI of a resource."""
_APPS: Final = ("ui/resourceUri", "openai/outputTemplate")
"""Members of `_meta` of a tool with the URI of a resource that shows its result."""

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _Item(Struct):
    """The members of a listed component that name it."""

    name: str = ""
    uri: str = ""
    uriTemplate: str = ""  # noqa: N815 - as it travels


_decode_item = msgspec.json.Decoder(_Item).decode


def renamed_params(method: str, params: dict[str, Any], rename: Rename) -> dict[str, Any]:
    """Return the params of a request with other names of components; the same object if no name differs."""
    found: dict[str, Any] = {}
    if (place := _NAMED.get(method)) is not None:
        found = _renamed(params, *place, rename)
    elif method == "completion/complete" and type(ref := params.get("ref")) is dict:
        names = {**_renamed(ref, "prompts", "name", rename), **_renamed(ref, "resources", "uri", rename)}
        found = {"ref": {**ref, **names}} if names else {}
    elif method == "subscriptions/listen" and type(wanted := params.get("notifications")) is dict:
        uris = wanted.get(_LISTENED)
        if type(uris) is list:
            other = [rename("resources", uri) if type(uri) is str else uri for uri in uris]
            found = {"notifications": {**wanted, _LISTENED: other}} if other != uris else {}
    return {**params, **found} if found else params


def _renamed(params: dict[str, Any], kind: NameKind, member: str, rename: Rename) -> dict[str, str]:
    name = params.get(member)
    if type(name) is not str or (other := rename(kind, name)) == name:
        return {}
    return {member: other}


def shown_list(method: str, result: bytes, show: Show, *, uris: bool) -> dict[str, msgspec.Raw | object]:
    """Return the members of a page of a list, without hidden components and with the names for clients.

    `uris`: rename those in the metadata of tools too.

    Raises:
        KeyError, DecodeError: it is not such a list.
    """
    member, kind, named = LISTED[method]
    members: dict[str, msgspec.Raw | object] = dict(_decode_members(result))
    items: list[msgspec.Raw | object] = []
    for item in _decode_items(members[member]):  # type: ignore[arg-type] # as it was decoded
        name = item_name(method, item)
        other = show(kind, name)
        if other is None:
            continue
        changed = _with_app(item, show) if uris and kind == "tools" and _MARKS[1] in bytes(item) else item
        items.append(changed if other == name else {**_decode_members(changed), named: other})
    return {**members, member: items}


def item_name(method: str, item: msgspec.Raw) -> str:
    """Return the name of an item of a list.

    Raises:
        DecodeError: it is not a component.
    """
    return str(getattr(_decode_item(item), LISTED[method][2]))


def _with_app(item: msgspec.Raw, show: Show) -> msgspec.Raw:
    return msgspec.Raw(encode(_outward(msgspec.json.decode(item), show)))


def shown_uris(result: bytes, show: Show) -> bytes:
    """Return a result whose URIs of resources are those that clients know. A hidden one stays: it cannot be read."""
    if not any(mark in result for mark in _MARKS):
        return result
    try:
        return encode(_outward(msgspec.json.decode(result), show))
    except msgspec.DecodeError:
        return result


def _outward(found: dict[str, Any], show: Show) -> dict[str, Any]:
    """Rename the URIs in a result, or in a tool of a list. `found` was just decoded, and is changed."""
    if type(found) is not dict:
        return found
    for member in ("contents", "content", "messages"):
        for item in found.get(member) if type(found.get(member)) is list else ():  # type: ignore[union-attr]
            _content(item, show)
    if type(nested := found.get("result")) is dict:
        _outward(nested, show)
    if type(meta := found.get("_meta")) is dict:
        for key in _APPS:
            _uri(meta, key, show)
        if type(ui := meta.get("ui")) is dict:
            _uri(ui, "resourceUri", show)
    return found


def _content(item: Any, show: Show) -> None:
    """Rename the URIs of a content block, of the content of a message, or of the contents of a resource."""
    if type(item) is not dict:
        return
    _uri(item, "uri", show)
    for member in ("resource", "content"):
        inner = item.get(member)
        for one in inner if type(inner) is list else (inner,):
            _content(one, show)


def _uri(holder: dict[str, Any], member: str, show: Show) -> None:
    uri = holder.get(member)
    if type(uri) is str:
        holder[member] = show("resources", uri) or uri
