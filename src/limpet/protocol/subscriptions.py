"""The filter of a listener (`subscriptions/listen` of 2026-07-28), and the changes that it receives. Pure.

A change has a kind and a name. It becomes a message when the subscription that receives it is known.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from limpet.errors import InvalidParams
from limpet.protocol.sessionless import SUBSCRIPTION_KEY, TASKS
from limpet.wire.jsonrpc import RequestId, encode, notification_message, result_message

ComponentKind = Literal["tools", "prompts", "resources", "resource"]
Kind = Literal[ComponentKind, "task"]
Key = tuple[Kind, str]
"""A kind and a name; the name is empty for a list."""


class Topic(Struct, frozen=True):
    """One kind of change."""

    method: str
    """The notification that reports it."""
    member: str
    """The member of the filter that requests it."""
    needs: tuple[str, ...]
    """The capability that the server must have declared, as a path."""
    name: str = ""
    """The parameter with the name of the changed component; empty for a whole list."""


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
_COMPONENTS: Final[tuple[ComponentKind, ...]] = ("tools", "prompts", "resources", "resource")
REPORTED: Final[dict[str, ComponentKind]] = {TOPICS[kind].method: kind for kind in _COMPONENTS}
"""By notification: the list or resource that has changed. The notification of a task has the new state in it."""
LISTS: Final[dict[str, ComponentKind]] = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resources",
}
"""By request: the change that makes its result old."""


LIST_KINDS: Final[tuple[ComponentKind, ...]] = ("tools", "prompts", "resources")


def list_kinds(capabilities: Mapping[str, Any]) -> list[Kind]:
    """Return the lists that a server with these capabilities has."""
    return [kind for kind in LIST_KINDS if kind in capabilities]


class Change(Struct, frozen=True):
    """A list has changed, or one thing with a name. `detail` are further members of the message."""

    kind: Kind
    name: str = ""
    detail: Mapping[str, Any] = {}

    @property
    def key(self) -> Key:
        """The changed component. A newer change with the same key replaces an older one."""
        return self.kind, self.name

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the message."""
        named = TOPICS[self.kind].name
        return {**self.detail, named: self.name} if named else dict(self.detail)


def all_changes(kinds: Iterable[Kind], uris: Iterable[str]) -> list[Change]:
    """Return the changes to report if some may have been missed: of these lists and resources."""
    return [*map(Change, kinds), *(Change("resource", uri) for uri in uris)]


def encode_change(change: Change, principal: str | None) -> bytes:
    """Encode a change, and the principal it is for, to send it to other replicas."""
    return encode((change, principal))


def decode_change(event: bytes) -> tuple[Change, str | None]:
    """Decode a result of `encode_change`."""
    return msgspec.json.decode(event, type=tuple[Change, str | None])


class Filter(Struct, frozen=True):
    """The changes that a listener receives: names by kind; the empty name stands for a whole list."""

    names: Mapping[Kind, tuple[str, ...]]

    @property
    def keys(self) -> list[Key]:
        """The key of every requested change."""
        return [(kind, name) for kind, names in self.names.items() for name in names]

    @property
    def size(self) -> int:
        """The bytes of all names."""
        return sum(len(name.encode()) for names in self.names.values() for name in names)

    def only(self, kind: Kind, names: Iterable[str]) -> "Filter":
        """Return the filter with only these names of one kind."""
        return Filter({**self.names, kind: tuple(names)})

    def within(self, capabilities: Mapping[str, Any]) -> "Filter":
        """Return the part of the filter that a server with these capabilities supports."""
        return Filter(
            {kind: names for kind, names in self.names.items() if _has(capabilities, TOPICS[kind].needs)}
        )

    def to_wire(self) -> dict[str, Any]:
        """Return the filter for the wire, without the members that it does not request."""
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
    """Return the filter of a listen request; members of other revisions are ignored.

    Raises:
        InvalidParams: it is malformed, has more than `limit` names, or names of more than `size` bytes.
    """
    wanted = params.get("notifications")
    if type(wanted) is not dict:
        raise InvalidParams("Invalid params: notifications must be an object, the filter")
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
        raise InvalidParams(f"Too many subscriptions: the names of one listener have at most {size} bytes")
    return found


def _names(value: object, topic: Topic) -> tuple[str, ...]:
    if type(value) is not list or not all(type(name) is str for name in value):
        raise InvalidParams(f"Invalid params: notifications.{topic.member} must be a list of strings")
    return tuple(dict.fromkeys(value))


def _whole(value: object, topic: Topic) -> tuple[str, ...]:
    if value is not True:
        raise InvalidParams(f"Invalid params: notifications.{topic.member} must be true or false")
    return ("",)


# Messages. Each carries the id of its subscription: the id of the request that opened it, with its JSON type.


def acknowledged_message(subscription: RequestId, honoured: Filter) -> bytes:
    """Return the first message of a subscription."""
    params = {"_meta": {SUBSCRIPTION_KEY: subscription}, "notifications": honoured.to_wire()}
    return notification_message("notifications/subscriptions/acknowledged", params)


def change_message(subscription: RequestId, change: Change) -> bytes:
    """Return the message that reports a change to this subscription."""
    own = change.detail.get("_meta", {})
    params = {**change.params, "_meta": {**own, SUBSCRIPTION_KEY: subscription}}
    return notification_message(TOPICS[change.kind].method, params)


def dropped_message(subscription: RequestId, reason: str) -> bytes:
    """Return the last message of a subscription that ends while its connection stays open."""
    params = {"_meta": {SUBSCRIPTION_KEY: subscription}, "requestId": subscription, "reason": reason}
    return notification_message("notifications/cancelled", params)


def completed_message(subscription: RequestId) -> bytes:
    """Return the last message of a subscription that the server ends."""
    result = {"resultType": "complete", "_meta": {SUBSCRIPTION_KEY: subscription}}
    return result_message(subscription, encode(result))
