"""A back under the names that its clients know: some of its components are hidden, others have another name.

    client                          ShownBack                                         back
    ────────────────────────────    ──────────────────────────────────────────────    ────────────────────────────────
    a request, by client's name ──▶ `exchange.inner`: the server's own name      ───▶ answers
    a list                      ◀── without hidden components, with other names  ◀─── its list
    a result with URIs          ◀── with the URIs that clients know              ◀─── its result
    a changed resource          ◀── its URI for clients; hidden ones are dropped ◀─── `Outside.changed`
    subscriptions of clients    ──▶ the server's own URIs                       ───▶ `Outside.listened`, `subscriptions`

The engine works with the names of clients only: log, figures, rates, hand-over, tasks, parked calls and the store's
subscriptions. `exchange.request` is not changed. Scopes are by the server's own names (`ShownAccess`).

Two things hide a component: the operator's table, for everyone (`components.py`), and a scope that a caller lacks
(`proxy/scopes.py`). A request for one must be answered like a request for an unknown component, and only the server
knows its text for that. So the request goes to the server under a random name that no component has, and the answer
gets the hidden name in its place. So the answer also takes as long as for an unknown component.

A request that no revision defines is refused: the name of a component in it could not be found.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from limpet.auth.scopes import Needs
from limpet.backs.renaming import LISTED, WITH_URIS, renamed_params, shown_list, shown_uris
from limpet.core.names import AS_THEY_ARE, NameKind, Naming
from limpet.engine.access import Access, ScopeRules
from limpet.engine.back import Back, Outside
from limpet.engine.caller import Caller
from limpet.engine.exchange import Exchange
from limpet.engine.sessionless_client import SessionlessClient
from limpet.errors import INTERNAL_ERROR, McpError, MethodNotFound
from limpet.ports import Observer, Random, SystemRandom
from limpet.protocol.methods import METHODS
from limpet.protocol.mirrored_headers import MirroredParameter
from limpet.protocol.sessionless import RequestMeta
from limpet.protocol.subscriptions import Change, Filter, Key
from limpet.wire.jsonrpc import Request, encode

IsHidden = Callable[[NameKind, str, Caller], bool]
"""True if a component, by the server's own name, is hidden from a caller."""
_NAME_BYTES: Final = 12
_MOST_SHADOWED: Final = 1_000
"""How many components that are hidden by a renamed one are reported: a server may list others again and again."""
_NOBODY: Final = "\0"
"""A name that no component has."""


def shown_back(
    back: Back,
    naming: Naming | None,
    is_hidden: IsHidden | None,
    observer: Observer,
    random: Random | None = None,
) -> Back:
    """Return a back under the names for clients; the back itself if they know all components by their own names."""
    if naming is None and is_hidden is None:
        return back
    random = random or SystemRandom()
    return cast("Back", ShownBack(back, naming or AS_THEY_ARE, is_hidden, random, observer))


