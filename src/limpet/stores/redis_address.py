"""The options in the URL of a Redis store. This module does not need the Redis package."""

from typing import Final
from urllib.parse import parse_qsl, urlsplit

from limpet.errors import ConfigError

_WITH_TLS: Final = {"redis": "rediss", "valkey": "valkeys"}
_SWITCH: Final = {"1": True, "true": True, "0": False, "false": False}
TLS_OPTIONS: Final = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})
"""TLS options of a Redis URL: the file of trusted authorities, and our own certificate with its key."""


def check_options(url: str) -> None:
    """Refuse options that would have no effect: who asks for TLS must not get a connection without it.

    Raises:
        ConfigError: an option does not exist for this scheme, or is given twice.
    """
    parts = urlsplit(url)
    if parts.fragment:
        raise ConfigError("the store's URL has a '#': in a password, write it as %23")
    given = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(given)
    if len(options) < len(given):
        raise ConfigError("the store's URL has an option twice")
    if "+" in parts.scheme:
        with_tls = options.pop("ssl", "0") if options.get("ssl") in _SWITCH else "0"
        if options.keys() - (TLS_OPTIONS if _SWITCH.get(with_tls) else set()):
            allowed = ", ".join(sorted(TLS_OPTIONS))
            raise ConfigError(f"{parts.scheme}:// has only the options ssl=1, and with it {allowed}")
    elif options.keys() & ({"ssl", "tls"} | (TLS_OPTIONS if parts.scheme in _WITH_TLS else set())):
        secure = _WITH_TLS.get(parts.scheme, parts.scheme)
        raise ConfigError(f"TLS is not an option of a Redis URL: write {secure}://")
