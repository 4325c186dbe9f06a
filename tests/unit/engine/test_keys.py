"""The keys that seal the state of clients: replaced in time, the same at every replica, and able to open older states."""

import asyncio

import pytest

from limpet.config import Settings, Times
from limpet.engine.exchange import Exchange
from limpet.engine.keys import Keys
from limpet.engine.runtime import Runtime
from limpet.errors import StoreUnavailable
from limpet.ports import SilentObserver
from limpet.testing import ScriptedBack, SeededRandom, VirtualClock
from tests.stores import ScriptedStore
from tests.support import async_test
from tests.unit.engine.harness import engine_test
from tests.unit.engine.test_sessionless import house

DAY = 86_400.0


class World:
    """Replicas of one store."""

    def __init__(self) -> None:
        self.clock = VirtualClock(100 * DAY)
        self.vault = ScriptedStore(clock=self.clock)
        self._seeds = iter(range(1, 100))

    async def replica(self, ahead: float = 0.0, parked: float = 600.0) -> Keys:
        clock = VirtualClock(self.clock.now() + ahead) if ahead else self.clock
        settings = Settings(times=Times(parked=parked))
        runtime = Runtime(
            ScriptedBack({}),
            settings,
            store=self.vault,
            clock=clock,
            random=SeededRandom(next(self._seeds)),
            observer=SilentObserver(),
        )
        keys = Keys(runtime)
        await keys.renew()
        return keys


def opens(keys: Keys, sealed: str) -> bool:
    return keys.sealer.open(sealed) == b"state"


@async_test
async def test_a_replaced_key_still_opens_values_that_it_sealed() -> None:
    world = World()
    one, other = await world.replica(), await world.replica()
    world.clock.advance(DAY - 1)
    sealed = one.sealer.seal(b"state")
    assert opens(other, sealed)
    world.clock.advance(1)
    await one.renew()
    await other.renew()
    late = await world.replica()
    assert all(opens(keys, sealed) for keys in (one, other, late))
    assert one.sealer._keys[0] == other.sealer._keys[0] == late.sealer._keys[0]
    newer = late.sealer.seal(b"state")
    world.clock.advance(DAY)
    for keys in (one, other, late):
        await keys.renew()
        assert opens(keys, newer)
        assert not opens(keys, sealed), "a key that was replaced two periods ago opens nothing"


@async_test
async def test_the_store_is_asked_once_a_period_and_old_keys_do_not_pile_up() -> None:
    world = World()
    keys = await world.replica()
    assert len(world.vault.done["secret"]) == 3
    for _ in range(1_000):
        await keys.renew()
    assert len(world.vault.done["secret"]) == 3
    for day in range(30):
        world.clock.advance(DAY)
        await keys.renew()
        assert len(world.vault.done["secret"]) == 4 + day
    assert len(world.vault._secrets) <= 5


@async_test
async def test_a_store_that_is_unavailable_at_key_rotation_stops_no_call() -> None:
    world = World()
    one, other = await world.replica(), await world.replica()
    first = one.sealer._keys[0]
    world.clock.advance(DAY)
    world.vault.fail("secret")
    for keys in (one, other):
        with pytest.raises(StoreUnavailable):
            await keys.renew()
    assert one.sealer._keys[0] != first
    assert opens(other, one.sealer.seal(b"state"))
    world.vault.recover()
    await one.renew()
    assert opens(other, one.sealer.seal(b"state"))
    assert len(one.sealer._keys) == 3


@pytest.mark.parametrize("ahead", [-DAY, -3600.0, 3600.0, DAY])
@async_test
async def test_clocks_may_differ_by_a_period(ahead: float) -> None:
    world = World()
    one, other = await world.replica(), await world.replica(ahead=ahead)
    assert opens(other, one.sealer.seal(b"state"))
    assert opens(one, other.sealer.seal(b"state"))


@async_test
async def test_a_key_period_is_never_shorter_than_the_life_of_a_sealed_value() -> None:
    world = World()
    keys = await world.replica(parked=10 * DAY)
    sealed = keys.sealer.seal(b"state")
    world.clock.advance(10 * DAY)
    await keys.renew()
    assert opens(keys, sealed)


@engine_test
async def test_a_parked_call_continues_after_its_key_was_replaced() -> None:
    async def ask(exchange: Exchange) -> object:
        return await exchange.ask("sampling/createMessage", {})

    async with house(ask, times=Times(parked=600, key_rotation=600)) as home:
        first = home.engine.sessionless.keys.sealer
        await asyncio.sleep(500)
        parked = await home.call().answer()
        await asyncio.sleep(500)
        assert home.engine.sessionless.keys.sealer is not first, "the sweep has replaced the key"
        [key] = parked["result"]["inputRequests"]
        assert "result" in await home.retry(parked, {key: "yes"}).answer()
