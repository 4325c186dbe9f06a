"""The documents and logs of sessions in PostgreSQL (sql/functions.sql).

`stores/shared/shelf.py` says what each method does.

Wake-ups are sent after the commit and not in it: NOTIFY in a transaction takes a lock of the whole database until its
end. So they are also sent if the answer of the commit was lost, whether it was applied or not: a wake-up too many does
no harm.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from limpet.core.records import SessionRecord, WakeUp
from limpet.core.stream import Event, Position
from limpet.errors import StoreUnavailable
from limpet.stores.base import LINGER_SECONDS, LINGER_SHARE
from limpet.stores.base.replicas import lease_ended
from limpet.stores.postgres.bell import Bell
from limpet.stores.postgres.core import hashed, texts
from limpet.stores.shared.commit import SIZE, Commit, Done, LostWrites, Reply, Stale, pack, unpack
from limpet.stores.shared.fields import encode_record
from limpet.stores.shared.shelf import Erasure, Piece, Stored

_SIGN: Final = 1 << 63
_SPAN: Final = 1 << 64
"""A tag has 64 bits without a sign, and PostgreSQL's integers have one."""
_NO_SESSION, _APPLIED, _MERGED, _BEFORE, _LOST, _STALE = range(6)
_NOTHING: Final = (None, None, None, None)
_uris: Final = msgspec.msgpack.Decoder(list[str]).decode


def _numbers(packed: bytes) -> tuple[float, ...] | None:
    return unpack(packed) if len(packed) >= SIZE else None


def _fields(names: Sequence[bytes] | None, values: Sequence[Any] | None) -> dict[str, Any]:
    return {name.decode(): value for name, value in zip(names or (), values or (), strict=True)}


def _columns(events: Mapping[str, Sequence[Event]]) -> tuple[Any, ...]:
    """Return events as columns: streams, numbers, tags, data."""
    rows = [
        (stream, seq, tag if tag < _SIGN else tag - _SPAN, data)
        for stream, added in events.items()
        for (seq, tag), data in added
    ]
    return tuple(map(list, zip(*rows, strict=True))) or _NOTHING


class PostgresDocuments(Bell):
    """stored, create, commit, remove, tell, piece, sizes."""

    over: int

    async def stored(self, key: str, known: bytes = b"") -> Stored | None:
        rows = await self._run("load", key, _numbers(known))
        if not rows:
            return None
        numbers, more, writer, number, now, names, values = rows[0]
        self._clock.measure(now)
        packed = pack(*numbers) + more
        if packed == known:
            return Stored(packed, None)
        fields = _fields(names, values)
        if writer:
            fields[f"o:{writer}"] = b"%d" % number
        return Stored(packed, fields)

    async def create(self, record: SessionRecord, numbers: bytes, fields: Mapping[str, bytes]) -> bool:
        return bool(await self._one("create", *self._session(record, numbers, fields)))

    def _session(self, record: SessionRecord, numbers: bytes, fields: Mapping[str, bytes]) -> tuple[Any, ...]:
        return (
            record.key,
            hashed(record.principal),
            unpack(numbers),
            numbers[SIZE:],
            texts(list(fields)),
            list(fields.values()),
        )

    async def commit(self, key: str, commit: Commit) -> Reply:
        put, delete, compare = commit.put, commit.delete, commit.compare
        uris = None
        if "u" in put or "u" in delete:
            uris = texts(_uris(put["u"])) if "u" in put else []
        name = "commit"
        arguments: tuple[Any, ...] = (
            key,
            commit.writer,
            commit.number,
            commit.acknowledged,
            _numbers(commit.exact),
            _numbers(commit.after),
            [name.encode() for name in put] if put else None,
            list(put.values()) if put else None,
            [name.encode() for name in delete] if delete else None,
            self._must_live(commit),
        )
        if uris is not None or compare is not None or commit.events or commit.cut or commit.drop:
            name = "commit_more"
            arguments += (
                None if compare is None else [name.encode() for name in compare],
                None if compare is None else list(compare.values()),
                None if compare is None else list(commit.conditions),
                *_columns(commit.events),
                list(commit.cut) if commit.cut else None,
                list(commit.cut.values()) if commit.cut else None,
                list(commit.drop) if commit.drop else None,
                uris,
                self._limits.principal_kept_bytes if commit.keeps > 0 else None,
            )
        try:
            # A commit that changes the sum of a principal goes alone: others may wait for that row, and hold a session
            # of the batch.
            rows = await self._lanes.run(self._queries[name], arguments, "" if uris is not None else key)
        except StoreUnavailable:
            self._ring(key, commit.told)
            raise
        return self._reply(key, commit, *rows[0][0])

    def _must_live(self, commit: Commit) -> str | None:
        """Return the incarnation that must have a lease, because the commit gives it work."""
        if not commit.frees:
            for name in commit.put:
                if name[:2] == "x:":
                    owner = commit.writer.rpartition("/")[0]
                    return None if owner.endswith(".0") else owner
        return None

    def _reply(
        self,
        key: str,
        commit: Commit,
        verdict: int,
        numbers: Sequence[float] | None,
        more: bytes | None,
        names: Sequence[bytes] | None,
        values: Sequence[Any] | None,
        size: int | None,
    ) -> Reply:
        if size is not None:
            self.over = int(size) - self._limits.streams_bytes
        if verdict in {_APPLIED, _MERGED, _BEFORE} and commit.told:
            self._ring(key, commit.told)
        if verdict == _APPLIED:
            return Done(commit.after)
        if verdict == _NO_SESSION:
            return None
        if verdict == _LOST:
            return LostWrites()
        if numbers is None:
            raise lease_ended()
        packed = pack(*numbers) + (more or b"")
        if verdict == _STALE:
            return Stale(packed, _fields(names, values))
        return Done(packed, sent_before=verdict == _BEFORE)

    async def remove(self, key: str, erasure: Erasure) -> bool:
        most = self._limits.streams_bytes // LINGER_SHARE
        left = (list(erasure.left), list(erasure.left.values()), erasure.size, most, LINGER_SECONDS)
        record = encode_record(erasure.record)
        replicas = {writer.rpartition(".")[0] for writer in erasure.writers} | {erasure.record.home}
        closed = [(WakeUp.CLOSED, "", one) for one in replicas - {self.replica, ""}]
        try:
            done = await self._one(
                "remove",
                key,
                _numbers(erasure.exact),
                erasure.event,
                erasure.reason.value,
                *record,
                *left,
                *_columns(erasure.events),
                self._told,
            )
        except StoreUnavailable:
            self._ring(key, [*erasure.told, *closed])
            raise
        if done:
            self._ring(key, [*erasure.told, *closed])
        return bool(done)

    async def tell(self, key: str, told: Sequence[tuple[WakeUp, str, str]]) -> None:
        self._ring(key, told)

    async def piece(self, key: str, stream: str, seq: int, max_events: int, max_bytes: int) -> Piece | None:
        rows = await self._run("piece", key, stream, seq, max_events, max_bytes, self._told)
        if not rows:
            return None
        head = rows[0][0]
        events = [
            Event(Position(number, tag % _SPAN), data) for _, number, tag, data in rows if number is not None
        ]
        tag = events.pop(0).position.tag if events and events[0].position.seq == seq else None
        return Piece(head, tag, events)

    async def sizes(self, key: str, stream: str) -> Sequence[tuple[int, int, int]]:
        rows = await self._run("sizes", key, stream)
        return [(seq, tag % _SPAN, size) for seq, tag, size in rows]
