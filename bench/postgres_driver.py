"""Decision 25: our own messages beside the calls of asyncpg. The statement of a commit, one after another, in alternating slices.

    python -m bench.postgres_driver [--rounds 5] [--statements 500]

Our CPU for a statement counts: by the smallest slice. Each statement finds no session, so the server has little to do. Behind PgBouncer asyncpg may keep no statement
prepared, as its documentation says (`statement_cache_size=0`), unless PgBouncer does (from 1.21 on).
"""

import argparse
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import asyncpg
import uvloop

from limpet.stores.postgres import schema
from limpet.stores.postgres.link import Link
from limpet.stores.shared.commit import NUMBERS
from tests.postgres.support import Noted
from tests.postgres_server import pgbouncer, postgres_server

_SCHEMA: Final = "driver"
_NUMBERS: Final = [float(number) for number in range(len(NUMBERS))]
ARGUMENTS: Final = (
    "a" * 32, "replica.1/abcdef", 2, 1, _NUMBERS, _NUMBERS, [b"x:" + b"s" * 24, b"i:" + b"7" * 8], [b"v" * 90, b"w" * 24], None, "replica.1",
)  # fmt: skip
"""Like those of the commit at the beginning of a plain call."""
Fetch = Callable[..., Awaitable[Any]]


async def _slice(fetch: Fetch, statements: int) -> float:
    """Return our CPU for a statement, in microseconds."""
    began = time.process_time()
    for _ in range(statements):
        await fetch()
    return (time.process_time() - began) * 1e6 / statements


async def compare(url: str, rounds: int, statements: int, **options: Any) -> tuple[float, float]:
    """Return our CPU for a statement: by our own messages, by asyncpg."""
    text = schema.queries(_SCHEMA)["commit"]
    driver = await asyncpg.connect(url, **options)
    own = await Link(url, Noted()).connect()
    fetches: tuple[Fetch, ...] = (
        lambda: own.fetch(text, ARGUMENTS),
        lambda: driver.fetch(text, *ARGUMENTS),
    )
    for fetch in fetches:
        await _slice(fetch, 20)
    slices = [[await _slice(fetch, statements) for fetch in fetches] for _ in range(rounds)]
    own.end()
    await driver.close()
    return min(one for one, _ in slices), min(other for _, other in slices)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--statements", type=int, default=500)
    given = parser.parse_args()
    with postgres_server() as server, pgbouncer(server) as pooled:
        server.tell(schema.script(_SCHEMA))
        ways: tuple[tuple[str, str, dict[str, Any]], ...] = (
            ("direct", server.url, {}),
            ("PgBouncer", pooled, {"statement_cache_size": 0}),
        )
        for name, url, options in ways:
            try:
                own, driver = uvloop.run(compare(url, given.rounds, given.statements, **options))
            except asyncpg.PostgresError as error:
                print(f"{name}: asyncpg fails: {error}")
            else:
                print(f"{name}: own messages {own:.1f} µs, asyncpg {driver:.1f} µs")


if __name__ == "__main__":
    main()
