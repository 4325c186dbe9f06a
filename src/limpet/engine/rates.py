"""Rates of calls: per principal, per tool, and per address for refused requests.

    limit       counts                                                      over the limit
    ─────────   ─────────────────────────────────────────────────────────   ──────────────────────────────
    principal   messages of one principal; anonymous clients by address     429, JSON-RPC −31001; or a slower connection
    tool        calls of one tool, of all clients or of each principal      429, JSON-RPC −31001
    address     refused requests from one address (401 and 403)             429 instead of the refusal

A front calls `check` before a message is served, so nothing of a refused request has run. Answers, cancellations,
pings, retries of suspended calls and questions about tasks belong to work that was admitted before: they are counted
and never refused (law 10). When the rate is used up, they slow their connection instead: nothing further is read from
it for the time that they would have to wait. A retry with an author's own state calls the handler again each time, so
it is refused like a call.

Counting is local, and no call waits for the store. Where the store is shared, `reconcile` compares once a second
(`core/call_rates.py` says how exact the limits then are). While the store is unavailable each replica counts alone.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from math import ceil
from typing import Final

from limpet.config import Rate
from limpet.core.call_rates import CallRates
from limpet.engine.caller import Caller
from limpet.engine.load import passes
from limpet.engine.runtime import Runtime
from limpet.errors import RateLimit, RateLimited, StoreUnavailable
from limpet.wire.jsonrpc import Message, Request

RECONCILE_SECONDS: Final = 1.0
_KEPT_SECONDS: Final = 10.0
"""How long the store keeps the report of a replica."""
_PRINCIPAL: Final = b"p"
_ADDRESS: Final = b"a"
_TOOL: Final = b"t"
_TOOL_PREFIX: Final = 7
_HASH: Final = 10
_EXHAUSTED: Final = 10_000
_SLOWEST: Final = 5.0
"""The longest time, in seconds, for which a message slows its connection. Clients wait longer for an answer."""


class RateLimiter:
    """The limits of one engine, and the counts for them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        limits = runtime.settings.rates
        self._principal = Rate.read(limits.principal) if limits.principal else None
        self._refusals = Rate.read(limits.refusals) if limits.refusals else None
        self._configured = {name: Rate.read(text) for name, text in limits.tools.items()}
        self._tools: dict[str, tuple[bytes, Rate]] = {}
        self._prefixes: dict[bytes, Rate] = {}
        self.starts_again: Callable[[Request, Caller], bool] = lambda _request, _caller: False
        """Returns True for a retry that calls its handler again. A client can repeat it, so it counts as a call."""
        self._counted = CallRates(runtime.random.token(6), reports=runtime.store.is_shared)
        self.is_on: bool = False
        """False: no request needs `check`."""
        self.exhausted: set[bytes] = set()
        """Addresses whose requests were refused too often. Empty except in an attack."""
        self.declare({})

    def declare(self, tools: Mapping[str, Rate]) -> None:
        """Set the rates that the tools themselves declare. Those of the settings override them."""
        rates = {**tools, **self._configured}
        self._tools = {
            name: (_TOOL + _hashed(name)[: _TOOL_PREFIX - 1], rate) for name, rate in rates.items()
        }
        self._prefixes = dict(self._tools.values())
        if self._principal is not None:
            self._prefixes[_PRINCIPAL] = self._principal
        if self._refusals is not None:
            self._prefixes[_ADDRESS] = self._refusals
        self.is_on = self._principal is not None or bool(self._tools)

    # Calls

    def check(self, message: Message | list[Message], caller: Caller, address: str) -> float:
        """Count a message; that of an anonymous client by its address.

        Return for how many seconds it slows its connection.

        Raises:
            RateLimited: a limit is reached; no request of the message may start.
        """
        messages, who = message if isinstance(message, list) else (message,), caller.key or address
        begins = [one for one in messages if isinstance(one, Request) and self._begins(one, caller)]
        slows = self._slows(who, len(messages) - len(begins))
        for request in begins:
            self._check(request, caller, who)
        return slows

    def _begins(self, request: Request, caller: Caller) -> bool:
        """True if a request begins new work."""
        return not passes(request) or self.starts_again(request, caller)

    def _slows(self, who: str, count: int) -> float:
        """Count messages that are never refused; return for how many seconds they slow their connection."""
        rate, key, now, wait = self._principal, _PRINCIPAL + _hashed(who), self._runtime.clock.now(), 0.0
        if rate is not None:
            for left in range(count, 0, -1):
                if (wait := self._counted.wait(key, rate, now)) > 0:
                    return min(_SLOWEST, wait + (left - 1) * rate.seconds / rate.count)
                self._counted.take(key, rate, now)
        return wait

    def _check(self, request: Request, caller: Caller, who: str) -> None:
        now = self._runtime.clock.now()
        taken: list[tuple[bytes, Rate, RateLimit]] = []
        if self._principal is not None:
            taken.append((_PRINCIPAL + _hashed(who), self._principal, "principal"))
        name = request.params.get("name") if request.method == "tools/call" else None
        if type(name) is str and (found := self._tools.get(name)) and self._may_call(request, caller):
            prefix, rate = found
            taken.append((prefix + _hashed(who) if rate.each else prefix, rate, "tool"))
        # Decide, then count: a call that one limit refuses is not counted for the other.
        for key, rate, limit in taken:
            if (seconds := self._counted.wait(key, rate, now)) > 0:
                raise RateLimited(limit, str(rate), max(1, ceil(seconds)))
        for key, rate, _ in taken:
            self._counted.take(key, rate, now)

    def _may_call(self, request: Request, caller: Caller) -> bool:
        """Return False if a call will be refused for a missing scope: it must not use up, or show, a tool's rate."""
        access = self._runtime.access
        if access.rules is None:
            return True
        needs = access.rules.needs(request, caller, "")
        return not access.missing(needs.scopes | needs.hidden, caller)

    # Refusals

    def refused(self, address: str) -> RateLimited | None:
        """Count a refused request of an address. If there were too many, return the error to answer with."""
        over = self.over(address)
        if over is None and self._refusals is not None:
            key = _ADDRESS + _hashed(address)
            self._counted.take(key, self._refusals, self._runtime.clock.now())
            self._note_exhausted(key, self._refusals)
        return over

    def _note_exhausted(self, key: bytes, rate: Rate) -> None:
        if self._counted.wait(key, rate, self._runtime.clock.now()) > 0:
            if len(self.exhausted) >= _EXHAUSTED:
                self.exhausted.clear()
            self.exhausted.add(key)

    def over(self, address: str) -> RateLimited | None:
        """Return the error for an address whose requests were refused too often; None: it may continue."""
        rate, key = self._refusals, _ADDRESS + _hashed(address)
        if rate is None or key not in self.exhausted:
            return None
        seconds = self._counted.wait(key, rate, self._runtime.clock.now())
        return RateLimited("address", str(rate), max(1, ceil(seconds))) if seconds > 0 else None

    async def sweep(self) -> None:
        """Forget the addresses whose rate has recovered."""
        if self.exhausted and self._refusals is not None:
            now, rate = self._runtime.clock.now(), self._refusals
            self.exhausted = {key for key in self.exhausted if self._counted.wait(key, rate, now) > 0}

    # Between replicas

    async def keep_reconciled(self) -> None:
        """Compare with the other replicas once a second."""
        while True:
            await asyncio.sleep(RECONCILE_SECONDS)
            await self.reconcile()

    async def reconcile(self) -> None:
        """Report the calls that were admitted here, and count those of other replicas: one round trip for all limits.

        If only refusals are limited and there were none, nothing is sent.
        """
        if not self.is_on and not self._counted.has_news:
            return
        report = self._counted.report() if self._counted.has_news else b""
        try:
            others = await self._runtime.store.post_notice(report, seconds=_KEPT_SECONDS)
        except StoreUnavailable:
            return
        learned = self._counted.learn(others, self._rate_of, self._runtime.clock.now())
        if self._refusals is not None:
            for key in learned:
                if key.startswith(_ADDRESS):
                    self._note_exhausted(key, self._refusals)

    def _rate_of(self, key: bytes) -> Rate | None:
        return self._prefixes.get(key[:_TOOL_PREFIX] if key[:1] == _TOOL else key[:1])


def unrefused(message: Message | list[Message]) -> list[Message]:
    """Return the answers, cancellations and other notifications of a batch: they are never refused."""
    messages = message if isinstance(message, list) else []
    return [one for one in messages if not isinstance(one, Request)]


@lru_cache(maxsize=4_096)
def _hashed(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()[:_HASH]
