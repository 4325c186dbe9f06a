"""The capabilities that each side declares. Unknown members are kept unchanged."""

from typing import Any, Self, TypeVar

from msgspec import Struct, field

Members = dict[str, Any]
C = TypeVar("C", bound="Capabilities")


class Capabilities(Struct, frozen=True, kw_only=True):
    """The known members, and `extra` with all others."""

    experimental: Members | None = None
    tasks: Members | None = None
    extra: Members = field(default_factory=dict)

    @classmethod
    def from_wire(cls, members: Members) -> Self:
        """Read a capabilities object. A member that is not an object counts as absent."""
        names = {*cls.__struct_fields__} - {"extra"}
        known = {name: value for name, value in members.items() if name in names and isinstance(value, dict)}
        return cls(**known, extra={name: value for name, value in members.items() if name not in names})

    def to_wire(self) -> Members:
        names = (name for name in self.__struct_fields__ if name != "extra")
        known = {name: value for name in names if (value := getattr(self, name)) is not None}
        return {**known, **self.extra}


class ClientCapabilities(Capabilities, frozen=True, kw_only=True):
    """The capabilities that a client declares."""

    roots: Members | None = None
    sampling: Members | None = None
    elicitation: Members | None = None

    @property
    def samples_with_tools(self) -> bool:
        return self.sampling is not None and "tools" in self.sampling

    @property
    def samples_with_context(self) -> bool:
        return self.sampling is not None and "context" in self.sampling

    @property
    def elicits_form(self) -> bool:
        # Before 2025-11-25 an empty object declared forms, and it still does.
        return self.elicitation is not None and ("form" in self.elicitation or "url" not in self.elicitation)

    @property
    def elicits_url(self) -> bool:
        return self.elicitation is not None and "url" in self.elicitation


class ServerCapabilities(Capabilities, frozen=True, kw_only=True):
    """The capabilities that a server declares."""

    tools: Members | None = None
    resources: Members | None = None
    prompts: Members | None = None
    completions: Members | None = None
    logging: Members | None = None
