"""Components of the server behind us that are hidden from a caller (`scopes.py`).

Lists leave them out. A request for one must be answered like a request for an unknown component, and only the server
knows its text for that. So the request goes to the server under a random name that no component has, and the answer
gets the name of the request in its place. So the answer also takes as long as for an unknown component.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from holdfast.backs.proxy.scopes import TableRules, named
from holdfast.engine.caller import Caller
from holdfast.engine.exchange import Exchange
from holdfast.errors import INTERNAL_ERROR, McpError
from holdfast.ports import Random
from holdfast.wire.jsonrpc import Request, encode

Handle = Callable[[Exchange], Awaitable[bytes]]

_LISTED: Final = {
    "tools/list": ("tools", "tools"),
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resourceTemplates", "resources"),
}
"""By request: the member of the result that has the list, and the kind of its items."""
_NAME_BYTES: Final = 12


class _Item(Struct):
    """The members of a listed component that name it."""

    name: str = ""
    uri: str = ""
    uriTemplate: str = ""  # noqa: N815 - as it travels


_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_item = msgspec.json.Decoder(_Item).decode


class HiddenComponents:
    """Answers requests as if hidden components did not exist."""

    def __init__(self, rules: TableRules, random: Random) -> None:
        self._random = random
        self.is_hidden: Callable[[str, str, Caller], bool] = rules.is_hidden

    async def answer(self, exchange: Exchange, handle: Handle) -> bytes:
        """Let the server answer: a list without the hidden components, or a request for an unknown component.

        Raises:
            McpError: the server's error.
        """
        request = exchange.request
        listed = _LISTED.get(request.method)
        if listed is not None:
            return self._shown(await handle(exchange), *listed, exchange.caller)
        name = self._hidden_name(request, exchange.caller)
        if name is None:
            return await handle(exchange)
        other = self.stand_in(name)
        exchange.request = Request(request.id, request.method, _renamed(request.params, name, other))
        try:
            result = await handle(exchange)
        except McpError as error:
            shown = encode([error.message, error.data])
            if other.encode() not in shown:
                raise
            message, data = msgspec.json.decode(shown.replace(other.encode(), encode(name)[1:-1]))
            raise McpError(error.code, message, data) from error
        return result.replace(other.encode(), encode(name)[1:-1])

    def stand_in(self, name: str) -> str:
        """Return a name that no component has, in place of a hidden name: a URI in place of a URI.

        It has a separate scheme: no template of the server fits it.
        """
        token = self._random.token(max(_NAME_BYTES, len(name) // 2))
        return f"x{token[:8]}:{token[8:]}" if ":" in name else f"x{token}"

    def _hidden_name(self, request: Request, caller: Caller) -> str | None:
        for kind, name in named(request.method, request.params):
            if self.is_hidden(kind, name, caller):
                return name
        return None

    def _shown(self, result: bytes, member: str, kind: str, caller: Caller) -> bytes:
        try:
            members = _decode_members(result)
            items = _decode_items(members[member])
            shown = [item for item in items if not self._is_hidden_item(item, kind, caller)]
        except (KeyError, msgspec.DecodeError):
            # The client gets no list that we cannot read: it could show a hidden component.
            raise McpError(
                INTERNAL_ERROR, "the server behind this one failed: its list is not usable"
            ) from None
        # A list of one user that other users share would show them hidden components.
        private = {"cacheScope": "private"} if "cacheScope" in members else {}
        return encode({**members, member: shown, **private})

    def _is_hidden_item(self, item: msgspec.Raw, kind: str, caller: Caller) -> bool:
        found = _decode_item(item)
        name = found.name if kind != "resources" else found.uri or found.uriTemplate
        return self.is_hidden(kind, name, caller)


def _renamed(params: dict[str, Any], name: str, other: str) -> dict[str, Any]:
    """Return params with another name of the component: a member of the params, or of their `ref`."""
    found = {key: other for key in ("name", "uri") if params.get(key) == name}
    ref = params.get("ref")
    if type(ref) is dict:
        found["ref"] = _renamed(ref, name, other)  # type: ignore[assignment]
    return {**params, **found}
