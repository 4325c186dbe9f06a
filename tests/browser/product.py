"""Real `limpet serve --admin` processes, and clients that keep them busy."""

import asyncio
import contextlib
import random
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

from tests.http.client import Client, Connection, Response
from tests.support import wait_until
from tests.workers.fleet import SHOP, Fleet, fleet

TOKEN: Final = "a-token-of-operators"
FLOOR: Final = str(Path(__file__).with_name("shop_floor.py"))


def admin_url(process: Fleet) -> str:
    """Return where a process has its admin surface."""
    wait_until(lambda: "  admin " in process.output(), explain=process.output)
    (found,) = re.findall(r"admin +(http://\S+)", process.output())
    return str(found)


@contextlib.contextmanager
def operated(*options: str, target: str = SHOP) -> Iterator[Fleet]:
    """Run `limpet serve` with an admin surface."""
    with fleet(
        "--admin", "127.0.0.1:0", *options, env={"LIMPET_ADMIN_TOKEN": TOKEN}, target=target
    ) as running:
        yield running


async def detached(port: int, name: str) -> Client:
    """Return a client whose only connection is broken."""
    client = await Client.opened(port, name=name)
    stream = await client.get()
    stream.connection.cut(reset=True)
    return client


@contextlib.asynccontextmanager
async def night(port: int) -> AsyncIterator[None]:
    """Keep the shop floor busy: quick calls, failures, a hung call, a question without an answer, broken connections."""
    names = ["claude-code", "cursor-vscode", "Visual Studio Code", "mcp-inspector"]
    clients = [await Client.opened(port, name=names[number % 4]) for number in range(14)]
    streams = [await client.get() for client in clients]
    for number in range(4):
        await detached(port, names[number])
    hung: list[Response] = []

    async def hang(client: Client, tool: str) -> None:
        hung.append(await client.start(tool))

    async def shop(client: Client, chance: random.Random) -> None:
        while True:
            await client.call("search", text="rope")
            if chance.random() < 0.02:
                response = await client.start("orders", customer="unknown")
                await response.answer()
                response.connection.cut()
            await asyncio.sleep(chance.uniform(0.05, 0.3))

    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(hang(clients[0], "reindex")),
            tasks.create_task(hang(clients[1], "book_trip")),
        ]
        running += [
            tasks.create_task(shop(client, random.Random(number)))
            for number, client in enumerate(clients[2:])
        ]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
            for stream in streams:
                stream.connection.cut()
            await Connection.cut_all()
