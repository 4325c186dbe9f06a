"""Ways to Redis that fail as networks do: replies lost after the work was done, and servers exchanged underneath."""

import random
from typing import Any

from redis.asyncio import Redis

from limpet.stores.redis.link import Argument, RedisLink, connect
from limpet.stores.shared.answers import Lost


class Lossy:
    """Loses a part of the replies, and a part of the commands. The seed is in its name."""

    def __init__(self, url: str, seed: int, *, replies: float = 0.2, commands: float = 0.05) -> None:
        self._link = connect(url)
        self._random = random.Random(seed)
        self._seed = seed
        self._replies = replies
        self._commands = commands
        self.lost = 0
        self._repeated: list[tuple[Argument, ...]] = []

    def __repr__(self) -> str:
        return f"<Lossy seed={self._seed}, {self.lost} lost>"

    async def run(self, script: str, key: str, arguments: tuple[Argument, ...]) -> list[Any]:
        self._lose(self._commands, arguments)
        reply = await self._link.run(script, key, arguments)
        self._lose(self._replies, arguments)
        return reply

    def _lose(self, part: float, arguments: tuple[Argument, ...]) -> None:
        # Not for a repeated command: the store gives up after the third time, and another test covers that.
        is_again = arguments[3:4] == ("1",) or any(arguments is one for one in self._repeated)
        if not is_again and self._random.random() < part:
            self.lost += 1
            self._repeated.append(arguments)
            raise Lost(f"lost on purpose (seed {self._seed})")

    async def subscriber(self) -> Redis:
        return await self._link.subscriber()

    async def policy(self) -> str:
        return await self._link.policy()

    async def aclose(self) -> None:
        await self._link.aclose()


class Switched:
    """Connects to one server, and later to another one; the store above is not asked."""

    def __init__(self, *urls: str) -> None:
        self._links: list[RedisLink] = [connect(url) for url in urls]

    async def fail_over(self) -> None:
        await self._links.pop(0).aclose()

    async def run(self, script: str, key: str, arguments: tuple[Argument, ...]) -> list[Any]:
        return await self._links[0].run(script, key, arguments)

    async def subscriber(self) -> Redis:
        return await self._links[0].subscriber()

    async def policy(self) -> str:
        return await self._links[0].policy()

    async def aclose(self) -> None:
        for link in self._links:
            await link.aclose()
