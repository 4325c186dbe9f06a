"""Unmodified objects of `mcp` 1, `mcp` 2 and fastmcp 4, served by `holdfast serve` in the environment of their package."""

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast import Client
from tests.client.servers import free_port, listening
from tests.http.client import Client as RawClient
from tests.http.client import Keeper, call, http_test, text
from tests.interop.peers import serving
from tests.interop.test_interview import COMMANDS, VERSIONS
from tests.support import async_test

ROOT: Final = Path(__file__).parents[2]
APPS: Final = Path(__file__).parent / "hosted"
FRAMEWORKS: Final = ("mcp1", "mcp2", "fastmcp")
ERAS: Final = ("legacy", "modern")
every_framework = pytest.mark.parametrize("framework", FRAMEWORKS)
every_era = pytest.mark.parametrize("era", ERAS)


def command(framework: str, *words: str) -> list[str]:
    """Return a command line of holdfast in the environment of a framework."""
    return [str(ROOT / ".peers" / framework / "bin" / "python"), "-m", "holdfast", *words]


def environment() -> dict[str, str]:
    return {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONWARNINGS": "ignore"}


def app(framework: str, name: str = "mcp") -> str:
    return f"{APPS / f'{framework}_app.py'}:{name}"


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """One server process for each framework: all tests are its clients."""
    with contextlib.ExitStack() as stack:
        yield {
            framework: stack.enter_context(
                serving(
                    tmp_path_factory.mktemp(framework),
                    environment(),
                    app(framework),
                    command=command(framework, "serve"),
                )
            )
            for framework in FRAMEWORKS
        }


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}/mcp"


@every_era
@every_framework
@async_test
async def test_clients_of_both_eras_use_it_and_its_lifespan_is_entered_once(
    ports: dict[str, int], framework: str, era: str
) -> None:
    for _ in range(2):
        async with Client(url(ports[framework]), version=era, timeout=20) as client:
            assert {"add", "ticks"} <= {tool.name for tool in await client.list_tools()}
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
            assert (await client.call_tool("entered")).data == 1


@every_era
@every_framework
@async_test
async def test_calls_of_one_client_run_at_once(ports: dict[str, int], framework: str, era: str) -> None:
    """P1: the three calls wait for each other."""
    async with Client(url(ports[framework]), version=era, timeout=20) as client:
        results = await asyncio.gather(*(client.call_tool("meet", {"name": era}) for _ in range(3)))
    assert [result.data for result in results] == [era] * 3


@every_framework
@http_test
async def test_a_second_call_with_an_id_in_flight_is_refused(ports: dict[str, int], framework: str) -> None:
    """P2."""
    client = await RawClient.opened(ports[framework])
    first = await client.start("ticks", id="same", n=20)
    second = await client.start("add", id="same", a=1, b=2)
    assert second.status == 400
    assert (await second.json())["error"]["code"] == -32600
    assert text(await first.answer()) == "20 ticks"


