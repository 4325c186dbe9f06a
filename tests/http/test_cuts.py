"""A cut costs a stream, never the session; missed events are replayed exactly."""

import random
from typing import get_args

import pytest

from limpet.config import HttpSettings, ResponseMode
from tests.http.back import Config
from tests.http.client import Client, Connection, Keeper, call, http_test, run_all, text
from tests.http.serving import Process, in_loop

CALLS = 200
CUTS = 1_000
TICKS = 20


@pytest.mark.slow
@http_test
async def test_two_hundred_calls_lose_nothing_through_a_thousand_random_cuts(everything: Process) -> None:
    """Traps 19, 21: every event once and in order, for cuts at any byte, also in the head, the priming event and the answer.

    One session has half of the calls, and twenty sessions share the others.
    """
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    busy, *others = [await Client.opened(everything.port) for _ in range(21)]
    clients = [busy] * (CALLS // 2) + others * (CALLS // 2 // len(others))
    keepers = [
        Keeper(client, call(f"call {number}", "ticks", n=TICKS, interval=0.1))
        for number, client in enumerate(clients)
    ]

    def next_cut() -> int:
        return chance.randint(1, 1_600)

    await run_all(keepers, next_cut, lambda: chance.random() * 0.3)
    cuts = sum(keeper.cuts for keeper in keepers)
    print(f"{cuts} cuts fired, {sum(keeper.repeats for keeper in keepers) - CALLS} POSTs repeated")
    assert cuts >= CUTS, "the faults did not fire: this run proves nothing"
    for number, keeper in enumerate(keepers):
        assert [m["params"]["progress"] for m in keeper.messages[:-1]] == list(range(1, TICKS + 1))
        assert keeper.messages[-1]["id"] == f"call {number}"
        assert text(keeper.messages[-1]) == f"{TICKS} ticks"
        assert len(set(keeper.ids)) == len(keeper.ids)
        tokens = {message["params"]["progressToken"] for message in keeper.messages[:-1]}
        assert len(tokens) == 1, "progress of one call never appears on another's stream"


@pytest.mark.parametrize("mode", get_args(ResponseMode))
@http_test
async def test_a_large_answer_that_was_cut_is_kept_for_the_repeat(mode: ResponseMode) -> None:
    """Its bytes wait in our own buffer when its client disconnects: they have not been sent."""
    big = "x" * 3_500_000
    async with in_loop(Config(http=HttpSettings(response=mode))) as served:
        client = await Client.opened(served.port)
        for reset in (False, True):
            message = call(f"reset: {reset}", "echo", text=big)
            connection = await Connection.open(served.port, receive_buffer=4_096)
            assert (await client.post(message, on=connection)).status == 200
            connection.cut(reset=reset)
            again = await client.post(message)
            assert text(await again.answer()) == big
        assert served.back.runs[big] == 2, "each was executed once"
