"""Wake-ups: a store tells a process to read something.

A wake-up carries no data. The process that receives one reads the store. A lost wake-up costs time, never a
message: a store that several processes share also polls, and an unnecessary wake-up is allowed.
"""

from collections.abc import Callable

from limpet.core.records import WakeUp

OnWake = Callable[[WakeUp, str, str], None]
"""Called with the kind, the key of the session (or task), and the name of the stream or ask. It does not wait or
raise."""


def silent(kind: WakeUp, session: str, name: str) -> None:
    """Drop a wake-up: no process has called `bind` yet."""
