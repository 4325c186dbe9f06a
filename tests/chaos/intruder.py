"""A client that knows session and event ids of others: every request gets 404 and changes nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256
from random import Random
from typing import Any

from tests.chaos.fleet import Fleet
from tests.chaos.notes import Notes
from tests.chaos.players import Player
from tests.chaos.replica import TOKEN
from tests.http.client import Client, Connection, Cut, Response
from tests.messages import request

PERIOD = 0.1
ATTEMPTS = 5


class Intruder:
    """Tries every way into other people's sessions while they work."""

    def __init__(self, players: list[Player], notes: Notes, seed: int) -> None:
        self._players = players
        self._notes = notes
        self._random = Random(f"{seed}/intruder")

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            player = self._random.choice(self._players)
            if player.session:
                await self.try_one(player)
            await asyncio.sleep(PERIOD)

    async def try_one(self, player: Player) -> None:
        """Try one way in."""
        client = Client(player.client.port, token=f"{TOKEN}intruder")
        client.session_id = player.client.session_id
        call = player.calls[-1] if player.calls else None
        ways: dict[str, Callable[[], Awaitable[Response]]] = {
            "GET": client.get,
            "resume": lambda: client.get(call.last_id if call is not None else ""),
            "call": lambda: client.post(request(1, "tools/call", {"name": "quick"})),
            "cancel": lambda: client.post(_cancelled(call.id if call is not None else 1)),
            "answer": lambda: client.post({"jsonrpc": "2.0", "id": "1.1", "result": {}}),
            "DELETE": lambda: _delete(client),
        }
        way = self._random.choice(sorted(ways))
        try:
            async with asyncio.timeout(20):
                response = await ways[way]()
                # A stream of others may have no end: its beginning shows whose it is.
                body = (
                    await (response.connection.at_most(2_000) if response.status == 200 else response.body())
                ).decode()
        except (Cut, OSError, TimeoutError):
            return
        response.connection.cut()
        self._notes.count("intrusions")
        self._notes.status(f"intruder {response.status}")
        if response.status not in {404, 502, 503, 504}:
            self._notes.violate("I10", f"{way} by a stranger got {response.status}: {body[:100]}")
        if "nonce-" in body:
            self._notes.violate("I3", f"{way} by a stranger was shown {body[:100]}")


def _cancelled(request_id: int | str) -> Any:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}


async def _delete(client: Client) -> Response:
    connection = await Connection.open(client.port)
    return await connection.request("DELETE", client.headers())


async def nothing_moves(fleet: Fleet, players: list[Player], notes: Notes, seed: int) -> None:
    """Intrude on sessions at rest, and compare their records in the store before and after."""
    intruder = Intruder(players, notes, seed)
    for player in players:
        changed: list[str] = []
        # The sweeper examines sessions too, and sets the time of its next check: a second attempt does not see that
        # change.
        for _ in range(ATTEMPTS):
            before = _dump(fleet, player)
            for _ in range(6):
                await intruder.try_one(player)
            after = _dump(fleet, player)
            changed = sorted(
                name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
            )
            if not changed:
                break
        else:
            notes.violate("I10", f"a stranger changed {changed} in the store")
        notes.count("sessions compared")


def _dump(fleet: Fleet, player: Player) -> dict[str, str]:
    """Return everything that the database has of a session."""
    return fleet.database.of_session(sha256(player.client.session_id.encode()).hexdigest())
