"""Everything that Limpet does not know passes: extensions, capabilities, `_meta`, params and results, both eras, every back."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any, Final, cast

import pytest

from limpet import Client, McpError, Process, Remote
from limpet.backs.hosted.lifespan import Lifespan
from limpet.backs.hosted.run import Dialect
from limpet.backs.proxy.target import Target, UpstreamClient
from limpet.client.in_process import InProcessConnector
from limpet.engine.caller import Caller
from limpet.engine.sessions import ANONYMOUS
from limpet.errors import METHOD_NOT_FOUND
from limpet.options import ScopeTable
from limpet.ports import Ports, SilentObserver, SystemClock, SystemRandom
from limpet.protocol.idempotency import KEYS_EXTENSION
from limpet.server.hosted import HostedConnector
from limpet.server.proxy import Proxy
from limpet.upstream.connection import Callbacks, Connection, ConnectionOptions
from limpet.upstream.connectors import Connector
from limpet.upstream.negotiation import Agreed
from limpet.upstream.profile import ClientProfile
from limpet.upstream.settings import ClientLimits, ClientTimes
from tests.backs import mirror
from tests.backs.mirror import (
    BOTH,
    DESCRIBED,
    DESCRIBED_AS,
    EXTENSION,
    LATEST,
    MODERN,
    ODD,
    REFUSED,
    Object,
    Served,
)
from tests.support import async_test

PROGRAM: Final = str(Path(mirror.__file__))
ERAS: Final = {LATEST: "sessions", MODERN: "sessionless"}
BACKS: Final = ("URL", "program", "object")
QUESTION: Final = "com.example/question"
PAGE: Final = Path(__file__).parents[2] / "docs" / "in-front.md"


def matrix() -> dict[tuple[str, str, str], str]:
    """Return the matrix of the page: by client, server and kind of back, the revision that is spoken with the server."""
    _, _, table = PAGE.read_text(encoding="utf-8").partition("| client | server | URL | program | object |\n")
    rows = (line.strip("| ").split(" | ") for line in table.partition("\n\n")[0].splitlines()[1:])
    return {
        (client, server, back): cell.partition(" ")[0]
        for client, server, *cells in rows
        for back, cell in zip(BACKS, cells, strict=True)
    }


MATRIX: Final = matrix()


def test_the_matrix_of_the_page_is_complete() -> None:
    assert {*MATRIX} == {*product((LATEST, MODERN), (LATEST, BOTH, MODERN), BACKS)}


CLIENT: Final[dict[str, Any]] = {
    "extensions": {EXTENSION: {"client": 1}},
    "elicitation": {},
    ODD: {"client": 2},
}


class Hosting(Target):
    """An object of a framework that exists in this test only."""

    names_calls = True

    def __init__(self, version: str) -> None:
        # As `Hosted` does, and as a user chooses for an object that has no sessions.
        spoken = "sessionless" if version == MODERN else "sessions"
        super().__init__("mirror", version=spoken, limits=ClientLimits(), times=ClientTimes())
        self._object = Object(version)
        self._lifespan: Lifespan | None = None

    async def start(self, ports: Any, failed: Any) -> None:
        await super().start(ports, failed)
        self._lifespan = Lifespan(self._object, ports.observer, failed)
        await self._lifespan.start()

    def connector(self, client: UpstreamClient) -> Connector:
        assert self._lifespan is not None
        dialect = cast("Dialect", mirror.Dialect())
        observer = self.ports.observer
        return HostedConnector(self._object, dialect, self._lifespan, client.caller, self.times, observer)

    async def stop(self) -> None:
        assert self._lifespan is not None
        await self._lifespan.stop()


class Hosted(Proxy):
    """A proxy of that object."""

    summary = "hosts the mirror"


@asynccontextmanager
async def in_front(back: str, version: str) -> AsyncIterator[Proxy]:
    """Serve the mirror of one revision behind one kind of back."""
    if back == "program":
        yield Process([sys.executable, PROGRAM, version])
    elif back == "object":
        yield Hosted(Hosting(version), {})
    else:
        async with Served(version) as url:
            yield Remote(url)


class Asked:
    """The client: it writes down the questions, and answers them."""

    def __init__(self) -> None:
        self.questions: list[dict[str, Any]] = []

    async def answer(self, method: str, params: dict[str, Any], _origins: object) -> dict[str, Any]:
        assert method in {"elicitation/create", QUESTION}
        self.questions.append(params)
        return {"action": "accept", "content": {}, ODD: "answer", "_meta": {ODD: "answer"}}

    @asynccontextmanager
    async def connected(self, proxy: Proxy, era: str) -> AsyncIterator[Connection]:
        """Connect to a server of this process. `Client` has types for answers, and sends no unknown members."""
        ports = Ports(SystemClock(), SystemRandom(), SilentObserver())
        connection = Connection(
            InProcessConnector(proxy, Caller(ANONYMOUS), 60.0, ports.observer),
            ClientProfile({"name": "test", "version": "1", ODD: "info"}, CLIENT, meta={ODD: "opened"}),
            Callbacks(on_request=self.answer, on_notification=lambda _message, _origin: None),
            options=ConnectionOptions(version=era),
            ports=ports,
        )
        try:
            await connection.open()
            yield connection
        finally:
            await connection.aclose()


@pytest.mark.parametrize(("client_version", "server", "back"), MATRIX)
@async_test
async def test_each_cell_of_the_matrix_is_true_and_what_no_revision_defines_passes_in_both_directions(
    client_version: str, server: str, back: str
) -> None:
    asked = Asked()
    async with (
        in_front(back, server) as proxy,
        asked.connected(proxy, ERAS[client_version]) as connection,
    ):
        described(connection.agreed)
        spoken = await called(connection, is_in_session=client_version == LATEST)
        assert spoken == MATRIX[client_version, server, back]
        answered = await answered_call(connection, asked)
    assert (answered["answer"][ODD], answered["answer"]["_meta"]) == ("answer", {ODD: "answer"})
    [question] = asked.questions
    assert (question[ODD], question["_meta"][ODD]) == ("question", "question")


@pytest.mark.parametrize(("client_version", "server", "back"), MATRIX)
@async_test
async def test_a_request_of_the_server_that_an_extension_defines_reaches_the_client_if_there_is_a_way(
    client_version: str, server: str, back: str
) -> None:
    asked = Asked()
    async with (
        in_front(back, server) as proxy,
        asked.connected(proxy, ERAS[client_version]) as connection,
    ):
        answered = await answered_call(connection, asked, method=QUESTION)
        if (client_version, MATRIX[client_version, server, back]) == (MODERN, LATEST):
            # A result has no room for the request of a session.
            assert answered["refused"]["code"] == METHOD_NOT_FOUND
            assert asked.questions == []
            return
    assert answered["answer"][ODD] == "answer"
    [question] = asked.questions
    assert question[ODD] == "question"


@pytest.mark.parametrize("back", BACKS)
@async_test
async def test_a_server_that_returns_input_required_in_a_session_gets_the_answers_of_a_2026_client(
    back: str,
) -> None:
    asked = Asked()
    async with in_front(back, LATEST) as proxy, asked.connected(proxy, "sessionless") as connection:
        answered = await answered_call(connection, asked, returns=True)
    assert answered["resultType"] == "complete"
    assert answered["answer"][ODD] == "answer"


@pytest.mark.parametrize("era", ERAS.values())
@async_test
async def test_a_request_that_the_server_refuses_with_a_status_alone_is_an_unknown_method(era: str) -> None:
    async with in_front("URL", LATEST) as proxy, Asked().connected(proxy, era) as connection:
        with pytest.raises(McpError, match="unsupported") as refused:
            await connection.request(REFUSED)
    assert refused.value.code == METHOD_NOT_FOUND


def described(agreed: Agreed | None) -> None:
    """Look at the description of the server: it is the server's own, and the extension that Limpet serves itself."""
    assert agreed is not None
    declared = {**agreed.capabilities}
    if agreed.is_sessionless:
        declared["extensions"] = {**declared["extensions"]}
        assert declared["extensions"].pop(KEYS_EXTENSION) == {}
    assert declared == DESCRIBED["capabilities"]
    assert agreed.server == DESCRIBED_AS
    assert agreed.others == {ODD: "described", "_meta": {ODD: "described"}}


