"""What a probe works with: the facts of the survey, and sessions of its own.

Each probe has a ground of its own, so that probes can run at the same time. A session that a probe opens is deleted at
the end of the probe.
"""

import asyncio
from typing import Final

from limpet.checking.lane import Lane, Question, discover, initialize
from limpet.checking.peer import Peer
from limpet.checking.survey import Facts
from limpet.errors import LimpetError

_DELETE_SECONDS: Final = 2.0
"""How long a server may take to delete a session. The check does not wait longer for a server that hangs."""
_WAIT_MOST: Final = 20.0


class ProbeFailed(LimpetError):
    """The server does not behave as the probe expects."""


class NotApplicable(LimpetError):
    """The server has nothing to which the probe applies."""


class Ground:
    """A server that is being checked, for one probe."""

    def __init__(self, peer: Peer, facts: Facts) -> None:
        self.peer: Peer = peer
        self.facts: Facts = facts
        self._lanes: list[Lane] = []

    async def lane(self) -> Lane:
        """Return a lane of its own for a probe: a new session if the server has sessions."""
        if self.facts.has_sessions:
            return await self._session()
        return await self.without_session()

    async def lanes(self) -> list[Lane]:
        """Return a lane for each era that the server speaks."""
        found = [await self._session()] if self.facts.has_sessions else []
        return [*found, await self.without_session()] if self.facts.is_sessionless else found

    async def initialized(self) -> Lane:
        """Return a lane after `initialize`, with or without a session id.

        Raises:
            NotApplicable: the server has no `initialize`.
        """
        if not self.facts.has_sessions:
            raise NotApplicable("the server speaks only 2026-07-28, which has no sessions")
        return await self._session()

    async def session(self) -> Lane:
        """Return a new session with an id.

        Raises:
            NotApplicable: the server has no sessions.
        """
        lane = await self.initialized()
        if not lane.session:
            raise NotApplicable("the server gives no session id, so it keeps no session")
        return lane

    async def without_session(self) -> Lane:
        """Return a lane of 2026-07-28.

        Raises:
            NotApplicable: the server does not speak it.
        """
        if not self.facts.is_sessionless:
            raise NotApplicable("the server does not speak 2026-07-28")
        outcome, lane = await discover(self.peer)
        if lane is None:
            raise ProbeFailed(f"server/discover was answered before, and now it got {outcome}")
        return lane

    def call(self) -> Question:
        """Return the tool call, which may take long.

        Raises:
            NotApplicable: no tool may be called.
        """
        if self.facts.tool is None:
            raise NotApplicable(self.facts.no_tool)
        return self.facts.tool

    def answered_call(self) -> Question:
        """Return the tool call, which is answered within the time limit.

        Raises:
            NotApplicable: no tool may be called, or it takes too long.
        """
        call = self.call()
        if self.facts.call_seconds is None:
            raise NotApplicable(
                f"{self.facts.call_note}: name another tool, or allow it more time with --timeout"
            )
        return call

    def questions(self, lane: Lane) -> list[Question]:
        """Return every kind of request that a probe may send, and that the server answers in time."""
        found = [one for one in lane.questions() if one.method not in self.facts.unanswered]
        if self.facts.tool is not None and self.facts.call_seconds is not None:
            found.append(self.facts.tool)
        return found

    def largest(self, lane: Lane) -> Question:
        """Return a request whose answer takes long or is large: the tool call, or a list."""
        return self.facts.tool or self.questions(lane)[-1]

    def seconds_for(self, calls: int) -> float:
        """Return how long so many calls may take, if the server runs one after another."""
        patience = self.peer.patience
        return min(patience + calls * (self.facts.call_seconds or 0.0), max(patience, _WAIT_MOST))

    def keep(self, lane: Lane) -> None:
        """Delete this session at the end of the probe, too."""
        self._lanes.append(lane)

    async def release(self) -> None:
        """Close the responses and delete the sessions of a probe."""
        self.peer.release()
        lanes, self._lanes = self._lanes, []
        await asyncio.gather(
            *(lane.delete(_DELETE_SECONDS) for lane in lanes if lane.session), return_exceptions=True
        )

    async def _session(self) -> Lane:
        outcome, lane = await initialize(self.peer)
        if lane is None:
            raise ProbeFailed(f"a new session was refused: {outcome}")
        self._lanes.append(lane)
        return lane
