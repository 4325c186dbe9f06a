"""stdio from outside: a real process, real pipes."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support import BOUND, async_test
from tests.unit.fronts.stdio_process import python, small_server


def text(answer: Any) -> str:
    found: str = answer["result"]["content"][0]["text"]
    return found


@async_test
async def test_only_protocol_messages_are_on_stdout_even_if_a_tool_prints() -> None:
    async with small_server() as client:
        await client.open()
        client.call(1, "noise")
        assert text(await client.answered(1)) == "quiet"
        client.hang_up()
        out, err, status = await client.rest()
    assert (out, status) == ([], 0)
    for told in ("printed by a tool", "written by a tool", "written to descriptor 1", "printed by a child"):
        assert told in err


NOISY = """
import logging, os, sys

print("printed at import")
sys.stdout.write("written at import")
logging.getLogger().addHandler(logging.StreamHandler(sys.stdout))
kept = sys.stdout
from limpet import Server

server = Server("noisy")

@server.tool
async def noise() -> str:
    print("printed by a tool")
    kept.write("written to what was kept")
    logging.warning("logged to what was kept")
    return "quiet"

if __name__ == "__main__":
    server.run()
"""


@pytest.mark.parametrize("started", [["-m", "limpet", "serve", "{}", "--stdio"], ["{}"]])
@async_test
async def test_output_printed_at_import_is_not_on_stdout(started: list[str], tmp_path: Path) -> None:
    program = tmp_path / "noisy.py"
    program.write_text(NOISY)
    async with python(*(item.format(program) for item in started)) as client:
        await client.open()
        client.call(1, "noise")
        assert text(await client.answered(1)) == "quiet"
        client.hang_up()
        out, err, status = await client.rest()
    assert (out, status) == ([], 0)
    for told in ("printed at import", "written at import", "printed by a tool", "what was kept", "logged to"):
        assert told in err


@async_test
async def test_calls_run_at_once_and_each_is_answered_by_its_id() -> None:
    async with small_server() as client:
        await client.open()
        for n in range(50):
            client.call(n, "wait", gate=str(n))
        for n in reversed(range(50)):
            client.call(f"open{n}", "open_gate", gate=str(n))
        answers = [await client.next() for _ in range(100)]
    opened = {m["id"]: text(m) for m in answers if isinstance(m["id"], int)}
    assert opened == {n: f"{n} opened" for n in range(50)}


@async_test
async def test_an_id_in_flight_is_refused_while_the_first_completes_and_is_free_again_after() -> None:
    async with small_server() as client:
        await client.open()
        client.call(1, "wait", gate="a")
        client.call(1, "echo", text="duplicate")
        refused = await client.answered(1)
        assert refused["error"]["code"] == -32600
        client.call("1", "echo", text="another id")
        assert text(await client.answered("1")) == "another id"
        client.call(2, "open_gate", gate="a")
        assert text(await client.answered(1)) == "a opened"
        client.call(1, "echo", text="reused")
        assert text(await client.answered(1)) == "reused"


@async_test
async def test_fifty_asks_are_in_flight_together() -> None:
    async with small_server() as client:
        await client.open()
        client.call(1, "fanout", n=50)
        asks = [await client.next() for _ in range(50)]
        assert {ask["method"] for ask in asks} == {"sampling/createMessage"}
        assert len({ask["id"] for ask in asks}) == 50
        for ask in reversed(asks):
            asked = ask["params"]["messages"][0]["content"]["text"]
            content = {"type": "text", "text": "ok"}
            client.answer(ask["id"], {"role": "assistant", "model": asked, "content": content})
        assert text(await client.answered(1)) == ",".join(map(str, range(50)))


@async_test
async def test_garbage_and_a_line_over_the_limit_are_answered_and_the_next_line_works() -> None:
    async with small_server() as client:
        await client.open()
        client.write(b"\xff\xfe not json")
        assert (await client.answered(None))["error"]["code"] == -32700
        client.write(b"x" * (5 * 1024 * 1024))
        refused = (await client.answered(None))["error"]
        assert (refused["code"], "at most" in refused["message"]) == (-32600, True)
        client.write(b"   ")
        client.call(1, "echo", text="on")
        assert text(await client.answered(1)) == "on"


@async_test
async def test_a_line_of_a_megabyte_is_read_and_written() -> None:
    async with small_server() as client:
        await client.open()
        long = "é" * 500_000
        client.call(1, "echo", text=long)
        assert text(await client.answered(1)) == long


@async_test
async def test_the_end_of_input_lets_running_calls_finish() -> None:
    async with small_server() as client:
        await client.open()
        client.call(1, "slow", seconds=0.3)
        client.call(2, "fanout", n=1)
        assert (await client.next())["method"] == "sampling/createMessage"
        client.hang_up()
        out, err, status = await client.rest()
    answers = {m["id"]: m for m in out}
    assert text(answers[1]) == "slept"
    # No client can answer an ask any more: its call ends at once, with an answer of its own.
    assert 2 in answers
    assert status == 0
    assert err.index("closed: deleted") < err.index("lifespan left")


@async_test
async def test_a_call_that_outlasts_the_drain_time_is_ended_with_an_answer() -> None:
    async with small_server() as client:
        await client.open()
        client.call(1, "wait", gate="never")
        client.hang_up()
        out, _, status = await client.rest()
    assert [(m["id"], m["error"]["code"]) for m in out] == [(1, -32800)]
    assert status == 0


@async_test
async def test_a_signal_drains_too() -> None:
    async with small_server() as client:
        await client.open()
        client.call(1, "slow", seconds=0.3)
        client.say("ping", 2)
        await client.answered(2)
        client.process.send_signal(signal.SIGTERM)
        out, err, status = await client.rest()
    assert [text(m) for m in out] == ["slept"]
    assert "closed: shutdown" in err
    assert status == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@async_test
async def test_after_a_signal_answers_and_reads_are_taken_and_new_calls_are_refused(
    number: signal.Signals,
) -> None:
    async with small_server() as client:
        await client.open()
        client.call(1, "fanout", n=1)
        ask = await client.next()
        client.process.send_signal(number)
        refused, count = None, 1
        while refused is None:
            # Until the signal has arrived.
            count += 1
            client.call(count, "echo", text="x")
            refused = (await client.answered(count)).get("error")
        assert (refused["code"], "was not executed" in refused["message"]) == (-31001, True)
        client.say("tools/list", "list")
        assert (await client.answered("list"))["result"]["tools"]
        content = {"type": "text", "text": "ok"}
        client.answer(ask["id"], {"role": "assistant", "model": "m", "content": content})
        assert "result" in await client.answered(1)
        out, err, status = await client.rest()
    assert (out, status) == ([], 0)
    assert "closed: shutdown" in err


@async_test
async def test_the_end_of_input_after_a_signal_ends_the_questions() -> None:
    async with small_server() as client:
        await client.open()
        client.call(1, "fanout", n=1)
        await client.next()
        client.process.send_signal(signal.SIGTERM)
        client.hang_up()
        out, _, status = await client.rest()
    assert ([message["id"] for message in out if "method" not in message], status) == ([1], 0)


@async_test
async def test_a_last_line_without_its_end_is_taken() -> None:
    async with small_server() as client:
        assert client.process.stdin is not None
        client.process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        client.hang_up()
        out, _, status = await client.rest()
    assert out == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
    assert status == 0


@async_test
async def test_a_client_that_no_longer_reads_ends_the_server() -> None:
    async with small_server() as client:
        await client.open()
        # The client closes its end of our output; the next answer cannot be written.
        transport = client.process._transport  # type: ignore[attr-defined]
        transport.get_pipe_transport(1).close()
        client.say("ping", 1)
        assert await asyncio.wait_for(client.process.wait(), BOUND) == 0
