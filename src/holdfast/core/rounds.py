"""What a call has asked its client for, round by round (2026-07-28, multi-round-trip requests). Pure.

Round 0 is the request itself. Each answer to it either is final or asks for input, and so
begins the next round; the retry that carries the input says which round it answers. A round
is answered once: the same answers again lead to the same outcome, others are refused.
"""

from enum import Enum
from typing import Any

from msgspec import Struct


class Asked(Struct, frozen=True):
    """One request to the client, as it is in an `input_required` result."""

    method: str
    params: Any


def fresh_key(taken: set[str], wanted: str | None = None) -> str:
    """Return a key for an ask, the wanted one if it is free, and add it to the keys in use."""
    name = wanted if wanted is not None else f"ask-{len(taken) + 1}"
    while name in taken:
        name = f"{name}-{len(taken) + 1}"
    taken.add(name)
    return name


class Taken(Enum):
    """What a retry does to a round."""

    FRESH = "fresh"
    """It answers the round."""
    REPEAT = "repeat"
    """The same answers came before: it gets the same outcome."""
    REFUSED = "refused"
    """No such round, or it was answered differently."""


class Rounds:
    """The rounds of one call."""

    __slots__ = ("_digests", "_keys", "number", "waiting")

    def __init__(self) -> None:
        self.number: int = 0
        """The newest round that went out."""
        self.waiting: dict[str, Asked] = {}
        """Asked and not yet answered; what the next round asks for."""
        self._digests: dict[int, bytes] = {0: b""}
        self._keys: set[str] = set()

    def __repr__(self) -> str:
        state = "parked" if self.is_parked else "running"
        return f"<Rounds {state} at {self.number}, {len(self.waiting)} asks>"

    @property
    def is_parked(self) -> bool:
        """True if the newest round waits for its answers."""
        return self.number not in self._digests

    def ask(self, asked: Asked, key: str | None = None) -> str:
        """Add an ask to the next round and return its key, which no other ask of this call ever has."""
        name = fresh_key(self._keys, key)
        self.waiting[name] = asked
        return name

    def withdraw(self, key: str) -> None:
        """Stop asking for it."""
        self.waiting.pop(key, None)

    def go_out(self) -> dict[str, Asked]:
        """Begin the next round; return what it asks for."""
        self.number += 1
        return dict(self.waiting)

    def take(self, number: int, answers: dict[str, Any], digest: bytes) -> tuple[Taken, dict[str, Any]]:
        """Take a retry's answers to a round; return the verdict and, if fresh, the answers that were asked for.

        Answers that were not asked for are ignored; asks without an answer, or with one that is
        no object, stay for the next round.
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
