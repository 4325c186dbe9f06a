"""The common part of all operations: names of keys, sending scripts (again), and work in other slots.

**Keys.** A key is `lp:<format>:<namespace>:{<name>}` and a suffix. The name is a session's key, an area's name, or
`*` for the shared slot. A cluster takes the slot from the part in braces, so everything of one name is in one slot,
and one script may
change all of it in one step. `lua/documents.lua` and `lua/shared.lua` list the keys.

**Every operation is one script on one slot**, or several of them in an order that is correct even if the process dies
between two: a place, an allowance (`state.py`) and a replica's work are registered in the shared slot before they are
used, and hints are sent to it after the change (`sessions.py`).

**Sent again.** A commit has a number (`stores/shared/commit.py`). Every other command has a name, made of this
process's random name and a count. If its reply is lost, it is sent again, with the same name and a flag, until
`PATIENCE` is over. Then the store is unavailable, and the caller does not know whether the command was executed; it may
ask again. Scripts recognize their own earlier work, so a command counts once. A command that Redis refused was not
executed (`refusals.py`) and is sent again without the flag.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from functools import lru_cache
from hashlib import sha256
from itertools import count
from math import ceil
from typing import Any, Final, NamedTuple, TypeVar

from typing_extensions import override

from limpet.errors import StoreError, StoreUnavailable
from limpet.stores.redis.link import Argument, RedisLink, connect
from limpet.stores.shared.answers import Later, Lost
from limpet.stores.shared.server import ServerStore

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
_STEPS: Final = 8_192
"""The allowance of a session (state.py) grows in steps of its principal's total: 8 KiB of 64 MiB. It has at most two
that it does not use."""

T = TypeVar("T")


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


class Core(ServerStore[str | RedisLink]):
    """Scripts, sent until they are answered."""

    format = FORMAT

    @override
    def _open(self) -> None:
        given, limits = self._url, self._limits
        self._link: RedisLink = connect(given, self._credentials) if isinstance(given, str) else given
        self._prefix = f"lp:{self.format}:{self._namespace}:"
        # A session reports the bytes of its logs when they have changed by this much.
        self._report_step = max(1, limits.streams_bytes // limits.sessions)
        self._step = max(1, limits.principal_kept_bytes // _STEPS)

    @override
    async def _disconnect(self) -> None:
        await self._link.aclose()

    @override
    def _take_name(self) -> None:
        super()._take_name()
        self._nonce = self._random.token(6)
        self._numbers = count()

    # Commands

    def key(self, name: str) -> str:
        """Return the first key of a session's, area's or the shared slot."""
        return f"{self._prefix}{{{name}}}"

    @property
    def told(self) -> str:
        """The time that a script receives, in milliseconds; empty: Redis' own time counts."""
        told = self._clock.told
        return "" if told is None else str(ceil(told * 1000))

    async def run(self, script: str, key: str, *arguments: Argument) -> Any:
        """Run a script on a slot; while its reply is lost, send it again under the same name."""
        name = f"{self._nonce}{next(self._numbers)}"
        first, again = ((self.told, self.me, name, mark, *arguments) for mark in _MARKS)
        return await self.send(script, key, first, again)

    async def send(
        self,
        script: str,
        key: str,
        arguments: tuple[Argument, ...],
        again: tuple[Argument, ...] | None = None,
    ) -> Any:
        """Run a script on a slot; while its reply is lost, send it again, with the arguments `again`."""
        where, tried, losses, ends = self.key(key), 0, 0, 0.0
        while True:
            try:
                return await self._link.run(script, where, (again or arguments) if losses else arguments)
            except (Lost, Later) as failure:
                now = asyncio.get_running_loop().time()
                ends = ends if tried else now + PATIENCE
                losses += isinstance(failure, Lost)
                if losses > len(BACKOFFS) or now > ends:
                    self._observer.note(
                        "store.unreachable", script=script, error=failure.__cause__ or failure
                    )
                    raise StoreUnavailable("the store cannot be reached") from failure
            except StoreError as error:
                self._observer.note("store.refused", script=script, error=error.__cause__ or error)
                raise
            await asyncio.sleep(BACKOFFS[min(tried, len(BACKOFFS) - 1)])
            tried += 1

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
