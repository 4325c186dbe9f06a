"""Calls with an idempotency key: a repeat of a request of 2026-07-28 does not run it again (laws 2, 6 and 12).

2026-07-28 has no sessions: a client whose connection broke sends its call again, and it would run twice. A request that
names a key (`protocol/idempotency.py`) gets what the calls of a session have. The rules are those of sessions, and no
others: the key takes the place of the request's id in a *hidden session* of the store, which no client can name.

    request with a key ──▶ claim(hidden session, id = key, digest) ──▶ Claimed: it starts, as without a key
                                       │                                         │ the answer of its first round
                                       │                                         ▼
                                       │                          settle(…, keep=True): the answer stays under the key
                                       └──▶ Duplicate  ── another digest ──▶ refused (KeyReused)
                                                       ── ended ───────────▶ the kept answer, with the id of the repeat
                                                       ── runs here ───────▶ one more connection waits for the call
                                                       ── runs elsewhere ──▶ forwarded to that replica (`forwarding.py`)

The digest is that of method and params without `_meta`: the id, the progress token and the trace may differ. A retry
that continues a parked call needs no claim: its `requestState` names one round, whose outcome is kept
(`sessionless.py`). A request with `inputResponses`, or with a state that an author made by hand, starts a handler; its
answers are part of the id.

Why a call runs once. The claim comes before the start, and one step of the store decides it. The id is in use while the
call runs, and its answer is kept for KEPT_SECONDS after its end, also if a client has taken it. If the replica dies,
the sweep of another one ends the exchange with −31002, which is kept in the same way. A call that certainly did not run
(refused as busy, or its client left before the start) gives the claim back.

Why a broken connection does not cancel it at once. `SessionlessCalls.abandon` lets the call run on for `Times.repeat`;
a repeat that comes meanwhile becomes its connection. Without one it is cancelled, and that is the answer that is kept.
`notifications/cancelled` with the key cancels it at once.

The end is stored after the answer has left: a process that dies in between leaves −31002 for the repeat, and no second
run. A repeat that arrives in between finds the call in `_calls`.

Hidden sessions. There are BUCKETS for each principal, so that calls at once do not change one record. Their principal
is no client's, so they take no place among its sessions. A hidden session keeps at most `Limits.finished_streams`
answers in `Limits.session_bytes`; beyond that the oldest are forgotten. It closes when it was not used for
KEPT_SECONDS.
"""

import asyncio
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from limpet.core.exchange import ExchangeState
from limpet.core.records import KEPT_SECONDS
from limpet.engine.caller import Caller
from limpet.engine.claims import Claims
from limpet.engine.exchange import Exchange
from limpet.engine.forwarding import Forwarding
from limpet.engine.outages import retried
from limpet.engine.outcome import Outcome
from limpet.engine.reader import Reader
from limpet.engine.readers import Readers
from limpet.engine.rounds import ResponseWaiter, RoundWriter
from limpet.engine.runtime import Runtime
from limpet.engine.session import HIDDEN
from limpet.engine.sessionless import SessionlessCalls, canonical, request_digest
from limpet.engine.sessionless_client import SessionlessClient
from limpet.errors import (
    Busy,
    Cancelled,
    KeyReused,
    McpError,
    OutcomeUnknown,
    ParkedElsewhere,
    ParkedGone,
    SessionGone,
    StoreError,
)
from limpet.protocol.idempotency import KEY
from limpet.protocol.sessionless import SUSPENDABLE, RequestMeta
from limpet.protocol.versions import LATEST
from limpet.stores.base import Claim, Claimed, Duplicate, Refusal, SessionRecord
from limpet.wire.jsonrpc import Request

BUCKETS: Final = 16
_LASTING: Final = 1e9
"""The lifetime of a hidden session: it closes when it is not used."""
_PAUSE_SECONDS: Final = 0.1
"""The pause before a claim is made again: the replica that has claimed the call is about to start it, has just ended
it, or is dead and not declared so."""
_ANY: Final = b""
"""The digest of every claim. In a session another request frees the id of an answer that is kept; here it is refused
(`_check_same`)."""
_STARTS_WITH: Final = ("inputResponses", "requestState")


