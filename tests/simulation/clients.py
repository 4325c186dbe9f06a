"""Clients that lose their connections and return at any replica, and clients that try ids of others."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

import msgspec

from limpet.auth import Principal
from limpet.engine.sessions import session_key
from limpet.wire.jsonrpc import encode
from limpet.wire.sse import EventParser
from tests.simulation.ledger import Json, Request
from tests.simulation.network import Call, Headers, Lost
from tests.simulation.world import World

ATTEMPTS: Final = 80
REPEATS: Final = 6
"""How often a POST that brought nothing to resume from is repeated."""
BASE: Final[Headers] = [
    (b"host", b"localhost"),
    (b"accept", b"application/json, text/event-stream"),
    (b"content-type", b"application/json"),
]
ALICE: Final = "alice"
Steps = list[tuple[str, float | int]]


class Client:
    """One client with one session."""

    def __init__(self, world: World, token: str = ALICE) -> None:
        self.world = world
        self.token = token
        self.principal = Principal(subject=token).key
        self.session_id = ""
        self.key = ""
        self.missed_opening = False
        """A connection was cut before the client had its first position."""
        self.tasks: list[asyncio.Task[Any]] = []
        world.clients.append(self)

    # Sending

    def headers(self, last_id: str = "") -> Headers:
        headers = [*BASE, (b"authorization", b"Bearer " + self.token.encode())]
        if self.session_id:
            headers.append((b"mcp-session-id", self.session_id.encode()))
        if last_id:
            headers.append((b"last-event-id", last_id.encode()))
        return headers

    def post(self, message: Json) -> Call:
        body = encode({"jsonrpc": "2.0", **message})
        return self.world.network.request(self.world.any_replica().node, "POST", self.headers(), body)

    def get(self, last_id: str = "") -> Call:
        return self.world.network.request(self.world.any_replica().node, "GET", self.headers(last_id))

    def delete(self) -> Call:
        return self.world.network.request(self.world.any_replica().node, "DELETE", self.headers())

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def finish(self) -> None:
        """Wait until everything begun for this client is over."""
        while self.tasks:
            await self.tasks.pop()

    async def status(self, call: Call) -> int:
        """Return the status of a whole answer; 0 if it was lost."""
        try:
            while await call.chunk() is not None:
                pass
        except Lost:
            return 0
        return call.status

    # A session

    async def open(self) -> None:
        info = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "sim"}, "capabilities": {}}
        while not self.session_id:
            call = self.post({"id": 0, "method": "initialize", "params": info})
            if await self.status(call) == 200:
                self.session_id = call.headers[b"mcp-session-id"].decode()
                self.key = session_key(self.session_id)
            else:
                await self.world.sleep(0.1, 0.5)

    async def end(self) -> int:
        """Delete the session; returns the last status."""
        self.world.ledger.deleted.add(self.key)
        for _ in range(ATTEMPTS):
            status = await self.status(self.delete())
            if status not in {0, 503}:
                return status
            await self.world.sleep(0.1, 0.5)
        return 0

    # Requests

    async def call(
        self,
        request_id: int | str,
        steps: Steps,
        *,
        cut: float = 0.0,
        nonce: str = "",
        shadow: bool = False,
    ) -> Request:
        """Send a request and resume it until its answer is here. `cut`: how often its connection breaks."""
        world = self.world
        request = Request(nonce or world.nonce(), self.key, request_id)
        world.ledger.requests.append(request)
        if shadow:
            self.spawn(self.shadow(request))
        params = {"nonce": request.nonce, "steps": steps}
        message = {"id": request_id, "method": "tools/call", "params": params}
        for _ in range(ATTEMPTS):
            if request.last_id:
                wire = self.get(request.last_id)
            else:
                wire = self.post(message)
                request.posts += 1
            request.wires.append(wire)
            if world.random.random() < cut:
                world.fired["cut"] += 1
                world.cut_later(wire)
            status = await self._consume(wire, request)
            if request.terminals or self._is_over(request, status):
                break
            await world.pause()
        return request

    @staticmethod
    def _is_over(request: Request, status: int) -> bool:
        request.gone = status == 404
        if status >= 400 and status != 503:
            request.refusals.append(status)
        if request.last_id:
            return status in {204, 400, 404}
        return request.gone or (status == 400 and request.posts == 1) or request.posts >= REPEATS

    async def _consume(self, wire: Call, request: Request) -> int:
        parser = EventParser(1 << 20)
        opened = self.world.ledger.opened
        try:
            while (chunk := await wire.chunk()) is not None:
                if wire.status != 200:
                    continue
                if wire.headers[b"content-type"] == b"application/json":
                    request.plain.append(self._checked(request, msgspec.json.decode(chunk)))
                    continue
                opened.setdefault(wire, self.key)
                for event in parser.feed(chunk):
                    request.last_id = event.id or request.last_id
                    if event.data:
                        message = self._checked(request, msgspec.json.decode(event.data))
                        request.events.append((event.id or "", message))
        except Lost:
            return 0
        finally:
            opened.pop(wire, None)
        return wire.status

    def _checked(self, request: Request, message: Json) -> Json:
        """Look whose message this is; answer it if it asks."""
        ledger = self.world.ledger
        stamp = message.get("params") or message.get("result")
        if stamp is not None and message.get("method") != "notifications/cancelled":
            mine = (request.nonce, self.key, self.principal)
            if (stamp["nonce"], stamp["session"], stamp["principal"]) != mine:
                ledger.violate("I3", f"{request.nonce} of {self.token} got {stamp}")
        if "method" not in message and (type(message["id"]), message["id"]) != (type(request.id), request.id):
            ledger.violate("I3", f"the answer to {message['id']!r} came to {request.id!r}")
        if "method" in message and "id" in message:
            ledger.asked[message["id"]] = message["params"]["name"]
            self.spawn(self.answer(message["id"], message["params"]["name"]))
        return message

    async def shadow(self, request: Request) -> None:
        """Read a request's stream a second time, from another connection, and leave: it takes the stream from the first."""
        for _ in range(20):
            if request.last_id:
                wire = self.get(request.last_id)
                self.world.loop.call_later(self.world.random.random() * 0.3, wire.cut)
                await self.status(wire)
                return
            await asyncio.sleep(0.05)

    async def cancel(self, request_id: int | str) -> None:
        """Cancel a request, at any replica."""
        await self.world.sleep(0.1, 1.0)
        notice = {"method": "notifications/cancelled", "params": {"requestId": request_id}}
        await self.status(self.post(notice))

    async def follow(self, seconds: float) -> list[Json]:
        """Read messages that belong to no request for a while, cut again and again; returns them.

        A connection that is cut before its first event gives the client no position: nothing is promised for what was
        on its way then.
        """
        got: list[Json] = []
        last_id, ends = "", self.world.loop.time() + seconds
        while self.world.loop.time() < ends:
            wire, parser = self.get(last_id), EventParser(1 << 20)
            self.world.loop.call_later(self.world.random.uniform(0.1, 1.0), wire.cut)
            try:
                while (chunk := await wire.chunk()) is not None:
                    for event in parser.feed(chunk) if wire.status == 200 else ():
                        last_id = event.id or last_id
                        got += [msgspec.json.decode(event.data)] if event.data else []
            except Lost:
                pass
            self.missed_opening = self.missed_opening or not last_id
            await self.world.sleep(0.0, 0.2)
        return got

    # Asks

    async def answer(self, ask: str, name: str) -> None:
        """Answer an ask: soon or late, once or twice, in the same words or others, at any replica."""
        random = self.world.random
        await self.world.sleep(0.0, 1.5 if random.random() < 0.3 else 0.2)
        ways = random.choice([(0,), (0,), (0, 0), (0, 1), (0, 1, 0)])
        await asyncio.gather(*(self._answer(ask, name, way) for way in ways))

    async def _answer(self, ask: str, name: str, way: int) -> None:
        await self.world.sleep(0.0, 0.1)
        for _ in range(ATTEMPTS):
            status = await self.status(self.post({"id": ask, "result": {"for": name, "way": way}}))
            if status not in {0, 503}:
                return
            await self.world.sleep(0.1, 0.5)

    # Presence

    async def listen(self, seconds: float) -> int:
        """Keep the standalone stream open for a while; returns its status."""
        wire = self.get()
        self.world.loop.call_later(seconds, wire.cut)
        try:
            while await wire.chunk() is not None:
                if wire.status == 200:
                    self.world.ledger.opened.setdefault(wire, self.key)
        except Lost:
            pass
        finally:
            self.world.ledger.opened.pop(wire, None)
        return wire.status

    async def stay(self) -> None:
        """Keep a stream open, and come back whenever the server ends it or breaks: the session must live."""
        last_id = ""
        while True:
            wire, parser = self.get(last_id), EventParser(1 << 20)
            try:
                while (chunk := await wire.chunk()) is not None:
                    for event in parser.feed(chunk) if wire.status == 200 else ():
                        last_id = event.id or last_id
            except Lost:
                pass
            finally:
                wire.cut()
            if wire.status == 404:
                self.world.ledger.violate("I8", "a session was closed although its client stayed")
                return
            await self.world.sleep(0.05, 0.2)


