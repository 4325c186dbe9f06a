"""docs/comparison.md: each cell of its tables is what the servers do now."""

import asyncio
from typing import Final

import pytest

from limpet import __version__
from tests.support import async_test_within
from tools.comparison.collect import collected
from tools.comparison.page import PAGE, load, written
from tools.comparison.peers import PEERS, Peer
from tools.comparison.rows import ROWS
from tools.comparison.trials import Cell

HASTE: Final = 2.0
"""Seconds for an answer, while all servers run at once."""
PATIENCE: Final = (4.0, 15.0, 30.0)
"""Cells that differ are measured again, alone and with more time: on a loaded machine also a good server is late."""


def expected(peer: Peer) -> dict[str, str]:
    """Return the committed verdicts of a server."""
    at = PEERS.index(peer)
    return {key: cells[at][0] for key, cells in load()["cells"].items()}


def test_the_tables_are_those_of_the_data() -> None:
    assert written(load()) == PAGE.read_text(encoding="utf-8"), "run `python -m tools.comparison`"


def test_the_versions_are_the_pinned_ones_and_the_page_names_them() -> None:
    versions = load()["versions"]
    assert versions == [peer.version or __version__ for peer in PEERS]
    introduction = PAGE.read_text(encoding="utf-8").split("##")[0]
    for peer, version in zip(PEERS[1:], versions[1:], strict=True):
        assert version.rsplit(".", 1)[0] in introduction, peer.name


def test_the_data_have_a_cell_for_every_row_and_server() -> None:
    cells = load()["cells"]
    assert list(cells) == [row.key for row in ROWS]
    assert {len(row) for row in cells.values()} == {len(PEERS)}


def _differing(cells: dict[str, Cell], verdicts: dict[str, str]) -> dict[str, Cell]:
    return {key: cell for key, cell in cells.items() if cell.verdict != verdicts[key]}


@pytest.mark.timeout(600)
@async_test_within(580)
async def test_every_cell_is_still_true() -> None:
    wanted = [expected(peer) for peer in PEERS]
    found = await asyncio.gather(*(collected(peer, timeout=HASTE) for peer in PEERS))
    for peer, cells, verdicts in zip(PEERS, found, wanted, strict=True):
        wrong = _differing(cells, verdicts)
        for seconds in PATIENCE:
            wrong = wrong and _differing(await collected(peer, only=wrong, timeout=seconds), verdicts)
        assert wrong == {}, f"{peer.name} {peer.version} does not behave as docs/comparison.md says"
