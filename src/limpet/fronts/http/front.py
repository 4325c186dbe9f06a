"""Streamable HTTP: one front, for the sockets of `limpet serve` and for ASGI hosts.

For each request: check the head, decode the body once, ask the engine; then send one answer, or write a stream. The end
of an HTTP request ends no session and, in a session, no call (law 6).
"""

import asyncio
from collections.abc import Mapping
from contextvars import Context
from functools import partial
from typing import Final

from limpet.auth import Principal, Verifier
from limpet.config import HttpSettings, ResponseMode
from limpet.core.eras import has_sessions
from limpet.core.ledger import Account
from limpet.core.lifecycle import SessionInput
from limpet.engine.audit import JOINED, Reason
from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.engine.load import LARGE
from limpet.engine.reader import End
from limpet.engine.session import parse_event_id
from limpet.engine.sessions import ANONYMOUS, session_key
from limpet.errors import (
    InsufficientScope,
    LimpetError,
    SessionGone,
    TooMuchWork,
    Unresumable,
    Withdrawn,
)
from limpet.fronts.http.asgi_host.asgi_channel import AsgiChannel, lifespan, request_of
from limpet.fronts.http.decide.author_routes import CustomRoutes, RouteApplication
from limpet.fronts.http.decide.health import LIVE, READY, health
from limpet.fronts.http.decide.host_and_origin import HeadRules, check_version, cors_headers, preflight
from limpet.fronts.http.decide.identity import Identities
from limpet.fronts.http.decide.protection import Protection
from limpet.fronts.http.decide.rates import Found, awaited, rated
from limpet.fronts.http.decide.session_posts import Posts
from limpet.fronts.http.decide.session_streams import Streamer
from limpet.fronts.http.decide.sessionless_posts import SessionlessPosts
from limpet.fronts.http.decide.started_call import StartedCall, Unfinished, finish
from limpet.fronts.http.read.addresses import LOCAL, Addresses, counted, is_forwarded
from limpet.fronts.http.read.body import BadBody, read_body, too_large
from limpet.fronts.http.read.head import Head
from limpet.fronts.http.read.request import Channel, Gone, RawRequest, Receive, Scope, Send
from limpet.fronts.http.write.answer import (
    NO_CONTENT,
    Answer,
    joined,
    not_allowed,
    refusal_for,
    refuse,
    refused_unstarted,
)
from limpet.fronts.http.write.response import WaitingResponse
from limpet.protocol.sessionless import VERSION, declared_version
from limpet.protocol.versions import REVISIONS
from limpet.wire.jsonrpc import BATCH, Message, Notification, Request, RequestId, decode
from limpet.wire.shape import SHORT

_NOT_FROM_HERE: Final = refuse(
    403,
    "Forbidden: anonymous clients are served from this machine only; set a verifier or allow_anonymous",
    audit="anonymous",
)
_NOT_FROM_KNOWN_PROXY: Final = refuse(
    403,
    "Forbidden: a proxy has forwarded this request, and anonymous clients are served from this machine only; name the proxy with "
    "trusted_proxies (--trusted-proxies), or set a verifier or allow_anonymous",
    audit="anonymous",
)
_ONE_REQUEST: Final = refuse(
    400, "Bad request: in protocol 2026-07-28 a POST is one request or one notification"
)


STORMS: Final = frozenset({"token", "scope", "anonymous", "origin"})
"""Reasons of refusals (401, 403) that have a rate for each address."""