class ShownBack:
    """Answers under the names for clients. Everything else is the back's own."""

    def __init__(
        self, back: Back, naming: Naming, is_hidden: IsHidden | None, random: Random, observer: Observer
    ) -> None:
        self._back = back
        self._naming = naming
        self._is_hidden = is_hidden
        self._random = random
        self._observer = observer
        self._shadowed: set[tuple[NameKind, str]] = set()
        self.access: Access = ShownAccess(back.access, naming)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._back, name)

    async def start(self, outside: Outside) -> None:
        """Start the back."""
        await self._back.start(cast("Outside", ShownOutside(outside, self._naming)))

    # Names

    def _inner(self, kind: NameKind, name: str, caller: Caller) -> str | None:
        own = self._naming.inner(kind, name)
        if own is None or (self._is_hidden is not None and self._is_hidden(kind, own, caller)):
            return None
        return own

    def _outer(self, kind: NameKind, name: str, caller: Caller) -> str | None:
        if self._is_hidden is not None and self._is_hidden(kind, name, caller):
            return None
        shown = self._naming.outer(kind, name)
        if shown is None:
            self._note_shadowed(kind, name)
        return shown

    def _note_shadowed(self, kind: NameKind, name: str) -> None:
        """Report once that a component is hidden because another one has its name."""
        is_shadowed = getattr(self._naming, "is_shadowed", None)
        if is_shadowed is None or len(self._shadowed) >= _MOST_SHADOWED:
            return
        if (kind, name) not in self._shadowed and is_shadowed(kind, name):
            self._shadowed.add((kind, name))
            self._observer.note("component.shadowed", kind=kind, name=name)

    def _stand_in(self, name: str) -> str:
        """Return a name that no component has, in place of a hidden name: a URI in place of a URI.

        It has a separate scheme: no template of the server fits it.
        """
        token = self._random.token(max(_NAME_BYTES, len(name) // 2))
        return f"x{token[:8]}:{token[8:]}" if ":" in name else f"x{token}"

    # Requests

    def handle(self, exchange: Exchange) -> Awaitable[bytes]:
        """Let the back answer.

        Raises:
            McpError: the back's error.
        """
        request, caller = exchange.inner, exchange.caller
        method = request.method
        if method not in METHODS:
            raise MethodNotFound(method[:100])
        if method in LISTED:
            return self._list(exchange)
        hidden: list[tuple[str, str]] = []

        def rename(kind: NameKind, name: str) -> str:
            own = self._inner(kind, name, caller)
            if own is None:
                own = self._stand_in(name)
                # The server's text for an unknown component has the name that the server got.
                hidden.append((own, self._naming.unhidden(kind, name) or name))
            return own

        params = renamed_params(method, request.params, rename)
        if params is not request.params:
            exchange.inner = Request(request.id, method, params)
        if hidden:
            return self._unknown(exchange, *hidden[0])
        if self._naming.renames_uris and method in WITH_URIS:
            return self._answer(exchange)
        return self._back.handle(exchange)

    async def _answer(self, exchange: Exchange) -> bytes:
        return shown_uris(await self._back.handle(exchange), self._naming.outer)

    async def _unknown(self, exchange: Exchange, other: str, name: str) -> bytes:
        """Let the back answer a request for an unknown component, `other`; return its answer with the hidden name."""
        try:
            result = await self._back.handle(exchange)
        except McpError as error:
            shown = encode([error.message, error.data])
            if other.encode() not in shown:
                raise
            message, data = msgspec.json.decode(shown.replace(other.encode(), encode(name)[1:-1]))
            raise McpError(error.code, message, data) from error
        return result.replace(other.encode(), encode(name)[1:-1])

    async def _list(self, exchange: Exchange) -> bytes:
        def show(kind: NameKind, name: str) -> str | None:
            return self._outer(kind, name, exchange.caller)

        result = await self._back.handle(exchange)
        try:
            members = shown_list(exchange.inner.method, result, show, uris=self._naming.renames_uris)
        except (KeyError, msgspec.DecodeError):
            # The client gets no list that we cannot read: it could show a hidden component.
            raise McpError(
                INTERNAL_ERROR, "the server behind this one failed: its list is not usable"
            ) from None
        # A list of one user that other users share would show them hidden components.
        is_private = self._is_hidden is not None and "cacheScope" in members
        return encode({**members, "cacheScope": "private"} if is_private else members)

    # Questions of the engine besides requests

    def mirrored(self, request: Request, meta: RequestMeta, caller: Caller) -> tuple[MirroredParameter, ...]:
        params = renamed_params(
            request.method, request.params, lambda kind, name: self._inner(kind, name, caller) or _NOBODY
        )
        return self._back.mirrored(Request(request.id, request.method, params), meta, caller)

    async def honoured(self, client: SessionlessClient, wanted: Filter, caller: Caller) -> Filter:
        uris = {
            self._inner("resources", uri, caller) or self._stand_in(uri): uri
            for uri in wanted.names.get("resource", ())
        }
        if not uris:
            return await self._back.honoured(client, wanted, caller)
        honoured = await self._back.honoured(client, wanted.only("resource", uris), caller)
        if "resource" not in honoured.names:
            return honoured
        return honoured.only("resource", [uris[uri] for uri in honoured.names["resource"] if uri in uris])


class ShownOutside:
    """Reaches clients under the names that they know. Everything else is the engine's own."""

    def __init__(self, outside: Outside, naming: Naming) -> None:
        self._outside = outside
        self._naming = naming

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outside, name)

    def changed(self, change: Change, principal: str | None = None) -> None:
        if (shown := shown_change(change, self._naming)) is not None:
            self._outside.changed(shown, principal)

    def changed_for(self, key: str, change: Change) -> None:
        if (shown := shown_change(change, self._naming)) is not None:
            self._outside.changed_for(key, shown)

    def listened(self, principal: str) -> set[Key]:
        found = set[Key]()
        for kind, name in self._outside.listened(principal):
            own = self._naming.inner("resources", name) if kind == "resource" else name
            if own is not None:
                found.add((kind, own))
        return found

    async def subscriptions(self, key: str) -> list[str]:
        found = (self._naming.inner("resources", uri) for uri in await self._outside.subscriptions(key))
        return [uri for uri in found if uri is not None]


def shown_change(change: Change, naming: Naming) -> Change | None:
    """Return a change as clients know it; None: they do not know the resource."""
    if change.kind != "resource":
        return change
    uri = naming.outer("resources", change.name)
    return None if uri is None else replace(change, name=uri)


class ShownAccess(Access):
    """The scopes of a back, for requests with the names of clients."""

    __slots__ = ("_naming",)

    def __init__(self, own: Access, naming: Naming) -> None:
        self.own: Access = own
        self._naming = naming
        super().__init__(own.implied)
        self.own = own

    @property
    def rules(self) -> ScopeRules | None:
        """The rules of the back; None while no component needs a scope."""
        rules = self.own.rules
        return None if rules is None else ShownRules(rules, self._naming)

    @rules.setter
    def rules(self, rules: ScopeRules | None) -> None:
        """Keep those of the back, which has them."""


class ShownRules:
    """The rules of a back, for requests with the names of clients."""

    def __init__(self, rules: ScopeRules, naming: Naming) -> None:
        self._rules = rules
        self._naming = naming
        self.declared: Callable[[], Iterable[Needs]] = rules.declared

    def needs(self, request: Request, caller: Caller, session: str) -> Any:
        """Return the needs of a request. A hidden component needs what an unknown one with this name does."""
        return self._rules.needs(self._inner(request), caller, session)

    def basic(self, request: Request | None = None) -> frozenset[str]:
        return self._rules.basic(None if request is None else self._inner(request))

    def _inner(self, request: Request) -> Request:
        params = renamed_params(request.method, request.params, self._own)
        return Request(request.id, request.method, params)

    def _own(self, kind: NameKind, name: str) -> str:
        own = self._naming.inner(kind, name)
        if own is not None:
            return own
        by_text = getattr(self._rules, "is_by_text", False)
        return (self._naming.unhidden(kind, name) or name) if by_text else _NOBODY
