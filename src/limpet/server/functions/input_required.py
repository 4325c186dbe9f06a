"""`InputRequired`: returned by a function that must be called again with the client's answers."""

import types
import typing
from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any

from msgspec import Struct


class InputRequired(Struct, frozen=True, kw_only=True):
    """Returned by a tool, prompt or resource that needs answers of the client before it can continue.

    The function is called again, from its start, with the answers in `ctx.input_responses` (by the same keys)
    and the `state` in `ctx.request_state`. Clients of 2026-07-28 carry the state: it is sealed, bound to the
    caller and the request, and expires. No task of this process waits meanwhile.
    """

    requests: Mapping[str, Any] = {}
    """The questions by key; the functions of `Want` make them."""
    state: str = ""
    """A text that the next call gets back."""


def without_input(annotation: Any) -> Any:
    """Return a return annotation without `InputRequired`, which is not part of the result."""
    if annotation is InputRequired:
        return None
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation
    members = [item for item in typing.get_args(annotation) if item is not InputRequired]
    return reduce(or_, members) if members else None