async def called(connection: Connection, *, is_in_session: bool) -> str:
    """Send unknown members, and look at those that come back; return the revision that the server was spoken to in."""
    listed = await connection.request("tools/list")
    assert (listed[ODD], listed["_meta"][ODD]) == ("field", "result")
    assert listed["tools"][0][ODD] == "tool"
    spoken = ""
    for method in ("tools/call", "com.example/method"):
        params = {"name": "x", "arguments": {}, ODD: "param", "_meta": {ODD: {"deep": [1]}}}
        result = await connection.request(method, params)
        assert (result["method"], result["params"]) == (method, params)
        assert (result[ODD], result["_meta"][ODD]) == ("field", "result")
        spoken = result["spoken"]
        # In 2026-07-28 there is no such request, on either side.
        opened_with = (result["opened with"] or {}).get(ODD)
        assert opened_with == ("opened" if is_in_session and spoken == LATEST else None)
        assert result["client"] == {
            "capabilities": CLIENT,
            "info": {"name": "test", "version": "1", ODD: "info"},
        }
    return spoken


async def answered_call(connection: Connection, asked: Asked, **arguments: object) -> dict[str, Any]:
    """Call a tool that asks, and answer it in the way of the era."""
    params: dict[str, Any] = {"name": "ask", "arguments": arguments}
    result: dict[str, Any] = await connection.request("tools/call", params)
    if result.get("resultType") != "input_required":
        return result
    [(key, request)] = result["inputRequests"].items()
    answers = {key: await asked.answer(request["method"], request["params"], None)}
    params |= {"inputResponses": answers, "requestState": result["requestState"]}
    retried: dict[str, Any] = await connection.request("tools/call", params)
    return retried


@async_test
async def test_requests_that_an_extension_defines_do_not_pass_a_table_of_scopes() -> None:
    async with Served("2025-11-25") as url:
        guarded = Remote(url, scopes=ScopeTable(tools={"x": ["admin"]}))
        async with Client(guarded, protocol_version="sessions") as client:
            for method in ("com.example/method", "tasks/list"):
                with pytest.raises(McpError, match=method) as refused:
                    await client.request(method)
                assert refused.value.code == METHOD_NOT_FOUND
