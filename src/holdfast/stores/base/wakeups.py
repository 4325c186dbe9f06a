"""Wake-ups: a store tells a process to read something.

A wake-up carries no data. The process that receives one reads the store. A lost wake-up costs time, never a
message: a store that several processes share also polls, and an unnecessary wake-up is allowed.
"""

from collections.abc import Callable
from enum import Enum


class WakeUp(Enum):
    """The kinds of wake-ups. Session and name are the arguments of `OnWake`."""

    STREAM = "stream"
    """The stream `name` has a new event. Sent where the stream is read."""
    ANSWER = "answer"
    """The ask `name` has its answer, or was forgotten. Sent where the ask waits."""
    CANCEL = "cancel"
    """The client cancelled the exchange `name`. Sent where the exchange runs."""
    CLOSED = "closed"
    """The session is closed; the name is empty. Sent to every process that has something of it."""
    TASK = "task"
    """A task has changed: its key stands in the place of the session, the name is empty. Sent to all processes."""
    TURN = "turn"
    """The call `name` may start, where calls run in order. Sent where the call waits."""
    TAKEN = "taken"
    """Another replica has the reader of the stream `name` now. Sent where the former reader is."""
    PROBE = "probe"
    """Another replica asks whether the reader of the stream `name` is alive: call `vouch`. Sent where the reader is."""
    FORWARD = "forward"
    """The inbox may hold a forwarded request; session and name are empty."""
    NEWS = "news"
    """There may be a new announcement; session and name are empty."""


OnWake = Callable[[WakeUp, str, str], None]
"""Called with the kind, the key of the session (or task), and the name of the stream or ask. It does not wait or raise."""
