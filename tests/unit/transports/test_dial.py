"""Opening a connection to a host with several addresses."""

import asyncio
import socket
from typing import Any

import pytest

from limpet.transports import dial as module
from limpet.transports.dial import dial, in_turn
from tests.support import virtual_test

SIX, FOUR = socket.AF_INET6, socket.AF_INET


def info(family: int, name: str) -> tuple[Any, ...]:
    return (family, socket.SOCK_STREAM, 6, "", (name, 80))


def test_the_families_of_a_host_alternate() -> None:
    found = [info(SIX, "a"), info(SIX, "b"), info(SIX, "c"), info(FOUR, "d")]
    assert [address[4][0] for address in in_turn(found)] == ["a", "d", "b", "c"]


class Addresses:
    """A host whose addresses answer, refuse, or do nothing, by their names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.open: list[str] = []
        self.cancelled: list[str] = []
        self._names = names
        self.sockets: list[socket.socket] = []
        monkeypatch.setattr(module, "_connect", self._connect)
        monkeypatch.setattr(module, "STAGGER_SECONDS", 0.01)

    async def _connect(self, address: tuple[Any, ...]) -> socket.socket:
        name = address[4][0]
        self.open.append(name)
        try:
            if name.startswith("refuses"):
                raise ConnectionRefusedError(name)
            if name.startswith("silent"):
                await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        made = socket.socket()
        self.sockets.append(made)
        return made

    async def dial(self) -> None:
        loop = asyncio.get_running_loop()

        async def found(*_: object, **__: object) -> list[tuple[Any, ...]]:
            return [info(FOUR, name) for name in self._names]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "getaddrinfo", found)
            (await dial("host", 80)).close()
        await asyncio.sleep(0)


def test_a_silent_address_does_not_delay_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = Addresses(monkeypatch, "silent", "answers", "silent too")
    virtual_test(addresses.dial)()
    assert addresses.open == ["silent", "answers"]
    assert addresses.cancelled == ["silent"]


def test_an_address_that_refuses_is_followed_by_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = Addresses(monkeypatch, "refuses", "refuses too", "answers")
    virtual_test(addresses.dial)()
    assert addresses.open == ["refuses", "refuses too", "answers"]


def test_a_host_that_refuses_everywhere_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConnectionRefusedError):
        virtual_test(Addresses(monkeypatch, "refuses", "refuses too").dial)()


def test_giving_up_ends_every_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = Addresses(monkeypatch, "silent", "silent too")

    @virtual_test
    async def run() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(addresses.dial(), 0.05)
        await asyncio.sleep(0)

    run()
    assert sorted(addresses.cancelled) == ["silent", "silent too"]
