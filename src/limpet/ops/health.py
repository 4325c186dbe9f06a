"""The health of the server behind: when it last worked, when it last failed, and why. No call pays for it.

Connections that open or fail are events. Calls that succeed are found in the copies of the figures (`recent.py`), every
few seconds.
"""

from collections.abc import Mapping
from typing import Final

from limpet.ops.figures import Figures

WORKED: Final = frozenset({"upstream.opened", "client.reconnected"})
FAILED: Final = {
    "upstream.unreachable": "unreachable",
    "upstream.unusable": "unusable",
    "upstream.ended": "ended",
    "upstream.late": "late",
    "upstream.not_reconnected": "unreachable",
}
"""The events of a server behind that fails, and the kind of each for the metrics."""
MAX_REASON: Final = 300
"""Characters of a reason that operators see."""


class Health:
    """The health of one server behind. Times are those of the wall clock; 0: never."""

    __slots__ = ("_answered", "failed_at", "kind", "reason", "worked_at")

    def __init__(self) -> None:
        self.worked_at: float = 0.0
        self.failed_at: float = 0.0
        self.kind: str = ""
        self.reason: str = ""
        self._answered = 0

    def note(self, at: float, event: str, facts: Mapping[str, object]) -> None:
        """Take an event, if it is about the server behind."""
        if event in WORKED:
            self.worked_at = at
        elif (kind := FAILED.get(event)) is not None:
            self.failed_at, self.kind = at, kind
            said = facts.get("error") or facts.get("reason") or kind
            status = facts.get("status")
            self.reason = f"{said}{f', status {status}' if status is not None else ''}"[:MAX_REASON]

    def look(self, at: float, answered: int) -> None:
        """Find out whether calls have succeeded since the last look. `answered`: how many have until now."""
        if answered > self._answered:
            self.worked_at, self._answered = at, answered


def answered_calls(figures: Figures) -> int:
    """Return how many calls of tools have succeeded."""
    return sum(
        durations.count
        for (method, *_, outcome), durations in figures.calls()
        if outcome == "ok" and method == "tools/call"
    )
