"""Measure every cell of docs/comparison.md, one server after another, and write the page: `python -m tools.comparison`."""

import asyncio
import json
from datetime import UTC, datetime

from limpet import __version__
from tools.comparison.collect import collected
from tools.comparison.page import DATA, PAGE, written
from tools.comparison.peers import PEERS
from tools.comparison.rows import ROWS


async def main() -> None:
    """Run the rows and write both files."""
    found = []
    for peer in PEERS:
        cells = await collected(peer)
        yes = sum(verdict == "pass" for verdict, _ in cells.values())
        print(
            f"{peer.name.strip('`')} {peer.version or __version__}: {yes} of {len(cells)} rows yes",
            flush=True,
        )
        found.append(cells)
    data = {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": [peer.version or __version__ for peer in PEERS],
        "cells": {row.key: [list(cells[row.key]) for cells in found] for row in ROWS},
    }
    DATA.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(written(data), encoding="utf-8")
    print(f"written: {PAGE.name} and {DATA.name} in {PAGE.parent.name}; git diff shows what has changed")


asyncio.run(main())
