"""Which objects of other frameworks can be hosted. An object is recognised by its class, without an import.

Every framework here has the same core: `lowlevel.Server` of the official package `mcp`, with the method
`run(read, write, options)`. The table names the attribute of an object that holds it.
"""

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from msgspec import Struct

from limpet.errors import ConfigError


class Framework(Struct, frozen=True):
    """One class of objects that can be hosted."""

    package: str
    versions: tuple[int, ...]
    """The major versions of the package that can be hosted."""
    core: str
    """The attribute that holds the `lowlevel.Server`; empty: the object is one itself."""


FRAMEWORKS: Final = {
    "mcp.server.lowlevel.server.Server": Framework("mcp", (1, 2), ""),
    "mcp.server.fastmcp.server.FastMCP": Framework("mcp", (1,), "_mcp_server"),
    "mcp.server.mcpserver.server.MCPServer": Framework("mcp", (2,), "_lowlevel_server"),
    "fastmcp.server.server.FastMCP": Framework("fastmcp", (4,), "_mcp_server"),
}
"""By module and name of the class. A subclass counts as its nearest base class in this table."""

SUPPORTED: Final = (
    "FastMCP or lowlevel.Server of mcp 1, MCPServer or lowlevel.Server of mcp 2, FastMCP of fastmcp 4"
)


def framework_of(found: object) -> Framework | None:
    """Return the framework of an object; None if the object is of no framework that we know."""
    for base in type(found).__mro__:
        framework = FRAMEWORKS.get(f"{base.__module__}.{base.__qualname__}")
        if framework is not None:
            return framework
    return None


def major_version(package: str) -> int:
    """Return the major version of a package that is in use; 0 if it cannot be found out."""
    try:
        found = version(package)
    except PackageNotFoundError:
        # Installed under another name, as fastmcp-slim is.
        found = str(getattr(sys.modules.get(package), "__version__", ""))
    major = found.partition(".")[0]
    return int(major) if major.isdecimal() else 0


def core_of(found: object, *, place: str = "app.py") -> Any:
    """Return the `lowlevel.Server` of an object. `place` is the object's file, for the error text.

    Raises:
        ConfigError: the object cannot be hosted.
    """
    framework = framework_of(found)
    if framework is None:
        raise ConfigError(f"an object of type {_class(found)} cannot be hosted; supported are: {SUPPORTED}")
    major = major_version(framework.package)
    if major not in framework.versions:
        raise ConfigError(
            f"{_class(found)} of {framework.package} {major} cannot be hosted (supported are: {SUPPORTED}); "
            f"let it run as a separate program: limpet serve -- python {place}"
        )
    _refuse_http_parts(found, place)
    return getattr(found, framework.core) if framework.core else found


def _refuse_http_parts(found: object, place: str) -> None:
    """Refuse an object that has its own sign-in or HTTP routes: only its own HTTP server applies them.

    Raises:
        ConfigError: served by us, the object would be open to every client, or its routes would be missing.
    """
    parts = http_parts(found)
    if parts:
        raise ConfigError(
            f"{_class(found)} has {' and '.join(parts)}, which only its own HTTP server applies; Limpet would serve "
            "it without. Remove them from the object (sign-in: give `verifier` to Limpet), or run its HTTP server "
            f"(`python {place}`) and put Limpet in front of that: limpet serve http://127.0.0.1:PORT/mcp"
        )


def http_parts(found: Any) -> list[str]:
    """Return the parts of the object that only its own HTTP server applies: sign-in and routes."""
    settings = getattr(found, "settings", None)
    sign_in = (
        getattr(found, "auth", None),
        getattr(settings, "auth", None),
        getattr(found, "_token_verifier", None),
        getattr(found, "_auth_server_provider", None),
    )
    parts = ["its own sign-in (`auth=`)"] if any(part is not None for part in sign_in) else []
    paths = [str(getattr(route, "path", route)) for route in _routes(found)]
    if paths:
        parts.append(f"HTTP routes ({', '.join(paths[:5])})")
    return parts


def _routes(found: Any) -> list[Any]:
    collect = getattr(found, "_get_additional_http_routes", None)
    if collect is not None:
        # fastmcp: with the routes of the servers that are mounted on this one.
        return list(collect())
    return list(getattr(found, "_custom_starlette_routes", ()))


def _class(found: object) -> str:
    return f"{type(found).__module__}.{type(found).__qualname__}"
