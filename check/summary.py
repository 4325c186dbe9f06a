"""Write the report of `limpet check` as a table for the page of the job: `summary.py REPORT PAGE`.

The server that was checked has chosen parts of the text, so nothing of it may be markup.
"""

import html
import json
import sys
from pathlib import Path
from typing import Any

SIGNS = {"pass": "✅", "fail": "❌"}


def plain(text: object) -> str:
    """Return a text that is no markup, in one line."""
    escaped = html.escape(" ".join(str(text).split()))
    return "".join(f"\\{sign}" if sign in "\\`*_[]|~#" else sign for sign in escaped)


def page(report: dict[str, Any]) -> str:
    """Return the table; of the rows that failed, the rule and the remedy too."""
    verdict = "passed" if report["passed"] else "did not pass"
    lines = [
        f"### {plain(report['server'])} {verdict} the check",
        "",
        "| | probe | what happened |",
        "|---|---|---|",
    ]
    for row in report["rows"]:
        happened = plain(row["happened"])
        if row["verdict"] == "fail":
            happened += f"<br>{plain(row['specification'])}<br>**Do:** {plain(row['remedy'])}"
        lines.append(f"| {SIGNS.get(row['verdict'], 'n/a')} | {plain(row['title'])} | {happened} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Append to the page; write nothing if there is no report."""
    report, target = sys.argv[1:]
    text = Path(report).read_text(encoding="utf-8")
    if not text.strip():
        return
    with Path(target).open("a", encoding="utf-8") as written:
        written.write(page(json.loads(text)))


if __name__ == "__main__":
    main()
