"""The questions of a server to its client: which calls a question can belong to, where it is asked, and when it ends.

To which exchange does a message of the server belong? HTTP and hosted servers name it: the message came on the
response to a request, or names the request. On pipes and on the standalone stream it is not known: a question can
belong to each call that has no answer yet and may ask. Then:

    calls                client has a session                      client of 2026-07-28
    ─────────────────    ──────────────────────────────────────    ──────────────────────────────────────────
    exactly one          that call                                 that call
    several              the session's standalone stream, if it    does not occur: calls of clients that can be
                         is read here; otherwise one of them       asked run one at a time (turns.py)
    no call              the session's standalone stream           refused

The standalone stream is the better place for a question of several calls, because it stays when a call ends. But a
client may have none, and then the question would wait for nothing. On the stream of a call it arrives; the
specification wants such a stream to carry only messages related to its request, and this one is related to that request
as far as we know. The call is one whose client is connected, if there is one, and with the fewest open questions: a
call that asks mostly waits for the answer before it asks again.

A question ends when each call that it can belong to has ended, and the server gets an error. If the call on whose
stream it is asked ends before the others (the engine cancels the ask then, `engine/asks.py`), it is asked once more,
with another id, at the place where it would be asked now. It stays where it is if a client begins to read the
standalone stream meanwhile. A question that belongs to no call has only the deadline of an ask.

The calls are those of the moment when the question arrived: a question that waits for its turn (`upstream/incoming.py`)
must not be asked within a call that began later.

A client reports its progress with a question by the token of the question. Servers count these tokens, so two servers
at one address use the same ones. The client gets another token, which tells whose it is.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from limpet.backs.proxy.call import ASKS, Call, paused, unasked
from limpet.backs.proxy.clients import Clients
from limpet.backs.proxy.turns import UpstreamTurns
from limpet.engine.back import Outside
from limpet.errors import INVALID_REQUEST, AskError, CallEnded, McpError, MethodNotFound
from limpet.upstream.pending import OutgoingRequest
from limpet.wire.jsonrpc import encode

_FREE: Final = contextlib.nullcontext()


class _Question:
    """A question that can belong to these calls."""

    __slots__ = ("bound", "calls")

    def __init__(self, calls: list[Call]) -> None:
        self.calls: list[Call] = calls
        self.bound: asyncio.Timeout = asyncio.timeout(None)


class Questions:
    """The open questions of one server."""

    def __init__(
        self,
        turns: UpstreamTurns | None,
        outside: Outside,
        clients: Clients,
        mark: str,
    ) -> None:
        """`mark` begins the tokens of this server's questions, and of no others."""
        self.turns: UpstreamTurns | None = turns
        """The turns of calls that may ask; None if they need none."""
        self.outside: Outside = outside
        self._clients = clients
        self._mark = f"{mark}/"
        self.open: set[_Question] = set()
        """Those that wait for an answer."""

    async def answer(self, method: str, params: dict[str, Any], origins: Sequence[OutgoingRequest]) -> Any:
        """Ask the client, and return its result. `origins` are the requests that the question can belong to.

        Raises:
            McpError: for the server: the client's own error, or why the client could not be asked.
        """
        if method not in ASKS and (self._clients.record is None or method.startswith("tasks/")):
            # One that an extension defines needs a session: `input_required` results have no room for it.
            raise MethodNotFound(method[:100])
        if self._clients.first.is_shared:
            raise McpError(INVALID_REQUEST, f"{method}: a server that several clients share may not ask them")
        params = self._with_own_token(params)
        owners = (request.owner for request in origins)
        possible = [owner for owner in owners if isinstance(owner, Call) and owner.may_ask]
        # Without a session several calls may be of several clients.
        if not possible or (len(possible) > 1 and self._clients.record is None):
            return await self._asked_outside(method, params)
        calls = [call for call in possible if not call.is_over]
        with self.turns.asking() if self.turns is not None else _FREE, paused(calls):
            return await self._ask(_Question(calls), method, params)

    def _with_own_token(self, params: dict[str, Any]) -> dict[str, Any]:
        meta = params.get("_meta")
        if type(meta) is not dict or "progressToken" not in meta:
            return params
        token = self._mark + encode(meta["progressToken"]).decode()
        return {**params, "_meta": {**meta, "progressToken": token}}

    def progress(self, params: dict[str, Any]) -> dict[str, Any] | None:
        """Return a client's progress with the token that the server knows; None: it is not for this server."""
        token = params.get("progressToken")
        if type(token) is not str or not token.startswith(self._mark):
            return None
        try:
            return {**params, "progressToken": msgspec.json.decode(token[len(self._mark) :])}
        except msgspec.DecodeError:
            return None

    async def _ask(self, question: _Question, method: str, params: dict[str, Any]) -> Any:
        self.open.add(question)
        try:
            async with question.bound:
                return await self._asked(question, method, params)
        except TimeoutError:
            raise unasked(CallEnded(method)) from None
        finally:
            self.open.discard(question)

    async def _asked(self, question: _Question, method: str, params: dict[str, Any]) -> Any:
        while question.calls:
            call = self._place(question.calls)
            if call is None:
                return await self._asked_outside(method, params)
            try:
                return await call.ask(method, params)
            except CallEnded:
                self._remove(question, call)
        raise unasked(CallEnded(method))

    async def _asked_outside(self, method: str, params: dict[str, Any]) -> Any:
        record = self._clients.record
        if record is None:
            raise McpError(
                INVALID_REQUEST, f"{method} belongs to no call, and this client has no other stream"
            )
        try:
            return await self.outside.ask(record, method, params)
        except AskError as error:
            raise unasked(error) from error

    def _place(self, calls: list[Call]) -> Call | None:
        """Return the call on whose stream to ask; None: on the standalone stream."""
        record = self._clients.record
        if len(calls) > 1 and record is not None and self.outside.is_read(record.key):
            return None
        return min(calls, key=lambda call: (not call.is_connected, call.questions))

    def ended(self, call: Call) -> None:
        """End the questions that can belong to no other call than this one, which has ended."""
        for question in self.open:
            self._remove(question, call)
            if not question.calls and not question.bound.expired():
                question.bound.reschedule(asyncio.get_running_loop().time())

    @staticmethod
    def _remove(question: _Question, call: Call) -> None:
        if call in question.calls:
            question.calls.remove(call)