@pytest.mark.parametrize("framework", ["mcp1", "mcp2"])
@http_test
async def test_the_bare_server_sends_the_answer_of_one_call_to_another_call_with_its_id(
    framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the test above is about: the same object, served by its own framework, mixes up the two calls."""
    for name, content in environment().items():
        monkeypatch.setenv(name, content)
    port = free_port()
    python = str(ROOT / ".peers" / framework / "bin" / "python")
    with listening([python, str(APPS / "bare.py"), framework, str(port)], port):
        client = await RawClient.opened(port)
        await client.start("ticks", id="same", n=5)
        second = await client.start("ticks", id="same", n=50)
        assert b'"text":"5 ticks"' in await second.body()


@every_framework
@http_test
async def test_a_call_that_is_cut_is_resumed_without_loss(ports: dict[str, int], framework: str) -> None:
    """P4: each connection is cut after some bytes; every progress message arrives once."""
    client = await RawClient.opened(ports[framework])
    keeper = Keeper(client, call("cut", "ticks", n=20))
    sizes = iter([700, 900, 1_100])
    answer = await keeper.run(lambda: next(sizes, None))
    assert keeper.cuts == 3
    assert text(answer) == "20 ticks"
    assert [message["params"]["progress"] for message in keeper.messages[:-1]] == list(range(1, 21))


@every_framework
def test_two_questions_and_five_samplings_work_in_both_eras_and_the_body_runs_once(
    ports: dict[str, int], framework: str
) -> None:
    """The client is `mcp` 2 with `auto` and `legacy`. It counts what it was asked."""
    done = subprocess.run(
        [*COMMANDS["mcp2"], url(ports[framework]), *VERSIONS],
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [one["version"] for one in found] == list(VERSIONS.values())
    assert [one["asked"] for one in found] == [["elicitation"] * 2 + ["sampling"] * 5] * 2
    results = [_unwrapped(one["result"]) for one in found]
    runs = [result.pop("runs") for result in results]
    assert results == [{"name": "Ada", "color": "green", "lines": ["a line"] * 5}] * 2
    assert runs[1] == runs[0] + 1


def _unwrapped(result: dict[str, Any]) -> dict[str, Any]:
    inner: dict[str, Any] = result.get("result", result)
    return inner


@every_era
@every_framework
@async_test
async def test_five_samplings_of_one_call_reach_the_client_at_once(
    ports: dict[str, int], framework: str, era: str
) -> None:
    """P3: no sampling is answered before all five have arrived."""
    everyone = asyncio.Barrier(5)

    async def sample(_params: object) -> str:
        await everyone.wait()
        return "a line"

    def fill_in(params: Any) -> dict[str, Any]:
        return {next(iter(params.requested_schema["properties"])): "x"}

    async with Client(
        url(ports[framework]), version=era, sampling=sample, elicitation=fill_in, timeout=20
    ) as client:
        result = await client.call_tool("interview")
    assert _unwrapped(result.structured_content or {})["lines"] == ["a line"] * 5


@every_era
@every_framework
@async_test
async def test_calls_at_once_get_their_own_questions_and_answers(
    ports: dict[str, int], framework: str, era: str
) -> None:
    """Two clients with three calls each: all six questions are open at the same time, and each reaches its own call."""
    everyone = asyncio.Barrier(6)

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
            url(ports[framework]), version=era, elicitation=fill_in, sampling=say, timeout=20
        ) as client:
            colors = [f"{person}{number}" for number in range(3)]
            results = await asyncio.gather(*(client.call_tool("greet", {"color": color}) for color in colors))
        assert [result.data for result in results] == [f"{color} {color} about {color}" for color in colors]
        return sorted(seen)

    assert [*await asyncio.gather(greeted("a"), greeted("b"))] == [
        [f"{asked} {person}{number}" for asked in ("about", "question") for number in range(3)]
        for person in "ab"
    ]


@every_framework
@async_test
async def test_a_question_of_a_call_that_has_ended_does_not_reach_another_call(
    ports: dict[str, int], framework: str
) -> None:
    seen: list[str] = []

    def fill_in(params: Any) -> dict[str, Any]:
        seen.append(params.message)
        return {"name": "x"}

    async with Client(url(ports[framework]), version="modern", elicitation=fill_in, timeout=20) as client:
        assert (await client.call_tool("linger")).data == "ended"
        assert (await client.call_tool("outcome")).data == "refused"
    assert not seen


@pytest.mark.parametrize("framework", ["mcp1", "mcp2"])
@async_test
async def test_a_low_level_server_is_hosted_too(framework: str) -> None:
    words = command(framework, "serve", app(framework, "low"), "--stdio")
    async with Client(words, env=environment(), timeout=20) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"


@every_era
@async_test
async def test_we_speak_2026_07_28_with_the_object_if_that_is_wanted(era: str) -> None:
    words = command("mcp2", "serve", f"{APPS / 'modern.py'}:server", "--stdio")
    async with Client(words, env=environment(), version=era, timeout=20) as client:
        assert (await client.call_tool("revision")).data == "2026-07-28"


@every_framework
def test_handlers_see_the_user_and_the_http_request_of_their_own_call(framework: str, tmp_path: Path) -> None:
    """The package fastmcp also offers the tool that needs the scope `admin` only to a user who has it."""
    sent = ["cyd.0"]

    @async_test
    async def run() -> None:
        for era in ERAS:
            for user, scopes in (("ada", "admin"), ("bob", "")):
                headers = {"X-Color": f"{user}'s"}
                async with Client(target, version=era, auth=user, headers=headers, timeout=20) as client:
                    assert (await client.call_tool("who")).data == [f"{user} {user} {scopes}", f"{user}'s"]
                    names = {tool.name for tool in await client.list_tools()}
                    assert ("secret" in names) == (framework == "fastmcp" and user == "ada")
            async with Client(target, version=era, auth=lambda: sent[-1], timeout=20) as client:
                for renewed in ("cyd", "cyd.2"):
                    sent.append(renewed)
                    assert (await client.call_tool("who")).data == [f"cyd {renewed} ", "no color"]

    variables = {**environment(), "HOSTED_FRAMEWORK": framework}
    served = f"{APPS / 'verified.py'}:server"
    with serving(tmp_path, variables, served, command=command(framework, "serve")) as port:
        target = url(port)
        run()


@async_test
async def test_without_a_verifier_there_is_no_user_and_a_tool_that_needs_one_is_not_offered(
    ports: dict[str, int],
) -> None:
    async with Client(url(ports["fastmcp"]), timeout=20, auth="ada") as client:
        assert (await client.call_tool("who")).data == ["no user", "no color"]
        assert "secret" not in {tool.name for tool in await client.list_tools()}


@pytest.mark.parametrize(
    ("name", "part"), [("signed_in", "its own sign-in (`auth=`)"), ("routed", "HTTP routes (/health)")]
)
@every_framework
def test_an_object_with_its_own_sign_in_or_routes_is_refused(framework: str, name: str, part: str) -> None:
    done = subprocess.run(
        command(framework, "serve", app(framework, name), "--http", "127.0.0.1:0"),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, **environment(), "COLUMNS": "1000"},
    )
    assert done.returncode != 0
    assert part in done.stderr
