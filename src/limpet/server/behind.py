"""Servers behind a `Server`: `include` of a `Remote`, `Process` or `Hosted`.

The functions of the server come first, then they in their order.

The including server has the engine: its store, verifier, settings and address count. Of an included one, the
connection, its options, its scopes and the names of its components count.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from limpet.auth import Verifier
from limpet.backs.proxy.passing import principal_of_token
from limpet.backs.several.back import SeveralBack
from limpet.backs.several.members import Member
from limpet.backs.shown import shown_back
from limpet.core.names import AS_THEY_ARE, NameKind, Names, NamesOfNames
from limpet.engine.back import Back
from limpet.engine.exchange import Exchange
from limpet.errors import ConfigError
from limpet.ports import Observer
from limpet.server.authoring.registration import Registration
from limpet.server.proxy import Proxy
from limpet.server.running.proxied_middleware import middleware_back
from limpet.server.running.scope_rules import find_resource

if TYPE_CHECKING:
    from limpet.server.app import Server
    from limpet.server.running.native_back import NativeBack

_OTHER: Final = re.compile(r"[^A-Za-z0-9._-]+")


class Included(Struct, frozen=True):
    """A server behind that another one includes."""

    name: str
    proxy: Proxy
    names: Names


def included(server: Server, proxy: Proxy, prefix: str | None, name: str | None) -> Included:
    """Return a server behind with its name.

    Raises:
        ConfigError: it cannot be included.
    """
    if server.is_built:
        raise ConfigError(f"{proxy!r} cannot be included: {server.name!r} has built its engine already")
    if any(one.proxy is proxy for one in server.behind) or proxy.is_built:
        raise ConfigError(f"{proxy!r} is served or included already: make another object of it")
    if proxy.verifier is not None and proxy.verifier is not principal_of_token:
        raise ConfigError(
            f"{proxy!r} has a verifier and cannot be included: the including server verifies callers; "
            "give the verifier to the including server, and remove it from this one"
        )
    plain = _OTHER.sub("-", name or prefix or proxy.name)
    if any(one.name == plain for one in server.behind):
        raise ConfigError(
            f"two servers behind {server.name!r} are named {plain!r}: give one of them another name="
        )
    if prefix and any(one.names.prefix.lower() == prefix.lower() for one in server.behind):
        raise ConfigError(f"two servers behind {server.name!r} have the prefix {prefix!r}")
    return Included(plain, proxy, Names(prefix or ""))


def several_back(server: Server, native: NativeBack, observer: Observer) -> SeveralBack:
    """Return the back of a server with others behind it.

    Raises:
        ConfigError: the settings do not fit a server behind.
    """
    own = Member(server.name, native, observer, has=partial(_has, server))
    members: list[Member] = []
    for one in server.behind:
        one.proxy.check_settings(server.settings)
        own_observer = server.adopt(one.proxy, one.name)
        table = one.proxy.naming
        one.proxy.naming = naming = one.names if table is None else NamesOfNames(table, one.names)
        patience = one.proxy.options.included_seconds
        members.append(Member(one.name, one.proxy.shown(), own_observer, naming, patience=patience))
    # The middleware of the server is around the whole: see `around`.
    native.compose(middleware=False)
    return SeveralBack(own, members, observer, server.naming or AS_THEY_ARE)


def _has(server: Registration, kind: NameKind, name: str, exchange: Exchange) -> bool:
    """True if a function of the server answers for a name."""
    if kind == "tools":
        return server.tools.get(name, exchange) is not None
    if kind == "prompts":
        return server.prompts.get(name, exchange) is not None
    return (
        server.templates.get(name, exchange) is not None or find_resource(server, name, exchange) is not None
    )


def verifier_of_tokens(server: Server) -> Verifier | None:
    """Return the verifier of a server without one: if a client's token is passed on, each token is a principal."""
    passes = any(one.proxy.verifier is principal_of_token for one in server.behind)
    return principal_of_token if passes else None


def around(server: Server, back: Back, observer: Observer) -> Back:
    """Return the back of a server with its middleware, which sees all requests, under the names for clients."""
    return shown_back(
        middleware_back(back, server.declared.middleware, server), server.naming, None, observer
    )
