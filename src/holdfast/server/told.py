"""Errors that authors raise to be read, as against faults: what they say, also out of a task group."""

from holdfast.errors import AskError, ToolError

TOLD = (ToolError, AskError, ExceptionGroup)
"""What may hold words for the client. A group may not: ask `words_of`."""


def words_of(error: Exception) -> str | None:
    """Return what an error tells; None where it is a fault, and its text nobody else's business.

    Asks made together in an `asyncio.TaskGroup` fail as a group: it tells what its members tell,
    each thing once, unless one of them is a fault.
    """
    if isinstance(error, (ToolError, AskError)):
        return str(error)
    if not isinstance(error, ExceptionGroup):
        return None
    words = [words_of(member) for member in error.exceptions]
    told = [text for text in words if text is not None]
    return "\n".join(dict.fromkeys(told)) if len(told) == len(words) else None
