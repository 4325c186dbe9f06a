"""Streamable HTTP as a bare ASGI application.

Decide, then act: the head is checked, the body decoded once, the engine asked; then one
answer is sent, or a reader is pumped. A request that ends here ends nothing but itself.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from holdfast.auth import Principal, Verifier
from holdfast.config import HttpSettings
from holdfast.core.lifecycle import Input
from holdfast.engine.engine import Engine
from holdfast.engine.exchange import Caller
from holdfast.engine.readers import Unresumable
from holdfast.engine.session import parse_event_id
from holdfast.engine.sessions import ANONYMOUS, session_key
from holdfast.errors import HoldfastError, SessionGone
from holdfast.fronts.http.answer import NO_CONTENT, Answer, not_allowed, refusal_for, refuse
from holdfast.fronts.http.connection import BadBody, Connection, Gone, Receive, Scope, Send
from holdfast.fronts.http.cors import cors_headers, preflight
from holdfast.fronts.http.head import Head, Headers, HeadRules
from holdfast.fronts.http.posts import Posts
from holdfast.fronts.http.streams import Streamer
from holdfast.wire.jsonrpc import Request, decode

Application = Callable[[Scope, Receive, Send], Awaitable[None]]
_METHODS: Final = "GET, POST, DELETE"
_LOOPBACK_CLIENTS: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class HttpFront:
    """One endpoint. Several may share an engine; each starts it on first use and honours lifespan."""

    def __init__(
        self,
        engine: Engine,
        settings: HttpSettings = HttpSettings(),
        *,
        verifier: Verifier | None = None,
        routes: Mapping[str, Application] | None = None,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._limits = engine.settings.limits
        self._path = settings.path.rstrip("/") or "/"
        self._rules = HeadRules(settings)
        self._verifier = verifier
        self._routes = routes or {}
        self._streamer = Streamer(engine)
        self._posts = Posts(engine, settings, self._streamer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            raise RuntimeError(f"holdfast serves HTTP, not {scope['type']}")

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._engine.ensure_started()
        except Exception as error:  # noqa: BLE001 - reported to the server, which logs it and stops
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._engine.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = _path(scope)
        if path != self._path:
            await self._elsewhere(path, scope, receive, send)
            return
        if not self._engine.started:
            await self._engine.ensure_started()
        connection = Connection(scope, receive, send)
        head = Head(scope["headers"])
        try:
            answer = self._rules.check(head)
            if answer is None:
                answer = await self._dispatch(scope["method"], head, connection)
            if answer is not None:
                await connection.answer(answer)
        except BadBody as bad:
            await connection.answer(bad.answer)
        except HoldfastError as error:
            await connection.answer(refusal_for(error))
        except Gone:
            pass
        finally:
            connection.close()

    async def _elsewhere(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get(path)
        if route is not None:
            await route(scope, receive, send)
        else:
            await Connection(scope, receive, send).answer(
                refuse(404, f"Not found: the endpoint is {self._path}")
            )

    async def _dispatch(self, method: str, head: Head, connection: Connection) -> Answer | None:
        if head.origin:
            if method == "OPTIONS":
                return preflight(head.origin)
            connection.allow_origin(cors_headers(head.origin))
        if method not in {"POST", "GET", "DELETE"}:
            return not_allowed(_METHODS)
        principal = await self._principal(head, connection)
        if isinstance(principal, Answer):
            return principal
        if method == "POST":
            return await self._post(head, principal, connection)
        if self._engine.settings.stateless or (method == "GET" and self._settings.response == "json"):
            return not_allowed("POST" if self._engine.settings.stateless else "POST, DELETE")
        refused = self._rules.check_version(head)
        if refused is not None:
            return refused
        if not head.session_id:
            return refuse(400, "Bad request: the Mcp-Session-Id header is missing; initialize first")
        if method == "GET":
            return await self._get(head, principal, connection)
        return await self._delete(head, principal)

    async def _principal(self, head: Head, connection: Connection) -> Principal | Answer | None:
        """Return who sends this, None for anonymous, or the refusal."""
        if self._verifier is None:
            return (
                None
                if self._anonymous_allowed(connection.scope)
                else refuse(
                    403,
                    "Forbidden: anonymous clients are served from this machine only; set a verifier or allow_anonymous",
                )
            )
        scheme, _, token = head.authorization.partition(" ")
        principal = await self._verifier(token.strip()) if scheme.lower() == "bearer" and token else None
        if principal is None:
            challenge = b'Bearer error="invalid_token"' if head.authorization else b"Bearer"
            return refuse(
                401, "Unauthorized: a valid bearer token is needed", extra=((b"www-authenticate", challenge),)
            )
        return principal

    def _anonymous_allowed(self, scope: Scope) -> bool:
        if self._settings.allow_anonymous is not None:
            return self._settings.allow_anonymous
        client = scope.get("client")
        return client is None or client[0] in _LOOPBACK_CLIENTS

    # POST

    async def _post(self, head: Head, principal: Principal | None, connection: Connection) -> Answer | None:
        refused = self._rules.check_post(head)
        if refused is not None:
            return refused
        limits = self._limits
        if head.content_length.isdecimal() and int(head.content_length[:12]) > limits.body:
            return refuse(413, f"Content too large: a message is at most {limits.body} bytes")
        body = await connection.body(limits.body, limits.body_seconds)
        message = decode(body, max_depth=limits.depth)
        caller = Caller(_owner(principal), principal, Headers(connection.scope["headers"]))
        if isinstance(message, Request) and message.method == "initialize":
            return await self._posts.initialize(message, head, caller)
        refused = self._rules.check_version(head)
        if refused is not None:
            return refused
        if self._engine.settings.stateless:
            return await self._posts.stateless(message, head, caller, connection)
        if not head.session_id:
            return refuse(400, "Bad request: the Mcp-Session-Id header is missing; initialize first")
        key = session_key(head.session_id)
        if isinstance(message, Request):
            return await self._posts.request(key, caller, message, hashlib.sha256(body).digest(), connection)
        if isinstance(message, list):
            return await self._posts.batch(key, caller, message, connection)
        return await self._posts.control(key, caller.key, message)

    # GET and DELETE

    async def _get(self, head: Head, principal: Principal | None, connection: Connection) -> Answer | None:
        refused = self._rules.check_get(head)
        if refused is not None:
            return refused
        stream, cursor = None, None
        if head.last_event_id:
            parsed = parse_event_id(head.last_event_id)
            if parsed is None:
                await self._engine.sessions.find(session_key(head.session_id), _owner(principal))
                raise Unresumable
            stream, cursor = parsed
        reader = await self._engine.readers.attach(
            session_key(head.session_id), _owner(principal), stream, cursor
        )
        await self._streamer.pump(reader, connection, principal)
        return None

    async def _delete(self, head: Head, principal: Principal | None) -> Answer:
        session = await self._engine.sessions.find(session_key(head.session_id), _owner(principal))
        if not await self._engine.sessions.close(session, Input.DELETED):
            raise SessionGone
        return NO_CONTENT


def _owner(principal: Principal | None) -> str:
    return principal.key if principal is not None else ANONYMOUS


def _path(scope: Scope) -> str:
    """Return the path below the mount point, without a trailing slash. Never taken from a URL built of headers."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and path.startswith(root):
        path = path[len(root) :]
    return path.rstrip("/") or "/"