class Neighbour(Client):
    """A client with its own session that knows an event id of another session."""

    async def resume(self, request: Request) -> None:
        """Ask for another session's stream: there is no such position here."""
        await self.open()
        wire = self.get(request.last_id)
        self.world.loop.call_later(1.0, wire.cut)
        await self.status(wire)
        if wire.status not in {0, 400, 503}:
            self.world.ledger.violate("I3", f"another session's stream was answered {wire.status}")


class Stranger(Client):
    """A client that knows a session's id and is not its owner."""

    def __init__(self, world: World, victim: Client) -> None:
        super().__init__(world, "mallory")
        self.session_id, self.key = victim.session_id, victim.key

    async def intrude(self) -> None:
        """Try everything that a client may do with a session; nothing may look as if there were one."""
        ask = next(iter(self.world.ledger.asked), "nothing.1")
        attempts = [
            self.post({"id": 1, "method": "tools/call", "params": {"nonce": "evil", "steps": []}}),
            self.post({"id": ask, "result": {"for": "mallory", "way": 9}}),
            self.post({"method": "notifications/cancelled", "params": {"requestId": 1}}),
            self.get(),
            self.delete(),
        ]
        for status in await asyncio.gather(*map(self._tried, attempts)):
            if status not in {0, 404, 503}:
                self.world.ledger.violate("I10", f"a stranger got {status}")

    async def _tried(self, wire: Call) -> int:
        self.world.loop.call_later(3.0, wire.cut)
        await self.status(wire)
        return wire.status
