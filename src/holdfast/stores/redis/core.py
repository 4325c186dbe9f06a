"""The common part of all operations: names of keys, sending scripts (again), and work in other slots.

**Keys.** A key is `hf:<format>:<namespace>:{<name>}` and a suffix. The name is a session's key, a scope's name, or
`*` for the shared slot. A cluster takes the slot from the part in braces, so everything of one name is in one slot,
and one script may
change all of it in one step. `lua/session.lua` and `lua/shared.lua` list the keys.

**Every operation is one script on one slot**, or several of them in an order that is correct even if the process dies
between two:

* A session or scope is counted in the shared slot before it is made, and is counted until it is gone. The next sweep
  finds an entry there that has no session.
* The shared slot registers which replica has work in which session, before the first work begins (`registered`).
* The shared slot allows the kept data of a principal before it is written (`keeping`, lua/kept.lua).
* Hints for the shared slot (when a session is due, how large its logs are) are sent after the change (`_after`).
  If this process dies in between, they are late or missing; a replica that uses one reads the session first.

**Sent again.** Each command has a name, made of this process's random name and a number. If its reply is lost, it is sent
again with the same name and a flag, until `PATIENCE` is over. Then the store is unavailable, and the caller does not know
whether the command was executed; it may ask again. Scripts recognize their own earlier work (lua/session.lua), so a
command counts once. The work for other slots that the first reply named is lost with it; `remind` returns it again.
A command that Redis refused was not executed (`refusals.py`) and is sent again without the flag.

**Local work.** A `LocalWork` is the part of a session in this process: exchanges that it runs, asks that it waits
for, streams that it reads. A wake-up from another replica may be lost, so once a second it is compared with the store
(`wakeups.py`). After a failover that lost writes, the exchanges that run here and their asks are restored from it, and their
events from the recent writes (`exchanges.py`).
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from hashlib import sha256
from itertools import chain, count, repeat
from math import ceil
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from holdfast.config import Limits
from holdfast.errors import ConfigError, StoreError, StoreUnavailable
from holdfast.ports import Clock, Observer, Random
from holdfast.stores.base import Claim, OnWake, SessionRecord, WakeUp
from holdfast.stores.redis.link import Argument, RedisLink
from holdfast.stores.redis.recent_writes import RecentWrites
from holdfast.stores.redis.refusals import Later, Lost, Poisoned
from holdfast.stores.rules import lease_ended

FORMAT: Final = 5
"""In every key and channel. It changes only if an older release would misread the data of a newer one. A field that
an older release can ignore is added without a new format; data of that release lacks the field."""
BACKOFFS: Final = (0.02, 0.1, 0.4)
"""Seconds before a command is sent again whose reply was lost; after the last one the store is unavailable. A command
that Redis refused temporarily is sent again too, in the end with the last of these intervals."""
PATIENCE: Final = 3.0
"""Seconds after which no command is sent again: a client is waiting."""
SHARED: Final = "*"
_MARKS: Final = "01"
"""The flag of a command when it is sent for the first time, and when it is sent again."""
_REGISTERED: Final = "rR"
"""The same after this replica was registered (`registered`)."""
_STEPS: Final = 8_192
"""The allowance of a session (lua/kept.lua) grows in steps of its principal's total: 8 KiB of 64 MiB. It has at most two
that it does not use."""
_LEAST_STEP: Final = 1_024

T = TypeVar("T")
Run: TypeAlias = Callable[..., Awaitable[list[Any]]]

_record: Final = msgspec.json.Decoder(SessionRecord)
_packed: Final = msgspec.msgpack.Decoder(tuple[str, str, str, str])
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def silent(kind: WakeUp, session: str, name: str) -> None:
    """Wake no task: the callback before `bind`."""


@lru_cache(maxsize=4_096)
def hashed(text: str) -> str:
    """Return a hash that replaces a client's or an operator's text in a key."""
    return sha256(text.encode()).hexdigest()[:32]


def milliseconds(seconds: float) -> int:
    """Return a time as scripts read it."""
    return round(seconds * 1000)


def flag(value: object) -> str:
    """Return a boolean as scripts read it."""
    return "1" if value else "0"


def record_of(packed: bytes) -> SessionRecord:
    """Return a session's record with its later changes (`rec` in lua/session.lua)."""
    try:
        opened, level, initialized, home = _packed.decode(packed)
        record = _record.decode(opened)
    except msgspec.DecodeError as error:
        raise Poisoned("a session's record cannot be read") from error
    if level:
        record.level = level
    if initialized:
        record.initialized = True
    record.home = home
    return record


class Running(NamedTuple):
    """An exchange that runs in this process."""

    claim: Claim
    fence: int


class LocalWork:
    """The part of a session in this process. It is compared with the store, because a wake-up may be lost."""

    __slots__ = ("asks", "readers", "running")

    def __init__(self) -> None:
        self.running: dict[str, Running] = {}
        self.asks: dict[str, str] = {}
        """The asks that wait here, and the stream of each."""
        self.readers: dict[str, int] = {}
        """Streams that are read here, and the number of the last event that is known here."""

    def is_empty(self) -> bool:
        """Return True if nothing is left."""
        return not (self.running or self.asks or self.readers)