class _Call(Struct, eq=False, frozen=True):
    """A call of this process whose key is claimed."""

    exchange: Exchange
    writer: RoundWriter
    claim: Claim
    fence: int


class _StoredError(Struct):
    code: int
    message: str
    data: Any = None


class _Terminal(Struct):
    """A kept answer."""

    result: msgspec.Raw = msgspec.Raw(b"")
    error: _StoredError | None = None


class IdempotentCalls:
    """Starts calls that have a key, and answers their repeats."""

    def __init__(
        self,
        runtime: Runtime,
        calls: SessionlessCalls,
        claims: Claims,
        readers: Readers,
        forwarding: Forwarding,
    ) -> None:
        self._runtime = runtime
        self._readers = readers
        self._sessionless = calls
        self._claims = claims
        self._forward = forwarding.forward
        forwarding.begin_here = self.here
        self._calls: dict[tuple[str, str], _Call] = {}
        """By hidden session and id: the calls of this process, until their first answer is stored."""

    async def begin(self, meta: RequestMeta, caller: Caller, request: Request) -> ResponseWaiter | Reader:
        """Start the call of a request that has a key, or attach to it; a reader if another replica has it.

        Raises:
            KeyReused: the key was used for another request.
            OutcomeUnknown: the replica that had the call does not answer.
            ParkedGone, InvalidParams, InsufficientScope, Stopping, Busy: as `SessionlessCalls`.
            StoreUnavailable: nothing was started.
        """
        deadline = self._deadline()
        while True:
            try:
                return await self.here(meta, caller, request)
            except ParkedElsewhere as elsewhere:
                replica = elsewhere.replica
            try:
                return await self._forward(replica, caller, with_key(request, meta.key))
            except ParkedGone:
                if "requestState" in request.params:
                    raise
            await self._pause(deadline)

    async def here(self, meta: RequestMeta, caller: Caller, request: Request) -> ResponseWaiter:
        """Do the same in this process.

        Raises:
            ParkedElsewhere: another replica has the call.
        """
        calls, params = self._sessionless, request.params
        if "requestState" in params and not calls.starts_again(request, caller):
            waiter = calls.go_on(meta, caller, request)
            calls.hold(waiter.exchange)
            return waiter
        key = str(meta.key)
        session, claim_id = hidden_session(caller, key), _id_of(key, params)
        digest = request_digest(request)
        if self._runtime.access.judge(request, caller) is None:
            # Hidden from this caller, who gets neither the answer nor the call of one who sees it.
            digest = sha256(b"hidden" + digest).digest()
        claim, deadline = Claim(claim_id, self._stream_name(digest), _ANY), self._deadline()
        while True:
            running = self._calls.get((session, claim_id))
            if running is not None:
                return self._attached(running, claim, meta, caller, request)
            claimed = await self._claim(session, caller, claim)
            if isinstance(claimed, Claimed):
                return await self._start(session, claim, claimed.fence, meta, caller, request)
            found = await self._repeat(session, claim, claimed, meta, caller, request)
            if found is not None:
                return found
            await self._pause(deadline)

    def _deadline(self) -> float:
        """Return when a replica that does not answer must have lost its lease, and its calls their outcome."""
        times = self._runtime.settings.times
        return self._runtime.clock.now() + times.loop_patience + 2 * times.lease + times.sweep

    async def _pause(self, deadline: float) -> None:
        """Wait before a claim is made again."""
        if self._runtime.clock.now() > deadline:
            raise OutcomeUnknown
        await asyncio.sleep(_PAUSE_SECONDS)

    def _stream_name(self, digest: bytes) -> str:
        """Return a name for the stream of a call.

        A repeat reads there which replica has the call, and for which request.
        """
        return f"{self._runtime.store.replica}.{digest.hex()}.{self._runtime.random.token(12)}"

    # Claims

    async def _claim(self, session: str, caller: Caller, claim: Claim) -> Claimed | Duplicate:
        owner = replace(caller, key=_owner(caller))
        while (claimed := await self._claims.attempt(session, owner, claim)) is Refusal.NO_SESSION:
            await self._open(session, caller)
        if isinstance(claimed, Refusal):
            raise (
                self._claims.withdrawn(session)
                if claimed is Refusal.WITHDRAWN
                else Busy(
                    "Busy: too many calls with idempotency keys are running, or were answered in the last minutes; try again shortly"
                )
            )
        return claimed

    async def _open(self, session: str, caller: Caller) -> None:
        runtime = self._runtime
        record = SessionRecord(
            key=session,
            principal=_owner(caller),
            version=LATEST.name,
            standalone=runtime.random.token(12),
            client={},
            capabilities={},
            grace=KEPT_SECONDS,
            idle=KEPT_SECONDS,
            lifetime=_LASTING,
            opened=runtime.clock.wall(),
        )
        if isinstance(await runtime.store.open(record, evict=False), Refusal):
            raise Busy("Busy: the store has no room for idempotency keys; try again later", retry_after=30)
        if runtime.at_once is not None:
            runtime.at_once.charge_to(session, runtime.load.account(caller.key, session))

    async def _start(
        self, session: str, claim: Claim, fence: int, meta: RequestMeta, caller: Caller, request: Request
    ) -> ResponseWaiter:
        """Start the call of a claim; give the claim back if it does not start."""
        place = session, str(claim.id)
        if (running := self._calls.get(place)) is not None:
            # The store has lost this claim, and has given the key to a repeat of the request.
            return self._attached(running, claim, meta, caller, request)
        store = self._runtime.store
        try:
            self._check_awaited(session, caller)
            begin = self._sessionless.go_on if "requestState" in request.params else self._sessionless.start
            waiter = begin(meta, caller, request)
        except BaseException:
            give_back = store.give_back
            await self._runtime.write_eventually(lambda: give_back(session, claim.stream, fence))
            raise
        call = _Call(waiter.exchange, waiter.writer, claim, fence)
        self._calls[place] = call
        self._sessionless.hold(call.exchange, place)
        call.writer.on_outcome = lambda: self._store_soon(session, call)
        return waiter

    def _check_awaited(self, session: str, caller: Caller) -> None:
        """Check that a connection waits for the answer (law 12)."""
        if caller.waiter is not None and caller.waiter.gone:
            raise self._claims.withdrawn(session)

    # Ends

    def _store_soon(self, session: str, call: _Call) -> None:
        self._runtime.spawn(self._store(session, call, call.writer.outcomes[0]))

    async def _store(self, session: str, call: _Call, outcome: Outcome) -> None:
        """Store the answer of a call under its key; a call that was refused as busy did not run, and frees the key."""
        store, stream, fence = self._runtime.store, call.claim.stream, call.fence
        place = session, str(call.claim.id)
        tag = self._runtime.random.tag()
        terminal = None if isinstance(outcome.error, Busy) else outcome.message(call.claim.id)
        try:
            await retried(lambda: store.settle(session, stream, fence, terminal, tag=tag, keep=True))
            # Its place as a reader, without a position: the answer stays kept.
            await retried(lambda: store.detach(session, stream, 0, None, broke=False))
        except (StoreError, SessionGone) as error:
            # Another replica has ended it, because it declared this one dead.
            self._runtime.observer.note("exchange.fenced", session=session[:8], error=error)
        finally:
            if self._calls.get(place) is call:
                del self._calls[place]

    # Repeats

    def _attached(
        self, call: _Call, claim: Claim, meta: RequestMeta, caller: Caller, request: Request
    ) -> ResponseWaiter:
        """Let one more connection wait for a call.

        From now on its messages go there, with the token of this request.
        """
        _check_same(call.claim.stream, claim.stream)
        self._note(claim)
        if not call.writer.outcomes:
            self._sessionless.adopt(call.exchange, meta, caller, request)
        return call.writer.add_waiter(call.exchange, 0, request.id)

    async def _repeat(
        self, session: str, claim: Claim, earlier: Duplicate, meta: RequestMeta, caller: Caller, request: Request
    ) -> ResponseWaiter | None:  # fmt: skip
        """Return the answer of the call that has the key. None: make the claim again.

        The answer was forgotten meanwhile; or this replica has claimed the call and not started it, or has died with
        it.
        """
        _check_same(earlier.stream, claim.stream)
        if not earlier.finished:
            replica = earlier.stream.rsplit(".", 2)[0]
            if replica == self._runtime.store.replica:
                return None
            raise ParkedElsewhere(replica)
        outcome = await self._find_kept(session, earlier.stream, _owner(caller))
        if outcome is None:
            return None
        self._note(claim)
        writer = RoundWriter(_never, 0, 0, False, {}, {0: outcome})  # noqa: FBT003
        client = SessionlessClient(meta, caller.key, self._runtime.settings.limits)
        store = self._runtime.store
        exchange = Exchange("", client, request, request, caller, writer, store, ExchangeState.SETTLED)
        return writer.add_waiter(exchange, 0, request.id)

    async def _find_kept(self, session: str, stream: str, principal: str) -> Outcome | None:
        message = await self._readers.read_end(session, principal, stream)
        if message is None:
            return None
        terminal = msgspec.json.decode(message, type=_Terminal)
        if terminal.error is None:
            return Outcome(bytes(terminal.result))
        error = terminal.error
        return Outcome(error=McpError(error.code, error.message, error.data))

    def _note(self, claim: Claim) -> None:
        self._runtime.observer.note("exchange.repeated", session="sessionless", stream=claim.stream)

    # Cancellation

    async def cancel(self, caller: Caller, key: str) -> None:
        """Cancel the call that has a key, at any replica. Nothing happens if none runs."""
        session = hidden_session(caller, key)
        exchange = self._sessionless.held_by((session, key))
        if exchange is not None:
            await self._sessionless.end(exchange, Cancelled("by the client"))
        else:
            await self._runtime.store.cancel(session, _owner(caller), key)

    def cancelled(self, session: str, stream: str) -> None:
        """Cancel a call of this process: its client has sent the cancellation to another replica."""
        for (place, _), call in self._calls.items():
            if place == session and call.claim.stream == stream:
                self._runtime.spawn(self._sessionless.end(call.exchange, Cancelled("by the client")))


