"""The rounds of a call: the asks of each round and the client's answers (2026-07-28, multi-round-trip requests). Pure.

Round 0 is the request itself. The response to it either is final or asks for input; a response that asks for input
begins the next round. The retry that carries the input names the round that it answers. A round is answered once: the
same answers again lead to the same outcome, and other answers are refused.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from msgspec import Struct


class Asked(Struct, frozen=True):
    """One ask, in the form that an `input_required` result has."""

    method: str
    params: Any


class Given(Struct, frozen=True):
    """The state of an earlier round that its author keeps by hand, and the client's answers to it."""

    state: str | None = None
    answers: Mapping[str, Any] = {}
    ticket: str = ""
    """The task of a call that was handed over: this request asks for the rest of it (`engine/hand_over.py`)."""
    number: int = 0
    """How often its client was asked to come back."""


NOTHING_GIVEN: Final = Given()


def fresh_key(taken: set[str], wanted: str | None = None) -> str:
    """Return a key for an ask, the wanted one if it is free, and add it to the keys in use."""
    name = wanted if wanted is not None else f"ask-{len(taken) + 1}"
    while name in taken:
        name = f"{name}-{len(taken) + 1}"
    taken.add(name)
    return name


class Taken(Enum):
    """The effect of a retry on a round."""

    FRESH = "fresh"
    """The retry answers the round."""
    REPEAT = "repeat"
    """The same answers came before: the retry gets the same outcome."""
    REFUSED = "refused"
    """The round does not exist, or it was answered differently."""


class Rounds:
    """The rounds of one call."""

    __slots__ = ("_digests", "_keys", "number", "waiting")

    def __init__(self) -> None:
        self.number: int = 0
        """The number of the newest round that was sent."""
        self.waiting: dict[str, Asked] = {}
        """Asks without an answer. The next round contains them."""
        self._digests: dict[int, bytes] = {0: b""}
        self._keys: set[str] = set()

    @property
    def is_parked(self) -> bool:
        """True while the newest round waits for its answers."""
        return self.number not in self._digests

    def ask(self, asked: Asked, key: str | None = None) -> str:
        """Add an ask to the next round and return its key. No other ask of this call ever has the same key."""
        name = fresh_key(self._keys, key)
        self.waiting[name] = asked
        return name

    def withdraw(self, key: str) -> None:
        """Remove an ask, so that the next round does not contain it."""
        self.waiting.pop(key, None)

    def go_out(self) -> dict[str, Asked]:
        """Begin the next round and return its asks."""
        self.number += 1
        return dict(self.waiting)

    def take(self, number: int, answers: dict[str, Any], digest: bytes) -> tuple[Taken, dict[str, Any]]:
        """Take a retry's answers to a round.

        Return the effect and, if it is FRESH, the answers to the asks of the round.

        Answers without an ask are ignored. An ask without an answer, or with an answer that is not an object, stays for
        the next round.
        """
        before = self._digests.get(number)
        if before is not None and number > 0:
            return (Taken.REPEAT if before == digest else Taken.REFUSED), {}
        if number != self.number or number == 0:
            return Taken.REFUSED, {}
        self._digests[number] = digest
        given = {key: answers[key] for key in self.waiting if type(answers.get(key)) is dict}
        for key in given:
            del self.waiting[key]
        return Taken.FRESH, given
