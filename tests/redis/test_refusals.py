"""Temporary refusals of Redis: failovers, foreign scripts. Calls wait, nothing is lost, and clients see no text of Redis."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import aclosing

import pytest
from redis.exceptions import BusyLoadingError, ReadOnlyError, ResponseError, TryAgainError

from limpet.config import Settings, Times
from limpet.engine.exchange import Exchange
from limpet.errors import StoreError, StoreUnavailable
from limpet.stores.base import Attached, Claim, Claimed, WakeUp
from limpet.stores.redis import core
from limpet.stores.redis.refusals import REFUSALS, Then, code_of, translated
from limpet.stores.redis.store import RedisStore
from limpet.stores.shared.answers import Later
from limpet.stores.shared.fields import Unreadable
from limpet.testing import NotingObserver, ScriptedBack
from limpet.testing.store.bench import KEY, OTHER, PRINCIPAL, record
from tests.redis_server import RedisServer, needs_redis, redis_pair, replicate
from tests.support import async_test, stays, until, wait_until
from tests.unit.engine.harness import CALL, EngineHarness

pytestmark = needs_redis


@pytest.mark.parametrize("code", REFUSALS)
def test_every_refusal_is_transient_or_refuses_new_work(code: str) -> None:
    meant = translated(ResponseError(f"{code} said at 10.0.0.7 by key lp:1:secret"))
    assert isinstance(meant, StoreUnavailable if REFUSALS[code][0] is Then.REFUSE else Later)
    assert "10.0.0.7" not in str(meant)
    assert "lp:1" not in str(meant)


def test_the_library_s_classes_have_the_words_that_it_takes_away() -> None:
    given = {ReadOnlyError: "READONLY", BusyLoadingError: "LOADING", TryAgainError: "TRYAGAIN"}
    for kind, code in given.items():
        assert code_of(kind("said")) == code
    assert (
        code_of(ResponseError("Script attempted to access a non local key in a cluster node")) == "TRYAGAIN"
    )


def test_any_other_failure_is_an_error_without_the_text_of_redis() -> None:
    for words, kind in (("ERR of key lp:1:secret", StoreError), ("ERR WRONGTYPE lp:1:secret", Unreadable)):
        meant = translated(ResponseError(words))
        assert isinstance(meant, kind)
        assert not isinstance(meant, StoreUnavailable)
        assert "lp:1" not in str(meant)


# A failover behind one name


class VirtualAddress:
    """One address: new connections go to the present primary, old ones stay where they are."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        inner, outer = await asyncio.open_connection("127.0.0.1", self.target)
        await asyncio.gather(self._pipe(reader, outer), self._pipe(inner, writer))

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()


def promote(address: VirtualAddress, old: RedisServer, new: RedisServer) -> None:
    """Make the replica the primary, and the primary its replica: a failover as an operator would order it."""
    replicate(old, new)
    address.target = new.port
    new.tell("REPLICAOF", "NO", "ONE")
    old.tell("REPLICAOF", "127.0.0.1", str(new.port))
    wait_until(lambda: "READONLY" in old.tell("SET", "x", "1"))


@async_test
async def test_after_a_failover_behind_one_name_calls_continue_at_the_new_primary() -> None:
    with redis_pair() as (primary, replica):
        address = VirtualAddress(primary.port)
        observer = NotingObserver()
        store = RedisStore(await address.open(), observer=observer)
        await store.open(record(), evict=False)
        claimed = await store.claim(KEY, PRINCIPAL, Claim(1, "a", b""))
        assert isinstance(claimed, Claimed)
        promote(address, primary, replica)
        await asyncio.gather(*(store.find(KEY, PRINCIPAL) for _ in range(50)))
        await store.prove()
        await store.settle(KEY, "a", claimed.fence, b"last", tag=1)
        assert isinstance(await store.claim(KEY, PRINCIPAL, Claim(2, "b", b"")), Claimed)
        assert not observer.named("store.unreachable")
        await store.aclose()
        await address.close()


