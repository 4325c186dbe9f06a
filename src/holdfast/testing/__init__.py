"""The public kit for tests: time and chance that you hold, a back that follows your script, a contract for stores."""

from holdfast.testing.back import ScriptedBack
from holdfast.testing.chance import SeededRandom
from holdfast.testing.clock import VirtualClock
from holdfast.testing.notes import NotingObserver
from holdfast.testing.store import StoreContract

__all__ = ["NotingObserver", "ScriptedBack", "SeededRandom", "StoreContract", "VirtualClock"]
