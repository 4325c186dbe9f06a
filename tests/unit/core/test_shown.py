"""What the parts of a server show of themselves, in a debugger and in a log."""

import pytest

from limpet.core.admission import Gate, SharedGate
from limpet.core.byte_limited_queue import ByteLimitedQueue
from limpet.core.crowding import Crowd
from limpet.core.ledger import Ledger
from limpet.core.log_rates import NAMES, LogRates
from limpet.core.names import AS_THEY_ARE, Names, NamesOfNames
from limpet.core.rounds import Rounds
from limpet.core.stream import Log, Position


def gate() -> Gate[int]:
    made: Gate[int] = Gate(1, 2)
    for ticket in range(2):
        made.enter(ticket)
    return made


def shared_gate() -> SharedGate[int]:
    made: SharedGate[int] = SharedGate(1, 2)
    for ticket in range(3):
        made.enter(f"owner {ticket % 2}", ticket)
    return made


def queue() -> ByteLimitedQueue:
    made = ByteLimitedQueue(100, 50)
    made.put("a", "", 7)
    return made


def log_rates() -> LogRates:
    made = LogRates(0.0)
    made.admit("call.ended", 0.0)
    return made


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (gate(), "<Gate 1/1 inside, 1/2 waiting>"),
        (shared_gate(), "<SharedGate 1/1 inside, 2 waiting, 1 owners>"),
        (queue(), "<ByteLimitedQueue 1 items, 7/100 bytes>"),
        (Crowd(list, pause=1.0), "<Crowd 0 may leave>"),
        (Ledger(1_000).account("a"), "<Account of 0 bytes>"),
        (Ledger(1_000).account("a").open(), "<Charge of 0 bytes>"),
        (log_rates(), f"<LogRates 1/{NAMES} names>"),
        (
            NamesOfNames(Names("files"), AS_THEY_ARE),
            "<NamesOfNames <Names with files>, then <Names as they are>>",
        ),
        (Rounds(), "<Rounds running at 0, 0 asks>"),
        (Log(Position(3, 1)), "<Log open 3..3, 0 bytes>"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_part_shows_how_full_it_is(made: object, shown: str) -> None:
    assert repr(made) == shown