class HttpFront:
    """One endpoint. Several may share an engine; each starts it on first use and honours lifespan."""

    def __init__(
        self,
        engine: Engine,
        settings: HttpSettings = HttpSettings(),
        *,
        verifier: Verifier | None = None,
        routes: Mapping[str, RouteApplication] | None = None,
    ) -> None:
        self.engine = self._engine = engine
        self.settings: HttpSettings = settings
        self._limits, self._load = engine.settings.limits, engine.load
        self.path: str = settings.path.rstrip("/") or "/"
        self._rules = HeadRules(settings)
        self.is_verified: bool = verifier is not None
        """True if a request needs a valid token."""
        self._protection = Protection(settings, verifier, engine.access)
        self._addresses = Addresses(settings.trusted_proxies)
        self._identity = (
            Identities(verifier, engine, self._protection, self._addresses) if verifier is not None else None
        )
        self._open = True if verifier is not None else settings.allow_anonymous
        """Whether requests from every address are served. None: only those from this machine."""
        self._has_warned = False
        self._is_waking = engine.pulse.is_waking
        self._rates = engine.rates
        self._digest = engine.exchanges.claims.digest
        self._routes = dict(routes or {})
        self._beside = CustomRoutes(engine, self._identity, self._protection)
        self.paths: tuple[str, ...] = (self.path, *self._routes, *self._protection.own_paths)
        """The paths that this front answers, besides those of the probes."""
        self._sessions = has_sessions(engine.settings)
        self._methods = _methods(settings.response, stateless=engine.settings.stateless or not self._sessions)
        self._streamer = Streamer(engine, settings.response)
        self._posts = Posts(engine, self._streamer)
        self._sessionless = SessionlessPosts(
            engine,
            self._streamer.form,
            serves_strangers=verifier is None and settings.serves_strangers,
        )

    @property
    def trouble(self) -> str:
        """The authorization server that cannot be asked; empty if tokens can be checked."""
        return self._identity.trouble if self._identity is not None else ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "http":
            await finish(self.serve(request_of(scope), AsgiChannel(scope, receive, send)))
        elif scope["type"] == "lifespan":
            await lifespan(self._engine, receive, send)
        else:
            raise RuntimeError(f"limpet serves HTTP, not {scope['type']}")

    def serve(self, request: RawRequest, channel: Channel) -> Unfinished:
        """Serve one HTTP request as far as possible without waiting; return the rest."""
        if request.path != self.path:
            path = request.path.rstrip("/") or "/"
            if path != self.path:
                return self._elsewhere(path, request, channel)
        if not self._engine.started:
            return self._serve_first(request, channel)
        response = WaitingResponse(request, channel, self)
        if request.has_origin and self._rules.origin_allowed(origin := request.head.text(b"origin")):
            # The page may also read a refusal.
            response.allow_origin(cors_headers(origin))
        try:
            if request.passed is not self and (refused := self._check(request)) is not None:
                found: Found = refused
            elif self._identity is not None:
                found = self._identified(self._identity, request, response)
            else:
                found = self._admit(request, None, response)
        except (LimpetError, BadBody, Gone) as error:
            found = response.failed(error)
        if found is None or isinstance(found, StartedCall):
            return found
        if not isinstance(found, Answer):
            return response.conclude(found)
        answer = response.reported(found)
        return None if response.answer_nowait(answer) else response.answer(answer)

    async def _serve_first(self, request: RawRequest, channel: Channel) -> None:
        """Start the engine, then serve a request."""
        await self._engine.ensure_started(Context())
        await finish(self.serve(request, channel))

    # Used by connections for their refusals

    def refusal(self, error: LimpetError, head: Head) -> Answer:
        """Return the answer to a request that ended with this error."""
        if isinstance(error, InsufficientScope):
            return self._protection.forbidden(head, error)
        return refusal_for(error)

    def reported(self, answer: Answer, response: WaitingResponse) -> Answer:
        """Report a refusal and return it; or, if too many requests of its address were refused, return 429."""
        request, address = response.request, self._addresses.of(response.request)
        if answer.audit in STORMS and (over := self._rates.refused(counted(address))) is not None:
            answer = refused_unstarted(over)
        if answer.audit is None:
            return answer
        if answer.audit == "store":
            self._engine.readiness.doubt()
        has_session = (answer.audit == "session" or answer.audit in JOINED) and request.session_id
        session = session_key(request.session_id) if has_session else ""
        audit, principal = self._engine.audit, _owner(response.principal)
        correlation = audit.refused(answer.audit, address, principal, session)
        return joined(answer, correlation) if correlation else answer

    def address(self, request: RawRequest) -> str:
        """Return the address of a client, as limits count it."""
        return counted(self._addresses.of(request))

    def account(self, request: RawRequest, principal: Principal | None) -> Account:
        """Return the account of a request: of its session, and so of its principal; of its address if it has none."""
        account = request.account
        if account is None:
            who = self.address(request) if principal is None else principal.key
            account = request.account = self._load.account(who, request.session_id)
        return account

    def refused(self, reason: Reason, address: str | None) -> None:
        """Report a connection or request that was refused before its head could be read."""
        self._engine.audit.refused(reason, address or LOCAL)

    async def _elsewhere(self, path: str, request: RawRequest, channel: Channel) -> None:
        """Answer a request for another path: a probe.

        Or check Host and Origin, then an author's route or the metadata.
        """
        # A route has one spelling, as the rules for its path in a proxy do.
        route = self._routes.get(request.path or "/")
        response = WaitingResponse(request, channel, self)
        if route is None and path in {LIVE, READY}:
            await response.answer(await health(self._engine, path, self.trouble))
            return
        refused = None if getattr(route, "is_open", False) else self._rules.check("", request.head)
        if refused is None and route is not None:
            admitted = await self._beside.admit(route, response)
            if isinstance(admitted, Answer):
                await response.refuse(admitted)
            else:
                await self._beside.run(route, admitted, channel, response)
        elif refused is None and path in self._protection.paths:
            await response.answer(self._protection.answer(request.method, request.head))
        else:
            missing = refuse(404, f"Not found: the endpoint is {self.path}")
            await response.refuse(refused or missing)

    # Steps that need not wait are plain functions: a coroutine, and the task that runs it, would cost a fifth of a
    # plain call.

    def _identified(self, identity: Identities, request: RawRequest, response: WaitingResponse) -> Found:
        """Check the token, then answer."""
        known = response.principal = identity.remembered(request)
        if known is None:
            return self._identify(identity, request, response)
        return self._admit(request, known, response)

    async def _identify(
        self, identity: Identities, request: RawRequest, response: WaitingResponse
    ) -> Answer | None:
        response.is_doubtful = self._is_waking()
        found = await identity.of(request)
        if isinstance(found, Answer):
            return found
        response.principal = found
        admitted = self._admit(request, found, response)
        response.pay()
        return await awaited(admitted)

    def _admit(self, request: RawRequest, principal: Principal | None, response: WaitingResponse) -> Found:
        """Answer a client that may use this endpoint."""
        head, limits = request.head, self._limits
        if request.method != "POST":
            return self._on_session(request, principal, response)
        body = response.channel.take_body()
        if body is None:
            return self._charge_first(body, request, principal, response)
        size, ledger, charge = len(body), self._load.ledger, None
        if size > limits.body:
            raise too_large(limits.body)
        if size <= SHORT and ledger.charged < ledger.plenty:
            response.unpaid = size
        elif (
            size >= LARGE
            or not self._load.decoding.take(size)
            or (charge := self.account(request, principal).take(self._load.cost(body))) is None
        ):
            return self._charge_first(body, request, principal, response)
        message = decode(body, max_depth=limits.depth, max_values=limits.values, max_batch=BATCH)
        key = ANONYMOUS if principal is None else principal.key
        caller = Caller(key, principal, head, charge, response, request.account)
        if response.is_doubtful or self._is_waking():
            return self._if_present(message, body, caller, response)
        return self._post(message, body, caller, response)

    async def _charge_first(
        self,
        body: bytes | None,
        request: RawRequest,
        principal: Principal | None,
        response: WaitingResponse,
    ) -> Answer | None:
        """Answer a message that is not short, has not arrived, or has no room: charge it before it is decoded."""
        limits, owner, head = self._limits, _owner(principal), request.head
        account = self.account(request, principal)
        intake = self._load.intake(account)
        try:
            if body is None:
                length = head.text(b"content-length")
                seconds = limits.body_seconds
                body = await read_body(response.channel, limits.body, seconds, length, intake.read)
            charge = await intake.charge_in_turn(body)
        except TooMuchWork as busy:
            return refused_unstarted(busy)
        message = decode(body, max_depth=limits.depth, max_values=limits.values, max_batch=BATCH)
        if not intake.may_pass(message):
            return refused_unstarted(TooMuchWork(), message.id if isinstance(message, Request) else None)
        caller = Caller(owner, principal, head, charge, response, account)
        return await self._if_present(message, body, caller, response)

    def _check(self, request: RawRequest) -> Answer | None:
        """Return the refusal of a head.

        A head that passes is remembered: its connection may send the same one again.
        """
        refused = self._rules.check(request.method, request.head) or self._refused(request)
        if refused is None:
            request.passed = self
        return refused

    def _refused(self, request: RawRequest) -> Answer | None:
        """Refuse a method that the endpoint does not have, and a client that it does not serve."""
        if request.method not in self._methods:
            allowed = ", ".join(self._methods)
            is_preflight = request.method == "OPTIONS" and request.has_origin
            return preflight(allowed) if is_preflight else not_allowed(allowed)
        if self._open if self._open is not None else self._addresses.is_local(request):
            return None
        if not is_forwarded(request):
            return _NOT_FROM_HERE
        self._warn_of_proxy(request)
        return _NOT_FROM_KNOWN_PROXY

    def _warn_of_proxy(self, request: RawRequest) -> None:
        """Say once that a proxy is not trusted: without it every client behind a local proxy would look local."""
        if not self._has_warned:
            self._has_warned = True
            self._engine.observer.note(
                "proxy.untrusted", address=request.client or LOCAL, option="--trusted-proxies"
            )

    async def _on_session(
        self, request: RawRequest, principal: Principal | None, response: WaitingResponse
    ) -> Answer | None:
        if request.version == VERSION:
            return not_allowed("POST")
        if not request.session_id:
            return _no_session_id()
        if (refused := check_version(request.version)) is not None:
            return refused
        key = session_key(request.session_id)
        if request.method == "GET":
            return await self._get(key, request.head.text(b"last-event-id"), principal, response)
        return await self._delete(key, principal, response)

    async def _if_present(
        self, message: Message | list[Message], body: bytes, caller: Caller, response: WaitingResponse
    ) -> Answer | None:
        """Answer a message. A request whose client has left is not answered."""
        if isinstance(message, Request | list) and (response.is_doubtful or self._is_waking()):
            await response.look()
            if response.gone:
                # It was sent while this process could not run, and another replica may have answered its client.
                self._engine.observer.note("request.dropped")
                request_id = message.id if isinstance(message, Request) else None
                return refused_unstarted(Withdrawn(), request_id) if response.is_half_closed else None
        return await awaited(self._post(message, body, caller, response))

    def _post(
        self,
        message: Message | list[Message],
        body: bytes,
        caller: Caller,
        response: WaitingResponse,
        *,
        is_rated: bool = False,
    ) -> Found:
        """Choose the era of a message: one with its own metadata is sessionless, others belong to a session."""
        if self._engine.drained and isinstance(message, Request | list):
            return refused_unstarted(
                self._engine.stopping(), message.id if isinstance(message, Request) else None
            )
        if self._rates.is_on and not is_rated:
            serve = partial(self._post, body=body, caller=caller, response=response, is_rated=True)
            return rated(self._rates, message, caller, response, serve)
        head = response.request
        if type(message) is not Request:
            if head.version == VERSION:
                # This revision has no responses over HTTP.
                if not isinstance(message, Notification):
                    return _ONE_REQUEST
                return self._sessionless.cancel(message, head.head, caller)
            return self._in_session(message, body, head, caller, response)
        # Few messages of a session have metadata.
        declared = declared_version(message.params) if "_meta" in message.params else None
        # An initialize with its own metadata is a method that 2026-07-28 does not have.
        if message.method == "initialize" and declared is None:
            return self._posts.initialize(message, head.session_id, caller)
        if declared is not None or head.version == VERSION or not self._sessions:
            return self._sessionless.request(message, head.head, caller, response)
        return self._in_session(message, body, head, caller, response)

    def _in_session(
        self,
        message: Message | list[Message],
        body: bytes,
        head: RawRequest,
        caller: Caller,
        response: WaitingResponse,
    ) -> Found:
        """Answer a message of the era with sessions."""
        request_id = message.id if type(message) is Request else None
        if head.version not in REVISIONS and (refused := check_version(head.version, request_id)) is not None:
            return refused
        if self._engine.settings.stateless:
            return self._posts.stateless(message, head.version, caller, response)
        if not head.session_id:
            return _no_session_id(request_id)
        key = session_key(head.session_id)
        if isinstance(message, Request):
            return self._posts.request(key, caller, message, self._digest(body), response)
        if isinstance(message, list):
            return self._posts.batch(key, caller, message, response)
        return self._posts.control(key, caller, message)

    async def _get(
        self, key: str, last_event_id: str, principal: Principal | None, response: WaitingResponse
    ) -> Answer | None:
        if self._engine.drained:
            raise self._engine.stopping()
        stream, cursor = None, None
        if last_event_id:
            parsed = parse_event_id(last_event_id)
            if parsed is None:
                # A session of another principal must give the same answer, also if the request has another fault.
                await self._engine.check_session(key, _owner(principal))
                raise Unresumable
            stream, cursor = parsed
            if self._engine.access.rules is not None:
                await self._check_stream(key, stream, principal)
        readers = self._engine.readers
        reader = await readers.attach(key, _owner(principal), stream, cursor)
        reader.caller = Caller(_owner(principal), principal, response.request.head)
        try:
            if reader.end is End.FINISHED:
                # After an empty stream the official TypeScript client 1.x reconnects forever. With 204 a server of
                # events says that there are no more.
                return NO_CONTENT
            await self._streamer.pump(reader, response, principal)
        except BaseException:
            reader.stop(End.BROKE)
            raise
        finally:
            await readers.detach(reader)
        return None

    async def _check_stream(self, key: str, stream: str, principal: Principal | None) -> None:
        """Refuse to resume the stream of a call whose scopes the token lacks."""
        access, caller = self._engine.access, Caller(_owner(principal), principal)
        scopes = access.marked(stream, caller)
        if scopes is None or access.missing(scopes, caller):
            # A session of another principal must give the same answer, also if the request has another fault.
            await self._engine.check_session(key, caller.key)
            if scopes is None:
                raise Unresumable
            access.demand(scopes, caller)

    async def _delete(self, key: str, principal: Principal | None, response: WaitingResponse) -> Answer:
        session = await self._engine.sessions.find(key, _owner(principal))
        # Run it to its end even if this request is cancelled: the listeners of a closed session must be called.
        closing = self._engine.begin(self._engine.sessions.close(session, SessionInput.DELETED))
        if not await asyncio.shield(closing):
            raise SessionGone
        address = self._addresses.of(response.request)
        self._engine.audit.done("session_deleted", address, _owner(principal), key)
        return NO_CONTENT


def _methods(response: ResponseMode, *, stateless: bool) -> tuple[str, ...]:
    """Return the HTTP methods of the endpoint. DELETE needs sessions, GET needs sessions and streams."""
    if stateless:
        return ("POST",)
    return ("POST", "DELETE") if response == "json" else ("GET", "POST", "DELETE")


def _no_session_id(request_id: RequestId | None = None) -> Answer:
    return refuse(
        400, "Bad request: the Mcp-Session-Id header is missing; initialize first", request_id=request_id
    )


def _owner(principal: Principal | None) -> str:
    return principal.key if principal is not None else ANONYMOUS
