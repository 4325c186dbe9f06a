"""How many tests each folder has, and how long they take: the last columns of the table of folders in CONTRIBUTING.md.

    REPORTS=$PWD/build/reports .ci/run
    python -m tools.seconds build/reports/*.xml

Seconds are of all tests of a folder one after another: a run with several processes ends earlier.
"""

import argparse
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

PAGE: Final = Path(__file__).parents[1] / "CONTRIBUTING.md"
_ROW: Final = re.compile(r"\| `(tests/\w+)` \| ([^|]+?) \|.*")


def measured(reports: Iterable[Path]) -> dict[str, list[float]]:
    """Return the seconds of the tests of each folder, of reports in the form of JUnit."""
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for report in reports:
        for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest has written it
            seconds["/".join(case.get("classname", "").split(".")[:2])].append(float(case.get("time", 0)))
    return seconds


def with_seconds(page: str, seconds: Mapping[str, Collection[float]]) -> str:
    """Return the page with these figures in its table of folders. A folder that was not measured keeps its figures."""
    lines = []
    for line in page.splitlines():
        found = _ROW.fullmatch(line)
        if found is not None and found[1] in seconds:
            of_folder = seconds[found[1]]
            line = f"| `{found[1]}` | {found[2]} | {len(of_folder)} | {sum(of_folder):.0f} |"  # noqa: PLW2901
        lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the figures of reports into the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reports", type=Path, nargs="+")
    PAGE.write_text(with_seconds(PAGE.read_text(), measured(parser.parse_args().reports)))


if __name__ == "__main__":
    main()
