"""Turns: the calls of a session run one after another, in the order of their fences (lua/turns.lua)."""

from typing import Any

from holdfast.stores.base import WakeUp
from holdfast.stores.redis.exchanges import ExchangeMethods, check


class TurnMethods(ExchangeMethods):
    """turn, hold_turn, pass_turn."""

    async def turn(self, key: str, stream: str, fence: int) -> bool:
        """Return True if a call may start."""
        return bool((await self._about("turn", key, stream, fence))[2])

    async def hold_turn(self, key: str, stream: str, fence: int) -> None:
        """Keep the turn of a call after its end."""
        await self._about("hold_turn", key, stream, fence)

    async def _about(self, script: str, key: str, stream: str, fence: int) -> list[Any]:
        """Run a script on a call that is in flight. If a failover has lost the call, it is restored first."""
        reply = await self.session(script, key, stream, fence)
        if reply[0] == b"lost" and await self._restore(key, stream, fence):
            reply = await self.session(script, key, stream, fence)
        check(reply)
        return reply

    async def pass_turn(self, key: str, stream: str, fence: int) -> None:
        """Give up a turn, and wake up the next call."""
        reply = await self.session("pass_turn", key, stream, fence)
        if reply[0] == b"ok" and reply[2]:
            self._on_wake(WakeUp.TURN, key, reply[2].decode())
