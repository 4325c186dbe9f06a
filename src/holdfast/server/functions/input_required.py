"""`InputRequired`: how a handler says that it must be called again with the client's answers."""

import types
import typing
from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any

from msgspec import Struct


class InputRequired(Struct, frozen=True, kw_only=True):
    """Returned by a tool, prompt or resource: call me again when the client has answered these.

    The next call finds the answers in `ctx.input_responses` (by these keys, as they came) and
    the `state` in `ctx.request_state`. Clients of 2026-07-28 carry the state: it is sealed, bound
    to the caller and the request, and expires; nothing waits in this process meanwhile.
    """

    requests: Mapping[str, Any] = {}
    """What is wanted, each made by a function of `Want`."""
    state: str = ""


def without_input(annotation: Any) -> Any:
    """Return a return annotation without `InputRequired`, which is no result."""
    if annotation is InputRequired:
        return None
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation
    members = [item for item in typing.get_args(annotation) if item is not InputRequired]
    return reduce(or_, members) if members else None