class Room(NamedTuple):
    """By how much all logs are too large, and which sessions of the principal with the most bytes can free bytes."""

    over: int
    is_own: bool
    """The writer's principal has the most bytes."""
    oldest: str
    """The session with its oldest finished stream; empty: it has none."""
    largest: str

    def victim(self, how: str, writer: str) -> str:
        """Return which session frees bytes in this way; empty: no session."""
        if how == "own":
            return writer if self.is_own else ""
        if how == "oldest":
            return self.oldest
        return self.largest if how == "trim" and not self.is_own else writer


class Core:
    """Scripts, sent until they are answered."""

    replica: str
    _recent: RecentWrites

    def __init__(
        self,
        link: RedisLink,
        limits: Limits,
        clock: Clock | None,
        random: Random,
        observer: Observer,
        namespace: str,
        replica: str,
    ) -> None:
        if not _NAMESPACE.fullmatch(namespace):
            raise ConfigError(f"namespace={namespace!r}: use letters, digits, dots, dashes and underscores")
        self._link = link
        self._limits = limits
        self._clock = clock
        self._random = random
        self._observer = observer
        self._prefix = f"hf:{FORMAT}:{namespace}:"
        self._on_wake: OnWake = silent
        self._named = replica
        self._take_name()
        self._work: dict[str, LocalWork] = {}
        self._report_step = max(1, limits.streams_bytes // limits.sessions)
        # A session reports the bytes of its logs when they have changed by this much.
        self._step = max(1, limits.principal_kept_bytes // _STEPS)
        self._budget: tuple[Argument, ...] = (
            limits.stream_events,
            limits.stream_bytes,
            limits.session_bytes,
            limits.finished_streams,
            self._report_step,
        )

    def _take_name(self) -> None:
        """Become a replica that owns nothing yet. No two processes may use the same replica name or the same command names."""
        self._nonce = self._random.token(6)
        self._numbers = count()
        self.replica = self._named or self._random.token(6)
        self.incarnation = 0
        self._owner = f"{self.replica}.0"

    def key(self, name: str) -> str:
        """Return the first key of a session's, scope's or the shared slot."""
        return f"{self._prefix}{{{name}}}"

    async def run(self, script: str, key: str, *arguments: Argument) -> list[Any]:
        """Run a script on a slot; while its reply is lost, send it again under the same name."""
        reply, _ = await self._sent(script, key, arguments)
        return reply

    async def _sent(
        self, script: str, key: str, arguments: tuple[Argument, ...], marks: str = _MARKS
    ) -> tuple[list[Any], bool]:
        """Return the reply, and whether the command was sent more than once. `marks`: for the first time, and for later ones."""
        name = f"{self._nonce}{next(self._numbers)}"
        now = "" if self._clock is None else str(ceil(self._clock.now() * 1000))
        where = self.key(key)
        clock = asyncio.get_running_loop().time
        begun, losses = clock(), 0
        failed: Exception
        pauses = chain(BACKOFFS, repeat(BACKOFFS[-1]))
        while True:
            head = (now, self._owner, name, marks[losses > 0])
            try:
                return await self._link.run(script, where, head + arguments), losses > 0
            except Lost as lost:
                failed, losses = lost, losses + 1
            except Later as later:
                failed = later
            except StoreError as error:
                self._observer.note("store.refused", script=script, error=error.__cause__ or error)
                raise
            if losses > len(BACKOFFS) or clock() - begun > PATIENCE:
                break
            await asyncio.sleep(next(pauses))
        self._observer.note("store.unreachable", script=script, error=failed.__cause__ or failed)
        raise StoreUnavailable("the store cannot be reached") from failed

    async def index(self, script: str, *arguments: Argument) -> list[Any]:
        """Run a script on the shared indexes."""
        return await self.run(script, SHARED, *arguments)

    async def session(self, script: str, key: str, *arguments: Argument, marks: str = _MARKS) -> list[Any]:
        """Run a script on a session, then do the work that it leaves for other slots."""
        try:
            reply, is_again = await self._sent(script, key, arguments, marks)
        except Poisoned as error:
            return await self._drop(key, error)
        if is_again:
            # The work that the first reply named for other slots was lost with the reply.
            await self._after(key, (await self.run("remind", key))[1])
        elif len(reply) > 1 and reply[1]:
            await self._after(key, reply[1])
        return reply

    async def each(self, works: Iterable[Awaitable[T]]) -> tuple[list[T], bool]:
        """Do several things at once; return the results, and whether all of them succeeded.

        If a shard cannot be reached, or a record cannot be read, only the calls on it fail.
        """
        done = await asyncio.gather(*works, return_exceptions=True)
        for failed in done:
            if isinstance(failed, BaseException) and not isinstance(failed, StoreError):
                raise failed
        kept = [one for one in done if not isinstance(one, BaseException)]
        return kept, len(kept) == len(done)

    async def _drop(self, key: str, error: Poisoned) -> list[Any]:
        """Forget a session whose record cannot be read. Its client gets the answer for an unknown session."""
        self._observer.note("store.poisoned", session=key[:8], error=error)
        await self.run("drop", key)
        await self.index("forget", key, "", 0, 1, self._owner)
        self.gone(key)
        self._on_wake(WakeUp.CLOSED, key, "")
        return [b"none"]

    async def readable(self, key: str, packed: bytes) -> SessionRecord | None:
        """Return a session's record (`record_of`). If it cannot be read, the session is forgotten: None."""
        try:
            return record_of(packed)
        except Poisoned as error:
            await self._drop(key, error)
            return None

    async def _after(self, key: str, todo: list[Any]) -> None:
        steps = iter(todo)
        for what in steps:
            if what == b"hint":
                await self.index("hint", key, next(steps))
            elif what == b"away":
                await self.index("away", key, next(steps))
            elif what == b"kept":
                await self.index("lower", key, next(steps), next(steps))
            else:
                await self._resized(key, next(steps), next(steps))

    # The total of each principal (lua/kept.lua)

    async def keeping(self, run: Run, script: str, key: str, *arguments: Argument) -> list[Any]:
        """Run a script that may make a session or handle keep more, with a larger allowance where it needs one.

        `total`: its principal has no room for more; `gone`: there is no such session or handle any more. Then nothing
        has changed.
        """
        spare = min(self._step, _LEAST_STEP)
        while (reply := await run(script, key, *arguments))[0] == b"room":
            least, count, principal, life = reply[2:6]
            best = least + max(spare, min(self._step, least // 2))
            # Other writers of the session use the same allowance. If they used it up first, ask for twice as much.
            spare *= 2
            whose, most = hashed(principal.decode()), self._limits.principal_kept_bytes
            grant = await self.index("grant", key, whose, least, best, count, most, life)
            if grant[0] != b"ok":
                return [b"total" if grant[0] == b"full" else b"gone"]
            await self.run("granted", key, grant[2], grant[3], self._step)
        return reply

    async def changing(self, script: str, key: str, *arguments: Argument) -> list[Any]:
        """Run a script on state or subscriptions, then report the bytes that it gives back."""
        reply = await self.run(script, key, *arguments)
        if len(reply) > 1 and reply[1]:
            await self._after(key, reply[1])
        return reply

    # The bytes of all logs

    async def _resized(self, key: str, size: int, oldest: int) -> None:
        """Report the bytes of a session's logs; if those of all are too many, make room.

        Streams of the principal with the most bytes are removed, so that no principal can fill the store for the others:
        its oldest finished streams first, then the oldest events of its largest log. If the writing session belongs to
        this principal, the finished streams of that session are removed first, and its own log is cut.
        """
        room = await self._report(key, key, size, oldest)
        for how in ("own", "oldest", "trim", "last"):
            while room.over > 0:
                whose = room.victim(how, key)
                if not whose:
                    break
                way = "trim" if how == "last" else how
                freed = await self.run("free_bytes", whose, room.over, way, self._limits.stream_events)
                if freed[0] != b"ok":
                    await self.index("forget", whose, "", 0, 0)
                    room = await self._report(key, key, size, oldest)
                    continue
                before = room.over
                room = await self._report(key, whose, freed[2], freed[3])
                if room.over >= before:
                    break

    async def _report(self, writer: str, key: str, size: int, oldest: int) -> Room:
        _, _, total, is_own, old, large = await self.index("size", key, size, oldest, writer)
        return Room(int(total) - self._limits.streams_bytes, bool(is_own), old.decode(), large.decode())

    # Local work

    def work_in(self, key: str) -> LocalWork:
        """Return the part of a session in this process."""
        found = self._work.get(key)
        if found is None:
            found = self._work[key] = LocalWork()
        return found

    def forget_if_idle(self, key: str) -> None:
        """Forget the work in a session if none is left."""
        found = self._work.get(key)
        if found is not None and found.is_empty():
            del self._work[key]

    def gone(self, key: str) -> bool:
        """Forget the work in a closed session. False if there was none."""
        work = self._work.pop(key, None)
        for stream in work.running if work is not None else ():
            self._recent.forget(key, stream)
        return work is not None

    async def registered(self, script: str, key: str, *arguments: Argument) -> list[Any]:
        """Run a script that gives this replica work in a session; before the first one, register it in the shared slot.

        Raises:
            StoreUnavailable: this incarnation was declared dead; no other replica would find work that it begins now.
        """
        reply = await self.session(script, key, *arguments)
        if reply[0] == b"register":
            if (await self.index("register", self._owner, key))[0] == b"dead":
                raise lease_ended()
            reply = await self.session(script, key, *arguments, marks=_REGISTERED)
        return reply
