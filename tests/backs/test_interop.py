"""Servers and clients of the official SDKs, with `holdfast serve` between them."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from holdfast import Client, McpError, Process, Remote
from holdfast.errors import OUTCOME_UNKNOWN
from holdfast.upstream.settings import ClientTimes
from tests.backs.dropped_sessions import measured
from tests.client.servers import free_port, listening, peer_command, peer_listening
from tests.http.client import Client as HttpClient
from tests.http.client import answer_asks, call, http_test_within, text
from tests.interop.peers import ROOT
from tests.messages import Json
from tests.support import async_test

HERE: Final = Path(__file__).parent
PEERS: Final = HERE / "peers"
SERVE: Final = [sys.executable, "-m", "holdfast", "serve"]
MODERN_ONLY: Final = f"{HERE / 'modern_only.py'}:server"
QUICK: Final = ClientTimes(backoff=(0.01, 0.05))
LITTLE: Final = [sys.executable, str(HERE / "little.py")]
BEHIND: Final = ("mcp1-stdio", "mcp1-http", "ts-stdio")


def program(path: str, make: str) -> str:
    """Return an installed program; a missing one fails the test."""
    if not (ROOT / path).exists():
        pytest.fail(f"{path} is not installed: run `make {make}`")
    return str(ROOT / path)


def python(name: str) -> str:
    return program(f".peers/{name}/bin/python", "peers")


def stdio(behind: str) -> list[str]:
    """Return the command of a server on stdio."""
    if behind.startswith("ts"):
        return [program(".node/bin/node", "node"), str(PEERS / "asker.mjs")]
    return [python("mcp1"), str(PEERS / "asker1.py")]


@contextlib.contextmanager
def served(*target: str) -> Iterator[str]:
    """Run `holdfast serve`; its URL."""
    port = free_port()
    with listening([*SERVE, "--http", f"127.0.0.1:{port}", *target], port) as url:
        yield url


@contextlib.contextmanager
def in_front_of(behind: str) -> Iterator[str]:
    """Run an official server with Holdfast in front of it; the URL of Holdfast."""
    if behind.endswith("stdio"):
        with served("--", *stdio(behind)) as url:
            yield url
        return
    port = free_port()
    with listening([python("mcp1"), str(PEERS / "asker1.py"), str(port)], port) as bare, served(bare) as url:
        yield url


def port_of(url: str) -> int:
    return urlsplit(url).port or 0


def said_by(client: str, url: str, tool: str) -> str:
    """Return what an official client prints for one call."""
    command = [python(client), str(PEERS / f"client{client[-1]}.py"), url, tool]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=40, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize(("client", "version"), [("mcp1", "2025-11-25"), ("mcp2", "2026-07-28")])
def test_official_clients_answer_two_rounds_and_five_questions_of_an_unmodified_2025_server(
    behind: str, client: str, version: str
) -> None:
    with in_front_of(behind) as url:
        assert said_by(client, url, "two") == f"{version} FIRST? SECOND?"
        assert said_by(client, url, "five") == f"{version} <0>,<1>,<2>,<3>,<4>"


@pytest.mark.parametrize("way", ["http", "stdio"])
def test_a_2025_client_answers_the_questions_of_a_server_that_speaks_only_2026(way: str) -> None:
    with contextlib.ExitStack() as stack:
        if way == "http":
            url = stack.enter_context(served(stack.enter_context(served(MODERN_ONLY))))
        else:
            url = stack.enter_context(served("--", *SERVE, "--stdio", MODERN_ONLY))
        assert said_by("mcp1", url, "two") == "2025-11-25 FIRST? SECOND?"
        assert said_by("mcp1", url, "five") == "2025-11-25 <0>,<1>,<2>,<3>,<4>"


@pytest.mark.parametrize("behind", BEHIND)
def test_parallel_calls_of_one_session_get_their_own_results_and_a_used_id_is_refused(behind: str) -> None:
    @http_test_within(60)
    async def run() -> None:
        with in_front_of(behind) as url:
            client = await HttpClient.opened(port_of(url))

            async def echo(number: int) -> str:
                response = await client.start("echo", id=number, text=str(number))
                answer = await response.answer()
                response.connection.cut()
                return text(answer)

            answers = await asyncio.gather(*(echo(number) for number in range(20)))
            assert answers == [str(n) for n in range(20)]
            refusals = []

            async def use_the_id_again(ask: Json) -> Json:
                refusals.append(await client.call("echo", id="same", text="second"))
                return {"action": "accept", "content": {"text": ask["params"]["message"].upper()}}

            first = await answer_asks(client, await client.start("two", id="same"), use_the_id_again)
            assert text(first) == "FIRST? SECOND?"
            assert ["in flight" in str(refusal) for refusal in refusals] == [True, True]

    run()


@pytest.mark.parametrize("behind", ["mcp1-stdio", "mcp1-http"])
def test_a_call_whose_connection_is_cut_is_resumed_to_its_result(behind: str) -> None:
    @http_test_within(60)
    async def run() -> None:
        with in_front_of(behind) as url:
            client = await HttpClient.opened(port_of(url))
            message = call(1, "count", n=20)
            message["params"]["_meta"] = {"progressToken": "mine"}
            response = await client.post(message)
            seen = 0
            last = ""
            async for event in response.events():
                last = event.id or last
                if "notifications/progress" in str(event.data):
                    seen += 1
                if seen == 5:
                    break
            response.connection.cut()
            resumed = await client.get(last_event_id=last)
            answer = await resumed.answer()
            assert text(answer) == "counted"

    run()


@async_test
async def test_a_child_that_dies_in_a_call_gives_one_error_with_its_last_words_then_a_new_child() -> None:
    async with Client(Process(stdio("mcp1"), times=QUICK), version="legacy") as client:
        before = (await client.call_tool("process")).data
        with pytest.raises(McpError) as failed:
            await client.call_tool("die")
        assert failed.value.code == OUTCOME_UNKNOWN
        assert "the disk is full" in failed.value.message
        after = (await client.call_tool("process")).data
        assert after != before


@pytest.mark.parametrize("way", ["http", "stdio"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_clients_of_both_eras_answer_five_questions_of_a_server_of_mcp_2(era: str, way: str) -> None:
    @async_test
    async def run() -> None:
        def sample(question: Any) -> str:
            return f"<{question.messages[0].content.text}>"

        with contextlib.ExitStack() as stack:
            if way == "http":
                target: Process | Remote = Remote(
                    stack.enter_context(peer_listening("mcp2")), protocol_version="legacy"
                )
            else:
                target = Process(peer_command("mcp2"), protocol_version="legacy")
            async with Client(target, version=era, sampling=sample) as client:
                assert (await client.call_tool("fanout", {"n": 5})).text == "<0>,<1>,<2>,<3>,<4>"

    run()


@async_test
async def test_a_url_whose_server_is_killed_and_started_again_gives_one_error_and_then_works() -> None:
    port = free_port()
    command = [python("mcp1"), str(PEERS / "asker1.py"), str(port)]
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(contextlib.ExitStack())
        url = first.enter_context(listening(command, port))
        async with Client(Remote(url, times=QUICK), version="legacy") as client:
            before = (await client.call_tool("process")).data
            runs = asyncio.Event()

            def note(_number: float, _total: float | None, _message: str | None) -> None:
                runs.set()

            slow = asyncio.ensure_future(client.call_tool("count", {"n": 500}, progress=note))
            await runs.wait()
            first.close()
            stack.enter_context(listening(command, port))
            with pytest.raises(McpError) as failed:
                await slow
            assert failed.value.code == OUTCOME_UNKNOWN
            assert (await client.call_tool("process")).data != before


@pytest.mark.parametrize("sessions", [60, pytest.param(500, marks=pytest.mark.campaign)])
def test_sessions_over_children_that_are_opened_and_dropped_leave_nothing_behind(sessions: int) -> None:
    @http_test_within(300)
    async def run() -> None:
        before, after = await measured(sessions, warm_up=20)
        assert after.processes == before.processes == 0
        assert after.descriptors <= before.descriptors
        # Sessions that were kept would cost more: about 30 KiB each, with their child's pipes and buffers.
        assert after.kilobytes < before.kilobytes + 3_000 + 2 * sessions

    run()
