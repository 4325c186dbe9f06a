"""The connections of sessions to members: which are missing, and the attempts to make them.

A session begins with the members that answer in time. The others are *absent*: a task of the session connects to each
of them in the background, and the client then receives `list_changed`. The same happens when a session comes to a new
home: the request that arrives first opens the connection of its own member, and the tasks open the others, so that
their messages and subscriptions reach the client.

While a member fails, one attempt is made for all its sessions, each time after a longer pause. Requests that name one
of its components, and lists, try by themselves.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from limpet.backs.several.members import Member
from limpet.core.ledger import Charge
from limpet.engine.caller import Caller
from limpet.errors import LimpetError
from limpet.stores.base import SessionRecord

PAUSE: Final = 5.0
"""Seconds until the next attempt to connect to a member that failed. They double with each failure."""
LONGEST_PAUSE: Final = 60.0
JOINING_BYTES: Final = 4 * 1024
"""The memory of the attempts to connect a session to one member: a task that waits (`python -m tests.attacks.costs`:
about 2,900)."""
_HOME_SECONDS: Final = 60.0
"""How often it is checked whether a session is still open, and its home still this process."""


class _Attempts:
    """When a member that fails is tried again."""

    def __init__(self) -> None:
        self._at = 0.0
        self._pause = 0.0

    async def turn(self) -> None:
        """Wait until it may be tried: at once if it does not fail."""
        now = asyncio.get_running_loop().time
        while self._pause and (left := self._at - now()) > 0:  # noqa: ASYNC110 - another session may have tried meanwhile
            await asyncio.sleep(left)
        self._at = now() + self._pause

    def failed(self) -> None:
        self._pause = min(LONGEST_PAUSE, self._pause * 2 or PAUSE)
        self._at = asyncio.get_running_loop().time() + self._pause

    def worked(self) -> None:
        self._pause = 0.0


class _Session:
    """A session of this process."""

    __slots__ = ("charge", "is_stored", "joining")

    def __init__(self) -> None:
        self.charge: Charge | None = None
        self.is_stored = asyncio.Event()
        self.joining: dict[Member, asyncio.Task[None]] = {}


class Presence:
    """The members that the sessions of this process are connected to."""

    def __init__(self, connected: Callable[[str], None]) -> None:
        """`connected` reports to a session that it has the components of another member now."""
        self._connected = connected
        self._sessions: dict[str, _Session] = {}
        self._attempts: dict[Member, _Attempts] = {}

    def __contains__(self, key: str) -> bool:
        """True if the session has its connections, or gets them."""
        return key in self._sessions

    def begin(
        self,
        record: SessionRecord,
        caller: Caller,
        absent: Mapping[Member, asyncio.Task[Any] | None],
        charge: Charge | None,
        *,
        is_stored: bool,
    ) -> None:
        """Connect a session to the members that it lacks. A task is an attempt that has begun already.

        `charge`: the memory of the attempts (JOINING_BYTES for each). None: there is no room, and a later request of
        the session tries again.
        """
        if charge is None and absent:
            return
        # It lives for long: it must not keep the charge of the message.
        caller = caller if caller.charge is None else replace(caller, charge=None, waiter=None)
        session = self._sessions.setdefault(record.key, _Session())
        session.charge = charge
        if is_stored:
            session.is_stored.set()
        for member, begun in absent.items():
            joining = asyncio.get_running_loop().create_task(
                self._join(session, record, caller, member, begun)
            )
            session.joining[member] = joining

    def stored(self, key: str) -> None:
        """The session is stored: it can receive messages."""
        if (session := self._sessions.get(key)) is not None:
            session.is_stored.set()

    def end(self, key: str) -> None:
        """Stop the attempts for a session that is closed, or has another home."""
        session = self._sessions.pop(key, None)
        if session is not None:
            session.charge = None
            for joining in session.joining.values():
                joining.cancel()

    async def look_for_sessions(self, confirm_home: Callable[[str], Awaitable[bool]]) -> None:
        """Forget sessions that are closed or have another home, from time to time: the wake-up about it can be lost."""
        while True:
            await asyncio.sleep(_HOME_SECONDS)
            for key, session in list(self._sessions.items()):
                if session.is_stored.is_set() and not await confirm_home(key):
                    self.end(key)

    async def stop(self) -> None:
        """End all attempts."""
        tasks = [joining for session in self._sessions.values() for joining in session.joining.values()]
        for key in list(self._sessions):
            self.end(key)
        if tasks:
            await asyncio.wait(tasks)

    async def _join(
        self,
        session: _Session,
        record: SessionRecord,
        caller: Caller,
        member: Member,
        begun: asyncio.Task[Any] | None,
    ) -> None:
        attempts = self._attempts.setdefault(member, _Attempts())
        if begun is not None:
            await asyncio.wait({begun})
        await session.is_stored.wait()
        while True:
            await attempts.turn()
            try:
                await member.back.serve(record, caller)
            except LimpetError:
                attempts.failed()
                continue
            attempts.worked()
            break
        del session.joining[member]
        if not session.joining:
            session.charge = None
        self._connected(record.key)
