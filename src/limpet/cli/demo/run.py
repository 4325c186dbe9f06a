"""Run the acts, one after another, at each side, and report what happened."""

import asyncio
import contextlib
import importlib.metadata
import importlib.util
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, Literal, Protocol

from msgspec import Struct

from limpet import __version__
from limpet.cli.demo.acts import ACTS, Act, NotOffered
from limpet.cli.demo.stage import Failed, NotStarted, Say, Side, Stage, staged
from limpet.cli.private_store import private_store
from limpet.errors import ConfigError, LimpetError

ACT_SECONDS: Final = 90.0
"""An act that takes longer has failed."""

Verdict = Literal["held", "failed", "not offered", "not run"]


class ActResult(Struct, frozen=True, kw_only=True):
    """What one act was at one side."""

    act: str
    title: str
    verdict: Verdict
    happened: str
    seconds: float


class SideReport(Struct, frozen=True, kw_only=True):
    """The results of one side."""

    name: str
    version: str
    results: tuple[ActResult, ...]


class DemoReport(Struct, frozen=True, kw_only=True):
    """The whole demo. The first side is ours."""

    seconds: float
    sides: tuple[SideReport, ...]

    @property
    def held(self) -> bool:
        """True if every act held at our side."""
        return all(result.verdict == "held" for result in self.sides[0].results)


class Watcher(Protocol):
    """Shows the demo while it runs."""

    def say(self, act: Act, side: Side, text: str) -> None:
        """Show how far an act is."""

    def ended(self, side: Side, result: ActResult) -> None:
        """Show the result of an act."""


@contextlib.contextmanager
def our_side(target: str = "limpet.cli.demo.ours:server") -> Iterator[Side]:
    """Give our side, whose replicas share an SQLite file in a directory that is removed at the end."""
    with private_store("limpet-demo-") as store:
        words = ("serve", target, "--http", "127.0.0.1:0", "--store", store, "--log-level", "error")
        yield Side(name="limpet", version=__version__, words=words)


def peer_side() -> Side | None:
    """Return the side of the official SDK; None if this interpreter does not have it."""
    # A package of another author could have the name `mcp` too.
    if importlib.util.find_spec("mcp") is None or importlib.util.find_spec("uvicorn") is None:
        return None
    try:
        version = importlib.metadata.version("mcp")
    except importlib.metadata.PackageNotFoundError:
        return None
    return Side(name="mcp", version=version, words=("mcp",))


def chosen(names: Sequence[str]) -> tuple[Act, ...]:
    """Return the acts of these names; all, if none is named.

    Raises:
        ConfigError: there is no such act.
    """
    known = {act.name for act in ACTS}
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no act {name!r}; there are {', '.join(act.name for act in ACTS)}")
    return tuple(act for act in ACTS if not names or act.name in names)


async def run(sides: Sequence[Side], acts: Sequence[Act], watcher: Watcher) -> DemoReport:
    """Run every act at every side. Nothing is raised for a side that fails. No process is left at the end."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    results: dict[str, list[ActResult]] = {side.name: [] for side in sides}
    async with contextlib.AsyncExitStack() as stack:
        stages = await asyncio.gather(*(_open_stage(stack, side) for side in sides))
        for act in acts:
            for side, stage in zip(sides, stages, strict=True):
                result = await _result(act, stage, partial(watcher.say, act, side))
                results[side.name].append(result)
                watcher.ended(side, result)
    return DemoReport(
        seconds=round(loop.time() - begun, 1),
        sides=tuple(
            SideReport(name=side.name, version=side.version, results=tuple(results[side.name]))
            for side in sides
        ),
    )


async def _open_stage(stack: contextlib.AsyncExitStack, side: Side) -> Stage | NotStarted:
    try:
        return await stack.enter_async_context(staged(side))
    except NotStarted as error:
        return error


async def _result(act: Act, stage: Stage | NotStarted, say: Say) -> ActResult:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    verdict: Verdict = "held"
    try:
        if isinstance(stage, NotStarted):
            raise stage
        stage.say = say
        say("starts")
        async with asyncio.timeout(ACT_SECONDS):
            happened = await act.run(stage)
    except NotStarted as error:
        verdict, happened = "not run", str(error)
    except NotOffered as error:
        verdict, happened = "not offered", str(error)
    except Failed as error:
        verdict, happened = "failed", str(error)
    except TimeoutError:
        verdict, happened = "failed", "the act did not end in time"
    except LimpetError as error:
        verdict, happened = "failed", f"the server did not answer: {error}"
    return ActResult(
        act=act.name,
        title=act.title,
        verdict=verdict,
        happened=happened,
        seconds=round(loop.time() - begun, 1),
    )
