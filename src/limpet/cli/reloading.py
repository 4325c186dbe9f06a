"""`--reload`: when a source file changes, a new worker takes over and the old one drains.

The parent does not load the author's code. A worker names the files that it has loaded, also when it fails, and the
parent looks at their times. Two looks that see the same new times end a burst of saves, so a burst causes one reload. A
change that comes while a new worker starts is seen too: the new worker is stopped, and the next one starts.

Which state of a file a worker has read is known for a file that was watched before the worker was started: the state
of that moment, or a later one, and then there is one more reload. A file that a worker names for the first time counts
as changed if its time is after the start of the worker.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from limpet.cli import banner
from limpet.cli.config.plan import Plan
from limpet.cli.config.sources import is_file_of_servers
from limpet.cli.loaded import named_files
from limpet.cli.refusing import WRONG
from limpet.errors import ConfigError
from limpet.ports import Clock

if TYPE_CHECKING:
    from limpet.cli.workers import Shown, Supervisor, WorkerProcess

PAUSE: Final = 0.2
"""Seconds between two looks at the files."""
_EXPLAINED: Final = (1, WRONG)
"""The exit statuses of a worker that has printed its error."""
_NAMED: Final = 3
"""How many files a line names."""

State = tuple[int, int, int] | None
"""The time, the size and the number of a file; None: it counts as changed."""


class WatchedFiles:
    """Watched files, and the state of each that the last worker has read."""

    def __init__(self) -> None:
        self._read: dict[str, State] = {}

    def watch(self, names: Iterable[str], since: float) -> None:
        """Watch these files and no others.

        A new one that has changed after `since` (seconds since 1970) counts as changed.
        """
        self._read = {name: self._read[name] if name in self._read else _first(name, since) for name in names}

    @property
    def names(self) -> list[str]:
        """The watched files."""
        return list(self._read)

    def changed(self) -> list[str]:
        """Return the files whose state is not the one that was read."""
        return [name for name, state in self._now().items() if state != self._read[name]]

    def take(self) -> list[str]:
        """Return the changed files. A worker that is started now reads their present state."""
        changed = self.changed()
        self._read = self._now()
        return changed

    async def saved(self) -> None:
        """Wait until a file has changed and no file changes any more."""
        before = self._now()
        while True:
            await asyncio.sleep(PAUSE)
            now = self._now()
            if now == before and now != self._read:
                return
            before = now

    def _now(self) -> dict[str, State]:
        """Return the present states. A missing file has the one that was read: an editor may be writing it again."""
        return {name: _state(name) or state for name, state in self._read.items()}


def _state(name: str) -> State:
    with contextlib.suppress(OSError):
        # A path object would triple the time of a look at thousands of files.
        seen = os.stat(name)  # noqa: PTH116
        return seen.st_mtime_ns, seen.st_size, seen.st_ino
    return None


def _first(name: str, since: float) -> State:
    state = _state(name)
    return state if state is None or state[0] < since * 1e9 else None


class Reloader:
    """Starts the worker of a supervisor, and replaces it when a file changes."""

    def __init__(self, again: Callable[[], Plan], target: str, clock: Clock) -> None:
        """`again` returns the plan, read from its file again. `target` is the target of the command line.

        Raises:
            ConfigError: there is no file to watch.
        """
        self._again = again
        self._clock = clock
        self._config = (str(Path(target).absolute()),) if is_file_of_servers(target) else ()
        self._plan = again()
        self._files = WatchedFiles()
        self._began = clock.wall()
        self._worker: WorkerProcess | None = None
        """The worker that serves."""
        self._watch(())
        if not self._files.names and not any(endpoint.source.object for endpoint in self._plan.endpoints):
            raise ConfigError(
                "--reload has no file to watch: a URL has none, and no word of the command is a file. Leave --reload out"
            )

    async def run(self, supervisor: "Supervisor", shown: "Shown") -> NoReturn:
        """Start the worker, show it, and replace it after each change, until the task is cancelled."""
        changed = list[str]()
        while True:
            is_new = await self._attempt(supervisor, shown)
            if is_new is not None:
                self._report(changed, is_new=is_new)
                changed.clear()
                await self._wait_for_save()
            changed += [name for name in self._begin() if name not in changed]

    async def _wait_for_save(self) -> None:
        """Wait until a file is saved.

        Files that the worker names meanwhile are watched too: a call may import modules.
        """
        following = asyncio.ensure_future(self._follow())
        try:
            await self._files.saved()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _follow(self) -> None:
        while self._worker is not None and await self._worker.reported():
            self._watch(self._worker.files)

    def _report(self, changed: list[str], *, is_new: bool) -> None:
        """Print the outcome of a start in one line. The error of a failed one has been printed."""
        if is_new and changed:
            banner.say(f"reloaded: {_listed(changed)} changed")
        elif not is_new and self._worker is not None:
            banner.say(
                f"not reloaded: {_listed(changed)} changed, and there is the error above; the former code goes on serving"
            )
        elif not is_new:
            banner.say("nothing is served until the error above is fixed and saved (Ctrl+C stops)")

    def _begin(self) -> list[str]:
        """Note the state of the files before a worker starts; return the changed ones."""
        self._began = self._clock.wall()
        return self._files.take()

    async def _attempt(self, supervisor: "Supervisor", shown: "Shown") -> bool | None:
        """Start a worker. Return True if it serves, False if it cannot start, None if a file changed meanwhile."""
        renewing = asyncio.ensure_future(self._renew(supervisor, shown))
        saved = asyncio.ensure_future(self._files.saved())
        try:
            await asyncio.wait({renewing, saved}, return_when=asyncio.FIRST_COMPLETED)
            return renewing.result() if renewing.done() else None
        finally:
            for task in (renewing, saved):
                task.cancel()
            await asyncio.gather(renewing, saved, return_exceptions=True)

    async def _renew(self, supervisor: "Supervisor", shown: "Shown") -> bool:
        try:
            plan = self._again()
            worker = await supervisor.renew(plan.endpoints)
        except (ConfigError, OSError) as error:
            banner.say(str(error))
            return False
        if worker.facts is None:
            self._watch((*self._files.names, *worker.files))
            status = worker.process.returncode
            if status == WRONG and self._worker is None:
                supervisor.give_up(WRONG)
            elif status not in _EXPLAINED:
                banner.say(f"the new process {worker.how_it_ended()}")
            return False
        if plan.process != self._plan.process:
            banner.say("an option of the process, such as http, changes when limpet is started again")
        is_first = self._worker is None
        self._plan, self._worker = plan, worker
        self._watch(worker.files)
        if is_first:
            names = self._files.names
            which = _listed(names) if len(names) == 1 else f"one of {len(names)} files"
            shown(worker.facts, [("reload", f"when {which} changes")])
        return True

    def _watch(self, loaded: Iterable[str]) -> None:
        self._files.watch((*self._config, *named_files(self._plan.endpoints), *loaded), self._began)


def _listed(files: Sequence[str]) -> str:
    """Return the names of some files, relative to the working directory if they are in it."""
    here = Path.cwd()
    paths = [Path(file) for file in files]
    names = [str(path.relative_to(here) if path.is_relative_to(here) else path) for path in paths]
    return (
        ", ".join(names)
        if len(names) <= _NAMED
        else f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
    )
