"""Runs the probes against one server, within a time limit, and makes the report.

Most probes run at the same time, at most `TOGETHER` of them. Those that measure time or load the server run afterwards,
one after another. The rows of the report are in the order of the table.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from limpet.checking.ground import Ground, NotApplicable
from limpet.checking.peer import Peer, TooManyRequests
from limpet.checking.report import Report, Row, Verdict
from limpet.checking.survey import UNAUTHORIZED, Facts, Survey
from limpet.checking.table import PROBES, REACHABLE, Probe
from limpet.errors import ConfigError, LimpetError
from limpet.transports.http import place_of, shown
from limpet.transports.secrets import hiding

LONGEST: Final = 55.0
"""The time limit of all probes that are not slow, in seconds."""
PATIENCE: Final = 4.0
TOGETHER: Final = 4
"""How many probes run at the same time."""


class CheckPlan(Struct, frozen=True, kw_only=True):
    """How to check."""

    tool: str = ""
    """The tool that may be called; empty: one that is annotated read-only."""
    arguments: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = {}
    slow: bool = False
    """Also run the probes that take minutes."""
    patience: float = PATIENCE
    """How long one answer may take, in seconds."""
    only: tuple[str, ...] = ()
    """The names of the probes to run; empty: all."""


Progress = Callable[[int, int, str], None]
"""Receives the number of finished probes, the number of all, and the title of a probe that runs."""


async def check(url: str, wanted: CheckPlan = CheckPlan(), progress: Progress | None = None) -> Report:  # noqa: B008 - frozen
    """Probe a server and return a verdict for each probe. Nothing is raised for a server that fails.

    Raises:
        ConfigError: the URL, a header, a tool or the name of a probe is not valid.
    """
    place_of(url)
    probes = _chosen(wanted)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    peer = Peer(url, wanted.headers, wanted.patience)
    try:
        facts = await _survey(peer, wanted)
        running = _Running(peer, facts, begun + LONGEST, progress)
        rows = await running.rows(probes)
    finally:
        await peer.aclose()
    hide = hiding(url, wanted.headers)
    return Report(
        url=shown(url),
        server=hide(facts.server),
        versions=tuple(map(hide, facts.versions)),
        tool=facts.tool_name,
        seconds=round(loop.time() - begun, 3),
        rows=tuple(replace(row, happened=hide(row.happened)) for row in rows),
    )


def _chosen(wanted: CheckPlan) -> Sequence[Probe]:
    known = {probe.name for probe in PROBES}
    for name in wanted.only:
        if name not in known:
            raise ConfigError(
                f"there is no probe {name!r}; there are {', '.join(probe.name for probe in PROBES)}"
            )
    if wanted.only:
        return [probe for probe in PROBES if probe is REACHABLE or probe.name in wanted.only]
    return [probe for probe in PROBES if wanted.slow or not probe.is_slow]


async def _survey(peer: Peer, wanted: CheckPlan) -> Facts:
    survey = Survey(peer.branch())
    try:
        async with asyncio.timeout(LONGEST / 2):
            await survey.run(wanted.tool, wanted.arguments)
    except TimeoutError:
        survey.facts.unreachable = f"the server did not answer the first requests within {LONGEST / 2:g} s"
    except ConfigError:
        raise
    except LimpetError as error:
        survey.facts.unreachable = str(error)
    finally:
        ground = Ground(peer.branch(), survey.facts)
        for lane in survey.lanes:
            ground.keep(lane)
        await ground.release()
    return survey.facts


class _Running:
    """The probes of one check."""

    def __init__(self, peer: Peer, facts: Facts, deadline: float, progress: Progress | None) -> None:
        self._peer = peer
        self._facts = facts
        self._deadline = deadline
        self._progress = progress or (lambda *_: None)
        self._done = 0
        self._total = 0

    async def rows(self, probes: Sequence[Probe]) -> list[Row]:
        """Run the probes; return their rows in the same order."""
        self._total = len(probes)
        together = [probe for probe in probes if not probe.is_alone]
        places = asyncio.Semaphore(TOGETHER)

        async def placed(probe: Probe) -> Row:
            async with places:
                return await self._run(probe)

        async with asyncio.TaskGroup() as group:
            tasks = {probe.name: group.create_task(placed(probe)) for probe in together}
        found = {name: task.result() for name, task in tasks.items()}
        for probe in probes:
            if probe.is_alone:
                found[probe.name] = await self._run(probe)
        return [found[probe.name] for probe in probes]

    async def _run(self, probe: Probe) -> Row:
        self._progress(self._done, self._total, probe.title)
        if self._facts.unreachable and probe is not REACHABLE:
            refused = self._facts.handshake.status in UNAUTHORIZED
            happened = "the server refuses access" if refused else "the server does not answer"
            row = _row(probe, "not applicable", happened, 0.0)
        else:
            row = await self._judge(probe)
        self._done += 1
        self._progress(self._done, self._total, probe.title)
        return row

    async def _judge(self, probe: Probe) -> Row:
        begun = asyncio.get_running_loop().time()
        ground = Ground(self._peer.branch(), self._facts)
        verdict: Verdict = "pass"
        finished = True
        try:
            async with asyncio.timeout_at(None if probe.is_slow else self._deadline):
                happened = await probe.run(ground)
        except NotApplicable as error:
            verdict, happened = "not applicable", str(error)
        except TooManyRequests as error:
            verdict, happened, finished = "not applicable", str(error), False
        except TimeoutError:
            happened = f"not finished when the check ended, after {LONGEST:g} s: run it alone with --only {probe.name}"
            verdict, finished = "not applicable", False
        except LimpetError as error:
            verdict, happened = "fail", str(error)
        except Exception as error:  # noqa: BLE001 - an answer that the probe cannot read must not end the check
            happened = f"an error of the check: {type(error).__name__}: {error}"
            verdict, finished = "not applicable", False
        finally:
            await ground.release()
        return _row(probe, verdict, happened, asyncio.get_running_loop().time() - begun, finished=finished)


def _row(probe: Probe, verdict: Verdict, happened: str, seconds: float, *, finished: bool = True) -> Row:
    return Row(
        probe=probe.name,
        title=probe.title,
        verdict=verdict,
        # Bytes of a header that are not UTF-8 cannot be printed.
        happened=happened.encode(errors="replace").decode(),
        specification=probe.specification,
        remedy=probe.remedy,
        seconds=round(seconds, 3),
        finished=finished,
    )
