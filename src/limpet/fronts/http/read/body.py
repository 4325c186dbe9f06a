"""The body of a request, within its limits: 413 if it is too large, 408 if it is too slow."""

import asyncio
from collections.abc import Callable
from typing import Final

from limpet.fronts.http.read.request import Channel
from limpet.fronts.http.write.answer import Answer, refuse

_OVERDUE: Final = 0.5
"""A timer that is late by so many seconds shows that this process could not run."""
AWAKE: Final = 1.0
"""Seconds to read the bytes that arrived while this process could not run."""


class BadBody(Exception):
    """The body cannot be read; `answer` is the refusal."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


async def read_body(
    channel: Channel,
    limit: int,
    seconds: float,
    declared: str = "",
    read: Callable[[int], None] | None = None,
) -> bytes:
    """Return the request's body; one that is declared to be too large is not read.

    `read` is called with the number of bytes so far, and may raise to stop the reading.

    Raises:
        BadBody: it is too large or too slow.
        Gone: the client has disconnected.
    """
    if declared.isdecimal() and int(declared[:12]) > limit:
        raise too_large(limit)
    parts: list[bytes] = []
    patience = seconds
    while True:
        deadline = asyncio.timeout(patience)
        try:
            async with deadline:
                await _read_parts(channel, parts, limit, read)
            return parts[0] if len(parts) == 1 else b"".join(parts)
        except TimeoutError:
            if not _is_overdue(deadline):
                text = f"Request timeout: the body took longer than {seconds:g} s"
                raise BadBody(refuse(408, text, audit="slow")) from None
            # This process was stopped, or its loop was blocked: read the bytes that were sent in that time.
            patience = AWAKE


async def _read_parts(
    channel: Channel, parts: list[bytes], limit: int, read: Callable[[int], None] | None
) -> None:
    """Read the rest of the body; `parts` keeps the bytes that have arrived if this is interrupted."""
    size, more = sum(map(len, parts)), True
    while more:
        part, more = await channel.read()
        parts.append(part)
        size += len(part)
        if size > limit:
            raise too_large(limit)
        if read is not None:
            read(size)


def too_large(limit: int) -> BadBody:
    """Return the refusal of a body that is longer than the limit."""
    return BadBody(refuse(413, f"Content too large: a message is at most {limit} bytes", audit="too_large"))


def _is_overdue(deadline: asyncio.Timeout) -> bool:
    when = deadline.when()
    return when is not None and asyncio.get_running_loop().time() - when > _OVERDUE
