"""Problems P1 to P4, tried from outside on servers of other SDKs behind Limpet: one table, server × back.

P1: parallel calls of one session lose answers. P2: two calls with one id get each other's answers. P3: questions of one
call are asked one after another. P4: a cut connection costs the result or the session.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pytest

from limpet import Client, McpError, Process, Remote
from limpet.errors import OUTCOME_UNKNOWN
from tests.http.client import Client as RawClient
from tests.http.client import Keeper, answer_asks, call, http_test, text
from tests.http.serving import wait_until_connected
from tests.interop.behind import (
    AS_SESSIONS,
    CHEAP,
    FRAMEWORKS,
    QUICK,
    ROWS,
    Fronts,
    Row,
    command,
    started,
    url,
)
from tests.interop.test_interview import COMMANDS, VERSIONS
from tests.messages import Json
from tests.support import BOUND, async_test
from tools.ports import free_port

ERAS: Final = ("sessions", "sessionless")
CROSSING: Final = ("mcp1", "mcp2")
"""Servers that send the answer of one call to another call with its id."""
every_row = pytest.mark.parametrize("row", ROWS, ids=str)
every_cheap_row = pytest.mark.parametrize("row", CHEAP, ids=str)
every_framework = pytest.mark.parametrize("framework", FRAMEWORKS)
every_era = pytest.mark.parametrize("era", ERAS)


@pytest.fixture(scope="module")
def fronts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fronts]:
    """All servers and all fronts: every test is a client of them."""
    made = Fronts(tmp_path_factory.mktemp("behind"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def sessions() -> dict[Row, RawClient]:
    """One session for each row, which all tests of problems share: it survives every cut."""
    return {}


async def called(client: RawClient, tool: str, **arguments: Json) -> str:
    """Call a tool on a connection of its own; return its text."""
    response = await client.start(tool, **arguments)
    answer = text(await response.answer())
    response.connection.cut()
    return answer


async def session(fronts: Fronts, sessions: dict[Row, RawClient], row: Row) -> RawClient:
    if row not in sessions:
        sessions[row] = await RawClient.opened(fronts.ports[row])
    return sessions[row]


@every_row
@http_test
async def test_p1_parallel_calls_of_one_session_get_their_own_answers(
    fronts: Fronts, sessions: dict[Row, RawClient], row: Row
) -> None:
    client = await session(fronts, sessions, row)

    async def added(number: int) -> str:
        return await called(client, "add", id=f"p1 {number}", a=number, b=1000)

    async def met() -> str:
        return await called(client, "meet", name="all")

    sums = [added(number) for number in range(20)]
    # The three calls wait for each other: they run at once.
    answers = await asyncio.gather(*sums, met(), met(), met())
    assert answers == [*(str(number + 1000) for number in range(20)), "all", "all", "all"]


async def crossed(client: RawClient) -> bytes:
    """Use one id for two calls at once; return everything that the second POST received."""
    first = await client.start("ticks", id="same", n=5)
    second = await client.start("ticks", id="same", n=50)
    answer = await second.body()
    first.connection.cut()
    return answer


@every_row
@http_test
async def test_p2_a_used_id_is_refused_or_isolated_where_the_bare_server_mixes_up_the_answers(
    fronts: Fronts, sessions: dict[Row, RawClient], row: Row
) -> None:
    if row.server in CROSSING and row.back == "http":
        bare = await RawClient.opened(fronts.bare[row.server])
        assert b'"text":"5 ticks"' in await crossed(bare), "the bare server no longer mixes up the two calls"
    client = await session(fronts, sessions, row)
    first = await client.start("ticks", id="same", n=20)
    second = await client.start("add", id="same", a=1, b=2)
    assert second.status == 400
    assert (await second.json())["error"]["code"] == -32600
    assert text(await first.answer()) == "20 ticks"
    if row not in CHEAP:
        return
    # A client that is known to reuse ids.
    known = await RawClient.opened(fronts.ports[row], name="claude-ai")
    both = [await known.start("ticks", id=1, n=number) for number in (20, 5)]
    assert [text(await response.answer()) for response in both] == ["20 ticks", "5 ticks"]


@every_row
@http_test
async def test_p3_two_rounds_of_questions_and_five_at_once(
    fronts: Fronts, sessions: dict[Row, RawClient], row: Row
) -> None:
    client = await session(fronts, sessions, row)
    everyone = asyncio.Barrier(5)
    asked: list[str] = []

    async def answer(ask: Json) -> Json:
        asked.append(ask["method"])
        if ask["method"] == "elicitation/create":
            (field,) = ask["params"]["requestedSchema"]["properties"]
            return {"action": "accept", "content": {field: field.upper()}}
        await everyone.wait()
        return {"role": "assistant", "model": "m", "content": ask["params"]["messages"][0]["content"]}

    result = (await answer_asks(client, await client.start("interview", id="p3"), answer))["result"]
    found = result["structuredContent"]
    found = found.get("result", found)
    assert (found["name"], found["color"]) == ("NAME", "COLOR")
    assert found["lines"] == [f"about {number}" for number in range(5)]
    assert asked == ["elicitation/create"] * 2 + ["sampling/createMessage"] * 5


@every_row
@http_test
async def test_p4_a_call_that_is_cut_is_resumed_without_loss_and_the_session_stays(
    fronts: Fronts, sessions: dict[Row, RawClient], row: Row
) -> None:
    client = await session(fronts, sessions, row)
    keeper = Keeper(client, call("cut", "ticks", n=20))
    sizes = iter([700, 900, 1_100])
    answer = await keeper.run(lambda: next(sizes, None))
    assert keeper.cuts == 3
    assert text(answer) == "20 ticks"
    assert [message["params"]["progress"] for message in keeper.messages[:-1]] == list(range(1, 21))
    assert await called(client, "add", a=1, b=2) == "3"


@every_cheap_row
@async_test
async def test_a_client_without_a_session_gets_its_own_answers_too(fronts: Fronts, row: Row) -> None:
    async with Client(url(fronts.ports[row]), protocol_version="sessionless", timeout=BOUND) as client:
        assert {"add", "ticks"} <= {tool.name for tool in await client.list_tools()}
        calls = [client.call_tool("add", {"a": number, "b": 1}) for number in range(10)]
        met = [client.call_tool("meet", {"name": "sessionless"}) for _ in range(3)]
        results = await asyncio.gather(*calls, *met)
    assert [result.text for result in results] == [*map(str, range(1, 11)), *["sessionless"] * 3]


# Objects in our process


@every_era
@every_framework
@async_test
async def test_a_hosted_tool_that_cancels_itself_or_exits_costs_its_own_call_only(
    fronts: Fronts, framework: str, era: str
) -> None:
    async with Client(hosted(fronts, framework), protocol_version=era, timeout=BOUND) as client:
        name = f"{era} {framework}"
        others = [asyncio.ensure_future(client.call_tool("meet", {"name": name})) for _ in range(2)]
        for way in ("task", "scope", "exit", "exception"):
            with pytest.raises(McpError, match=r"failed with (CancelledError|SystemExit)"):
                await client.call_tool("fail", {"way": way})
        assert (await client.call_tool("meet", {"name": name})).text == name
        assert [(await other).text for other in others] == [name] * 2


@every_era
@every_framework
@async_test
async def test_the_lifespan_of_a_hosted_object_is_entered_once(
    fronts: Fronts, framework: str, era: str
) -> None:
    for _ in range(2):
        async with Client(hosted(fronts, framework), protocol_version=era, timeout=BOUND) as client:
            assert (await client.call_tool("entered")).data == 1


@every_framework
@async_test
async def test_a_question_of_a_hosted_call_that_has_ended_does_not_reach_another_call(
    fronts: Fronts, framework: str
) -> None:
    seen: list[str] = []

    def fill_in(params: Any) -> dict[str, Any]:
        seen.append(params.message)
        return {"name": "x"}

    async with Client(
        hosted(fronts, framework), protocol_version="sessionless", elicitation=fill_in, timeout=BOUND
    ) as client:
        assert (await client.call_tool("linger")).data == "ended"
        assert (await client.call_tool("outcome")).data == "refused"
    assert not seen


@pytest.mark.parametrize("back", ["hosted", "http"])
@every_era
@async_test
async def test_a_server_sees_the_extensions_of_the_client(fronts: Fronts, back: str, era: str) -> None:
    """MCP Apps are such an extension."""
    ui = "io.modelcontextprotocol/ui"
    target, able = url(fronts.ports[Row("fastmcp", back)]), {"extensions": {ui: {"mimeTypes": ["text/html"]}}}
    async with Client(target, protocol_version=era, capabilities=able, timeout=BOUND) as client:
        known, of_request = json.loads((await client.call_tool("supports", {"extension": ui})).text)
        other = json.loads((await client.call_tool("supports", {"extension": "com.example/other"})).text)
    # A request of 2025-11-25 declares nothing.
    assert [known, of_request] == [True, able["extensions"][ui] if era == "sessionless" else None]
    assert other == [False, None]


@async_test
async def test_without_a_verifier_there_is_no_user_and_a_tool_that_needs_one_is_not_offered(
    fronts: Fronts,
) -> None:
    async with Client(hosted(fronts, "fastmcp"), timeout=BOUND, auth="ada") as client:
        assert (await client.call_tool("who")).data == ["no user", "no color"]
        assert "secret" not in {tool.name for tool in await client.list_tools()}


def hosted(fronts: Fronts, framework: str) -> str:
    return url(fronts.ports[Row(framework, "hosted")])


# Questions between the eras

INTERVIEWED: Final = tuple(
    row for row in CHEAP if row.back == "hosted" or row.server == "mcp1" or row.back == "stdio"
)


@pytest.mark.parametrize("row", INTERVIEWED, ids=str)
def test_two_questions_and_five_samplings_work_in_both_eras_and_the_body_runs_once(
    fronts: Fronts, row: Row
) -> None:
    """The client is `mcp` 2 with `auto` and `legacy`. It counts the questions that it gets."""
    words = [*COMMANDS["mcp2"], url(fronts.ports[row]), *VERSIONS]
    done = subprocess.run(words, capture_output=True, text=True, timeout=BOUND, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [one["version"] for one in found] == list(VERSIONS.values())
    assert [one["asked"] for one in found] == [["elicitation"] * 2 + ["sampling"] * 5] * 2
    results = [unwrapped(one["result"]) for one in found]
    runs = [result.pop("runs") for result in results]
    assert results == [{"name": "Ada", "color": "green", "lines": ["a line"] * 5}] * 2
    # On stdio each client has a process of its own.
    assert runs == [1, 1] if row.back == "stdio" else runs[1] == runs[0] + 1


def unwrapped(result: dict[str, Any]) -> dict[str, Any]:
    inner: dict[str, Any] = result.get("result", result)
    return inner


ASKING: Final = [
    (AS_SESSIONS if (row, era) == (("mcp2", "http"), "sessionless") else row, era)
    for row in CHEAP
    for era in ERAS
]


@pytest.mark.parametrize(("row", "era"), ASKING, ids=str)
@async_test
async def test_two_clients_at_once_never_see_each_others_questions(
    fronts: Fronts, row: Row, era: str
) -> None:
    """Two clients with three calls each. Where calls can be distinguished, all six questions are open at the same time."""
    together = 6 if row.back == "hosted" or era == "sessions" else 1
    everyone = asyncio.Barrier(together)

    async def greeted(person: str) -> list[str]:
        seen: list[str] = []

        async def fill_in(params: Any) -> dict[str, Any]:
            seen.append(params.message)
            await everyone.wait()
            return {"name": params.message.removeprefix("question ")}

        def say(params: Any) -> str:
            line: str = params.messages[0].content.text
            seen.append(line)
            return line

        async with Client(
            url(fronts.ports[row]), protocol_version=era, elicitation=fill_in, sampling=say, timeout=BOUND
        ) as client:
            colors = [f"{person}{number}" for number in range(3)]
            results = await asyncio.gather(*(client.call_tool("greet", {"color": color}) for color in colors))
        assert [result.text for result in results] == [f"{color} {color} about {color}" for color in colors]
        return sorted(seen)

    assert [*await asyncio.gather(greeted("a"), greeted("b"))] == [
        [f"{asked} {person}{number}" for asked in ("about", "question") for number in range(3)]
        for person in "ab"
    ]


@every_era
@async_test
async def test_a_server_with_the_transport_of_2024_11_05_asks_its_client(era: str) -> None:
    port = free_port()

    def fill_in(_params: Any) -> dict[str, Any]:
        return {"name": "Ada"}

    def say(params: Any) -> str:
        line: str = params.messages[0].content.text
        return line

    with started("mcp1", port, "sse") as process:
        wait_until_connected(port, process)
        remote = Remote(f"http://127.0.0.1:{port}/sse", times=QUICK)
        async with Client(
            remote, protocol_version=era, elicitation=fill_in, sampling=say, timeout=BOUND
        ) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
            assert (await client.call_tool("greet", {"color": "red"})).text == "red Ada about red"


# The end of the server behind


async def in_flight(client: Client) -> "asyncio.Task[Any]":
    """Begin a long call and return when it runs at the server."""
    runs = asyncio.Event()

    def note(_number: float, _total: float | None, _message: str | None) -> None:
        runs.set()

    long = asyncio.ensure_future(client.call_tool("ticks", {"n": 500}, progress=note))
    await runs.wait()
    return long


@pytest.mark.parametrize(("server", "era"), [("mcp1", "sessions"), ("ts", "sessionless")])
@async_test
async def test_a_url_whose_server_is_killed_and_started_again_gives_one_error_for_each_call_in_flight(
    server: str, era: str
) -> None:
    port = free_port()
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(contextlib.ExitStack())
        wait_until_connected(port, first.enter_context(started(server, port)))
        async with Client(Remote(url(port), times=QUICK), protocol_version=era) as client:
            before = (await client.call_tool("process")).text
            calls = [await in_flight(client) for _ in range(2)]
            first.close()
            wait_until_connected(port, stack.enter_context(started(server, port)))
            for ended in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(ended, McpError)
                assert ended.code == OUTCOME_UNKNOWN
            assert (await client.call_tool("process")).text != before


@pytest.mark.parametrize(("server", "era"), [("mcp1", "sessions"), ("ts", "sessionless")])
@async_test
async def test_a_program_that_is_killed_gives_one_error_for_each_call_in_flight(
    server: str, era: str
) -> None:
    async with Client(Process(command(server), times=QUICK), protocol_version=era) as client:
        before = (await client.call_tool("process")).text
        calls = [await in_flight(client) for _ in range(2)]
        os.kill(int(before), signal.SIGKILL)
        for ended in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(ended, McpError)
            assert ended.code == OUTCOME_UNKNOWN
        assert (await client.call_tool("process")).text != before


@async_test
async def test_a_child_that_dies_in_a_call_gives_its_stderr_in_the_error() -> None:
    async with Client(Process(command("mcp1"), times=QUICK), protocol_version="sessions") as client:
        with pytest.raises(McpError, match="the disk is full") as failed:
            await client.call_tool("die")
        assert failed.value.code == OUTCOME_UNKNOWN
