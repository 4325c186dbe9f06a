"""What a listener wants to be told (`subscriptions/listen` of 2026-07-28), and how a change travels to it. Pure.

A change is an event, not a message: what changed, by kind and name. It becomes a message only
where it is known whose subscription it answers.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from holdfast.errors import InvalidParams
from holdfast.protocol.sessionless import SUBSCRIPTION_KEY, TASKS
from holdfast.wire.jsonrpc import RequestId, encode, notification_message, result_message

Kind = Literal["tools", "prompts", "resources", "resource", "task"]
Key = tuple[Kind, str]
"""A kind and a name; of a list the name is empty."""


class Topic(Struct, frozen=True):
    """One kind of change."""

    method: str
    """The notification that tells of it."""
    member: str
    """The filter's member that wants it."""
    needs: tuple[str, ...]
    """What the server must have declared, as a path into its capabilities."""
    name: str = ""
    """The parameter that names what has changed; empty: it is a whole list."""


TOPICS: Final[dict[Kind, Topic]] = {
    "tools": Topic("notifications/tools/list_changed", "toolsListChanged", ("tools", "listChanged")),
    "prompts": Topic("notifications/prompts/list_changed", "promptsListChanged", ("prompts", "listChanged")),
    "resources": Topic(
        "notifications/resources/list_changed", "resourcesListChanged", ("resources", "listChanged")
    ),
    "resource": Topic(
        "notifications/resources/updated", "resourceSubscriptions", ("resources", "subscribe"), "uri"
    ),
    "task": Topic("notifications/tasks", "taskIds", ("extensions", TASKS), "taskId"),
}


class Change(Struct, frozen=True):
    """Something has changed: a list, or one thing by its name; `detail` are further members of its message."""

    kind: Kind
    name: str = ""
    detail: Mapping[str, Any] = {}

    @property
    def key(self) -> Key:
        """What has changed. A newer change of the same covers an older one."""
        return self.kind, self.name

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of its message."""
        named = TOPICS[self.kind].name
        return {**self.detail, named: self.name} if named else {}


def encode_change(change: Change, principal: str | None) -> bytes:
    """Return a change, and whom it concerns, as replicas tell each other."""
    return encode((change, principal))


def decode_change(event: bytes) -> tuple[Change, str | None]:
    """Return what `encode_change` was given."""
    return msgspec.json.decode(event, type=tuple[Change, str | None])


class Filter(Struct, frozen=True):
    """What a listener is told of: names by kind; a list that is wanted has the empty name."""

    names: Mapping[Kind, tuple[str, ...]]

    @property
    def keys(self) -> list[Key]:
        """Every change it asks for."""
        return [(kind, name) for kind, names in self.names.items() for name in names]

    @property
    def size(self) -> int:
        """The bytes of all names."""
        return sum(len(name.encode()) for names in self.names.values() for name in names)

    def only(self, kind: Kind, names: Iterable[str]) -> "Filter":
        """Return the filter with these of one kind's names."""
        return Filter({**self.names, kind: tuple(names)})

    def within(self, capabilities: Mapping[str, Any]) -> "Filter":
        """Return what of it a server with these capabilities tells."""
        return Filter(
            {kind: names for kind, names in self.names.items() if _has(capabilities, TOPICS[kind].needs)}
        )

    def to_wire(self) -> dict[str, Any]:
        """Return it as it travels, without what it does not ask for."""
        return {
            topic.member: list(names) if topic.name else True
            for kind, topic in TOPICS.items()
            if (names := self.names.get(kind))
        }


def _has(capabilities: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    found: Any = capabilities
    for step in path:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found is not None and found is not False


def read_filter(params: Mapping[str, Any], limit: int, size: int) -> Filter:
    """Return what a listen request asks for; members of other revisions are passed over.

    Raises:
        InvalidParams: it is malformed, or names more than `limit` things, or more than `size` bytes of them.
    """
    wanted = params.get("notifications")
    if type(wanted) is not dict:
        raise InvalidParams("Invalid params: notifications must be an object that says what to tell")
    names: dict[Kind, tuple[str, ...]] = {}
    for kind, topic in TOPICS.items():
        value = wanted.get(topic.member)
        if value is None or value is False:
            continue
        names[kind] = _names(value, topic) if topic.name else _whole(value, topic)
    if sum(map(len, names.values())) > limit + len(TOPICS):
        raise InvalidParams(f"Too many subscriptions: a listener may have {limit}")
    found = Filter(names)
    if found.size > size:
        raise InvalidParams(f"Too many subscriptions: the names of a listener's have at most {size} bytes")
    return found


def _names(value: object, topic: Topic) -> tuple[str, ...]:
    if type(value) is not list or not all(type(name) is str for name in value):
        raise InvalidParams(f"Invalid params: notifications.{topic.member} must be a list of strings")
    return tuple(dict.fromkeys(value))


def _whole(value: object, topic: Topic) -> tuple[str, ...]:
    if value is not True:
        raise InvalidParams(f"Invalid params: notifications.{topic.member} must be true or false")
    return ("",)


# Messages. Each says which subscription it belongs to: by the id of the request that opened it, as it was typed.


def acknowledged_message(subscription: RequestId, honoured: Filter) -> bytes:
    """Return the first message of a subscription."""
    params = {"_meta": {SUBSCRIPTION_KEY: subscription}, "notifications": honoured.to_wire()}
    return notification_message("notifications/subscriptions/acknowledged", params)


def change_message(subscription: RequestId, change: Change) -> bytes:
    """Return a change as this subscription is told of it."""
    params = {"_meta": {SUBSCRIPTION_KEY: subscription}, **change.params}
    return notification_message(TOPICS[change.kind].method, params)


def dropped_message(subscription: RequestId, reason: str) -> bytes:
    """Return the last message of a subscription that is cut off, where its connection cannot be."""
    params = {"_meta": {SUBSCRIPTION_KEY: subscription}, "requestId": subscription, "reason": reason}
    return notification_message("notifications/cancelled", params)


def completed_message(subscription: RequestId) -> bytes:
    """Return the last message of a subscription that the server ends."""
    result = {"resultType": "complete", "_meta": {SUBSCRIPTION_KEY: subscription}}
    return result_message(subscription, encode(result))
