"""Batches (2025-03-26): several requests in one POST, each its own exchange, answered together.

If all are quick, the answer is one JSON array. Otherwise it is one response with the streams of all of them: both are
the one delivery loop with a merged source (`engine/merged.py`). Once a handler has started, the batch is never refused
as a whole: a client would send it again, and the handlers would run twice. The batch waits for an unavailable store
instead, as a single request does.
"""

from collections.abc import Callable

from msgspec.structs import replace

from limpet.auth import Principal
from limpet.core.ledger import Account
from limpet.engine.caller import Caller
from limpet.engine.delivery import Batch
from limpet.engine.engine import Engine
from limpet.engine.exchange import SessionExchange
from limpet.engine.merged import Member, Merged
from limpet.engine.posted import PostedExchange, RepeatedExchange
from limpet.engine.reader import End
from limpet.engine.wake import after_few
from limpet.errors import INVALID_REQUEST, LimpetError, McpError
from limpet.fronts.http.decide.session_streams import Streamer
from limpet.fronts.http.read.request import Gone
from limpet.fronts.http.write.answer import Answer, json_answer, refusal_for
from limpet.fronts.http.write.response import WaitingResponse
from limpet.wire import sse
from limpet.wire.jsonrpc import Request, encode, error_message


class BatchedRequests:
    """The requests of one POST."""

    def __init__(
        self, engine: Engine, streamer: Streamer, response: WaitingResponse, principal: Principal | None
    ) -> None:
        self._engine = engine
        self._streamer = streamer
        self._response = response
        self._streams = not streamer.form.is_json
        self._merged = Merged(
            lambda reader: streamer.bind(reader, response, principal), self._restart, streams=self._streams
        )
        self._requests: dict[Member, tuple[str, Caller, Request]] = {}
        self._exchanges: list[SessionExchange] = []
        self._on_gone: Callable[[], object] = lambda: None

    async def answer(self, key: str, caller: Caller, requests: list[Request]) -> None:
        """Run the requests side by side and answer them all here."""
        merged, response = self._merged, self._response
        # The answers are kept for a repeat, which may arrive before the next pass of the loop.
        response.watch(self._left)
        try:
            for number, request in enumerate(requests):
                await after_few(number)
                await self._start(key, caller, request)
            form = self._streamer.form
            await response.deliver(merged, form, whole=_array, opening=_opening, begin=merged.begin)
        except Gone:
            merged.stop(End.BROKE if response.may_be_gone else End.STALLED)
        finally:
            await self._engine.readers.clean_up(self._close())

    async def _close(self) -> None:
        # The callers are charged until they are deleted, and this object is part of a reference cycle.
        self._requests.clear()
        await self._merged.close()
        for exchange in self._exchanges:
            await self._engine.readers.close(exchange)

    async def _start(self, key: str, caller: Caller, request: Request) -> None:
        """Add a request, or its refusal."""
        try:
            member = await self._submit(key, caller, request)
        except LimpetError as error:
            self._merged.refuse(_refusal(error, request))
        else:
            self._requests[member] = key, caller, request
            self._merged.add(member)

    async def _restart(self, member: Member) -> None:
        """Start the request of a member that repeats one of which nothing ran."""
        await self._start(*self._requests.pop(member))

    async def _submit(self, key: str, caller: Caller, request: Request) -> Member:
        if request.method == "initialize":
            raise McpError(INVALID_REQUEST, "Invalid request: initialize may not be part of a batch")
        digest = self._engine.exchanges.claims.digest(encode([request.id, request.method, request.params]))
        submit, readers = self._engine.exchanges.submit, self._engine.readers
        own = replace(caller, waiter=self)
        submitted = await submit(key, own, request, digest, streams=self._streams)
        if isinstance(submitted, SessionExchange):
            readers.hold(submitted)
            self._exchanges.append(submitted)
            return PostedExchange(readers, submitted)
        return RepeatedExchange(readers, submitted.session, submitted.stream, submitted.id)

    # The connection, for the member that is being submitted

    @property
    def address(self) -> str:
        return self._response.address

    @property
    def account(self) -> Account | None:
        return self._response.account

    @property
    def gone(self) -> bool:
        return self._response.gone

    def watch(self, on_gone: Callable[[], object]) -> None:
        self._on_gone = on_gone
        if self.gone:
            on_gone()

    async def look(self) -> None:
        await self._response.look()

    def _left(self) -> None:
        self._on_gone()
        self._merged.leave()
        if self._response.is_half_closed:
            # Its client may wait. Some of the requests may run, so no refusal fits: the client sends the batch again.
            self._response.abort()


def _opening(_batch: Batch) -> bytes:
    return sse.comment("open")


def _array(batch: Batch) -> Answer:
    """Return the answer of requests that have all ended without a stream."""
    return json_answer(b"[" + b",".join(batch.messages) + b"]")


def _refusal(error: LimpetError, request: Request) -> bytes:
    if isinstance(error, McpError):
        return error_message(request.id, error.code, error.message, error.data)
    return refusal_for(error, request.id).body
