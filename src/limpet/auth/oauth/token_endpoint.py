"""The token endpoint of an authorization server: one request, and the tokens or the error in its response."""

from collections.abc import Mapping

from limpet.auth.oauth.dpop import ALGORITHM, CHALLENGE, Prover
from limpet.auth.oauth.identity import ClientIdentity, prove
from limpet.auth.oauth.metadata import ErrorAnswer, ServerMetadata, TokenAnswer, read
from limpet.auth.oauth.tokens import Tokens, tokens_from
from limpet.auth.oauth.web import OK, Reply, Web, refusal
from limpet.errors import AuthorizationFailed, NotSent
from limpet.ports import Clock, Random


class TokenEndpoint:
    """The token endpoint of one authorization server, for one client."""

    def __init__(
        self, web: Web, server: ServerMetadata, ports: tuple[Clock, Random], prover: Prover | None = None
    ) -> None:
        self._web = web
        self._server = server
        self._clock, self._random = ports
        self._prover = prover

    async def ask(
        self, client: ClientIdentity, fields: Mapping[str, str], before: Tokens | None = None
    ) -> Tokens:
        """Request tokens.

        Raises:
            AuthorizationFailed: the server refuses; `error` is its code.
            NotSent: the server did not answer, or it answered that it cannot now.
        """
        reply = await self._post(client, fields)
        if self._prover is not None and self._prover.learn(self._server.token_endpoint, reply.nonce):
            refused = read(reply.body, ErrorAnswer)
            if reply.status != OK and refused is not None and refused.error == CHALLENGE:
                reply = await self._post(client, fields)
        tokens = tokens_from(self._answer(reply), self._clock.wall(), before)
        if (self._prover is not None) != (tokens.kind == "DPoP"):
            raise AuthorizationFailed(
                f"{self._server.issuer} gave a {tokens.kind} token, which was not requested"
            )
        return tokens

    async def _post(self, client: ClientIdentity, fields: Mapping[str, str]) -> Reply:
        methods = self._server.token_endpoint_auth_methods_supported
        proof = prove(client, self._server.issuer, methods, self._clock, self._random)
        headers = dict(proof.headers)
        if self._prover is not None:
            if ALGORITHM not in (self._server.dpop_signing_alg_values_supported or ()):
                raise AuthorizationFailed(
                    f"{self._server.issuer} does not bind tokens to keys (DPoP, {ALGORITHM})"
                )
            headers["dpop"] = self._prover.proof("POST", self._server.token_endpoint)
        return await self._web.post(self._server.token_endpoint, {**fields, **proof.fields}, headers)

    def _answer(self, reply: Reply) -> TokenAnswer:
        if reply.is_temporary:
            raise NotSent(f"{self._server.issuer} cannot give tokens now (HTTP {reply.status})")
        answer = read(reply.body, TokenAnswer) if reply.status == OK else None
        if answer is not None:
            return answer
        raise refusal(reply, f"{self._server.issuer} gave no token")
