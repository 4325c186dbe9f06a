"""The public kit for tests: a client in memory, a clock, random numbers, a scripted back, a contract for stores."""

from holdfast.checking.report import Report, Row
from holdfast.testing.back import ScriptedBack
from holdfast.testing.checking import check
from holdfast.testing.clock import VirtualClock
from holdfast.testing.notes import NotingObserver
from holdfast.testing.seeded_random import SeededRandom
from holdfast.testing.store import BackendContract, SharedContract, StoreContract

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
