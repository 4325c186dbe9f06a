"""docs/comparison.json, and the tables of docs/comparison.md that are made from it."""

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

from tools.comparison.peers import PEERS, ROOT
from tools.comparison.rows import ROWS

DATA: Final = ROOT / "docs" / "comparison.json"
PAGE: Final = ROOT / "docs" / "comparison.md"
BEGIN: Final = "<!-- The tables are made by `python -m tools.comparison`. -->"
END: Final = "<!-- End of the tables. -->"
SHOWN: Final = {"pass": "yes", "fail": "**no**", "not applicable": "–"}
LONGEST: Final = 160

Data = dict[str, Any]


def load() -> Data:
    """Return the committed results."""
    data: Data = json.loads(DATA.read_text(encoding="utf-8"))
    return data


def written(data: Data) -> str:
    """Return the page with the tables of these results."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    return "\n".join([before + BEGIN, "", *_tables(data), "", END + after])


def _tables(data: Data) -> Iterator[str]:
    names = [f"{peer.name} {data['versions'][index]}".strip() for index, peer in enumerate(PEERS)]
    yield f"Of {data['date']}. Every cell was measured by `python -m tools.comparison`."
    for part, rows in groupby(ROWS, key=lambda row: row.part):
        yield from ("", f"### {part}", "", f"| | {' | '.join(names)} |", "|---|" + "---|" * len(names))
        for row in rows:
            cells = [SHOWN[cell[0]] for cell in data["cells"][row.key]]
            yield f"| {row.title} | {' | '.join(cells)} |"
    yield from ("", "### What happened", "", "| row | servers | what happened |", "|---|---|---|")
    for row in ROWS:
        by_text: dict[str, list[str]] = {}
        for name, (verdict, happened) in zip(names, data["cells"][row.key], strict=True):
            if verdict == "fail":
                by_text.setdefault(_short(happened), []).append(name)
        for text, failed in by_text.items():
            yield f"| {row.title} | {', '.join(failed)} | {text} |"


def _short(text: str) -> str:
    plain = " ".join(text.replace("|", "/").split())
    return plain if len(plain) <= LONGEST else plain[:LONGEST].rsplit(" ", 1)[0] + " …"
