"""What a store of sessions is beneath its commands: it keeps documents and logs, compares, indexes and wakes.

`stores/base` has the commands of a session; most of them call nothing but this. The rules are in `core/rules`, so a
backend decides nothing about sessions:

    documents   apply, end, and `open` of the contract
    logs        `read` of the contract
    indexes     due, oldest_finished, and `sessions`, `subscribers` of the contract
    totals      at, spare_kept, and the number `over`

The other parts of a store are primitives already, and stay beside this: leases, inbox, announcements, secrets, notices
(`OneProcess` for one process), state and tasks.

`apply` is the one step that changes a session: load its document, apply the rule, commit. A backend that no other
process shares applies the rule to the document itself, and has nothing to compare (the memory store). A backend that is
shared gives the rule a draft, whose tables note what was read and written. Its commit compares the fields that were
read with the stored ones; if one of them has changed meanwhile, nothing is applied, and the rule decides again. It may
combine the rules that wait for one session into one commit. Decision 21 has the reasons.
"""

from collections.abc import Callable
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from limpet.config import Limits
from limpet.core.lifecycle import SessionInput
from limpet.core.records import Closed, Ending
from limpet.core.rules.document import At, Document

P = ParamSpec("P")
R = TypeVar("R")
Rule = Callable[Concatenate[Document, P], R]
"""A function of `core/rules`. It may be called several times for one command, and must depend on its arguments
alone."""

GONE: Final[Any] = object()
"""In place of the answer for a session that is unknown or closed: SessionGone is raised."""

Why = Callable[[Document], SessionInput | None]
"""A rule that decides whether a session ends."""


class Backend(Protocol):
    """The primitives of a store of sessions."""

    now: Callable[[], float]
    me: str
    """The incarnation of the replica that sends the commands."""
    over: int
    """By how many bytes the logs of all sessions are over their budget; below 0: the room that is left, as far as it
    is known."""
    _limits: Limits

    # Documents

    async def apply(self, key: str, absent: R, rule: Rule[P, R], *args: P.args, **more: P.kwargs) -> R:
        """Apply a rule to a session in one step, and act as it says; `absent` if it is unknown or closed.

        Raises:
            SessionGone: it is unknown or closed, and `absent` is GONE.
        """

    async def end(self, key: str, why: Why, ending: Ending | None = None) -> Closed | None:
        """Close a session in one step if the rule `why` gives a reason: apply `life.close`, then forget everything.

        The streams that `life.close` returns can be read for a while. Without a reason, the changes of `why` are
        committed. None: the session was not closed, or was unknown.
        """

    # Indexes. They may lie elsewhere than the documents, and be a little behind.

    async def due(self) -> list[str]:
        """Return sessions whose hint has passed, perhaps only some.

        Each of them is examined, and gets its next hint.
        """

    async def oldest_finished(self) -> tuple[str, str] | None:
        """Return the oldest complete stream without a reader: the key of its session, and its name."""

    # Totals over sessions

    def at(self) -> At:
        """Return the circumstances of a command that is sent now: the time, this process, and the room in the store."""
        return At(self.now(), self.me, self._limits, -self.over)

    async def spare_kept(self, key: str) -> int:
        """Return the kept bytes (`core/rules/state.py`) that the principal of a session may still add."""
