"""The common part of all operations: names of keys, sending scripts (again), and work in other slots.

**Keys.** A key is `hf:<format>:<namespace>:{<name>}` and a suffix. The name is a session's key, a scope's name, or
`*` for the shared slot. A cluster takes the slot from the part in braces, so everything of one name is in one slot,
and one script may
change all of it in one step. `lua/documents.lua` and `lua/shared.lua` list the keys.

**Every operation is one script on one slot**, or several of them in an order that is correct even if the process dies
between two:

* A session or scope is counted in the shared slot before it is made, and is counted until it is gone. The next sweep
  finds an entry there that has no session.
* The shared slot registers which replica has work in which session, before the first work begins (`register`).
* The shared slot allows the kept data of a principal before it is written (`keeping`, state.py).
* Hints for the shared slot (when a session is due, how large its logs are) are sent after the change. If this process dies in
  between, they are late or missing; a replica that uses one reads the session first.

**Sent again.** A commit has a number (`stores/shared/commit.py`). Every other command has a name, made of this process's random name and a count. If
its reply is lost, it is sent again, with the same name and a flag, until `PATIENCE` is over. Then the store is unavailable, and
the caller does not know whether the command was executed; it may ask again. Scripts recognize their own earlier work, so a
command counts once. A command that Redis refused was not executed (`refusals.py`) and is sent again without the flag.
"""

import asyncio
import re
from collections.abc import Awaitable, Iterable
from functools import lru_cache
from hashlib import sha256
from itertools import chain, count, repeat
from math import ceil, inf
from typing import Any, Final, NamedTuple, TypeVar

from holdfast.config import Limits
from holdfast.errors import ConfigError, StoreError, StoreUnavailable
from holdfast.ports import Clock, Observer, Random, SystemClock
from holdfast.stores.base import OnWake, WakeUp
from holdfast.stores.redis.link import Argument, RedisLink
from holdfast.stores.shared.answers import Later, Lost

FORMAT: Final = 1
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
_JUMP: Final = 0.5
_OLD: Final = 30.0
"""Seconds by which the clock of Redis was set back for sure, and after which a measurement is forgotten."""
_STEPS: Final = 8_192
"""The allowance of a session (lua/cells_prelude.lua) grows in steps of its principal's total: 8 KiB of 64 MiB. It has at most two
that it does not use."""
_LEAST_STEP: Final = 1_024

T = TypeVar("T")

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
    me: str
    wake: OnWake

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
        self.wake = silent
        self._named = replica
        self._local: Clock = SystemClock()
        self._offset = self._local.wall() - self._local.now()
        """What is added to the local time to get that of Redis."""
        self._measured = -inf
        self._take_name()
        self._report_step = max(1, limits.streams_bytes // limits.sessions)
        # A session reports the bytes of its logs when they have changed by this much.
        self._step = max(1, limits.principal_kept_bytes // _STEPS)

    def _take_name(self) -> None:
        """Become a replica that owns nothing yet. No two processes may use the same replica name or the same command names."""
        self._nonce = self._random.token(6)
        self._numbers = count()
        self.replica = self._named or self._random.token(6)
        self.incarnation = 0
        self.me = f"{self.replica}.0"

    # Time

    def now(self) -> float:
        """Return the time of Redis, as far as it is known here."""
        return self._local.now() + self._offset if self._clock is None else self._clock.now()

    def time_is(self, seconds: bytes, microseconds: bytes) -> None:
        """Compare the local clock with a time that Redis has just told.

        Each reply comes late, so of several measurements the largest is the best one. But clocks may be set: an old one is forgotten.
        """
        local = self._local.now()
        offset = int(seconds) + int(microseconds) / 1_000_000 - local
        if offset > self._offset or self._offset - offset > _JUMP or local - self._measured > _OLD:
            self._offset, self._measured = offset, local

    # Commands

    def key(self, name: str) -> str:
        """Return the first key of a session's, scope's or the shared slot."""
        return f"{self._prefix}{{{name}}}"

    async def run(self, script: str, key: str, *arguments: Argument) -> Any:
        """Run a script on a slot; while its reply is lost, send it again under the same name."""
        name = f"{self._nonce}{next(self._numbers)}"
        now = "" if self._clock is None else str(ceil(self._clock.now() * 1000))
        first, again = ((now, self.me, name, mark, *arguments) for mark in _MARKS)
        return await self.send(script, key, first, again)

    async def send(
        self,
        script: str,
        key: str,
        arguments: tuple[Argument, ...],
        again: tuple[Argument, ...] | None = None,
    ) -> Any:
        """Run a script on a slot; while its reply is lost, send it again, with the arguments `again`."""
        where = self.key(key)
        try:
            return await self._link.run(script, where, arguments)
        except (Lost, Later) as failure:
            failed: Exception = failure
        except StoreError as error:
            self._observer.note("store.refused", script=script, error=error.__cause__ or error)
            raise
        clock = asyncio.get_running_loop().time
        begun, losses = clock(), 0
        pauses = chain(BACKOFFS, repeat(BACKOFFS[-1]))
        while True:
            losses += isinstance(failed, Lost)
            if losses > len(BACKOFFS) or clock() - begun > PATIENCE:
                break
            await asyncio.sleep(next(pauses))
            try:
                return await self._link.run(script, where, (again or arguments) if losses else arguments)
            except (Lost, Later) as failure:
                failed = failure
            except StoreError as error:
                self._observer.note("store.refused", script=script, error=error.__cause__ or error)
                raise
        self._observer.note("store.unreachable", script=script, error=failed.__cause__ or failed)
        raise StoreUnavailable("the store cannot be reached") from failed

    async def index(self, script: str, *arguments: Argument) -> list[Any]:
        """Run a script on the shared indexes."""
        reply: list[Any] = await self.run(script, SHARED, *arguments)
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

    # The total of each principal (state.py)

    async def keeping(self, script: str, key: str, *arguments: Argument) -> list[Any]:
        """Run a script that may make a session or handle keep more, with a larger allowance where it needs one.

        `total`: its principal has no room for more; `gone`: there is no such session or handle any more. Then nothing
        has changed.
        """
        spare = min(self._step, _LEAST_STEP)
        while (reply := await self.run(script, key, *arguments))[0] == b"room":
            least, count, principal, life = reply[2:6]
            best = least + max(spare, min(self._step, least // 2))
            # Other writers of the session use the same allowance. If they used it up first, ask for twice as much.
            spare *= 2
            whose, most = hashed(principal.decode()), self._limits.principal_kept_bytes
            grant = await self.index("grant", key, whose, least, best, count, most, life)
            if grant[0] != b"ok":
                return [b"total" if grant[0] == b"full" else b"gone"]
            await self.run("granted", key, grant[2], grant[3], self._step)
        await self.lowered(key, reply)
        return reply  # type: ignore[no-any-return]

    async def lowered(self, key: str, reply: list[Any]) -> None:
        """Report the bytes that a script has given back."""
        if len(reply) > 1 and reply[1]:
            await self.index("lower", key, reply[1][1], reply[1][2])
