"""`python -m tests.bugbank`: put each mistake back, see it found, and write the table of docs/proof.md; exit 0 only if all were found."""

import re
import sys
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from tests.bugbank.bugs import BUGS, Bug
from tests.bugbank.details import DETAILS
from tests.bugbank.finding import TRIED, broken_sentences, found_by, seeds_until_found
from tests.bugbank.replicas import broken_scenes

PAGE: Final = Path(__file__).parents[2] / "docs" / "proof.md"
FIRST_SEEDS: Final = (0, 1_000, 2_000, 3_000, 4_000)
_PLACE: Final = re.compile(r"(?<=<!-- bugbank -->\n).*?(?=<!-- /bugbank -->)", re.DOTALL)


class Verdict(NamedTuple):
    """How a mistake was found."""

    by: str
    """Empty: it was not."""
    soon: str
    seeds: float = 0.0


def tried(name: str, bug: Bug) -> Verdict:
    """Put a mistake back, and let its harness look for it."""
    with bug.patches():
        match found_by(bug):
            case "simulation":
                tries = [seeds_until_found(bug, first) for first in FIRST_SEEDS]
                counts = [count for count in tries if count]
                if not tries[0]:
                    return Verdict("", f"seeds: {TRIED}")
                soon = f"seeds: {median(counts):g} (at most {max(counts)})"
                if len(counts) < len(tries):
                    soon += f"; {len(tries) - len(counts)} of {len(tries)} times not within {TRIED}"
                return Verdict(f"simulation `{bug.scenario}`, {bug.invariant}", soon, median(counts))
            case "test":
                is_found = DETAILS[name].is_found()
                return Verdict(f"`unit/{bug.test.partition('::')[0]}`" if is_found else "", "at once")
            case "two replicas":
                return Verdict("two replicas" if bug.scene in broken_scenes() else "", "at once")
            case "rules":
                broken = len(list(broken_sentences()))
                return Verdict("tests of the rules" if broken else "", f"tests: {broken}")


def main() -> int:
    """Try all of them."""
    lines = ["| mistake | made in | found by | how soon |", "|---|---|---|---|"]
    seeds: list[float] = []
    missed = 0
    for name, bug in sorted(BUGS.items()):
        verdict = tried(name, bug)
        missed += not verdict.by
        seeds += [verdict.seeds] if verdict.seeds else []
        lines.append(f"| {name} | {bug.origin} | {verdict.by or '**not found**'} | {verdict.soon} |")
        print(lines[-1], flush=True)
    score = (
        f"{len(BUGS) - missed} of {len(BUGS)} mistakes are found. The simulation needs a median of {median(seeds):g} seeds, over all its mistakes and "
        f"{len(FIRST_SEEDS)} different first seeds.\n\n"
    )
    PAGE.write_text(_PLACE.sub(lambda _: score + "\n".join(lines) + "\n", PAGE.read_text()))
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
