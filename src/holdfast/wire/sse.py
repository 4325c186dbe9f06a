"""Server-sent events: the bytes of an event, a comment and a retry hint.

Payloads are JSON on one line, so an event needs exactly one `data` line.
"""

from typing import Final

KEEP_ALIVE: Final = b": keep-alive\n\n"


def event(data: bytes, event_id: str = "") -> bytes:
    """Return one message event; with an id it can be resumed after."""
    if event_id:
        return b"event: message\nid: %b\ndata: %b\n\n" % (event_id.encode(), data)
    return b"event: message\ndata: %b\n\n" % data


def priming(event_id: str, retry_ms: int) -> bytes:
    """Return the empty first event that gives a client something to resume from."""
    return b"id: %b\nretry: %d\ndata: \n\n" % (event_id.encode(), retry_ms)


def retry(milliseconds: int) -> bytes:
    """Return the reconnection delay a client should keep."""
    return b"retry: %d\n\n" % milliseconds


def comment(text: str) -> bytes:
    """Return a line that clients ignore and people read."""
    return b": %b\n\n" % text.encode()
