"""Every bound and clock of a client, with its default and the reason for it."""

from typing import Literal

from msgspec import Struct

from holdfast.config import KIB, MIB

Era = Literal["auto", "modern", "legacy"]


class ClientLimits(Struct, frozen=True, kw_only=True):
    """Bounds on what a server can make a client hold."""

    message: int = 16 * MIB
    """Bytes of one message, in a body, a line or an event; results carry images."""
    line: int = 16 * MIB
    """Bytes of one line of an event stream."""
    refusal: int = 64 * KIB
    """Bytes read of an answer that only says no."""
    depth: int = 64
    """Nesting of one message."""
    incoming: int = 32
    """Requests of the server's that are handled at once; the next ones queue."""
    incoming_queued: int = 4_096
    """Those that wait for a place; beyond: refused as busy, −31001."""
    rounds: int = 10
    """How often one call may ask for input (2026-07-28)."""
    repeats: int = 3
    """How often a call that may be repeated is."""
    pages: int = 1_000
    """Pages of one list that are followed."""
    cached: int = 1_024
    """Results kept as long as the server's hints allow."""
    behind: int = 256
    """Progress and log messages that wait for a slow callback; beyond it the oldest go."""


class ClientTimes(Struct, frozen=True, kw_only=True):
    """Clocks, in seconds."""

    call: float | None = 300.0
    """How long a call may take when it says nothing itself; None: for ever."""
    connect: float = 10.0
    patience: float = 30.0
    """How long a connection that worked is sought again before a call gives up: a server restarts in less."""
    probe: float = 5.0
    """How long a server on a pipe may take for `server/discover` before it is tried with `initialize` too."""
    standalone: float = 1.0
    """How long connecting waits for the session's own stream; some servers never answer until they speak."""
    silence: float = 60.0
    """A resumable stream without a byte for this long is taken for dead; servers say something every 15 s."""
    settle: float = 5.0
    """How long calls of a lost session may still be answered by their own streams."""
    close: float = 5.0
    """How long saying goodbye may take."""
    backoff: tuple[float, float] = (0.25, 10.0)
    """The first and the longest pause between two attempts; each is jittered."""
