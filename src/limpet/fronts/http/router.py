"""Several endpoints behind one HTTP server: the path of a request decides which of them serves it.

A router has the interface of one front, so the HTTP server and an ASGI host use it as they use a front. Endpoints share
nothing but the connections: a session of one is unknown to the others.
"""

from collections.abc import Mapping
from typing import Final

from limpet.engine.audit import Reason
from limpet.engine.group import EngineGroup
from limpet.errors import ConfigError
from limpet.fronts.http.asgi_host.asgi_channel import AsgiChannel, lifespan, request_of
from limpet.fronts.http.decide.health import LIVE, READY, health
from limpet.fronts.http.decide.started_call import Unfinished, finish
from limpet.fronts.http.front import HttpFront
from limpet.fronts.http.read.request import Channel, RawRequest, Receive, Scope, Send
from limpet.fronts.http.write.answer import Answer, refuse
from limpet.fronts.http.write.response import WaitingResponse

_PROBES: Final = (LIVE, READY)
CATALOG: Final = "/.well-known/ai-catalog.json"
"""The catalogue of the Server Cards of a process (SEP-2127)."""
# It names no endpoint: a client of one server need not know of the others.
_NOT_FOUND: Final = refuse(404, "Not found: there is no endpoint at this path")


class Router:
    """Several fronts, by the paths that they answer."""

    path: Final = ""
    """The path in the URL of the whole."""

    def __init__(self, fronts: Mapping[str, HttpFront]) -> None:
        """Take fronts by the names of their servers.

        Raises:
            ConfigError: two of them answer one path, or one answers the path of a probe.
        """
        self.fronts: Mapping[str, HttpFront] = fronts
        self.engine: EngineGroup = EngineGroup({name: front.engine for name, front in fronts.items()})
        self._by_path = _by_path(fronts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "lifespan":
            await lifespan(self.engine, receive, send)
        elif scope["type"] == "http":
            await finish(self.serve(request_of(scope), AsgiChannel(scope, receive, send)))
        else:
            raise RuntimeError(f"limpet serves HTTP, not {scope['type']}")

    def serve(self, request: RawRequest, channel: Channel) -> Unfinished:
        """Serve one HTTP request as far as possible without waiting; return the rest."""
        front = self._by_path.get(request.path)
        if front is None:
            path = request.path.rstrip("/") or "/"
            front = self._by_path.get(path)
            if front is None:
                return self._elsewhere(path, WaitingResponse(request, channel))
        return front.serve(request, channel)

    def refused(self, reason: Reason, address: str | None) -> None:
        """Report a connection or request that was refused before its server was known."""
        next(iter(self.fronts.values())).refused(reason, address)

    async def _elsewhere(self, path: str, response: WaitingResponse) -> None:
        await response.answer(await self._health(path) if path in _PROBES else _NOT_FOUND)

    async def _health(self, path: str) -> Answer:
        """Ready if all fronts are; else the answer of the first that is not."""
        answers = [await health(front.engine, path, front.trouble) for front in self.fronts.values()]
        return max(answers, key=lambda answer: (answer.status, len(answer.body)))


def _by_path(fronts: Mapping[str, HttpFront]) -> dict[str, HttpFront]:
    owners = dict.fromkeys(_PROBES, "the probes of the whole process")
    found: dict[str, HttpFront] = {}
    for name, front in fronts.items():
        for path in front.paths:
            if path == CATALOG and path in found:
                continue  # All endpoints answer it alike.
            if path in owners:
                fix = (
                    "each its own public_url"
                    if path.startswith("/.well-known/")
                    else "one of them another path"
                )
                raise ConfigError(f"{path} belongs to {name} and to {owners[path]}: give {fix}")
            owners[path], found[path] = name, front
    return found
