"""`python -m tests.conformance.compare URL`: the official suite on any server, without Limpet and through it.

The server must expose the fixtures of the suite: the SDKs have such a server each ("everything server"). Each row is the revision that
the client speaks and the era that Limpet speaks with the server; "same" is the choice of Limpet itself. Each check that has another verdict
in front than without Limpet is printed below its row. The results for other SDKs are in docs/in-front.md.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from tests.conformance.serving import served
from tests.conformance.suite import Check, Suite

REVISIONS: Final = ("2025-11-25", "2026-07-28")
EXTENSIONS: Final = (
    *(f"sep-2640-skills-{name}" for name in ("directory", "enumeration", "manifest")),
    *("tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal"),
    *(
        "tasks-mrtr-input",
        "tasks-request-headers",
        "tasks-dispatch-and-envelope",
        "tasks-status-notifications",
    ),
    *("tasks-required-task-error", "tasks-mrtr-composition"),
)
"""The scenarios of extensions of 2026-07-28: no selection of the suite has them."""
ERAS: Final = {"same": "auto", "sessions": "sessions", "sessionless": "sessionless"}
"""The name of a row, and the value of `--upstream-version`."""
PASSED: Final = frozenset({"SUCCESS", "INFO", "SKIPPED", "WARNING"})
"""The verdicts with which a scenario passes."""
ATTEMPTS: Final = 3
"""The suite has time limits of its own, and a loaded machine exceeds one now and then: a difference counts if it is in each attempt."""


class Difference(NamedTuple):
    """A check of a scenario that ends differently: its verdicts without Limpet, and through it."""

    scenario: str
    check: str
    bare: tuple[str, ...]
    front: tuple[str, ...]
    message: str = ""

    def __str__(self) -> str:
        bare, front = (", ".join(verdicts) or "not run" for verdicts in (self.bare, self.front))
        return f"{self.scenario}: {self.check}: {bare} -> {front}  {self.message[:200]}"


def run(revision: str, url: str, place: Path) -> list[Check]:
    """Run everything that a revision has, without extensions; or the scenarios of extensions."""
    selections: dict[str, tuple[str, ...]] = {"all": ("--suite", "all", "--spec-version", revision)}
    if revision == "extensions":
        selections = {name: ("--scenario", name) for name in EXTENSIONS}
    return [
        check
        for name, selection in selections.items()
        for check in Suite("CONFORMANCE", "conformance", selection).run(url, place / name, {})
    ]


def differences(bare: list[Check], front: list[Check]) -> list[Difference]:
    """Return the checks whose verdicts differ, in the order of their names."""
    return [
        Difference(*name, *verdicts, message=_message(front, name))
        for name in sorted({check[:2] for check in (*bare, *front)})
        if len(set(verdicts := (_verdicts(bare, name), _verdicts(front, name)))) > 1
    ]


def _verdicts(checks: list[Check], name: tuple[str, str]) -> tuple[str, ...]:
    """Return the verdicts of a check, each once: how often it is made depends on how many messages were sent."""
    return tuple(sorted({check.status for check in checks if check[:2] == name}))


def _message(checks: list[Check], name: tuple[str, str]) -> str:
    return next((check.message for check in checks if check[:2] == name and check.message), "")


def scenarios(checks: list[Check]) -> str:
    """Return how many scenarios passed, of how many."""
    failed = Counter(check.scenario for check in checks if check.status not in PASSED)
    ran = {check.scenario for check in checks}
    return f"{len(ran) - len(failed)}/{len(ran)}"


def rows(url: str, revisions: list[str], eras: list[str], home: Path) -> Iterator[str]:
    """Run the suite as often as necessary; yield the lines of the report."""
    parts = urlsplit(url)
    # The suite tries DNS rebinding only against `localhost`, and Limpet sends the host of its URL.
    behind = urlunsplit(parts._replace(netloc=f"127.0.0.1:{parts.port}"))
    for revision in revisions:
        bare = run(revision, url, home / f"{revision}-bare")
        yield f"{revision}: bare {scenarios(bare)}"
        for era in eras:
            place = home / f"{revision}-{era}"
            with served(place.with_suffix(".log"), behind, "--upstream-version", ERAS[era]) as front:
                checks = run(revision, front.url, place / "0")
                for attempt in range(1, ATTEMPTS):
                    if differences(bare, checks):
                        checks = run(revision, front.url, place / str(attempt))
            yield f"{revision}: {era} {scenarios(checks)}"
            yield from (f"    {one}" for one in differences(bare, checks))


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", help="http://localhost:PORT/mcp of a server that runs")
    parser.add_argument(
        "--revision",
        action="append",
        choices=(*REVISIONS, "extensions"),
        help="of the client; both by default",
    )
    parser.add_argument(
        "--era", action="append", choices=ERAS, help="with the server; only `same` by default"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        revisions = options.revision or list(REVISIONS)
        for line in rows(options.url, revisions, options.era or ["same"], Path(home)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
