"""The address of a client, also behind proxies: for the audit, and for limits by address.

Every client can write `X-Forwarded-For`, so it counts only if the connection comes from a proxy that the operator
trusts (`trusted_proxies`). Each proxy adds the address that it sees at the end. Read from the end, the first address
that is not a trusted proxy's is the client's: all before it may be invented. On a Unix socket only programs of this
machine can connect; if proxies are trusted, these programs are trusted too.

A request that a proxy has forwarded is not one of this machine, although its connection may come from here: only a
trusted proxy can say so (`is_local`).

A client of IPv6 mostly has a whole network of 2^64 addresses. A limit counts the network (`counted`).
"""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from limpet.errors import ConfigError
from limpet.fronts.http.read.request import RawRequest

LOCAL: Final = "local"
"""The address of a client that has none: on stdio, and on a Unix socket."""
_FORWARDING: Final = (b"x-forwarded-for", b"forwarded", b"via", b"x-real-ip")
"""Headers that proxies add."""
_HOPS: Final = 16
"""Proxies that are followed at most."""


class Addresses:
    """Finds the addresses of clients, given the proxies in front."""

    def __init__(self, proxies: Sequence[str]) -> None:
        """Take addresses, or networks such as 10.0.0.0/8.

        Raises:
            ConfigError: a text is neither.
        """
        try:
            self._proxies = [ip_network(proxy) for proxy in proxies]
        except ValueError as error:
            raise ConfigError(
                f"trusted_proxies: {error}; give addresses or networks such as 10.0.0.0/8"
            ) from None

    def of(self, request: RawRequest) -> str:
        """Return the address of the client; that of the connection, unless a trusted proxy reports another one."""
        return self._reported(request)[0] if self._proxies else request.client or LOCAL

    def is_local(self, request: RawRequest) -> bool:
        """True if a request comes from this machine, and not through a proxy that leaves open where it comes from."""
        address, is_reported = self._reported(request)
        return _is_here(address) and (is_reported or not is_forwarded(request))

    def _reported(self, request: RawRequest) -> tuple[str, bool]:
        """Return the address of the client, and whether trusted proxies have reported it completely."""
        address = request.client or LOCAL
        if not self._proxies or not (request.client is None or self.is_proxy(address)):
            return address, False
        hops = request.head.text(b"x-forwarded-for").split(",")
        for hop in reversed(hops[-_HOPS:]):
            found = _address(hop.strip())
            if found is None:
                return address, False
            address = str(found)
            if not self.is_proxy(address):
                break
        return address, True

    def is_proxy(self, address: str) -> bool:
        """True if an address is one of the trusted proxies."""
        ip = _address(address)
        return ip is not None and any(ip in network for network in self._proxies)


def is_forwarded(request: RawRequest) -> bool:
    """True if a proxy has forwarded a request, as far as its headers say."""
    return any(request.head.has(name) for name in _FORWARDING)


@lru_cache(maxsize=1_024)
def _is_here(address: str) -> bool:
    """True if an address is one of this machine, also in the form of an IPv6 socket that accepts IPv4."""
    ip = _address(address)
    return address == LOCAL or (ip is not None and ip.is_loopback)


@lru_cache(maxsize=1_024)
def counted(address: str) -> str:
    """Return the name under which a limit counts an address: itself, or the network of an IPv6 address."""
    ip = _address(address)
    return str(IPv6Network((ip, 64), strict=False)) if isinstance(ip, IPv6Address) else address


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Return an address, which may be followed by a port; None for any other text. IPv4 in IPv6 is IPv4."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        ip = ip_address(text)
    except ValueError:
        return None
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return mapped or ip