def has_key(meta: RequestMeta, request: Request) -> bool:
    """Return True if a request has a key that counts: other methods have no effect, or one of their own."""
    return meta.key is not None and request.method in SUSPENDABLE


def hidden_session(caller: Caller, key: str) -> str:
    """Return the hidden session of a principal's key."""
    bucket = sha256(key.encode()).digest()[0] % BUCKETS
    return HIDDEN + sha256(f"{caller.key} {bucket}".encode()).hexdigest()


def _check_same(first: str, repeat: str) -> None:
    """Compare the digests in the names of two streams.

    Raises:
        KeyReused: they differ.
    """
    if first.rsplit(".", 2)[1] != repeat.rsplit(".", 2)[1]:
        raise KeyReused


def _owner(caller: Caller) -> str:
    """Return the principal of hidden sessions. No key of a principal has a space."""
    return f"keys {caller.key}"


def _id_of(key: str, params: dict[str, Any]) -> str:
    """Return the id of a call in its hidden session; of a request with answers, they are part of it.

    A key has no space.
    """
    given = {name: params[name] for name in _STARTS_WITH if name in params}
    return f"{key} {sha256(canonical(given)).hexdigest()}" if given else key


def with_key(request: Request, key: str | None) -> Request:
    """Return a request that has its key in `_meta`: the replica that it is forwarded to reads it there."""
    params = request.params
    if key is None:
        return request
    return Request(request.id, request.method, {**params, "_meta": {**params["_meta"], KEY: key}})


def _never(_writer: RoundWriter, _number: int, _asked: object) -> bytes:
    raise AssertionError("a kept answer has no further round")
