"""Compare the requirements of the specification with the rows of this repository.

    git clone https://github.com/modelcontextprotocol/modelcontextprotocol
    git clone https://github.com/modelcontextprotocol/ext-tasks
    python -m tools.requirements modelcontextprotocol ext-tasks

It prints the requirements that are new, gone, or without a row, and ends with 1 if there are any. `--save` writes the
new hashes to `tests/requirements/sentences.json`. `--table` needs no clone: it writes the table of `docs/conformance.md`.
"""

import argparse
import sys
from pathlib import Path

from tools.requirements.catalog import load_rows, load_sentences, save_sentences
from tools.requirements.pages import known, read
from tools.requirements.table import write_table


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.requirements")
    parser.add_argument("specification", nargs="?", type=Path, help="a clone of the specification")
    parser.add_argument("tasks", nargs="?", type=Path, help="a clone of the tasks extension")
    parser.add_argument("--save", action="store_true", help="write the hashes of the clones")
    parser.add_argument("--table", action="store_true", help="write the table of docs/conformance.md")
    parser.add_argument(
        "--show", metavar="HASH", help="print the words of the requirements that begin with HASH"
    )
    given = parser.parse_args()
    if given.table:
        write_table()
        return 0
    if given.specification is None or given.tasks is None:
        parser.error("name a clone of the specification and one of the tasks extension")
    if given.show is not None:
        show(given.specification, given.tasks, given.show)
        return 0
    if given.save:
        save_sentences(known(given.specification, given.tasks))
    return compare(given.specification, given.tasks)


def show(specification: Path, tasks: Path, beginning: str) -> None:
    """Print the words of requirements, which the repository does not have."""
    for page, sentences in read(specification, tasks).items():
        for one in sentences:
            if one.hash.startswith(beginning):
                print(f"{one.hash} {one.level} {page}, {one.section or 'top'}\n    {one.words}")


def compare(specification: Path, tasks: Path) -> int:
    """Print the differences; return 1 if there are any."""
    pages = read(specification, tasks)
    committed = {page: {one.hash for one in known} for page, known in load_sentences().pages.items()}
    answered = {one for row in load_rows() for one in row.hashes}
    different = 0
    for page in sorted({*pages, *committed}):
        sentences = {one.hash: one for one in pages.get(page, ())}
        old = committed.get(page, set())
        for found, sentence in sentences.items():
            words = f"{found} {sentence.level} {page}, {sentence.section or 'top'}: {sentence.words}"
            if found not in old:
                print(f"new          {words}")
            elif found not in answered:
                print(f"without row  {words}")
            different += found not in old or found not in answered
        for lost in sorted(old - sentences.keys()):
            print(f"gone         {lost} {page}")
            different += 1
    print(f"{sum(map(len, pages.values()))} requirements on {len(pages)} pages, {different} differences")
    return min(different, 1)


if __name__ == "__main__":
    sys.exit(main())
