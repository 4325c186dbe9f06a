"""Several processes on one file, and processes that die in the middle."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Final

import pytest

from limpet.core.stream import Continuity, Position
from limpet.stores.sqlite import SqliteStore
from limpet.testing.store.bench import KEY, record
from tests.sqlite.child import ROOMY
from tests.sqlite.support import store_path
from tests.support import async_test

PROCESSES: Final = 4
ADDS, IDS, APPENDS = 2_500, 2_000, 500
ROOT: Final = Path(__file__).parents[2]


def start(*arguments: object) -> subprocess.Popen[str]:
    """Start a process with a store."""
    command = [sys.executable, "-m", "tests.sqlite.child", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


async def opened(path: Path) -> SqliteStore:
    store = SqliteStore(path, ROOMY)
    assert await store.open(record(), evict=False) == []
    return store


@async_test
async def test_processes_count_claim_and_append_as_one() -> None:
    with store_path() as path:
        store = await opened(path)
        children = [start("race", path, name, ADDS, IDS, APPENDS) for name in range(PROCESSES)]
        results = [json.loads(child.communicate()[0]) for child in children]
        assert [child.returncode for child in children] == [0] * PROCESSES
        assert await store.add_state(KEY, "n", 0, op="end") == PROCESSES * ADDS
        assert sorted(chain.from_iterable(result["won"] for result in results)) == list(range(IDS))
        page = await store.read(KEY, record().standalone, Position(0, 0), 10_000, 1 << 26)
        await store.aclose()
    assert page is not None
    assert [event.position.seq for event in page.events] == list(range(1, PROCESSES * APPENDS + 1))
    for name in range(PROCESSES):
        own = [event.data for event in page.events if event.data.startswith(b"%d " % name)]
        assert own == [b"%d %d" % (name, number) for number in range(APPENDS)]


@pytest.mark.parametrize("acknowledged", [1, 40, 150])
@async_test
async def test_writes_acknowledged_before_a_kill_are_stored_and_no_write_is_partial(
    acknowledged: int,
) -> None:
    with store_path() as path:
        await (await opened(path)).aclose()
        with start("toil", path) as child:
            assert child.stdout is not None
            last = [int(child.stdout.readline()) for _ in range(acknowledged)][-1]
            child.kill()
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        store = SqliteStore(path, ROOMY)
        page = await store.read(KEY, record().standalone, Position(0, 0), 10_000, 1 << 26)
        counted = await store.add_state(KEY, "n", 0, op="end")
        again = await store.append(KEY, "", -1, [(2**40, b"continues")])
        await store.aclose()
    assert page is not None
    assert page.continuity is Continuity.OK
    written = [event.position.seq for event in page.events]
    assert written == list(range(1, len(written) + 1))
    assert last <= counted <= len(written) <= counted + 1
    assert again.seq == len(written) + 1
