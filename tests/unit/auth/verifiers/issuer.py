"""An authorization server that publishes keys and answers introspections, on a real socket of this machine."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.loopback import on_loopback

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


def jwk(key: Key, **members: Any) -> dict[str, Any]:
    algorithm: Any = (
        jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    )
    return {**json.loads(algorithm.to_jwk(key.public_key())), **members}


class Issuer:
    """Counts requests by path. Its documents can be changed at any time."""

    def __init__(self) -> None:
        self.base = ""
        self.seen: Counter[str] = Counter()
        self.keys: list[dict[str, Any]] = []
        self.metadata: dict[str, Any] = {}
        self.fails = False
        self.gate: asyncio.Event | None = None
        """If set: no request is answered before the event."""
        self.gate_waited = asyncio.Event()
        """A request waits for the gate."""
        self.tokens: dict[str, dict[str, Any]] = {}
        self.credentials: list[str] = []
        self.raw: dict[str, bytes] = {}
        """By path: bytes instead of the document."""

    def token(
        self, key: Key, *, headers: dict[str, Any] | None = None, algorithm: str = "RS256", **claims: Any
    ) -> str:
        """Return a signed token; a claim of None is left out."""
        usual = {"iss": self.base, "aud": "https://tools.example/mcp", "sub": "ada", "exp": time.time() + 600}
        kept = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        return jwt.encode(kept, key, algorithm=algorithm, headers=headers)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.seen[request.path] += 1
        if self.gate is not None:
            self.gate_waited.set()
            await self.gate.wait()
        if self.fails:
            return web.Response(status=500)
        if request.path in self.raw:
            return web.Response(body=self.raw[request.path])
        if request.path == "/.well-known/oauth-authorization-server":
            return web.json_response({"issuer": self.base, "jwks_uri": f"{self.base}/keys"} | self.metadata)
        if request.path == "/keys":
            return web.json_response({"keys": self.keys})
        if request.path == "/introspect":
            self.credentials.append(request.headers.get("authorization", ""))
            fields = dict(pair.split("=") for pair in (await request.text()).split("&"))
            return web.json_response(self.tokens.get(fields["token"], {"active": False}))
        return web.Response(status=404)


@asynccontextmanager
async def issuer() -> AsyncIterator[Issuer]:
    made = Issuer()
    async with on_loopback(made) as made.base:
        yield made
