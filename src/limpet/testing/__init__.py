"""The public kit for tests: a client in memory, a clock, random numbers, a scripted back, a contract for stores."""

from limpet.checking.report import Report, Row
from limpet.testing.back import ScriptedBack
from limpet.testing.checking import check
from limpet.testing.clock import VirtualClock
from limpet.testing.notes import NotingObserver
from limpet.testing.seeded_random import SeededRandom
from limpet.testing.store import BackendContract, SharedContract, StoreContract

__all__ = [
    "BackendContract",
    "NotingObserver",
    "Report",
    "Row",
    "ScriptedBack",
    "SeededRandom",
    "SharedContract",
    "StoreContract",
    "VirtualClock",
    "check",
]
