"""A thousand seeded scenarios against a server from hell: no call is lost, none is doubled, and the client recovers."""

import asyncio
from typing import Final

import pytest

from limpet import Client, LimpetError
from limpet.client import ClientLimits, ClientTimes
from limpet.errors import BadAnswer, CallTimeout, NotSent, OutcomeUnknown
from limpet.ports import SilentObserver, SystemClock
from limpet.testing.seeded_random import SeededRandom
from limpet.upstream.negotiation import EraMemory
from tests.client.torture import Torture
from tests.support import BOUND, async_test

SCENARIOS: Final = 1_000
BATCHES: Final = 5
AT_ONCE: Final = 25
TIMES: Final = ClientTimes(
    patience=20.0, silence=0.3, settle=0.2, close=1.0, standalone=1.0, backoff=(0.002, 0.05)
)
LIMITS: Final = ClientLimits(message=64 * 1024, line=64 * 1024, repeats=20)
UNKNOWN: Final = (OutcomeUnknown, CallTimeout, BadAnswer)
"""The exceptions that mean: it is unknown whether the call was executed."""


async def scenario(seed: int) -> None:
    """Make a few calls at once while everything goes wrong, then one when nothing does."""
    server = Torture(seed, is_modern=seed % 2 == 0)
    url = await server.start()
    ports = (SystemClock(), SeededRandom(seed), SilentObserver())
    client = Client(url, times=TIMES, limits=LIMITS, timeout=BOUND, eras=EraMemory(), ports=ports)
    try:
        async with client:
            calls = server.rng.randint(2, 6)
            ends = await asyncio.gather(*(call(client, f"{seed}-{n}", n % 3 == 0) for n in range(calls)))
            server.mischief = 0.0
            # It may be repeated: the last restart of the server can still break its connection.
            last = {"token": f"{seed}-last"}
            recovered = await client.call_tool("echo", last, idempotent=True, timeout=BOUND)
    finally:
        await server.aclose()
    for n, end in enumerate(ends):
        judge(server, f"{seed}-{n}", end, may_repeat=n % 3 == 0)
    assert recovered.text == f"{seed}-last"
    assert server.executed[f"{seed}-last"] == 1


async def call(client: Client, token: str, may_repeat: bool) -> str | LimpetError:
    try:
        # A server that does not answer costs the call all of this time.
        return (await client.call_tool("echo", {"token": token}, idempotent=may_repeat, timeout=1.5)).text
    except LimpetError as error:
        return error


def judge(server: Torture, token: str, end: str | LimpetError, *, may_repeat: bool) -> None:
    """Compare the caller's outcome with the server's record."""
    executed = server.executed[token]
    if not may_repeat:
        assert executed <= 1, f"{token} was executed {executed} times"
    if isinstance(end, str):
        assert end == token, "the answer of another call"
        assert executed >= 1
    elif isinstance(end, NotSent):
        assert executed == 0, f"{token} was executed, and its caller told that it was not"
    else:
        assert isinstance(end, UNKNOWN), repr(end)


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
@async_test
async def test_no_call_is_lost_or_doubled_and_the_client_recovers(batch: int) -> None:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(seed: int) -> None:
        async with places:
            await scenario(seed)

    each = SCENARIOS // BATCHES
    await asyncio.gather(*(one(seed) for seed in range(batch * each, (batch + 1) * each)))
