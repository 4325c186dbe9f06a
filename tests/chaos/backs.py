"""The backs of a trial: functions, a program, a URL, an object. Which calls they serve, and how their payloads are marked."""

from typing import Final, NamedTuple


class Back(NamedTuple):
    """One kind of back."""

    kinds: tuple[str, ...]
    """The calls beside those with events."""
    modern: tuple[str, ...]
    """The calls of clients of 2026-07-28."""
    knows_clients: bool
    """Its tools know who calls; others mark their payloads with the nonce only."""

    def mark(self, principal: str, session: str, nonce: str) -> str:
        """Return the prefix of every payload of a call."""
        return f"{principal}/{session}/{nonce}" if self.knows_clients else nonce


BEHIND: Final = Back(kinds=("quick",), modern=("keyed", "quick"), knows_clients=False)
"""The server behind keeps nothing in our store: no counters. A program's question belongs to no call if several run: no questions."""
BACKS: Final[dict[str, Back]] = {
    "native": Back(
        kinds=("bump", "fanout", "quick", "slow"), modern=("keyed", "errand", "quick"), knows_clients=True
    ),
    "program": BEHIND,
    "url": BEHIND,
    "object": BEHIND,
}
