"""Laws broken on purpose, inside a replica under trial: each must show up as a violation, or the trial proves nothing."""

import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.core.lifecycle import SessionInput
from holdfast.core.stream import Position
from holdfast.engine.reader import End, Reader
from holdfast.engine.readers import Readers
from holdfast.engine.replica import Replica
from holdfast.fronts.http import front as front_module
from holdfast.server.context.state import State
from holdfast.stores.base import Attached, Refusal
from holdfast.stores.redis import scripts as scripts_module
from holdfast.stores.redis.store import RedisStore


def break_law(name: str) -> None:
    """Break one law in this process."""
    BREAKAGES[name]()


def _put(where: Any, name: str, what: object) -> None:
    setattr(where, name, what)


def _rewrite(file: str, *changes: tuple[str, str]) -> None:
    """Change the text of a file of scripts."""
    read = scripts_module._read

    def changed(name: str) -> str:
        text = read(name)
        for old, new in changes if name == file else ():
            assert old in text, f"{file}.lua no longer says {old!r}: this breakage breaks nothing"
            text = text.replace(old, new)
        return text

    scripts_module._read = changed


def no_fence() -> None:
    """A writer whose exchange was reaped may write on: two ends, or events after the end."""
    _rewrite(
        "log",
        ("if c.fence ~= fence then return nil, 'fenced' end\n", ""),
        ("if not c.run then return nil, 'closed' end\n", ""),
        ("  c.run = nil\n  S.run = S.run - 1\n", "  if c.run then S.run = S.run - 1 end\n  c.run = nil\n"),
    )
    _rewrite(
        "exchanges",
        ("if ARGV[16] ~= '' and (mine.top", "if false and (mine.top"),
    )
    _rewrite("streams", ("if ARGV[11] ~= '' and (c.top", "if false and (c.top"))


def route_by_id() -> None:
    """An id in flight is not refused: the second request runs and takes the id over."""
    _rewrite("exchanges", ("if holder and redis.call('HEXISTS', base, 'iso') == 0 then", "if false then"))


def no_principal() -> None:
    """Every client that knows a session may read it."""
    _rewrite(
        "streams",
        ("if not S or got[2] ~= principal then return {'none'} end", "if not S then return {'none'} end"),
    )


def no_keeping() -> None:
    """The end that a reaper wrote is not kept for a repeat: the repeat runs the tool again."""
    _rewrite("log", ("c.kept = keep and now or nil\n  if not keep then", "c.kept = nil\n  if true then"))


def no_reaper() -> None:
    """No replica ends the exchanges of dead ones."""

    async def nothing(_replica: Replica) -> None:
        return None

    _put(Replica, "sweep", nothing)


def from_now_on() -> None:
    """A resume begins with the next new event: missed events stay missed."""
    attach = RedisStore.attach

    async def newest(
        store: RedisStore, key: str, principal: str, stream: str | None, cursor: Position | None
    ) -> Attached | Refusal:
        found = await attach(store, key, principal, stream, cursor)
        if isinstance(found, Refusal) or cursor is None or stream is None:
            return found
        at = found.cursor
        while (page := await store.read(key, stream, at, 1, 1)) is not None and page.events:
            if page.finished:
                break
            at = page.events[-1].position
        return msgspec.structs.replace(found, cursor=at)

    _put(RedisStore, "attach", newest)


def repeat_last() -> None:
    """A resume repeats the event that the client says it has."""
    attach = RedisStore.attach

    async def earlier(
        store: RedisStore, key: str, principal: str, stream: str | None, cursor: Position | None
    ) -> Attached | Refusal:
        found = await attach(store, key, principal, stream, cursor)
        if isinstance(found, Refusal) or cursor is None:
            return found
        first = await attach(store, key, principal, stream, None)
        return found if isinstance(first, Refusal) else first

    _put(RedisStore, "attach", earlier)


def close_on_break() -> None:
    """The first write that fails ends the session."""
    detach = Readers.detach

    async def ended(readers: Readers, reader: Reader) -> None:
        await detach(readers, reader)
        if reader.end in {End.BROKE, End.STALLED}:
            await readers._sessions.close(reader.session, SessionInput.IDLE)

    _put(Readers, "detach", ended)


def read_then_write() -> None:
    """A counter is read, then written."""

    async def incr(state: State, field: str, by: int = 1) -> int:
        value: int = await state.get(field, 0) + by
        await state.set(field, value)
        return value

    _put(State, "incr", incr)


def log_ids() -> None:
    """Session ids are logged."""
    key_of = vars(front_module)["session_key"]

    def logged(session_id: str) -> str:
        logging.getLogger("holdfast").info("session %s", session_id)
        key: str = key_of(session_id)
        return key

    _put(front_module, "session_key", logged)


BREAKAGES: Final[dict[str, Callable[[], None]]] = {
    made.__name__.replace("_", "-"): made
    for made in (
        no_fence,
        route_by_id,
        no_principal,
        no_keeping,
        no_reaper,
        from_now_on,
        repeat_last,
        close_on_break,
        read_then_write,
        log_ids,
    )
}
