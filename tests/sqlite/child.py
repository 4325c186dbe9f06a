"""A process with its own store: its arguments name the commands, and it prints the results as JSON."""

import asyncio
import json
import resource
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from limpet.errors import StoreUnavailable
from limpet.stores.base import Claim, Claimed
from limpet.stores.sqlite import SqliteStore
from limpet.testing.store.bench import KEY, PRINCIPAL, record
from limpet.testing.store.limits import tight

ROOMY: Final = tight(running=5_000, stream_events=50_000, stream_bytes=1 << 26, session_bytes=1 << 26)
IN_FLIGHT: Final = 32


async def each(numbers: range, action: Callable[[int], Awaitable[None]]) -> None:
    """Do something for every number, so many at a time."""
    left = iter(numbers)

    async def take() -> None:
        for number in left:
            await action(number)

    await asyncio.gather(*(take() for _ in range(IN_FLIGHT)))


async def race(path: Path, name: str, adds: int, ids: int, appends: int) -> dict[str, object]:
    """Count, claim and append beside others that do the same."""
    store = SqliteStore(path, ROOMY)
    won: list[int] = []

    async def claim(number: int) -> None:
        if isinstance(await store.claim(KEY, PRINCIPAL, Claim(number, f"{name}-{number}", b"")), Claimed):
            won.append(number)

    async def add(number: int) -> None:
        await store.add_state(KEY, "n", 1, op=f"{name}-{number}")

    async def append(number: int) -> None:
        tag = (int(name) << 32) + number + 1
        await store.append(KEY, "", -1, [(tag, f"{name} {number}".encode())])

    await each(range(adds), add)
    await each(range(ids), claim)
    for number in range(appends):
        await append(number)
    await store.aclose()
    return {"won": won}


async def toil(path: Path) -> None:
    """Append and count forever, and print after each step which steps are certain."""
    store = SqliteStore(path, ROOMY)
    number = 0
    while True:
        number += 1
        await store.append(KEY, "", -1, [(number, b"x" * 500)])
        await store.add_state(KEY, "n", 1, op=f"o{number}")
        print(number, flush=True)


async def starve(path: Path) -> dict[str, object]:
    """Write until files may not grow any more, then until they may again."""
    store = SqliteStore(path, ROOMY)
    await store.open(record(), evict=False)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
    written = refused = 0
    while refused < 5:
        try:
            await store.append(KEY, "", -1, [(written + 1, b"x" * 5_000)])
            written += 1
        except StoreUnavailable:
            refused += 1
    living = await store.sessions()
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    for _ in range(20):
        await store.append(KEY, "", -1, [(written + 1, b"x" * 5_000)])
        written += 1
    await store.aclose()
    return {"written": written, "living": living}


def main() -> None:
    task, path, *rest = sys.argv[1:]
    if task == "race":
        adds, ids, appends = map(int, rest[1:])
        print(json.dumps(asyncio.run(race(Path(path), rest[0], adds, ids, appends))))
    elif task == "toil":
        asyncio.run(toil(Path(path)))
    else:
        print(json.dumps(asyncio.run(starve(Path(path)))))


if __name__ == "__main__":
    main()
