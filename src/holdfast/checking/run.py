"""Runs the probes one after another against one server, within a time limit, and makes the report."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from holdfast.checking.ground import Ground, NotApplicable
from holdfast.checking.peer import Peer
from holdfast.checking.report import Report, Row, Verdict
from holdfast.checking.table import PROBES, REACHABLE, Probe
from holdfast.errors import ConfigError, HoldfastError
from holdfast.transports.http import place_of, shown

LONGEST: Final = 55.0
"""The time limit of all probes that are not slow, in seconds."""
PATIENCE: Final = 4.0


class Wanted(Struct, frozen=True, kw_only=True):
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
"""Receives the number of finished probes, the number of all, and the title of the next one."""


async def check(url: str, wanted: Wanted = Wanted(), progress: Progress | None = None) -> Report:  # noqa: B008 - frozen
    """Probe a server and return a verdict for each probe. Nothing is raised for a server that fails.

    Raises:
        ConfigError: the URL, a header, a tool or the name of a probe is not valid.
    """
    place_of(url)
    probes = _chosen(wanted)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    peer = Peer(url, wanted.headers, wanted.patience)
    ground = Ground(peer)
    rows: list[Row] = []
    try:
        await _survey(ground, wanted)
        for at, probe in enumerate(probes):
            if progress is not None:
                progress(at, len(probes), probe.title)
            if ground.unreachable and probe is not REACHABLE:
                rows.append(_row(probe, "not applicable", "the server does not answer", 0.0))
            else:
                left = None if probe.is_slow else begun + LONGEST - loop.time()
                rows.append(await _judged(probe, ground, left))
    finally:
        await peer.aclose()
    return Report(
        url=shown(url),
        server=ground.server,
        versions=tuple(ground.versions),
        tool=ground.tool_name,
        seconds=round(loop.time() - begun, 3),
        rows=tuple(rows),
    )


def _chosen(wanted: Wanted) -> Sequence[Probe]:
    known = {probe.name for probe in PROBES}
    for name in wanted.only:
        if name not in known:
            raise ConfigError(
                f"there is no probe {name!r}; there are {', '.join(probe.name for probe in PROBES)}"
            )
    if wanted.only:
        return [probe for probe in PROBES if probe is REACHABLE or probe.name in wanted.only]
    return [probe for probe in PROBES if wanted.slow or not probe.is_slow]


async def _survey(ground: Ground, wanted: Wanted) -> None:
    try:
        async with asyncio.timeout(LONGEST):
            await ground.survey(wanted.tool, wanted.arguments)
    except TimeoutError:
        ground.unreachable = f"the server did not answer within {LONGEST:g} s"
    finally:
        await _release(ground)


async def _judged(probe: Probe, ground: Ground, left: float | None) -> Row:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    verdict: Verdict = "pass"
    try:
        async with asyncio.timeout(left):
            happened = await probe.run(ground)
    except NotApplicable as error:
        verdict, happened = "not applicable", str(error)
    except TimeoutError:
        verdict, happened = "not applicable", f"the check ended after {LONGEST:g} s, before this probe did"
    except HoldfastError as error:
        verdict, happened = "fail", str(error)
    finally:
        await _release(ground)
    return _row(probe, verdict, happened, loop.time() - begun)


async def _release(ground: Ground) -> None:
    try:
        await ground.release()
    except HoldfastError:
        # The server is gone; the next probe reports it.
        return


def _row(probe: Probe, verdict: Verdict, happened: str, seconds: float) -> Row:
    return Row(
        probe=probe.name,
        title=probe.title,
        verdict=verdict,
        # Bytes of a header that are not UTF-8 cannot be printed.
        happened=happened.encode(errors="replace").decode(),
        specification=probe.specification,
        remedy=probe.remedy,
        seconds=round(seconds, 3),
    )
