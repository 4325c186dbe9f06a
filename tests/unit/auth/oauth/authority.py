"""An MCP server and its authorization server, on real sockets of this machine: plain, and as bad as a test wants."""

import asyncio
import base64
import hashlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from aiohttp import web

from limpet.auth.authorizer import Authorizer, Challenge
from limpet.transports.http import HttpTransport
from tests.loopback import Handler, on_loopback


class Authority:
    """Both servers behind one address. Requests are counted; answers can be changed at any time."""

    def __init__(self) -> None:
        self.base = ""
        self.seen: Counter[str] = Counter()
        self.forms: list[dict[str, str]] = []
        self.token_headers: list[dict[str, str]] = []
        self.valid: dict[str, set[str]] = {}
        """Access tokens that the MCP server takes, with their scopes."""
        self.refresh = ""
        self.required: set[str] = set()
        self.expires_in: int | None = 3600
        self.gives_refresh = True
        self.metadata: dict[str, Any] = {}
        self.resource: dict[str, Any] = {}
        self.instead: dict[str, Handler] = {}
        """Handlers in place of the usual ones, by path."""
        self.asked_scopes: list[str] = []
        self.gate = asyncio.Event()
        """The user's decision: no authorization succeeds before it is set."""
        self.gate.set()
        self._challenge = ""
        self._scopes: set[str] = set()
        self._number = 0

    @property
    def url(self) -> str:
        return f"{self.base}/mcp"

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.seen[request.path] += 1
        usual: dict[str, Handler] = {
            "/mcp": self._mcp,
            "/.well-known/oauth-protected-resource/mcp": self._resource,
            "/.well-known/oauth-authorization-server": self._server,
            "/register": self._register,
            "/token": self._token,
        }
        handler = self.instead.get(request.path) or usual.get(request.path)
        return await handler(request) if handler else web.Response(status=404)

    async def browse(self, url: str) -> str:
        """Play the browser and the user: agree as soon as the gate is open."""
        self.seen["/authorize"] += 1
        fields = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        self.asked_scopes.append(fields.get("scope", ""))
        self._challenge, self._scopes = fields["code_challenge"], set(fields.get("scope", "").split())
        await self.gate.wait()
        answer = {"code": "the-code", "state": fields["state"], "iss": self.base}
        return f"{fields['redirect_uri']}?{urlencode(answer)}"

    def forget_tokens(self) -> None:
        self.valid.clear()

    async def _mcp(self, request: web.BaseRequest) -> web.Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ").removeprefix("DPoP ")
        prm = f'resource_metadata="{self.base}/.well-known/oauth-protected-resource/mcp"'
        scope = f'scope="{" ".join(sorted(self.required))}"'
        if token not in self.valid:
            return web.Response(status=401, headers={"www-authenticate": f"Bearer {prm}, {scope}"})
        if not self.required <= self.valid[token]:
            refusal = f'Bearer error="insufficient_scope", {prm}, {scope}'
            return web.Response(status=403, headers={"www-authenticate": refusal})
        return web.json_response({})

    async def _resource(self, _request: web.BaseRequest) -> web.Response:
        return web.json_response(
            {"resource": self.url, "authorization_servers": [self.base], **self.resource}
        )

    async def _server(self, _request: web.BaseRequest) -> web.Response:
        document = {
            "issuer": self.base,
            "authorization_endpoint": f"{self.base}/authorize",
            "token_endpoint": f"{self.base}/token",
            "registration_endpoint": f"{self.base}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
            **self.metadata,
        }
        return web.json_response({name: value for name, value in document.items() if value is not None})

    async def _register(self, request: web.BaseRequest) -> web.Response:
        wish = await request.json()
        return web.json_response({**wish, "client_id": f"client-{self.seen['/register']}"}, status=201)

    async def _token(self, request: web.BaseRequest) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.forms.append(form)
        self.token_headers.append({name.lower(): value for name, value in request.headers.items()})
        match form["grant_type"]:
            case "authorization_code":
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                if base64.urlsafe_b64encode(digest).decode().rstrip("=") != self._challenge:
                    return web.json_response({"error": "invalid_grant"}, status=400)
            case "refresh_token":
                if form["refresh_token"] != self.refresh:
                    return web.json_response({"error": "invalid_grant"}, status=400)
            case _:
                self._scopes = set(form.get("scope", "").split())
        return web.json_response(self._issue("DPoP" if "dpop" in request.headers else "Bearer"))

    def _issue(self, kind: str) -> dict[str, Any]:
        self._number += 1
        access = f"secret-access-{self._number}"
        self.valid = {access: self._scopes}
        answer: dict[str, Any] = {"access_token": access, "token_type": kind}
        if self.expires_in is not None:
            answer["expires_in"] = self.expires_in
        if self.gives_refresh:
            self.refresh = answer["refresh_token"] = f"secret-refresh-{self._number}"
        return answer


@asynccontextmanager
async def authority() -> AsyncIterator[Authority]:
    made = Authority()
    async with on_loopback(made) as made.base:
        yield made


async def call(authorizer: Authorizer, url: str) -> int:
    """Send one request as the client does, and return its last status."""
    http = HttpTransport()
    try:
        attempt = 0
        while True:
            sent = await authorizer.headers("POST", url)
            answer = await http.open("POST", url, dict(sent), b"{}")
            await answer.body(1_000)
            attempt += 1
            if answer.status == 200 or attempt > 4:
                return answer.status
            challenge = Challenge(
                method="POST",
                url=url,
                status=answer.status,
                headers=answer.headers(),
                sent=sent,
                attempt=attempt,
            )
            if not await authorizer.challenged(challenge):
                return answer.status
    finally:
        await http.aclose()
