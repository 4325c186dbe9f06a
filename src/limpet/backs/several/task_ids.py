"""The ids of tasks of several servers: each begins with the name of its member, so that any replica finds the way.

Pure.

Only tasks of servers behind are marked. A task of this process, also a call that was handed over, keeps its id.
"""

from typing import Any, Final

import msgspec

from limpet.wire.jsonrpc import encode

_BETWEEN: Final = "/"
_MARK: Final = b'"taskId"'
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


def marked(result: bytes, member: str) -> bytes:
    """Return a result of a member with the marked id, if it is a task."""
    if _MARK not in result:
        return result
    try:
        members = _decode(result)
        if "taskId" not in members:
            return result
        named = f"{member}{_BETWEEN}{_decode_text(members['taskId'])}"
    except msgspec.MsgspecError:
        return result
    return encode({**members, "taskId": named})


def unmarked(task_id: object) -> tuple[str, str] | None:
    """Return the member and its own id of a task; None: the id has no mark."""
    if type(task_id) is not str:
        return None
    member, between, own = task_id.partition(_BETWEEN)
    return (member, own) if between else None


def with_own_id(params: dict[str, Any], own: str) -> dict[str, Any]:
    """Return the params for the member."""
    return {**params, "taskId": own}
