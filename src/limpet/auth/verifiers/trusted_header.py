"""A header that a proxy has set: the proxy has checked the client, and names it.

Every client can write a header. So it counts only on connections that come from the proxy itself, by its address. The
proxy must remove the header from the requests of its clients.
"""

from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address, ip_network

from limpet.auth import AuthRequest, Principal
from limpet.errors import ConfigError


class TrustedHeader:
    """Takes the subject from a header of a proxy in one of the given networks."""

    def __init__(self, header: str, *, networks: Sequence[str], issuer: str = "proxy") -> None:
        """Name the header and the networks of the proxies, such as 10.0.0.0/8 or 127.0.0.1.

        Raises:
            ConfigError: there is no header or no network, or a network is invalid.
        """
        if not header or not networks:
            raise ConfigError(
                "TrustedHeader needs the name of a header and the networks of the proxies that set it"
            )
        try:
            self._networks = [ip_network(network) for network in networks]
        except ValueError as error:
            raise ConfigError(f"TrustedHeader: {error}") from None
        if any(network.prefixlen == 0 for network in self._networks):
            raise ConfigError("TrustedHeader cannot trust every address: every client could write the header")
        self._header = header.lower()
        self._issuer = issuer

    def __repr__(self) -> str:
        return f"<TrustedHeader {self._header}>"

    async def __call__(self, token: str, request: AuthRequest) -> Principal | None:  # noqa: ARG002
        """Return the principal that the proxy names; None if it names none, or if the request does not come from it."""
        subject = request.headers.get(self._header, "")
        if not subject or "\0" in subject or not self._is_proxy(request.address):
            return None
        return Principal(subject=subject, issuer=self._issuer)

    def _is_proxy(self, text: str) -> bool:
        try:
            address = ip_address(text)
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)
