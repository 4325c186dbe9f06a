"""Cause each fault with real processes under a light load, and record what an operator sees.

python -m tools.drill [FAULT…]

For each fault: after how many seconds the dashboard names it, in which sentence, and the events of the log. The pictures of
the dashboard are written to `build/drill`. Look at them: a sentence that a program finds may still be hard to see.
"""

import asyncio
import contextlib
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.browser.chromium import Tab, chromium
from tests.browser.dashboard import signed_in
from tests.browser.product import TOKEN, admin_url, operated
from tests.http.client import Client, Connection, Cut, call
from tests.redis_server import RedisServer, redis_server
from tests.workers.fleet import Fleet

APP: Final = str(Path(__file__).with_name("app.py"))
PICTURES: Final = Path(__file__).parents[2] / "build" / "drill"
CALM: Final = 20.0
"""Seconds of ordinary work before the fault."""
LIMIT: Final = 120.0
"""Seconds within which an operator must see the cause."""
PROGRAM: Final = "drill"
"""The target of a fault in which the server is a program behind Limpet."""
Cause = Callable[[list[Fleet], RedisServer | None], Awaitable[None]]
_KEPT: Final[list[object]] = []
"""Connections and tasks of the fault, which stay open."""


class Fault:
    """A fault: how the processes are started, what causes it, and the words by which the page names it."""

    def __init__(self, cause: Cause, words: str, *options: str, replicas: int = 1, target: str = "") -> None:
        self.cause, self.words, self.options = cause, words, options
        self.replicas, self.target = replicas, target or f"{APP}:server"
        self.path = f"/{PROGRAM}/mcp" if target == PROGRAM else "/mcp"


def _keep(work: Awaitable[object]) -> None:
    async def quiet() -> None:
        with contextlib.suppress(Cut, OSError, AssertionError):
            await work

    _KEPT.append(asyncio.create_task(quiet()))


async def hang(processes: list[Fleet], _redis: RedisServer | None) -> None:
    client = await Client.opened(processes[0].port, name="cursor", path=f"/{PROGRAM}/mcp")
    _keep(client.start("hang"))


async def stop_reading(processes: list[Fleet], _redis: RedisServer | None) -> None:
    client = await Client.opened(processes[0].port, name="slow-laptop")
    params = {"name": "export", "arguments": {}, "_meta": {"progressToken": 1}}
    response = await client.post({**call(1, "export"), "params": params})
    response.connection.stop_reading()
    _KEPT.append(response)


async def kill_replica(processes: list[Fleet], _redis: RedisServer | None) -> None:
    client = await Client.opened(processes[1].port, name="cursor")
    _keep(client.start("hang"))
    await asyncio.sleep(1)  # Until the call runs there.
    processes[1].popen.kill()


async def stop_store(_processes: list[Fleet], redis: RedisServer | None) -> None:
    if redis is not None:
        redis.stop()


async def fill_queue(processes: list[Fleet], _redis: RedisServer | None) -> None:
    client = await Client.opened(processes[0].port, name="eager-agent")
    for _ in range(6):
        _keep(client.start("hang"))


async def send_tokens(processes: list[Fleet], _redis: RedisServer | None) -> None:
    for _ in range(5):
        _keep(Client.opened(processes[0].port, token="some-token", name="cursor"))  # noqa: S106 - a made-up one


async def fail_often(processes: list[Fleet], _redis: RedisServer | None) -> None:
    client = await Client.opened(processes[0].port, name="cursor")

    async def failing() -> None:
        while True:
            response = await client.start("lookup", known=False)
            await response.answer()
            response.connection.cut()
            await asyncio.sleep(0.2)

    _keep(failing())


async def block(processes: list[Fleet], _redis: RedisServer | None) -> None:
    client = await Client.opened(processes[0].port, name="cursor")
    _keep(client.start("report"))