# A foreign script


@contextlib.contextmanager
def foreign_script(server: RedisServer) -> Iterator[None]:
    """Keep Redis busy with a script of another program: it answers BUSY to all until that is killed."""
    server.tell("CONFIG", "SET", "busy-reply-threshold", "20")
    endless = threading.Thread(target=server.tell, args=("EVAL", "while true do end", "0"))
    endless.start()
    try:
        wait_until(lambda: server.tell("PING").startswith("BUSY"))
        yield
    finally:
        server.tell("SCRIPT", "KILL")
        endless.join()


@async_test
async def test_a_command_waits_for_the_end_of_a_foreign_script(server: RedisServer) -> None:
    store = RedisStore(server.url)
    async with aclosing(store):
        await store.open(record(), evict=False)
        with foreign_script(server):
            finding = asyncio.ensure_future(store.find(KEY, PRINCIPAL))
            await stays(lambda: not finding.done(), 0.3)
        assert await finding is not None


@async_test
async def test_a_call_that_ends_while_a_foreign_script_runs_is_written_late_and_not_treated_as_fenced(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "PATIENCE", 0.2)
    started, may_end = asyncio.Event(), asyncio.Event()

    async def work(exchange: Exchange) -> object:
        await exchange.notify("notifications/progress", {"n": 0})
        started.set()
        await may_end.wait()
        return {"done": True}

    d = EngineHarness(ScriptedBack({CALL: work}), Settings(times=Times(lease=60.0)), RedisStore(server.url))
    await d.engine.ensure_started()
    d.session = await d.open()
    async with aclosing(d.engine):
        post = await d.post(1)
        await started.wait()
        with foreign_script(server):
            may_end.set()
            await until(lambda: bool(d.noted.named("exchange.unsettled")))
            assert not d.noted.named("exchange.fenced")
        assert (await post.whole())[-1]["result"] == {"done": True}


@async_test
async def test_a_change_with_a_lost_wake_up_is_still_noticed_after_a_foreign_script(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "PATIENCE", 0.1)
    observer = NotingObserver()
    store, other = RedisStore(server.url, observer=observer), RedisStore(server.url)
    async with aclosing(store), aclosing(other):
        wakeups: list[tuple[WakeUp, str, str]] = []
        store.bind(lambda *wakeup: wakeups.append(wakeup))
        await store.heard()
        await store.open(record(), evict=False)
        attached = await store.attach(KEY, PRINCIPAL, None, None)
        assert isinstance(attached, Attached)
        with foreign_script(server):
            await until(lambda: bool(observer.named("store.unreachable")))
        # The wake-up itself is lost.
        for task in store._tasks:
            if "wake-ups" in task.get_name():
                task.cancel()
        await other.append(KEY, "", -1, [(5, b"{}")])
        await until(lambda: (WakeUp.STREAM, KEY, attached.record.standalone) in wakeups)


@async_test
async def test_a_poll_passes_a_session_that_cannot_be_read(server: RedisServer) -> None:
    observer = NotingObserver()
    store, other = RedisStore(server.url, observer=observer), RedisStore(server.url)
    async with aclosing(other):
        rings: list[tuple[WakeUp, str, str]] = []
        for key in (KEY, OTHER):
            await store.open(record(key), evict=False)
            await store.attach(key, PRINCIPAL, None, None)
        store.wake = lambda *ring: rings.append(ring)
        async with aclosing(store):
            await other.append(OTHER, "", -1, [(5, b"{}")])
            server.tell("HSET", f"lp:1:default:{{{KEY}}}", "n", "damaged")
            await store.look_again()
            assert (WakeUp.STREAM, OTHER, record(OTHER).standalone) in rings
            assert (WakeUp.CLOSED, KEY, "") in rings
            assert observer.named("store.poisoned")
