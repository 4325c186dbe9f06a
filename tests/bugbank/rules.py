"""Mistakes in the rules of a session: each a line of `core/rules` that is wrong again. The tests of the rules find them."""

from typing import Any, Final, NamedTuple

from limpet.core.rules import asks, calls, life, readers, streams, turns
from limpet.core.rules.clock import SessionClock
from tests.bugbank.rewriting import Patches, rewritten


class Mistake(NamedTuple):
    """A line that is wrong."""

    function: Any
    line: str
    wrong: str
    origin: str
    """A trap of docs/traps.md, a law of docs/laws.md, or a commit of ours."""

    @property
    def patches(self) -> Patches:
        """The mistake as a context."""
        return rewritten(self.function, self.line, self.wrong)


STRANGER: Final = "doc.record.principal != principal"
MISTAKES: Final[dict[str, Mistake]] = {
    "a lost answer ends the call that asked": Mistake(
        asks.take_answer, 'known.answer or b""', "known.answer", "ours, a8b14751"
    ),
    "a session at work idles out": Mistake(
        SessionClock.ends_now, "and not self.running", "", "trap 31, law 8"
    ),
    "an open GET does not keep a session": Mistake(
        SessionClock.due, "elif self.readers:", "elif False:", "trap 32"
    ),
    "the grace counts from the break only": Mistake(
        SessionClock.due, "max(self.broke, self.settled)", "self.broke", "trap 31"
    ),
    "the asks of an ended call wait on": Mistake(calls._stop, "if exchange.asks:", "if False:", "trap 44"),
    "a kept answer for another request": Mistake(
        calls.duplicate, "digest == claim.digest and ", "", "trap 3"
    ),
    "an end without a message cannot be sent again": Mistake(
        calls.end_plain, "if exchange is None and fence <= doc.fence:", "if False:", "ours, 8f0bf5ab"
    ),
    "an end with a message cannot be sent again": Mistake(
        calls.settle, "and log.top.tag == tag", "and False", "law 4"
    ),
    "events that are sent again are there twice": Mistake(
        streams.write, "if log.top.tag == events[-1][0] and log.top.seq > log.low.seq:", "if False:", "law 4"
    ),
    "a dead replica keeps its readers": Mistake(
        calls.orphaned, "lose_readers(doc, owner, now)", "pass", "ours, f5fd3afd"
    ),
    "a dead replica keeps its turn": Mistake(calls.orphaned, "lose_turns(doc, owner)", "pass", "law 12"),
    "a stranger cancels a call": Mistake(calls.cancel, STRANGER, "False", "trap 11"),
    "a stranger answers an ask": Mistake(asks.answer, STRANGER, "False", "trap 8"),
    "a stranger reads a stream": Mistake(readers.attach, STRANGER, "False", "traps 20 and 43"),
    "a stranger finds a session": Mistake(life.find, STRANGER, "False", "trap 43"),
    "a late end frees the id of the next call": Mistake(
        streams.forget, "doc.ids.get(exchange.id) == stream", "exchange.id in doc.ids", "trap 5"
    ),
    "answers that no client has read are dropped first": Mistake(
        streams._least_needed, "if log.delivered == log.top:", "if log.delivered != log.top:", "decision 4"
    ),
    "two homes at a time": Mistake(life.take_home, "doc.record.home == expected", "True", "trap 41"),
    "asks without a limit": Mistake(asks.ask, "doc.outstanding >= most", "False", "law 9"),
    "the turn goes to any call": Mistake(turns.turn, "_first(doc) != stream", "False", "law 12"),
    "an old connection removes the new reader": Mistake(
        readers.detach, "exchange.generation != generation", "False", "trap 5"
    ),
}
