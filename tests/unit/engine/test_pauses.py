"""The beat of the loop, which shows pauses of the process."""

import asyncio

from limpet.engine.pauses import Pulse
from tests.support import virtual_test


class Host:
    """A clock that a test can let jump, as after a pause; else the loop's."""

    def __init__(self) -> None:
        self.asleep = 0.0

    def now(self) -> float:
        return asyncio.get_running_loop().time() + self.asleep


@virtual_test
async def test_a_process_that_runs_is_not_waking() -> None:
    pulse = Pulse(Host().now)
    assert not pulse.is_waking(), "nothing is known before it beats"
    pulse.start()
    for _ in range(100):
        await asyncio.sleep(0.13)
        assert not pulse.is_waking()
    pulse.stop()
    await asyncio.sleep(10)
    assert not pulse.is_waking()


@virtual_test
async def test_after_a_pause_the_process_counts_as_waking_until_a_beat_is_in_time() -> None:
    host = Host()
    pulse = Pulse(host.now)
    pulse.start()
    await asyncio.sleep(0.7)
    host.asleep += 5
    assert pulse.is_waking(), "also before the late beat"
    await asyncio.sleep(0.31)
    assert pulse.is_waking(), "the late beat tells of it"
    await asyncio.sleep(0.5)
    assert not pulse.is_waking()
    pulse.stop()


@virtual_test
async def test_a_short_delay_is_no_pause() -> None:
    host = Host()
    pulse = Pulse(host.now)
    pulse.start()
    host.asleep += 0.4
    assert not pulse.is_waking()
    await asyncio.sleep(0.51)
    assert not pulse.is_waking()
    pulse.stop()
