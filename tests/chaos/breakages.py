"""Laws broken on purpose, inside a replica under trial: each must show up as a violation, or the trial proves nothing."""

import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from limpet.core.lifecycle import SessionInput
from limpet.core.rules import calls, readers
from limpet.core.rules.document import Document, ExchangeRecord
from limpet.core.stream import Position
from limpet.engine.reader import End, Reader
from limpet.engine.readers import Readers
from limpet.engine.replica import Replica
from limpet.errors import Fenced
from limpet.fronts.http import front as front_module
from limpet.server.context.state import State
from limpet.stores.base import Attached, Refusal
from limpet.stores.redis.store import RedisStore


def break_law(name: str) -> None:
    """Break one law in this process."""
    BREAKAGES[name]()


def _put(where: Any, name: str, what: object) -> None:
    assert hasattr(where, name), f"{where!r} no longer has {name!r}: this breakage breaks nothing"
    setattr(where, name, what)


def no_fence() -> None:
    """A writer whose exchange was reaped may write on: two ends, or events after the end."""
    stop = calls._stop

    def writable(doc: Document, stream: str, fence: int) -> ExchangeRecord:
        exchange = doc.exchanges.get(stream)
        if exchange is None:
            raise Fenced
        return exchange

    def stop_once(doc: Document, exchange: ExchangeRecord, now: float) -> None:
        if exchange.running:
            stop(doc, exchange, now)

    _put(Document, "writable", writable)
    _put(calls, "_stop", stop_once)


def route_by_id() -> None:
    """An id in flight is not refused: the second request runs and takes the id over."""
    _put(calls, "duplicate", lambda *_, **__: None)


def no_principal() -> None:
    """Every client that knows a session may read it."""
    attach = readers.attach

    def for_all(doc: Document, _: str, *rest: Any) -> Attached | Refusal:
        return attach(doc, doc.record.principal, *rest)

    _put(readers, "attach", for_all)


def no_keeping() -> None:
    """The end that a reaper wrote is not kept for a repeat: the repeat runs the tool again."""
    end = calls._end

    def unkept(*args: Any, tag: int, keep: bool) -> None:
        end(*args, tag=tag, keep=False)

    _put(calls, "_end", unkept)


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
        logging.getLogger("limpet").info("session %s", session_id)
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
