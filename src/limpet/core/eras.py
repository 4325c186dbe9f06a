"""The protocol versions that a client may use. Pure.

A refusal names the versions that the client may use. A client that supports both eras then uses the other one.
"""

from collections.abc import Mapping
from typing import Any, get_args

from msgspec.structs import replace

from limpet.config import Eras, Settings
from limpet.errors import ConfigError, InvalidParams, UnsupportedVersion
from limpet.protocol.sessionless import VERSION, RequestMeta
from limpet.protocol.versions import LATEST, REVISIONS
from limpet.wire.jsonrpc import encode


def with_eras(settings: Settings, eras: Eras | None, by_client: Mapping[str, Eras] | None) -> Settings:
    """Return settings with these eras. An argument that is None leaves its setting as it is.

    Raises:
        ConfigError: a value is not the name of an era.
    """
    chosen = settings.eras if eras is None else eras
    named = settings.eras_by_client if by_client is None else dict(by_client)
    for word in (chosen, *named.values()):
        if word not in get_args(Eras):
            raise ConfigError(f"eras={word!r}: choose {', '.join(get_args(Eras))}")
    return replace(settings, eras=chosen, eras_by_client=named)


def supported_versions(settings: Settings, client: Any = None) -> tuple[str, ...]:
    """Return the versions that a client may use, by the name in its `clientInfo`."""
    name = client.get("name") if isinstance(client, dict) else None
    eras = settings.eras
    if settings.eras_by_client and isinstance(name, str):
        eras = settings.eras_by_client.get(name, eras)
    sessionless = () if eras == "sessions" else (VERSION,)
    return sessionless if eras == "sessionless" else (*sessionless, *REVISIONS)


def has_sessions(settings: Settings) -> bool:
    """Return True if any client may have a session."""
    return settings.eras != "sessionless" or any(
        eras != "sessionless" for eras in settings.eras_by_client.values()
    )


def check_handshake(settings: Settings, params: dict[str, Any]) -> None:
    """Check that the client of an initialize request may have a session.

    Raises:
        UnsupportedVersion: the client may not. The error names the versions it may use.
    """
    if settings.eras != "sessionless" and not settings.eras_by_client:
        return
    supported = supported_versions(settings, params.get("clientInfo"))
    if LATEST.name not in supported:
        raise UnsupportedVersion(str(params.get("protocolVersion", "")), supported)


def check_client(
    settings: Settings, client: dict[str, Any], capabilities: dict[str, Any], meta: dict[str, Any]
) -> tuple[bytes, bytes]:
    """Check that `clientInfo`, capabilities and `_meta` are short enough to be stored; return the first two encoded.

    Raises:
        InvalidParams: they are too long.
    """
    encoded = encode(client), encode(capabilities)
    size, most = sum(map(len, encoded)) + (len(encode(meta)) if meta else 0), settings.limits.client_bytes
    if size > most:
        raise InvalidParams(
            f"Invalid params: clientInfo, capabilities and _meta have {size} bytes together; at most {most} are accepted"
        )
    return encoded


def own_meta(params: dict[str, Any]) -> dict[str, Any]:
    """Return the members of `_meta` for the server behind: all but the progress token, which is of this request."""
    meta = params.get("_meta")
    return (
        {name: value for name, value in meta.items() if name != "progressToken"} if type(meta) is dict else {}
    )


def check_sessionless(settings: Settings, meta: RequestMeta, *, large: bool = False) -> None:
    """Check the version and the client of a sessionless request.

    The length of the client metadata is checked only in a `large` message: in a short message the metadata is short
    too, and the check would cost time in every request.

    Raises:
        UnsupportedVersion: the version is unknown, or the client may not use it. The error names the versions it may
            use.
        InvalidParams: the client metadata is too long.
    """
    if large:
        check_client(settings, meta.client, meta.capabilities, {})
    if meta.version == VERSION and settings.eras != "sessions" and not settings.eras_by_client:
        return
    supported = supported_versions(settings, meta.client)
    if meta.version != VERSION or VERSION not in supported:
        raise UnsupportedVersion(meta.version, supported)
