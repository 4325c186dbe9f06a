"""The record of coverage, `tests/coverage.json`: how much of the pure layers their tests run, and each line that none runs.

    make coverage                        runs these tests in an environment that measures, and writes the record
    python -m tools.covered forget       removes lines that are no more in the source

The record may not fall: `record` refuses one below the figure of the last one. `tests/test_coverage.py` compares the record with the
present source on every run of the tests: if many of its lines are gone, or much code is new, it has to be made again.
"""

import argparse
import ast
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src" / "limpet"
RECORD: Final = ROOT / "tests" / "coverage.json"
LAYERS: Final = ("core", "protocol", "wire")
"""Those of `tools/coverage.ini`."""
LEAST: Final = 97.0
"""Per cent of lines and branches, by the tests of `tools/coverage.sh` alone."""
MARGIN: Final = 0.1
"""By how much two runs differ: some lines are for races."""


def statements() -> int:
    """Return how many lines of the layers begin a statement; docstrings do not count."""
    total = 0
    for path in (path for layer in LAYERS for path in (SOURCE / layer).rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text()))
        total += len(
            {
                node.lineno
                for node in nodes
                if isinstance(node, ast.stmt)
                and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
            }
        )
    return total


def gone(uncovered: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the lines of the record that are not in the source, by module."""
    found = {}
    for module, texts in uncovered.items():
        path = SOURCE / module
        there = (
            Counter(line.strip() for line in path.read_text().splitlines()) if path.is_file() else Counter()
        )
        if missing := sorted((Counter(texts) - there).elements()):
            found[module] = missing
    return found


def recorded() -> dict[str, Any]:
    """Return the record."""
    found: dict[str, Any] = json.loads(RECORD.read_text())
    return found


def written(record: dict[str, Any]) -> None:
    """Write the record."""
    RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def made(report: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a report of coverage."""
    uncovered = {}
    for name, of_file in sorted(report["files"].items()):
        path = Path(name).resolve()
        lines = path.read_text().splitlines()
        if of_file["missing_lines"]:
            uncovered[str(path.relative_to(SOURCE))] = [
                lines[n - 1].strip() for n in of_file["missing_lines"]
            ]
    totals = report["totals"]
    return {
        "percent": round(totals["percent_covered"], 2),
        "lines": [totals["covered_lines"], totals["num_statements"]],
        "branches": [totals["covered_branches"], totals["num_branches"]],
        "statements": statements(),
        "uncovered": uncovered,
    }


def main() -> None:
    """Write the record, or forget lines of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("act", choices=("record", "forget"))
    parser.add_argument("report", nargs="?", help="the JSON report of coverage")
    given = parser.parse_args()
    if given.act == "forget":
        record = recorded()
        for module, texts in gone(record["uncovered"]).items():
            left = sorted((Counter(record["uncovered"][module]) - Counter(texts)).elements())
            record["uncovered"][module] = left
        record["uncovered"] = {module: texts for module, texts in record["uncovered"].items() if texts}
        written(record)
        return
    new = made(json.loads(Path(given.report).read_text()))
    least = max(LEAST, recorded()["percent"] - MARGIN) if RECORD.is_file() else LEAST
    sys.stdout.write(f"{new['percent']} % of lines and branches (at least {least:.2f} %)\n")
    if new["percent"] < least:
        sys.exit("coverage: it may not fall: test what is new, or delete it")
    written(new)


if __name__ == "__main__":
    main()
