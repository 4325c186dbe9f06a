"""The HTTP headers of calls to the server: the client's own that are passed on (passing.py), and those that repeat parameters (mirrors.py).

A server at the end of a pipe receives no headers. Those of a 2026-07-28 client are checked for it too, as every HTTP server must.
"""

from collections.abc import Mapping

from holdfast.backs.proxy.mirrors import Mirrors
from holdfast.backs.proxy.passing import Passing
from holdfast.backs.proxy.target import Target, UpstreamClient
from holdfast.engine.exchange import Exchange
from holdfast.protocol.mirrored_headers import PARAM_PREFIX
from holdfast.protocol.versions import SESSIONLESS
from holdfast.upstream.pending import NO_HEADERS


class CallHeaders:
    """Makes the headers of the calls of one upstream."""

    def __init__(self, target: Target, client: UpstreamClient, mirrors: Mirrors) -> None:
        self._passing: Passing = target.passing
        self._are_sent = target.has_headers
        self._client = client
        self._mirrors = mirrors
        self._mirrors_parameters = False

    def are_needed(self, *, sessionless: bool) -> bool:
        """Begin to speak this era with the server. False: no call has headers, and none need to be checked."""
        self._mirrors_parameters = sessionless
        return sessionless or bool(self._passing.names)

    async def of(self, exchange: Exchange, *, is_refused: bool = False) -> Mapping[str, str]:
        """Return the headers of a call. `is_refused`: the server has refused the last ones, because they do not fit the body.

        Raises:
            HeaderMismatch: those of a 2026-07-28 client do not fit its own request.
        """
        passed = self.passed(exchange)
        request = exchange.request
        is_sessionless = exchange.session.revision is SESSIONLESS
        if request.method != "tools/call" or not self._mirrors_parameters:
            return passed
        if not (self._are_sent or is_sessionless):
            return NO_HEADERS
        if not is_refused and self._mirrors.has_none(request.params.get("name")):
            return passed
        if self._client.is_single:
            # Reading the list would cost more than the call. The client has the list, and the server checks its headers.
            own = {name: value for name, value in exchange.headers.items() if name.startswith(PARAM_PREFIX)}
        else:
            sent = exchange.headers if is_sessionless else NO_HEADERS
            own = await self._mirrors.headers(request.params, sent, fresh=is_refused)
        return {**passed, **own}

    def passed(self, exchange: Exchange) -> Mapping[str, str]:
        """Return the client's headers that are passed on."""
        if not self._passing.names:
            return NO_HEADERS
        passed = self._passing.of(exchange.headers)
        if passed != self._client.passed:
            # A session, whose client has another token now. A shared upstream has clients with equal headers.
            self._client.passed.clear()
            self._client.passed.update(passed)
        return passed
