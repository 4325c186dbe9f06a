"""Every limit and every time of a client, with its default and the reason for it."""

from msgspec import Struct

from limpet.config import KIB, MIB


class ClientLimits(Struct, frozen=True, kw_only=True):
    """Limits on the memory that a server can make a client use."""

    message: int = 16 * MIB
    """Bytes of one message, in a body, a line or an event. Results may contain images."""
    line: int = 16 * MIB
    """Bytes of one line of an event stream."""
    refusal: int = 64 * KIB
    """Bytes that are read of a response with an error status."""
    depth: int = 64
    """Levels of nesting in one message."""
    incoming: int = 32
    """Requests of the server that are handled at once; the next ones queue."""
    incoming_queued: int = 4_096
    """Requests of the server that may queue; the next ones are refused as busy, −31001."""
    incoming_bytes: int = 32 * MIB
    """The memory of requests of the server that queue or are handled, as it is estimated; the next large ones are
    refused as busy. One that is longer is handled alone."""
    rounds: int = 10
    """How often one call may ask for input (2026-07-28)."""
    repeats: int = 3
    """How often a call that may be repeated is sent again."""
    pages: int = 1_000
    """Pages of one list that are read. Together they may be as long as four messages."""
    cached: int = 1_024
    """Results that are cached, as long as the server's hints allow."""
    behind: int = 256
    """Progress and log messages that wait for a slow callback; beyond this the oldest are dropped."""
    kept_bytes: int = 32 * MIB
    """The memory of cached results, and of messages that wait for a slow callback, as it is estimated; beyond this the
    oldest are dropped. One result that is longer is not cached."""


class ClientTimes(Struct, frozen=True, kw_only=True):
    """Times, in seconds."""

    call: float | None = 300.0
    """How long a call may take if it has no own `timeout`; None: no limit."""
    connect: float = 10.0
    """How long opening a connection may take; for a command, its start and the negotiation."""
    patience: float = 30.0
    """How long a call tries to reconnect to a server that has worked. A server restarts in less."""
    probe: float = 5.0
    """How long a server on a duplex may take for `server/discover` before `initialize` is sent too."""
    standalone: float = 1.0
    """How long connecting waits for the standalone stream. Some servers send no headers before the first event."""
    silence: float = 60.0
    """A resumable stream that sends no byte for this long is treated as broken. Servers send a comment every 15 s."""
    settle: float = 5.0
    """How long the calls of a lost session may still be answered on their own streams."""
    close: float = 5.0
    """How long closing may take: the last messages, and deleting the session."""
    backoff: tuple[float, float] = (0.25, 10.0)
    """The first and the longest pause between two attempts. Each is shortened by a random part."""
