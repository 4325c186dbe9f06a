"""Clients of 2026-07-28 whose calls have idempotency keys: cut, and repeated at any replica until the answer is here."""

from typing import Final

import msgspec

from limpet.auth import Principal
from limpet.errors import INVALID_REQUEST, OUTCOME_UNKNOWN
from limpet.protocol.idempotency import KEY
from limpet.wire.jsonrpc import encode
from limpet.wire.sse import EventParser
from tests.messages import metadata, modern_headers
from tests.simulation.clients import ALICE, ATTEMPTS, BASE, Steps
from tests.simulation.ledger import Json
from tests.simulation.network import Call, Lost
from tests.simulation.world import World

_AGAIN: Final = (0, 429, 503)
"""Statuses after which a client sends its call again; 0: the answer was lost."""


class KeyedClient:
    """A client without a session."""

    def __init__(self, world: World, token: str = ALICE) -> None:
        self.world = world
        self.token = token
        self._principal = Principal(subject=token).key
        self._numbers = iter(range(10_000))

    async def call(self, key: str, nonce: str, steps: Steps, *, cut: float = 0.0) -> Json | None:
        """Send a call until its answer is here; return it. Each attempt has its own id."""
        world = self.world
        for _ in range(ATTEMPTS):
            number = next(self._numbers)
            wire = self._post(number, key, nonce, steps)
            if world.random.random() < cut:
                world.fired["cut"] += 1
                world.cut_later(wire)
            status, messages = await self._received(wire)
            terminal = next((message for message in messages if "method" not in message), None)
            if terminal is not None and status not in _AGAIN:
                self._check(terminal, number, nonce)
                return terminal
            await world.pause()
        world.ledger.violate("I1", f"the call {nonce} was never answered")
        return None

    async def misuse(self, key: str) -> None:
        """Use the key of another call: it is refused, and nothing runs."""
        world, nonce = self.world, self.world.nonce()
        answer = await self.call(key, nonce, [("wait", 0.0)])
        code = (answer or {}).get("error", {}).get("code")
        if world.ledger.runs[nonce] or code != INVALID_REQUEST:
            world.ledger.violate("I4", f"{nonce} with the key of another call got {answer}")

    def _post(self, number: int, key: str, nonce: str, steps: Steps) -> Call:
        params = {"name": "x", "nonce": nonce, "steps": steps}
        stated = {"_meta": {**metadata(), KEY: key}, **params}
        message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": stated}
        named = modern_headers("tools/call", params).items()
        headers = [*BASE, (b"authorization", b"Bearer " + self.token.encode())]
        headers += [(name.encode(), value.encode()) for name, value in named]
        return self.world.network.request(self.world.any_replica().node, "POST", headers, encode(message))

    async def _received(self, wire: Call) -> tuple[int, list[Json]]:
        """Return the status of a response and its messages; 0: it was lost."""
        parser, messages = EventParser(1 << 20), list[Json]()
        try:
            while (chunk := await wire.chunk()) is not None:
                if wire.headers[b"content-type"] == b"application/json":
                    messages.append(msgspec.json.decode(chunk))
                    continue
                messages += [msgspec.json.decode(event.data) for event in parser.feed(chunk) if event.data]
        except Lost:
            # A terminal message that has come is an answer.
            return (200 if any("method" not in message for message in messages) else 0), messages
        return wire.status, messages

    def _check(self, terminal: Json, number: int, nonce: str) -> None:
        ledger, stamp = self.world.ledger, terminal.get("result")
        if terminal["id"] != number:
            ledger.violate("I3", f"the answer to {terminal['id']!r} came to {number!r}")
        if stamp is not None and (stamp["nonce"], stamp["principal"]) != (nonce, self._principal):
            ledger.violate("I3", f"{nonce} of {self.token} got {stamp}")

    def judge(self, nonce: str, answers: list[Json | None]) -> None:
        """Check that a call ran once at most, and that all its repeats got one answer; an unknown outcome needs a disturbance."""
        ledger = self.world.ledger
        if ledger.runs[nonce] > 1:
            ledger.violate("I4", f"{nonce} ran {ledger.runs[nonce]} times")
        codes = {one["error"]["code"] for one in answers if one is not None and "error" in one}
        if codes - {OUTCOME_UNKNOWN} or (codes and not (ledger.disturbed or self.world.fired["crash"])):
            ledger.violate("G11", f"{nonce} got {codes}")