FAULTS: Final = {
    "upstream": Fault(hang, "waits for the server behind", target=PROGRAM),
    "reader": Fault(stop_reading, "does not read|slow-laptop"),
    "replica": Fault(kill_replica, "replica|silent", replicas=2),
    "store": Fault(stop_store, "store", replicas=2),
    "queue": Fault(fill_queue, "eager-agent", "--limit", "running=2", "--limit", "queued=2"),
    "authorization": Fault(send_tokens, "127.0.0.1:9", "--verifier", f"{APP}:verify"),
    "errors": Fault(fail_often, "lookup"),
    "blocked": Fault(block, "report"),
}


@contextlib.contextmanager
def running(fault: Fault) -> Iterator[tuple[list[Fleet], RedisServer | None]]:
    """Start the processes."""
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(redis_server()) if fault.replicas > 1 else None
        options = [*fault.options, *(("--store", redis.url) if redis else ())]
        processes = [_served(stack, fault, options) for _ in range(fault.replicas)]
        yield processes, redis


def _served(stack: contextlib.ExitStack, fault: Fault, options: list[str]) -> Fleet:
    if fault.target == PROGRAM:
        file = PICTURES / "limpet.json"
        file.write_text(json.dumps({"mcpServers": {PROGRAM: {"command": sys.executable, "args": [APP]}}}))
        return stack.enter_context(operated(*options, target=str(file)))
    return stack.enter_context(operated(*options, target=fault.target))


@contextlib.asynccontextmanager
async def load(port: int, path: str) -> AsyncIterator[None]:
    """Call quick tools, as calm users do."""

    async def user(number: int) -> None:
        with contextlib.suppress(Cut, OSError, AssertionError):
            client = await Client.opened(port, name=f"user-{number}", path=path)
            while True:
                await client.call("quick", text="x")
                await client.call("lookup", known=True)
                await asyncio.sleep(0.3)

    tasks = [asyncio.create_task(user(number)) for number in range(3)]
    try:
        yield
    finally:
        for task in (*tasks, *(one for one in _KEPT if isinstance(one, asyncio.Task))):
            task.cancel()
        _KEPT.clear()
        await Connection.cut_all()


async def sentences(tab: Tab) -> list[str]:
    """Return the sentences under "attention"."""
    return list(
        await tab.js("[...document.querySelectorAll('#attention li span')].map((one) => one.innerText)")
    )


async def drill(name: str, fault: Fault) -> None:
    """Cause one fault, and print what an operator sees."""
    with running(fault) as (processes, redis), chromium() as browser:
        async with load(processes[0].port, fault.path), browser.tab() as tab:
            await tab.resize(1280, 1400)
            await signed_in(tab, admin_url(processes[0]), TOKEN)
            await asyncio.sleep(CALM)
            print(f"## {name}\n   before: {'; '.join(await sentences(tab))}")
            await fault.cause(processes, redis)
            is_named = await watch(tab, fault.words)
            print("" if is_named else "   NOT NAMED")
            (PICTURES / f"{name}.png").write_bytes(await tab.picture())
            show_log(processes)


async def watch(tab: Tab, words: str) -> bool:
    """Print each new sentence of the page; return whether one has named the cause."""
    began, seen = time.monotonic(), set[str]()
    is_named, end = False, LIMIT
    while (age := time.monotonic() - began) < end:
        for sentence in await sentences(tab):
            kind = re.sub(r"[\d.]+", "0", sentence)
            if kind not in seen:
                seen.add(kind)
                print(f"   {age:5.1f} s  {sentence}")
            if not is_named and re.search(words, sentence, re.IGNORECASE):
                is_named, end = True, age + 15
                print(f"   {age:5.1f} s  named")
        await asyncio.sleep(0.5)
    return is_named


def show_log(processes: list[Fleet]) -> None:
    """Print the warnings and errors of the log, each event once."""
    shown = set[Any]()
    for process in processes:
        for line in process.output().splitlines():
            with contextlib.suppress(ValueError):
                said = json.loads(line)
                if said.get("level") in {"warning", "error"} and said["event"] not in shown:
                    shown.add(said["event"])
                    print(f"   log: {line[:400]}")


async def main() -> None:
    """Run the drill."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or FAULTS:
        with contextlib.suppress(AssertionError):  # A process that was killed has left its files.
            await drill(name, FAULTS[name])


if __name__ == "__main__":
    asyncio.run(main())
