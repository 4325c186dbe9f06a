"""A handler in front of the host's: called always, installed only over one of the host's, removed only where it is ours."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import aclosing
from types import FrameType
from typing import Any, Final

import pytest

from limpet import Server
from limpet.fronts.http.asgi_host.mount import SIGNALS, HostSignals
from tests.asgi import Peer
from tests.support import async_test

BOTH: Final = [number.value for number in SIGNALS]


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Host:
    """A host's handler, and how often it was called."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        for number in SIGNALS:
            signal.signal(number, self.handle)

    def handle(self, number: int, _frame: FrameType | None) -> None:
        self.heard.append(number)


async def nothing() -> None:
    return


@async_test
async def test_a_signal_reaches_the_host_and_stops_once() -> None:
    host, stopped = Host(), asyncio.Event()
    stops = []

    async def stop() -> None:
        stops.append(1)
        stopped.set()

    signals = HostSignals(stop)
    signals.install()
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
    await stopped.wait()
    assert (host.heard, stops, signals.installed) == (BOTH, [1], True)


@async_test
async def test_a_handler_of_the_loop_is_called_too() -> None:
    heard = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, heard.set)
    stopped = asyncio.Event()

    async def stop() -> None:
        stopped.set()

    signals = HostSignals(stop)
    signals.install()
    signal.raise_signal(signal.SIGTERM)
    await asyncio.gather(heard.wait(), stopped.wait())
    signals.restore()
    loop.remove_signal_handler(signal.SIGTERM)


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler])
@async_test
async def test_a_default_handler_stays(handler: Any) -> None:
    for number in SIGNALS:
        signal.signal(number, handler)
    signals = HostSignals(nothing)
    signals.install()
    assert [signal.getsignal(number) for number in SIGNALS] == [handler] * 2
    assert not signals.installed


@async_test
async def test_handlers_are_put_back_only_where_ours_is_still_installed() -> None:
    host, signals = Host(), HostSignals(nothing)
    signals.install()

    def later(_number: int, _frame: FrameType | None) -> None:
        """A handler that was installed after ours."""

    signal.signal(signal.SIGTERM, later)
    signals.restore()
    assert [signal.getsignal(number) for number in SIGNALS] == [host.handle, later]


@async_test
async def test_two_mounts_that_stop_in_either_order_leave_the_host_its_signals() -> None:
    host = Host()
    one, two = HostSignals(nothing), HostSignals(nothing)
    one.install()
    two.install()
    one.restore()
    two.restore()
    signal.raise_signal(signal.SIGTERM)
    assert host.heard == [signal.SIGTERM]
    one.install()
    signal.raise_signal(signal.SIGTERM)
    assert host.heard == [signal.SIGTERM] * 2


def test_another_thread_than_the_main_one_installs_nothing() -> None:
    host = Host()

    @async_test
    async def run() -> None:
        HostSignals(nothing).install()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert [signal.getsignal(number) for number in SIGNALS] == [host.handle] * 2


@pytest.mark.parametrize("wanted", [True, False])
@async_test
async def test_a_mount_listens_to_its_host_unless_that_is_turned_off(*, wanted: bool) -> None:
    host, server = Host(), Server("mounted")
    peer = Peer(server.asgi(host_signals=wanted))
    async with aclosing(server.engine):
        assert (await peer.initialize()).status == 200
        get = await peer.get().begun()
        signal.raise_signal(signal.SIGTERM)
        assert host.heard == [signal.SIGTERM]
        if wanted:
            await get.done()
            assert (await peer.get().done()).status == 503


@async_test
async def test_the_loop_of_a_host_is_watched_while_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without handlers of the host there is no host, but a test or a script: nothing is watched then."""
    watched: list[str] = []

    @contextlib.contextmanager
    def watch(_observer: object) -> Iterator[None]:
        watched.append("begins")
        yield
        watched.append("ends")

    monkeypatch.setattr("limpet.fronts.http.asgi_host.mount.LoopWatch", watch)
    for hosted, expected in ((False, []), (True, ["begins", "ends"])):
        if hosted:
            Host()
        events = iter(["lifespan.startup", "lifespan.shutdown"])

        async def receive(events: Iterator[str] = events) -> dict[str, Any]:
            return {"type": next(events)}

        async def send(_message: MutableMapping[str, Any]) -> None:
            return

        await Server("s").asgi()({"type": "lifespan"}, receive, send)
        assert watched == expected
