"""Errors that authors raise to be read, as against faults: what they say, also out of a task group."""

from collections.abc import Iterator
from typing import Any

from holdfast.engine.exchange import Exchange
from holdfast.errors import AskError, CapabilityMissing, HandleNotFound, NoSession, ToolError
from holdfast.protocol.modern import MissingCapability
from holdfast.protocol.versions import MODERN

TOLD = (ToolError, AskError, NoSession, HandleNotFound, ExceptionGroup)
"""What may hold words for the client. A group may not: ask `words_of`."""


def words_of(error: Exception) -> str | None:
    """Return what an error tells; None where it is a fault, and its text nobody else's business.

    Asks made together in an `asyncio.TaskGroup` fail as a group: it tells what its members tell,
    each thing once, unless one of them is a fault.
    """
    if isinstance(error, (ToolError, AskError, NoSession, HandleNotFound)):
        return str(error)
    if not isinstance(error, ExceptionGroup):
        return None
    words = [words_of(member) for member in error.exceptions]
    told = [text for text in words if text is not None]
    return "\n".join(dict.fromkeys(told)) if len(told) == len(words) else None


def words_for(error: Exception, exchange: Exchange) -> str:
    """Return what an error tells this client.

    Raises:
        MissingCapability: it is the client's to declare more, and its revision has an error that says so.
        Exception: the error itself, where it is a fault.
    """
    words = words_of(error)
    if words is None:
        raise error
    if exchange.session.revision is MODERN:
        missing = list(_missing(error))
        if missing:
            why = "; ".join(dict.fromkeys(map(str, missing)))
            raise MissingCapability(_merged([one.required for one in missing]), why) from error
    return words


def _missing(error: Exception) -> Iterator[CapabilityMissing]:
    if isinstance(error, CapabilityMissing) and error.required:
        yield error
    elif isinstance(error, ExceptionGroup):
        for member in error.exceptions:
            yield from _missing(member)


def _merged(required: list[dict[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for one in required:
        for name, parts in one.items():
            merged[name] = {**merged.get(name, {}), **parts}
    return merged
