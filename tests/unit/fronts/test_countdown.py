"""The output after Ctrl+C while calls run."""

import asyncio
import io
from contextlib import aclosing

import pytest
from typing_extensions import override

from limpet import Server, Settings, Times
from limpet.fronts.countdown import count_down, waiting
from tests.asgi import Peer
from tests.support import virtual_test


class Terminal(io.StringIO):
    @override
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        (["a"], "1 call is running (a); waiting up to 7 s. Press Ctrl+C again to end it now."),
        (
            ["a", "b", "a"],
            "3 calls are running (a ×2, b); waiting up to 7 s. Press Ctrl+C again to end them now.",
        ),
        (list("abcde"), "5 calls are running (a, b, c, …);"),
        (["\x1b[31mred\r\n"], "1 call is running (31mred);"),
        (["x" * 1_000], f"1 call is running ({'x' * 40});"),
    ],
)
def test_calls_are_named_and_counted_and_show_plain_characters_only(calls: list[str], said: str) -> None:
    assert waiting(calls, 7.2).startswith(f"Stopping: {said}")


@virtual_test
async def test_a_terminal_that_was_closed_does_not_disturb_the_stop() -> None:
    class Closed(Terminal):
        @override
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    server = Server("s")

    @server.tool
    async def slow() -> str:
        await asyncio.sleep(5)
        return "done"

    peer = Peer(server.asgi())
    async with aclosing(server.engine):
        await peer.initialize()
        call = await peer.call(1, "slow").begun()
        await count_down(server.engine, Closed())
        await call.done()


@pytest.mark.parametrize("is_terminal", [True, False])
@virtual_test
async def test_it_counts_down_while_calls_run_and_then_ends(*, is_terminal: bool) -> None:
    server = Server("s", settings=Settings(times=Times(drain=30)))

    @server.tool
    async def slow() -> str:
        await asyncio.sleep(7.5)
        return "done"

    peer = Peer(server.asgi())
    async with aclosing(server.engine):
        await peer.initialize()
        call = await peer.call(1, "slow").begun()
        output = Terminal() if is_terminal else io.StringIO()
        await count_down(server.engine, output)
        await call.done()
        seconds = [part.split(" s.")[0] for part in output.getvalue().split("up to ")[1:]]
        assert seconds == (["30", "29", "28", "27", "26", "25", "24", "23"] if is_terminal else ["30", "25"])
        assert output.getvalue().count("\n") == (1 if is_terminal else 2)
