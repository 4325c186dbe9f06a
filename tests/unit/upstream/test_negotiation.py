"""Which era is chosen: one server that answers each of the two questions as a test says."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from limpet.errors import BUSY, McpError, NotSent, VersionRefused
from limpet.ports import Ports, SilentObserver, SystemRandom
from limpet.testing.clock import VirtualClock
from limpet.upstream.connection import Callbacks, Connection, ConnectionOptions
from limpet.upstream.connectors import Connector
from limpet.upstream.duplex_link import DuplexLink
from limpet.upstream.link import Receiver, UpstreamLink
from limpet.upstream.negotiation import EraMemory, ServerEra
from limpet.upstream.profile import ClientProfile
from tests.support import virtual_test

MODERN: Final = "2026-07-28"
RESULTS: Final[Mapping[str, dict[str, Any]]] = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {}},
    "server/discover": {"supportedVersions": [MODERN], "capabilities": {}},
}


class Program:
    """A run of a program. It accepts, refuses (a code) or ignores each question, or ends when it is asked."""

    exit_status: int | None = None
    last_words = "it has ended"

    def __init__(self, behaviour: Mapping[str, str | int], received: list[str]) -> None:
        self._behaviour = behaviour
        self._received = received
        self._out: asyncio.Queue[bytes] = asyncio.Queue()

    async def read(self) -> bytes:
        return await self._out.get()

    async def write(self, message: bytes) -> None:
        decoded = json.loads(message)
        method = decoded.get("method")
        if method not in RESULTS:
            return
        self._received.append(method)
        behaviour = self._behaviour.get(method, -32601)
        if behaviour == "ends":
            self.exit_status = 1
            self._out.put_nowait(b"")
        elif behaviour == "accepts":
            self._say(id=decoded["id"], result=RESULTS[method])
        elif behaviour != "ignores":
            self._say(id=decoded["id"], error={"code": behaviour, "message": "no"})

    def _say(self, **message: Any) -> None:
        self._out.put_nowait(json.dumps({"jsonrpc": "2.0", **message}).encode())

    async def aclose(self) -> None:
        self._out.put_nowait(b"")


class Programs(Connector):
    """Starts the program, and writes down the questions of every run."""

    probe_seconds = 5.0
    answer_seconds = 60.0
    remembered_as = "the program"

    def __init__(self, behaviour: Mapping[str, str | int]) -> None:
        self.behaviour = behaviour
        self.received: list[str] = []
        self.memory = EraMemory()
        self.runs = 0

    async def connect(self, receiver: Receiver) -> UpstreamLink:
        self.runs += 1
        return DuplexLink(Program(self.behaviour, self.received), receiver, SilentObserver())

    async def opened(self, first: ServerEra, version: str = "auto") -> str:
        """Connect once; return the agreed version."""
        self.received.clear()
        self.runs = 0
        connection = Connection(
            self,
            ClientProfile({}, {}),
            Callbacks(on_request=_refuse, on_notification=lambda _message, _origin: None),
            options=ConnectionOptions(first=first, version=version),
            eras=self.memory,
            ports=Ports(VirtualClock(), SystemRandom(), SilentObserver()),
        )
        try:
            return (await connection.open()).version
        finally:
            await connection.aclose()


async def _refuse(method: str, _params: object, _origins: object) -> object:
    raise McpError(-32601, method)


ASKED: Final = {ServerEra.SESSION: "initialize", ServerEra.SESSIONLESS: "server/discover"}
SPOKEN: Final = {ServerEra.SESSION: "2025-11-25", ServerEra.SESSIONLESS: MODERN}
eras = pytest.mark.parametrize("first", ServerEra)


def other(era: ServerEra) -> ServerEra:
    [found] = set(ServerEra) - {era}
    return found


@eras
@virtual_test
async def test_a_server_with_both_eras_is_asked_once_and_used_in_the_preferred_one(first: ServerEra) -> None:
    programs = Programs(dict.fromkeys(RESULTS, "accepts"))
    for _ in range(2):
        assert await programs.opened(first) == SPOKEN[first]
        assert programs.received == [ASKED[first]]


@pytest.mark.parametrize("code", [-32601, -32600, -32602, -32022])
@eras
@virtual_test
async def test_the_era_that_a_server_refuses_is_asked_for_once(first: ServerEra, code: int) -> None:
    spoken = other(first)
    programs = Programs({ASKED[spoken]: "accepts", ASKED[first]: code})
    if (first, code) == (ServerEra.SESSIONLESS, -32022):
        # This error has the versions of a server of 2026-07-28, and here it has none in common.
        with pytest.raises(VersionRefused):
            await programs.opened(first)
        return
    assert await programs.opened(first) == SPOKEN[spoken]
    assert programs.received == [ASKED[first], ASKED[spoken]]
    for preferred in ServerEra:
        assert await programs.opened(preferred) == SPOKEN[spoken]
        assert programs.received == [ASKED[spoken]]
    # Another release of the program speaks the other era only.
    programs.behaviour = {ASKED[first]: "accepts"}
    assert await programs.opened(first) == SPOKEN[first]
    assert await programs.opened(first) == SPOKEN[first]
    assert programs.received == [ASKED[first]]


@virtual_test
async def test_an_error_that_may_be_gone_later_lets_the_other_era_serve_and_is_not_remembered() -> None:
    programs = Programs({"initialize": -32603, "server/discover": "accepts"})
    assert await programs.opened(ServerEra.SESSION) == MODERN
    programs.behaviour = dict.fromkeys(RESULTS, "accepts")
    assert await programs.opened(ServerEra.SESSION) == "2025-11-25"


@eras
@virtual_test
async def test_a_busy_server_is_not_asked_for_the_other_era(first: ServerEra) -> None:
    programs = Programs({ASKED[first]: BUSY, ASKED[other(first)]: "accepts"})
    with pytest.raises(McpError, match="no"):
        await programs.opened(first)
    assert programs.received == [ASKED[first]]


@eras
@virtual_test
async def test_a_program_that_ignores_a_question_is_asked_the_other_one_too(first: ServerEra) -> None:
    spoken = other(first)
    programs = Programs({ASKED[first]: "ignores", ASKED[spoken]: "accepts"})
    begun = asyncio.get_running_loop().time()
    assert await programs.opened(first) == SPOKEN[spoken]
    assert programs.received == [ASKED[first], ASKED[spoken]]
    # A program that starts slowly, and ends at `server/discover`, is not sent it because of that.
    waited = asyncio.get_running_loop().time() - begun
    assert waited == pytest.approx(5.0 if first is ServerEra.SESSIONLESS else 30.0, abs=0.1)
    assert programs.runs == 1


@eras
@virtual_test
async def test_a_program_that_ends_at_a_question_is_started_again_and_asked_the_other_one(
    first: ServerEra,
) -> None:
    spoken = other(first)
    programs = Programs({ASKED[first]: "ends", ASKED[spoken]: "accepts"})
    assert await programs.opened(first) == SPOKEN[spoken]
    assert (programs.received, programs.runs) == ([ASKED[first], ASKED[spoken]], 2)
    # The end at `initialize` may have had another reason, and is not remembered.
    assert await programs.opened(first) == SPOKEN[spoken]
    assert programs.runs == (1 if first is ServerEra.SESSIONLESS else 2)


@eras
@virtual_test
async def test_a_program_that_always_ends_is_an_error_after_two_starts(first: ServerEra) -> None:
    programs = Programs(dict.fromkeys(RESULTS, "ends"))
    with pytest.raises(NotSent, match="it has ended"):
        await programs.opened(first)
    assert programs.runs == 2


@virtual_test
async def test_if_both_are_refused_the_error_is_the_answer_to_initialize() -> None:
    programs = Programs({"initialize": -32099, "server/discover": "ignores"})
    for first in ServerEra:
        with pytest.raises(McpError) as refused:
            await programs.opened(first)
        assert refused.value.code == -32099


@pytest.mark.parametrize(
    ("version", "era"), [("sessions", ServerEra.SESSION), ("sessionless", ServerEra.SESSIONLESS)]
)
@virtual_test
async def test_an_operator_who_chooses_an_era_gets_this_one_or_an_error(version: str, era: ServerEra) -> None:
    programs = Programs(dict.fromkeys(RESULTS, "accepts"))
    assert await programs.opened(other(era), version) == SPOKEN[era]
    programs.behaviour = {ASKED[other(era)]: "accepts"}
    with pytest.raises((McpError, VersionRefused)):
        await programs.opened(other(era), version)
    assert programs.received == [ASKED[era]]
