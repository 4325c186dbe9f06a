"""The context of the running function, for code that does not get it as a parameter.

A context variable holds the parts of a context, and `current_context` makes the context. Tasks and worker threads that
the function starts inherit it. The variable is reset when the function has ended: the context of a task
outlives the call, and the exchange has a reference to its task, which would be a reference cycle.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from limpet.server.context.context import Context, parts_of
from limpet.server.current_call import CURRENT

if TYPE_CHECKING:
    from collections.abc import Iterator


def current_context() -> Context:
    """Return the context of the call in which this code runs: in a function of a server, or in code that it calls.

    Raises:
        RuntimeError: no function of a server runs here.
    """
    parts = CURRENT.get()
    if parts is None:
        raise RuntimeError(
            "current_context() works only while a tool, resource, prompt, completion or middleware runs"
        )
    return Context(*parts)


@contextmanager
def entered(ctx: Context) -> Iterator[None]:
    """Make a context the current one."""
    outer = CURRENT.get()
    CURRENT.set(parts_of(ctx))
    try:
        yield
    finally:
        CURRENT.set(outer)
