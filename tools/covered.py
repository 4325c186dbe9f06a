"""The record of coverage, `tests/coverage.json`: how much of each layer the tests run, and what none runs.

    make coverage                        runs the tests in an environment that measures, and writes the record
    python -m tools.covered forget       removes lines that are no more in the source

Of the layers without I/O the record has each line that no test runs, of the others the number of lines in each module. No layer may fall:
`record` refuses one below its last figure. `tests/test_coverage.py` compares the record with the present source on every run of the
tests: if many of its lines are gone, or much code is new, it has to be made again.
"""

import argparse
import ast
import functools
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src" / "limpet"
RECORD: Final = ROOT / "tests" / "coverage.json"
PURE: Final = ("core", "protocol", "wire")
"""The layers without I/O: all their code can be reached by a test in the same process."""
LEAST: Final = 97.0
"""Per cent of lines and branches of each pure layer. The other layers may only not fall."""
MARGIN: Final = 0.5
"""By how much two runs differ: some lines are for races, and a process that is killed reports nothing."""
Numbers = list[int]
"""What is run, and all there is."""


def layer_of(path: Path) -> str:
    """Return the folder of a module below `limpet`; "." for a module beside them."""
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else "."


@functools.cache
def statements() -> dict[str, int]:
    """Return how many lines of each layer begin a statement; docstrings do not count."""
    total = Counter[str]()
    for path in SOURCE.rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text()))
        begins = {
            node.lineno
            for node in nodes
            if isinstance(node, ast.stmt)
            and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        }
        total[layer_of(path)] += len(begins)
    return dict(total)


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
    """Return the record, by layer."""
    found: dict[str, Any] = json.loads(RECORD.read_text())
    return found


def percent(*numbers: Numbers) -> float:
    """Return how much of everything is run."""
    every = sum(most for _, most in numbers)
    return round(100 * sum(run for run, _ in numbers) / every, 2) if every else 100.0


def all_lines(record: dict[str, Any]) -> Numbers:
    """Return how many lines of all layers are run."""
    return [sum(column) for column in zip(*(one["lines"] for one in record.values()), strict=True)]


def written(record: dict[str, Any]) -> None:
    """Write the record."""
    RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def made(report: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a report of coverage."""
    lines, branches = defaultdict[str, Counter[int]](Counter), defaultdict[str, Counter[int]](Counter)
    uncovered = defaultdict[str, dict[str, Any]](dict)
    for name, of_file in sorted(report["files"].items()):
        path, summary = Path(name).resolve(), of_file["summary"]
        layer, missing = layer_of(path), of_file["missing_lines"]
        lines[layer].update({0: summary["covered_lines"], 1: summary["num_statements"]})
        branches[layer].update({0: summary["covered_branches"], 1: summary["num_branches"]})
        if missing:
            source = path.read_text().splitlines()
            texts = [source[number - 1].strip() for number in missing]
            uncovered[layer][str(path.relative_to(SOURCE))] = texts if layer in PURE else len(texts)
    counted = statements()
    return {
        layer: {
            "percent": percent(list(lines[layer].values()), list(branches[layer].values())),
            "lines": list(lines[layer].values()),
            "branches": list(branches[layer].values()),
            "statements": counted[layer],
            "uncovered": uncovered[layer],
        }
        for layer in sorted(lines)
    }


def forget() -> None:
    """Remove the lines of the record that are not in the source."""
    record = recorded()
    for layer in PURE:
        uncovered = record[layer]["uncovered"]
        for module, texts in gone(uncovered).items():
            uncovered[module] = sorted((Counter(uncovered[module]) - Counter(texts)).elements())
        record[layer]["uncovered"] = {module: texts for module, texts in uncovered.items() if texts}
    written(record)


def fallen(new: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Return the figures that are too low, as texts."""
    least = {layer: before.get(layer, {}).get("percent", 0.0) - MARGIN for layer in new}
    least |= {layer: max(LEAST, least[layer]) for layer in PURE if layer in new}
    return [
        f"{layer}: {new[layer]['percent']} % (at least {figure:.2f} %)"
        for layer, figure in least.items()
        if new[layer]["percent"] < figure
    ]


def main() -> None:
    """Write the record, or forget lines of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("act", choices=("record", "forget"))
    parser.add_argument("report", nargs="?", help="the JSON report of coverage")
    given = parser.parse_args()
    if given.act == "forget":
        forget()
        return
    new = made(json.loads(Path(given.report).read_text()))
    for layer, one in new.items():
        sys.stdout.write(
            f"{layer}: {one['percent']} % of lines and branches, {percent(one['lines'])} % of lines\n"
        )
    sys.stdout.write(f"all: {percent(all_lines(new))} % of lines\n")
    if less := fallen(new, recorded() if RECORD.is_file() else {}):
        sys.exit(f"coverage may not fall: test what is new, or delete it: {'; '.join(less)}")
    written(new)


if __name__ == "__main__":
    main()
