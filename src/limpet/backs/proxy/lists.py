"""Lists of the server behind us, kept in memory as long as they are known to be current.

    the server speaks     a page of a list is kept
    ─────────────────     ──────────────────────────────────────────────────────────────────────────────────────────
    a 2025 revision       if it declares `listChanged` for the list, while the stream on which it reports changes
                          stays open without a break
    2026-07-28            for the `ttlMs` of the result

`list_changed` removes every page of the list. A page that was requested before the notification and arrives after it is
not kept, and requests that come after the notification do not wait for it.

The pages belong to one upstream, so no client receives the list of another principal. A server may also answer by the
headers that we pass on for a client: they are a part of the key.
"""

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct

from limpet.backs.proxy.translation import request_params
from limpet.core.ledger import Charge, encoded
from limpet.ports import Clock
from limpet.protocol.subscriptions import LISTS, Kind
from limpet.single_flight import SingleFlight
from limpet.upstream.negotiation import Agreed
from limpet.upstream.pending import NO_HEADERS
from limpet.wire.jsonrpc import encode

_PAGE_BYTES: Final = 512
"""The memory of a kept page without its bytes and its cursor."""
Key = tuple[str, str, bytes]
"""The request, its cursor, and a hash of the headers that were passed on."""


def list_key(method: str, params: dict[str, Any], passed: Mapping[str, str] = NO_HEADERS) -> Key | None:
    """Return the key of a page; None if the page may not be kept, because the request has unknown members."""
    if method not in LISTS:
        return None
    known = request_params(method, params)
    cursor = known.get("cursor", "")
    if known.keys() - {"cursor"} or type(cursor) is not str:
        return None
    return method, cursor, digest(passed)


def digest(passed: Mapping[str, str]) -> bytes:
    """Return a hash of headers, which may hold a credential; no bytes without headers."""
    return hashlib.sha256(encode(sorted(passed.items()))).digest() if passed else b""


class _Hint(Struct):
    ttlMs: float = 0.0  # noqa: N815 - as it travels


_decode_hint = msgspec.json.Decoder(_Hint).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _Page(Struct, frozen=True):
    result: bytes
    charge: Charge
    """Its memory, and that of its cursor, which is the client's text."""
    standalone: object
    """The standalone stream that was open when the page was requested; None if the page has a time limit instead."""
    until: float = 0.0

    def at(self, now: float, standalone: object) -> bytes | None:
        """Return the result as it is valid now; None if the page is not current any more."""
        if self.standalone is not None:
            return self.result if self.standalone is standalone else None
        if now >= self.until:
            return None
        # The client must not keep it for longer than the server said.
        left = encode(int((self.until - now) * 1_000))
        return encode({**_decode_members(self.result), "ttlMs": msgspec.Raw(left)})


class Lists:
    """The lists of one upstream."""

    def __init__(
        self,
        limit: int,
        clock: Clock,
        standalone: Callable[[], object | None],
        charge: Callable[[int], Charge | None],
    ) -> None:
        """Keep at most `limit` bytes, and what `charge` has room for.

        `standalone` returns the open standalone stream; see `Receiver.standalone`.
        """
        self._limit = limit
        self._clock = clock
        self._standalone = standalone
        self._charge = charge
        self._pages: OrderedDict[Key, _Page] = OrderedDict()
        self._bytes = 0
        self._changes: Counter[Kind] = Counter()
        self._flights: SingleFlight[bytes] = SingleFlight()

    def __repr__(self) -> str:
        return f"<Lists {len(self._pages)} pages, {self._bytes} bytes>"

    async def get(self, key: Key, agreed: Agreed, ask: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return a page: a kept one, or the one that `ask` brings. Requests at the same time share one `ask`.

        Raises:
            McpError: the server's error, or ours in its place.
        """
        kind = LISTS[key[0]]
        standalone = None if agreed.is_sessionless else self._standalone()
        page = self._pages.get(key)
        if page is not None:
            if (result := page.at(self._clock.now(), standalone)) is not None:
                return result
            self._remove(key)
        if not agreed.is_sessionless and (standalone is None or not _declares(agreed, kind)):
            return await ask()
        work = partial(self._fetch, key, standalone, ask)
        return await self._flights.join((key, standalone, self._changes[kind]), work)

    async def _fetch(self, key: Key, standalone: object, ask: Callable[[], Awaitable[bytes]]) -> bytes:
        kind = LISTS[key[0]]
        changes = self._changes[kind]
        result = await ask()
        if changes == self._changes[kind]:
            self._keep(key, standalone, result)
        return result

    def _keep(self, key: Key, standalone: object, result: bytes) -> None:
        until = 0.0
        if standalone is None:
            milliseconds = _ttl(result)
            if milliseconds <= 0:
                return
            until = self._clock.now() + milliseconds / 1_000
        self._remove(key)
        size = _PAGE_BYTES + len(key[1].encode("utf-8", "surrogatepass")) + encoded(len(result))
        charge = self._charge(size) if size <= self._limit else None
        if charge is None:
            return
        while self._bytes + size > self._limit:
            self._remove(next(iter(self._pages)))
        self._pages[key] = _Page(result, charge, standalone, until)
        self._bytes += size

    def changed(self, kind: Kind) -> None:
        """Remove a list: the server has reported a change."""
        self._changes[kind] += 1
        for key in [key for key in self._pages if LISTS[key[0]] == kind]:
            self._remove(key)

    def clear(self) -> None:
        """Remove every list: the server may be another one."""
        for kind in set(LISTS.values()):
            self.changed(kind)

    def _remove(self, key: Key) -> None:
        page = self._pages.pop(key, None)
        if page is not None:
            self._bytes -= page.charge.size


def _declares(agreed: Agreed, kind: Kind) -> bool:
    declared = agreed.capabilities.get(kind)
    return isinstance(declared, dict) and declared.get("listChanged") is True


def _ttl(result: bytes) -> float:
    try:
        return _decode_hint(result).ttlMs
    except msgspec.DecodeError:
        return 0.0
