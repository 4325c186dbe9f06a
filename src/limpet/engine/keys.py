"""The keys that seal the state that clients keep for the server: shared by all replicas, and replaced after a while.

Time is divided into periods of `Times.key_rotation`. Each period has its own key in the store, under a name that
contains the number of the period: the first candidate that any replica offers. A replica seals with the key of the
present period. It opens with this key, with that of the period before, and with that of the next one, which it reads
in advance.

Why every sealed value can be opened until it expires: a period is at least as long as a sealed value lives, so a value
that was sealed in one period expires before the next one ends. Why replicas agree: the first replica that asks for a
period's key decides it, in one atomic step of the store. Why clocks need not agree: a replica that is ahead or behind
by up to one period uses a key that the others have too. Why an outage of the store at the turn of a period does no
harm: the next key is known already. The store forgets a key that no replica has asked for in four periods, so keys do
not pile up.
"""

from typing import Final

from limpet.auth.seal import KEY_BYTES, Sealer
from limpet.engine.runtime import Runtime

PURPOSE: Final = "limpet.requestState.1"
_NAME: Final = "requestState"
"""The names of the keys in the store begin with it."""
KEPT_PERIODS: Final = 4
"""Periods for which the store keeps a key after it was last asked for: a key is used until the third one ends."""


class Keys:
    """The sealer of the `requestState`. Call `renew` at the start, and from time to time."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        times = runtime.settings.times
        self._period_seconds = max(times.key_rotation, times.parked)
        """Never shorter than the longest life of a sealed value."""
        self._keys: dict[int, bytes] = {}
        self._period: int | None = None
        self.sealer: Sealer = Sealer(runtime.random, PURPOSE)

    async def renew(self) -> None:
        """Use the present period's key; asks the store only where a key is missing.

        Raises:
            StoreUnavailable: a key is missing, and the store is unavailable; the known keys are used.
        """
        period = int(self._runtime.clock.wall() // self._period_seconds)
        wanted = (period, period + 1, period - 1)
        if period == self._period and self._keys.keys() == set(wanted):
            return
        if self._period not in {None, period}:
            self._runtime.audit.done("key_changed")
        self._period = period
        self._keys = {number: key for number, key in self._keys.items() if number in wanted}
        self._use(wanted)
        for number in wanted:
            if number not in self._keys:
                self._keys[number] = await self._key(number)
        self._use(wanted)

    def _use(self, wanted: tuple[int, ...]) -> None:
        if wanted[0] in self._keys:
            keys = [self._keys[number] for number in wanted if number in self._keys]
            self.sealer = Sealer(self._runtime.random, PURPOSE, keys)

    async def _key(self, number: int) -> bytes:
        candidate = bytes.fromhex(self._runtime.random.token(KEY_BYTES))
        kept = KEPT_PERIODS * self._period_seconds
        return await self._runtime.store.secret(f"{_NAME}.{number}", candidate, seconds=kept)
