"""The generated part of `docs/conformance.md`: how many requirements there are, and the row of each."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from tools.requirements.catalog import ROOT, Known, Row, Sentences, load_rows, load_sentences

PAGE: Final = ROOT / "docs" / "conformance.md"
MARK: Final = "<!-- Everything below is written by `python -m tools.requirements --table`. -->\n"
SUBJECTS: Final = {
    "transports": "Transports",
    "lifecycle": "Lifecycle, versions and discovery",
    "cancellation": "Cancellation",
    "subscriptions": "Subscriptions",
    "rounds": "Multi round-trip requests",
    "tasks": "Tasks",
    "authorization": "Authorization",
    "base": "The base protocol of 2026-07-28",
}


def write_table() -> None:
    """Write the generated part of the page."""
    head, _, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    PAGE.write_text(head + MARK + generated(), encoding="utf-8")


def generated() -> str:
    """Return the generated part of the page."""
    rows, sentences = load_rows(), load_sentences()
    places = _places(sentences)
    parts = [_counts(rows, sentences), _exceptions(rows), _reasons(rows, places)]
    for subject, title in SUBJECTS.items():
        lines = [_line(row, places) for row in rows if row.subject == subject and row.tests]
        parts.append(
            f"\n### {title}\n\n| requirement | binds | level | page | tests |\n|---|---|---|---|---|\n"
            + "".join(lines)
        )
    return "".join(parts)


def _places(sentences: Sentences) -> dict[str, list[tuple[str, Known]]]:
    """Return where each requirement stands."""
    found: dict[str, list[tuple[str, Known]]] = {}
    for page, known in sentences.pages.items():
        for one in known:
            found.setdefault(one.hash, []).append((page, one))
    return found


def _counts(rows: list[Row], sentences: Sentences) -> str:
    tested = {one for row in rows if row.tests for one in row.hashes}
    total = Counter[str]()
    lines = ""
    for page, known in sentences.pages.items():
        hashes = {one.hash: one.level for one in known}
        count = Counter(hashes.values())
        shown = sum(one in tested for one in hashes)
        total.update(with_tests=shown, all=len(hashes))
        lines += f"| {page} | {count['MUST']} | {count['SHOULD']} | {shown} | {len(hashes) - shown} |\n"
    every = {one.hash for known in sentences.pages.values() for one in known}
    commits = ", ".join(f"`{name}` at `{commit[:10]}`" for name, commit in sentences.commits.items())
    return (
        f"\nRead from {commits}. {len(every)} different requirements, many of them on the pages of several revisions: "
        f"{len(every & tested)} have a test, {len(every - tested)} a reason.\n\n"
        f"| page | MUST | SHOULD | with a test | with a reason |\n|---|---|---|---|---|\n{lines}"
    )


def _exceptions(rows: list[Row]) -> str:
    lines = "".join(f"| {row.says} | {row.exception} |\n" for row in rows if row.exception)
    return f"\n### Met with an exception\n\n| requirement | exception |\n|---|---|\n{lines}"


def _reasons(rows: list[Row], places: dict[str, list[tuple[str, Known]]]) -> str:
    lines = "".join(
        f"| {row.says} | {row.binds} | {_levels(row, places)} | {len(row.hashes)} | {row.reason} |\n"
        for row in rows
        if row.reason
    )
    head = "| requirement | binds | level | how many | reason |\n|---|---|---|---|---|\n"
    return f"\n### Without a test\n\n{head}{lines}"


def _line(row: Row, places: dict[str, list[tuple[str, Known]]]) -> str:
    pages = ", ".join(_once(_page(page, one) for found in row.hashes for page, one in places[found]))
    files: dict[str, list[str]] = {}
    for test in row.tests:
        path, _, name = test.partition("::test_")
        files.setdefault(path.removeprefix("tests/"), []).append(name.replace("_", " "))
    tests = "; ".join(f"`{path}`: {', '.join(names)}" for path, names in files.items())
    return f"| {row.says} | {row.binds} | {_levels(row, places)} | {pages} | {tests} |\n"


def _levels(row: Row, places: dict[str, list[tuple[str, Known]]]) -> str:
    return ", ".join(sorted({one.level for found in row.hashes for _, one in places[found]}))


def _page(page: str, one: Known) -> str:
    return f"{page.replace('/basic', '')}: {one.section}" if one.section else page.replace("/basic", "")


def _once(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
