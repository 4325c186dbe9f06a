"""What this process knows of a session: its document, the commands that wait, and the work that it has in it."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from limpet.core.rules.document import Ask, ExchangeRecord
from limpet.errors import SessionGone
from limpet.stores.backend import GONE
from limpet.stores.shared.draft import SharedDocument

_DOCUMENT: Final = 4_500
_ENTRY: Final = 250
"""Bytes of memory: of a document with its tables, and of an entry of a table. A call in flight has two."""


class RuleCommand(Struct, eq=False):
    """A rule with its arguments, and its outcome."""

    rule: Callable[..., Any]
    args: tuple[Any, ...]
    more: dict[str, Any]
    me: str
    """The incarnation that has sent it. Work that it begins belongs to this one."""
    absent: Any
    """The result if the session is unknown or closed; GONE: SessionGone is raised."""
    result: Any = None
    error: Exception | None = None
    done: asyncio.Future[None] | None = None
    """Of a command that waits for the commit before it."""

    def reset(self, error: Exception | None = None) -> None:
        """Forget the outcome: nothing of it was committed."""
        self.result, self.error = self.absent, error

    def outcome(self) -> Any:
        """Return the result of the rule, or raise its error."""
        if self.error is not None:
            raise self.error
        if self.result is GONE:
            raise SessionGone
        return self.result


class KnownSession:
    """A session in this process."""

    __slots__ = (
        "acknowledged", "asks", "careful", "doc", "doubted", "is_busy", "key", "last", "lost", "number", "queue", "registered", "running", "shy", "weight", "writer",
    )  # fmt: skip

    def __init__(self, key: str) -> None:
        self.key: str = key
        self.doc: SharedDocument | None = None
        self.last: SharedDocument | None = None
        """The last known document, while it is not certain whether it is the stored one."""
        self.queue: list[RuleCommand] = []
        self.is_busy: bool = False
        self.number: int = 0
        """Of the last commit that was sent."""
        self.doubted: int = 0
        """Of the last commit without a reply. Until a later one is acknowledged, it may still arrive."""
        self.acknowledged: int = 0
        self.registered: str = ""
        """The incarnation under which it was registered that there is work here."""
        self.writer: str = ""
        """The name under which the commits are numbered."""
        self.shy: int = 0
        """How many more commits carry what they have read, because another process writes the session too."""
        self.careful: int = 0
        """How many more do so although they are exact, because another process has written between two commits of
        this one."""
        self.lost: int | None = None
        """If the store has lost commits: the last one that it has."""
        self.running: dict[str, tuple[ExchangeRecord, int]] = {}
        """The exchanges that run here, and the commits that have claimed them."""
        self.asks: dict[str, tuple[Ask, int]] = {}
        self.weight: int = 0
        """The bytes of memory that it counts for."""

    def weighed(self) -> int:
        """Return about how many bytes of memory its document takes."""
        doc = self.doc or self.last
        if doc is None:
            return _ENTRY
        size = _DOCUMENT + _ENTRY * sum(map(len, doc.tables.values())) + doc.record_bytes
        if doc.raw:
            size += sum(len(value or b"") for value in doc.raw.values())
        if doc.asks:
            size += sum(len(ask.answer or b"") for ask in dict.values(doc.asks))
        return size

    @property
    def is_in_doubt(self) -> bool:
        """True if a commit may still arrive that was given up."""
        return self.doubted > self.acknowledged

    def has_work(self, me: str) -> bool:
        """Return True if something of the session runs, waits or is read here, or a commit may still arrive."""
        if self.running or self.asks or self.is_busy or self.is_in_doubt:
            return True
        doc = self.doc or self.last
        return doc is not None and any(one.reader == me for one in dict.values(doc.exchanges))

    def unknown(self) -> None:
        """Forget the changes of the document, which may not be the stored one."""
        if self.doc is not None:
            self.doc.undo()
            self.last, self.doc = self.doc, None
