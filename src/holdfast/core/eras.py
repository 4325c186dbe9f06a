"""Which protocol a client is served, and what it is told of the others. Pure.

An excluded era is refused in the words that make a client of both go to the other one: the
versions it may use instead.
"""

from collections.abc import Mapping
from typing import Any, get_args

from msgspec.structs import replace

from holdfast.config import Eras, Settings
from holdfast.errors import ConfigError
from holdfast.protocol.modern import VERSION
from holdfast.protocol.versions import REVISIONS


def with_eras(settings: Settings, eras: Eras | None, by_client: Mapping[str, Eras] | None) -> Settings:
    """Return settings with these eras, where they are given.

    Raises:
        ConfigError: one of them is no era.
    """
    chosen = settings.eras if eras is None else eras
    named = settings.eras_by_client if by_client is None else dict(by_client)
    for word in (chosen, *named.values()):
        if word not in get_args(Eras):
            raise ConfigError(f"eras={word!r}: choose {', '.join(get_args(Eras))}")
    return replace(settings, eras=chosen, eras_by_client=named)


def supported_versions(settings: Settings, client: Any = None) -> tuple[str, ...]:
    """Return the versions that a client may use, given what it calls itself (its `clientInfo`)."""
    name = client.get("name") if isinstance(client, dict) else None
    eras = settings.eras
    if settings.eras_by_client and isinstance(name, str):
        eras = settings.eras_by_client.get(name, eras)
    modern = () if eras == "sessions" else (VERSION,)
    return modern if eras == "modern" else (*modern, *REVISIONS)
