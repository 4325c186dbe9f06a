"""The documents and logs of sessions in Redis (lua/documents.lua).

`stores/shared/shelf.py` says what each method does.
"""

from collections.abc import Mapping, Sequence
from struct import pack
from typing import Any, Final

import msgspec

from limpet.core.lifecycle import SessionInput
from limpet.core.records import Closed, SessionRecord, WakeUp
from limpet.core.stream import Event, Position
from limpet.stores.base import LINGER_SECONDS
from limpet.stores.redis.core import Core, milliseconds
from limpet.stores.redis.link import Argument
from limpet.stores.shared.commit import SLACK, Commit, Done, LostWrites, Reply, Stale
from limpet.stores.shared.fields import Unreadable
from limpet.stores.shared.shelf import Erasure, Piece, Stored

_pack: Final = msgspec.msgpack.Encoder().encode
_DONE: Final = 1
_LOST: Final = 2
_closing: Final = msgspec.msgpack.Decoder(tuple[str, bytes, str]).decode


def _pairs(flat: Sequence[Any]) -> dict[str, Any]:
    return {flat[index].decode(): flat[index + 1] for index in range(0, len(flat), 2)}


class _Rest:
    """Arguments that are packed. Bytes stand beside them."""

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}
        self.bytes: list[bytes] = []

    def place(self, value: bytes) -> int:
        """Return the number that stands for these bytes."""
        self.bytes.append(value)
        return len(self.bytes)

    def events(self, events: Mapping[str, Sequence[Event]]) -> list[Any]:
        """Return events as the scripts read them."""
        return [
            word
            for stream, added in events.items()
            for (seq, tag), data in added
            for word in (stream, seq, str(tag), self.place(data))
        ]


class RedisDocuments(Core):
    """stored, create, commit, remove, tell, piece, sizes."""

    async def stored(self, key: str, known: bytes = b"") -> Stored | None:
        seconds, microseconds, numbers, flat = await self.send("load", key, (known,))
        self._clock.measure(int(seconds) + int(microseconds) / 1_000_000)
        if numbers is None:
            return None
        if not numbers:
            raise Unreadable("a session's numbers cannot be read")
        return Stored(numbers, None if flat is None else self._fields(flat))

    def _fields(self, flat: Sequence[Any]) -> dict[str, Any]:
        try:
            fields = _pairs(flat)
        except UnicodeDecodeError as error:
            raise Unreadable("a session's field cannot be read") from error
        del fields["n"]
        return fields

    async def create(self, record: SessionRecord, numbers: bytes, fields: Mapping[str, bytes]) -> bool:
        words = [word for pair in fields.items() for word in pair]
        life = milliseconds(max(record.idle, record.grace) + min(record.idle, record.lifetime) + SLACK)
        return bool(await self.send("create", record.key, (life, "n", numbers, *words)))

    async def commit(self, key: str, commit: Commit) -> Reply:
        compare = commit.compare
        words: list[Argument] = [
            commit.exact,
            commit.after,
            f"o:{commit.writer}",
            commit.number,
            commit.acknowledged,
            2 * len(commit.put),
            len(commit.delete),
            0,
            b"",
            b"",
            *[word for pair in commit.put.items() for word in pair],
            *commit.delete,
        ]
        if compare is not None:
            conditions = commit.conditions
            words[7], words[8] = len(compare), pack(f"<{len(conditions)}d", *conditions)
            words += compare
            words += [value or b"" for value in compare.values()]
        if commit.events or commit.renews or commit.cut or commit.drop or commit.told:
            rest = self._rest(key, commit)
            words[9] = _pack(rest.parts)
            words += rest.bytes
        reply = await self.send("commit_end" if commit.frees else "commit", key, tuple(words))
        if reply == _DONE:
            return Done(commit.after)
        if type(reply) is int:
            return LostWrites() if reply == _LOST else None
        if len(reply) == 1:
            return Done(reply[0])
        numbers, flat = reply
        if flat == 0:
            return Done(numbers, sent_before=True)
        return Stale(numbers, self._fields(flat) if compare is None else _pairs(flat))

    def _rest(self, key: str, commit: Commit) -> _Rest:
        """Return the parts that a plain call does not have."""
        made = _Rest()
        rest = made.parts
        if commit.events:
            rest["events"] = made.events(commit.events)
        if commit.events or commit.renews:
            rest["life"] = milliseconds(commit.life)
        if commit.renews:
            rest["renew"] = True
        if commit.cut:
            rest["cut"] = [word for pair in commit.cut.items() for word in pair]
        if commit.drop:
            rest["drop"] = list(commit.drop)
        if commit.told:
            rest["told"] = self._bells(key, commit.told)
        return made

    def _bells(self, key: str, told: Sequence[tuple[WakeUp, str, str]]) -> list[str]:
        """Return channels and messages."""
        return [
            word
            for what, name, replica in told
            for word in (f"{self._prefix}bell:{replica}", f"{what.value} {key} {name}")
        ]

    async def tell(self, key: str, told: Sequence[tuple[WakeUp, str, str]]) -> None:
        await self.send("tell", key, tuple(self._bells(key, told)))

    async def remove(self, key: str, erasure: Erasure) -> bool:
        replicas = {writer.rpartition(".")[0] for writer in erasure.writers} | {erasure.record.home}
        closed = [(WakeUp.CLOSED, "", one) for one in replicas - {self.replica, ""}]
        rest = _Rest()
        rest.parts = {
            "events": rest.events(erasure.events),
            "left": [word for name, head in erasure.left.items() for word in (name, rest.place(head))],
            "told": self._bells(key, [*erasure.told, *closed]),
        }
        closing = _pack((erasure.reason.value, msgspec.json.encode(erasure.record), erasure.event))
        until = repr(self.now() + LINGER_SECONDS)
        words: tuple[Argument, ...] = (
            erasure.exact,
            f"{erasure.event} ",
            closing,
            until,
            milliseconds(LINGER_SECONDS),
            _pack(rest.parts),
            *rest.bytes,
        )
        return bool(await self.send("remove", key, words))

    def closing_of(self, stored: bytes) -> Closed:
        """Return a closing that was stored."""
        try:
            # The name of the closing stands before it, so that a script can compare it.
            reason, record, event = _closing(stored.partition(b" ")[2])
            return Closed(msgspec.json.decode(record, type=SessionRecord), SessionInput(reason), event)
        except (ValueError, msgspec.DecodeError) as error:
            raise Unreadable("a closing cannot be read") from error

    async def piece(self, key: str, stream: str, seq: int, max_events: int, max_bytes: int) -> Piece | None:
        reply = await self.send("read", key, (stream, max(seq, 0), max_events, max_bytes, repr(self.now())))
        if reply is None:
            return None
        events = [
            Event(Position(int(reply[index].partition(b"-")[0]), int(reply[index + 1])), reply[index + 2])
            for index in range(1, len(reply), 3)
        ]
        tag = None
        if events and events[0].position.seq == seq:
            tag = events.pop(0).position.tag
        return Piece(reply[0], tag, events)

    async def sizes(self, key: str, stream: str) -> Sequence[tuple[int, int, int]]:
        reply = await self.send("sizes", key, (stream,))
        return [
            (int(reply[index].partition(b"-")[0]), int(reply[index + 1]), reply[index + 2])
            for index in range(0, len(reply), 3)
        ]
