"""Roll out one tree of code over another one with two replicas: `python -m tests.upgrade OLD NEW`. `make release-check` does it with wheels."""

import asyncio
import sys
from pathlib import Path

from tests.upgrade.rolling import upgrade


def main() -> None:
    """Write how many calls the load had; fail if one was lost."""
    old, new = (Path(word).resolve() for word in sys.argv[1:])
    notes = asyncio.run(upgrade(old, new, replicas=2))
    print(
        f"upgrade: {len(notes.calls)} calls of {len(notes.sessions)} sessions, {notes.counts['cuts']} cuts, none lost"
    )


if __name__ == "__main__":
    main()
