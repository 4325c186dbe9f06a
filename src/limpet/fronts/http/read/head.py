"""The head of an HTTP request: its headers, read once."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

RawHeaders = list[tuple[bytes, bytes]]
Judged = tuple[bytes, bytes, bytes, bytes, bytes]
"""The headers that the checks read, besides the version: Host, Origin, Accept, Content-Type, Content-Encoding."""

_SINGLE: Final = (
    b"mcp-session-id",
    b"mcp-protocol-version",
    b"last-event-id",
    b"content-type",
    b"content-length",
    b"content-encoding",
    b"host",
    b"origin",
    b"authorization",
    b"idempotency-key",
)
"""Headers that may be sent once only: of two values, a proxy could use the first and this server the second.

The values of any other header are joined. If such a header repeats a part of the body, it then differs from the body,
and the request is refused.
"""


class Head(Mapping[str, str]):
    """A request's headers. Several lines of one header are one value. Texts are Latin-1, as in HTTP."""

    __slots__ = ("_headers", "_values", "twice")

    def __init__(self, headers: RawHeaders) -> None:
        self._headers = headers
        self._values = dict(headers)
        self.twice: bytes = b""
        """A header that was sent twice although it may be sent once only; empty if every header is allowed."""
        if len(self._values) != len(headers):
            self._join(headers)

    def _join(self, headers: RawHeaders) -> None:
        """Join the lines of headers that were sent in several lines."""
        lines: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            lines.setdefault(name, []).append(value)
        self._values = {name: b", ".join(values) for name, values in lines.items()}
        self.twice = next((name for name in _SINGLE if len(lines.get(name, ())) > 1), b"")

    def changed(self, values: dict[bytes, bytes]) -> "Head":
        """Return this head with other values of some headers. Each of them must have been sent once."""
        head = Head.__new__(Head)
        head._headers, head.twice = self._headers, self.twice
        head._values = self._values | values
        return head

    @property
    def lines(self) -> RawHeaders:
        """The headers in the order in which they were sent, one for each line."""
        several = Counter(name for name, _ in self._headers)
        return [(name, value if several[name] > 1 else self._values[name]) for name, value in self._headers]

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower().encode("latin-1", "replace")].strip().decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._values)

    def __len__(self) -> int:
        return len(self._values)

    def has(self, name: bytes) -> bool:
        """True if the header was sent."""
        return name in self._values

    def text(self, name: bytes) -> str:
        """Return a header's value by its lower-case name; empty where it is absent."""
        return self._values.get(name, b"").decode("latin-1")

    @property
    def mirroring(self) -> tuple[bytes | None, bytes | None, bytes | None, bytes | None]:
        """The headers that mirror the body of every request of 2026-07-28, and its idempotency key."""
        get = self._values.get
        return (
            get(b"mcp-protocol-version"),
            get(b"mcp-method"),
            get(b"mcp-name"),
            get(b"idempotency-key"),
        )

    @property
    def judged(self) -> Judged:
        """The values that the checks read."""
        get = self._values.get
        return (
            get(b"host", b""),
            get(b"origin", b""),
            get(b"accept", b""),
            get(b"content-type", b""),
            get(b"content-encoding", b""),
        )
