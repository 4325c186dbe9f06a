"""Affinity: where a request of 2026-07-28 names its conversation, as the operator says (`Settings.affinity`). Pure."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from msgspec import Struct

from limpet.errors import InvalidParams

MAX_CONVERSATION: Final = 255


class Affinity(Struct, frozen=True):
    """Where a request names its conversation."""

    kind: str
    name: str

    @classmethod
    def read(cls, text: str) -> "Affinity":
        """Return the place that a setting means: `header:X-Conversation-Id`, `meta:KEY`, `argument:session_id`."""
        kind, _, name = text.partition(":")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    def key_of(self, params: Mapping[str, Any], headers: Mapping[str, str]) -> str:
        """Return the key that a request names here; empty if it names none.

        Raises:
            InvalidParams: it is not a text of 1 to MAX_CONVERSATION characters.
        """
        if self.kind == "header":
            key: Any = headers.get(self.name.lower())
        else:
            members = params.get("_meta" if self.kind == "meta" else "arguments")
            members = members if isinstance(members, dict) else {}
            key = members.get(self.name)
            if key is None and self.kind == "meta":
                key = _in_baggage(members.get("baggage"), self.name)
        if key is None:
            return ""
        if not isinstance(key, str) or not 0 < len(key) <= MAX_CONVERSATION:
            raise InvalidParams(
                f"Invalid params: {self} names a conversation: a text of 1 to {MAX_CONVERSATION} characters"
            )
        return key


def _in_baggage(baggage: object, name: str) -> str | None:
    """Return a value of the W3C baggage; None if it has none of this name."""
    for member in baggage.split(",") if isinstance(baggage, str) else ():
        key, separator, value = member.partition(";")[0].partition("=")
        if separator and key.strip() == name:
            return unquote(value.strip())
    return None
