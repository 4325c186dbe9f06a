"""A memory store whose commands fail, wait or lose their replies as a test says."""

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Callable
from math import inf
from typing import Any, Final, NamedTuple, Self

from typing_extensions import override

from limpet.config import Limits
from limpet.errors import StoreUnavailable
from limpet.ports import Clock
from limpet.stores.memory import MemoryStore
from tests.support import LoopClock

COMMANDS: Final = [
    name
    for name, method in inspect.getmembers(MemoryStore, inspect.iscoroutinefunction)
    if not name.startswith("_")
]
OF_EXCHANGES: Final = (
    "open_stream",
    "attach",
    "close",
    "keep",
    "append",
    "settle",
    "ask",
    "take_answer",
    "withdraw",
)
"""The commands that a running exchange and its readers use."""


class Delay(NamedTuple):
    before: float
    after: float
    outlives_caller: bool


class ScriptedStore(MemoryStore):
    """A memory store on the loop's clock, whose commands a test controls."""

    def __init__(
        self, limits: Limits = Limits(), clock: Clock | None = None, *, is_shared: bool = False
    ) -> None:
        super().__init__(limits, clock or LoopClock())
        self.is_shared = is_shared
        self.log: list[str] = []
        """`settle` for a command that came, `settle done` for one that was carried out; in order."""
        self.done: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
        """The arguments of the commands that were carried out, by their names."""
        self.failed = 0
        """How many commands have failed on purpose."""
        self._failing: dict[str, tuple[Exception, float]] = {}
        self._answers: dict[str, object] = {}
        self._lossy: set[str] = set()
        self._delays: dict[str, Delay] = {}
        for name in COMMANDS:
            setattr(self, name, self._scripted(name, getattr(self, name)))

    def fail(self, *commands: str, error: Exception | None = None, times: float = inf) -> None:
        """Let these commands fail, `times` times each; nothing of them is done."""
        failure = error or StoreUnavailable("on purpose")
        self._failing |= dict.fromkeys(commands, (failure, times))

    def lose_replies(self, *commands: str) -> None:
        """Execute these commands, and fail nevertheless."""
        self._lossy.update(commands)

    def delay(
        self, *commands: str, before: float = 0.0, after: float = 0.0, outlives_caller: bool = True
    ) -> None:
        """Let these commands take so long before they are carried out, and their replies so long after.

        `outlives_caller`: they are carried out even if their caller was cancelled, as at the other end of a socket.
        """
        self._delays |= dict.fromkeys(commands, Delay(before, after, outlives_caller))

    def reply_with(self, command: str, result: object) -> None:
        """Answer a command with this, and do nothing of it."""
        self._answers[command] = result

    def recover(self) -> None:
        """Carry out every command from now on, and at once."""
        for rules in (self._failing, self._answers, self._lossy, self._delays):
            rules.clear()

    @override
    def twin(self) -> Self:
        """Return a store of its own: the thread of the lease must not close this one."""
        return type(self)(is_shared=self.is_shared)

    def _scripted(self, name: str, command: Callable[..., Any]) -> Callable[..., Any]:
        async def run(*args: Any, **more: Any) -> Any:
            self.log.append(name)
            if name not in self._delays:
                return await self._carry_out(name, command, args, more)
            late = self._late(name, command, args, more)
            if not self._delays[name].outlives_caller:
                return await late
            return await asyncio.shield(asyncio.ensure_future(late))

        return run

    async def _late(self, name: str, command: Callable[..., Any], args: tuple[Any, ...], more: Any) -> Any:
        before, after, _ = self._delays[name]
        await asyncio.sleep(before)
        try:
            return await self._carry_out(name, command, args, more)
        finally:
            await asyncio.sleep(after)

    async def _carry_out(
        self, name: str, command: Callable[..., Any], args: tuple[Any, ...], more: Any
    ) -> Any:
        error, times = self._failing.get(name, (None, 0.0))
        if error is not None and times > 0:
            self._failing[name] = error, times - 1
            self.failed += 1
            raise error
        if name in self._answers:
            return self._answers[name]
        result = await command(*args, **more)
        self.log.append(f"{name} done")
        self.done[name].append(args)
        if name in self._lossy:
            self.failed += 1
            raise StoreUnavailable("the reply is lost, on purpose")
        return result
