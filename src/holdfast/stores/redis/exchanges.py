"""Exchanges: claimed in one step, ended once, cancelled on the replica that runs them (lua/exchanges.lua)."""

from typing import Any

from holdfast.core.stream import before_terminal
from holdfast.errors import Fenced, SessionGone, StreamClosed
from holdfast.stores.base import Claim, Claimed, Duplicate, Refusal, WakeUp
from holdfast.stores.redis.core import Core, Running, flag
from holdfast.stores.redis.recent_writes import StreamWrites
from holdfast.stores.rules import id_text
from holdfast.wire.jsonrpc import RequestId


def terminal_tags(tag: int) -> tuple[str, str]:
    """Return the tag of a terminal message, and that of the position before it if the stream has no other event."""
    return str(tag), str(before_terminal(tag).tag)


def check(reply: list[Any]) -> None:
    """Raise the exception for a refusal of a script that writes."""
    match reply[0]:
        case b"gone":
            raise SessionGone
        case b"fenced" | b"lost":
            raise Fenced
        case b"closed":
            raise StreamClosed
        case _:
            return


class ExchangeMethods(Core):
    """claim, give_back, settle, keep, cancel."""

    async def claim(self, key: str, principal: str, claim: Claim) -> Claimed | Duplicate | Refusal:
        """Register the exchange."""
        most = "" if claim.control else self._limits.running + self._limits.queued
        facts = (principal, id_text(claim.id), claim.stream, claim.digest, most)
        reply = await self.registered("claim", key, *facts)
        match reply[0]:
            case b"ok":
                record = await self.readable(key, reply[4])
                if record is None:
                    return Refusal.NO_SESSION
                self.work_in(key).running[claim.stream] = Running(claim, reply[2])
                return Claimed(record, reply[2], bool(reply[3]))
            case b"duplicate":
                stream, same, finished, has_reader = reply[2:6]
                return Duplicate(stream.decode(), bool(same), bool(finished), bool(has_reader))
            case b"busy":
                return Refusal.BUSY
            case b"withdrawn":
                self._leave(key, claim.stream)
                return Refusal.WITHDRAWN
            case _:
                return Refusal.NO_SESSION

    async def give_back(self, key: str, stream: str, fence: int = 0) -> None:
        """End an exchange of which nothing ran, and remember its name."""
        await self.session("give_back", key, stream, fence)
        if fence:
            self._leave(key, stream)

    async def settle(
        self, key: str, stream: str, fence: int, terminal: bytes | None, *, tag: int = 0, keep: bool = False
    ) -> None:
        """End an exchange, with or without a stream."""
        if terminal is None:
            end = self._plain_end(key, stream, fence)
        else:
            recent = self._recent.get(key, stream)
            expected = ("", "") if recent is None else (recent.top.seq, str(recent.top.tag))
            message = (terminal, *terminal_tags(tag), flag(keep))
            end = ("settle", key, stream, fence, *message, *self._budget, *expected)
        reply = await self.session(*end)
        if reply[0] in {b"rollback", b"lost"} and await self._restore(key, stream, fence):
            reply = await self.session(*end)
        # Not earlier: an end that could not be written is written later, and until then this exchange is no orphan.
        self._leave(key, stream)
        check(reply)
        if terminal is not None:
            self._on_wake(WakeUp.STREAM, key, stream)

    def _leave(self, key: str, stream: str) -> None:
        self._recent.forget(key, stream)
        work = self._work.get(key)
        if work is not None:
            work.running.pop(stream, None)
            if work.asks:
                # They have ended with it. The comparison with the store would take them for lost ones, and restore them.
                work.asks = {ask: parent for ask, parent in work.asks.items() if parent != stream}
            if not work.running:
                self.forget_if_idle(key)

    def _plain_end(self, key: str, stream: str, fence: int) -> tuple[Any, ...]:
        """Return the command that ends an exchange without a message. With its id, the script needs one read less."""
        work = self._work.get(key)
        running = work.running.get(stream) if work is not None else None
        name = "" if running is None else id_text(running.claim.id)
        return ("end_plain", key, stream, fence, name, self._report_step)

    async def _restore(self, key: str, stream: str, fence: int) -> bool:
        """Restore an exchange that runs here and that a failover has lost. False: it does not run here, or has ended.

        The claims before it come first: a session that knows a later fence takes a missing exchange for one that has ended.
        """
        work = self._work.get(key)
        if work is None or stream not in work.running:
            return False
        claim = work.running[stream].claim
        await self.index("register", self._owner, key)
        for earlier, running in sorted(work.running.items(), key=lambda item: item[1].fence):
            if running.fence < fence:
                await self._rebase(key, earlier, running, None)
        return await self._rebase(key, stream, Running(claim, fence), self._recent.get(key, stream))

    async def _rebase(self, key: str, stream: str, running: Running, recent: StreamWrites | None) -> bool:
        claim, fence = running
        facts = (stream, fence, id_text(claim.id), claim.digest, flag(claim.control))
        first: tuple[int, str] = (-1, "") if recent is None else (recent.start.seq, str(recent.start.tag))
        events: list[str | bytes] = []
        for event in recent.events if recent is not None else ():
            events += [str(event.position.tag), event.data]
        reply = await self.session("rebase", key, *facts, *first, *events)
        if reply[0] != b"ok":
            return False
        if reply[2]:
            self._observer.note("store.rebased", session=key[:8], events=len(events) // 2)
        return True

    async def keep(self, key: str, stream: str, claim: Claim, terminal: bytes | None, *, tag: int) -> None:
        """Keep a settled exchange's answer for a repeat, unless its id is in use again or a reader has received it."""
        facts = (stream, id_text(claim.id), claim.digest, flag(claim.control))
        end = (terminal or b"", *terminal_tags(tag))
        is_given = flag(terminal is not None)
        reply = await self.session("keep", key, *facts, *end, *self._budget, is_given)
        if reply[0] == b"new":
            self._on_wake(WakeUp.STREAM, key, stream)

    async def cancel(self, key: str, principal: str, request_id: RequestId) -> None:
        """Wake up, with CANCEL, the replica that runs the exchange in flight under this id, if there is exactly one."""
        reply = await self.run("cancel", key, principal, id_text(request_id))
        if reply[0] == b"ok":
            self._on_wake(WakeUp.CANCEL, key, reply[2].decode())
