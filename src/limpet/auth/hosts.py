"""In which zone a host is, by its name alone: this machine, the local link, a private or the public network. Pure.

An address has many spellings (`127.1`, `0x7f000001`, `[::ffff:127.0.0.1]`, full-width digits). Every spelling that the
system's resolver accepts as an address is read as that address. Names are not looked up. A public name that resolves to
a private address does no harm here: such a host is only reached over https, and it has no certificate for that name.
"""

import re
import socket
from enum import Enum
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final


class Zone(Enum):
    """The zone of a host."""

    HERE = "this machine"
    LINK = "the local link"
    PRIVATE = "a private network"
    PUBLIC = "the public network"


MAY_NAME: Final = {
    Zone.HERE: frozenset({Zone.HERE, Zone.PRIVATE, Zone.PUBLIC}),
    Zone.LINK: frozenset({Zone.LINK, Zone.PUBLIC}),
    Zone.PRIVATE: frozenset({Zone.PRIVATE, Zone.PUBLIC}),
    Zone.PUBLIC: frozenset({Zone.PUBLIC}),
}
"""The zones that a server of each zone may send a client to. A public server must not make a client call private hosts.
On the local link, cloud providers serve the credentials of their machines."""
_HERE: Final = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"})
_PRIVATE_SUFFIXES: Final = (
    ".local",
    ".localdomain",
    ".internal",
    ".intranet",
    ".home.arpa",
    ".home",
    ".lan",
    ".corp",
)
_NAME: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_LONGEST: Final = 1_024
"""Characters of a host in any spelling. A name has at most 253, and the time to read one grows with its square."""
_DISPUTED: Final = frozenset("\u00df\u1e9e\u03c2\u200c\u200d")
"""Letters that the two versions of IDNA read differently: sharp s, final sigma, and two joiners."""
_OCTAL: Final = re.compile(r"(^|\.)0[0-9]+(\.|$)")
"""A number with a leading zero: octal for some programs, decimal for others."""
_NUMERIC: Final = re.compile(r"(^|\.)(0x[0-9a-f]*|[0-9]+)$")
"""A name that ends with a number and is no address."""
_NAT64: Final = IPv6Network("64:ff9b::/96")
_COMPATIBLE: Final = IPv6Network("::/96")


def zone_of(host: str) -> Zone | None:
    """Return the zone of the host of a URL; None if it is not a valid host."""
    address = _address(host)
    if address is not None:
        return _zone_of_address(address)
    name = _ascii(host)
    if name is None:
        return None
    if name in _HERE or name.endswith(".localhost"):
        return Zone.HERE
    if "." not in name or name.endswith(_PRIVATE_SUFFIXES):
        return Zone.PRIVATE
    return Zone.PUBLIC


def canonical_host(host: str) -> str | None:
    """Return the one spelling of a host that stands for all others; None if it has none that all programs agree on.

    This machine is always `localhost`, and an address in IPv6 that contains one in IPv4 is the latter.
    """
    text = host.lower()
    if len(text) > _LONGEST or not _DISPUTED.isdisjoint(host) or _OCTAL.search(text):
        return None
    if zone_of(text) is Zone.HERE:
        return "localhost"
    address = _address(text)
    if address is not None:
        inner = _inner(address) if isinstance(address, IPv6Address) else None
        return str(inner or address)
    name = _ascii(text)
    if name is None or _NUMERIC.search(name) or not all(map(_is_real, name.split("."))):
        return None
    return name


def _is_real(label: str) -> bool:
    """False for a label that claims letters beyond ASCII (`xn--`) and has none: programs read it differently."""
    if not label.startswith("xn--"):
        return True
    try:
        return not label[4:].encode().decode("punycode").isascii()
    except UnicodeError:
        return False


def _ascii(host: str) -> str | None:
    """Return a name in the form in which it is looked up."""
    try:
        name = host.encode("idna").decode().lower().removesuffix(".")
    except UnicodeError:
        return None
    return name if _NAME.fullmatch(name) else None


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address of a host, in any spelling; None for a name."""
    if ":" in host:
        try:
            return ip_address(host)
        except ValueError:
            return None
    name = _ascii(host)
    try:
        # Also decimal, octal, hexadecimal and short forms; no name is looked up.
        return IPv4Address(socket.inet_aton(name)) if name is not None else None
    except OSError:
        return None


def _zone_of_address(address: IPv4Address | IPv6Address) -> Zone:
    inner = _inner(address) if isinstance(address, IPv6Address) else None
    if inner is not None:
        return _zone_of_address(inner)
    if address.is_loopback or address.is_unspecified:
        return Zone.HERE
    if address.is_link_local:
        return Zone.LINK
    is_site_local = isinstance(address, IPv6Address) and address.is_site_local
    if not address.is_global or address.is_multicast or is_site_local:
        return Zone.PRIVATE
    return Zone.PUBLIC


def _inner(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address contains."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    is_plain = address.is_loopback or address.is_unspecified
    if address in _NAT64 or (address in _COMPATIBLE and not is_plain):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return None
