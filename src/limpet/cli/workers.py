"""`--workers N` and `--reload`: processes that accept from one socket.

They are restarted, replaced one by one, and stopped together.

The parent serves nothing and does not load the author's code: it binds the socket, starts and watches the workers, and
stops them. Workers are new processes, not forks, so that they share no state.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from limpet.auth.forward_key import new_key
from limpet.cli import banner, collector, stores
from limpet.cli.admin import admin
from limpet.cli.config.plan import Endpoint, Plan
from limpet.cli.private_store import check_system, private_store
from limpet.cli.reloading import Reloader
from limpet.cli.serve import begin_logging
from limpet.cli.sockets import sockets, tls_of
from limpet.cli.worker import AT_ONCE, MARGIN, RETIRE, Job, Started
from limpet.errors import ConfigError
from limpet.fronts.http.http1.certificates import load_certificate
from limpet.ops.log import LogObserver
from limpet.ports import SystemClock, SystemRandom

if TYPE_CHECKING:
    from limpet.ops.admin.address import AdminAddress
    from limpet.ops.admin.lines import Line
    from limpet.ops.admin.workers import Workers

LOGGER: Final = logging.getLogger("limpet.workers")
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 30.0
LONGEST_REPORT: Final = 16 * 1024 * 1024
"""Bytes of the report of a worker: with --reload it names every source file."""
START_LIMIT: Final = 60.0
"""Seconds that a worker may take to start, if the operator has not set a limit."""
START_TRIES: Final = 3
"""If no worker serves, and each has failed to start so often in a row, the parent gives up."""
STEADY: Final = 10.0
"""A worker that has served for this many seconds did start properly: its successor starts at once."""
_ROOT: Final = Path(__file__).parents[2]

Shown = Callable[[banner.ReadyReport, banner.Lines], None]
"""Shows the banner with some lines more."""


def serve_with_workers(plan: Plan, count: int) -> int:
    """Serve over HTTP by `count` processes until a signal stops them; return the exit status.

    Raises:
        ConfigError: the options cannot work.
    """
    return _serve(plan, count, None)


def serve_with_reload(again: Callable[[], Plan], target: str) -> int:
    """Serve over HTTP by one process, which is replaced when a source file changes; return the exit status.

    `again` returns the plan, read from its file again. `target` is the target of the command line.

    Raises:
        ConfigError: the options cannot work.
    """
    return _serve(again(), 1, Reloader(again, target, SystemClock()))


def _serve(plan: Plan, count: int, reloader: Reloader | None) -> int:
    check_system()
    begin_logging(plan.process.log_level, plan.process.log_format)
    # A wrong certificate is reported once, before any worker starts.
    tls_of(plan.process)
    named = [endpoint.options.store for endpoint in plan.endpoints]
    for store in named:
        if store is not None:
            stores.check(store)
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(sockets(plan.process))
        private = stack.enter_context(private_store()) if None in named or reloader else None
        job = Job(
            endpoints=plan.endpoints,
            process=plan.process,
            sockets=tuple(sock.fileno() for sock in opened),
            private=private,
            private_key=new_key(SystemRandom()),
            processes=count,
            words=tuple(sys.argv[1:]),
            watched=reloader is not None,
        )
        surface = stack.enter_context(admin(plan.process))
        collector.go_on()
        limit = START_LIMIT if plan.process.start_limit is None else plan.process.start_limit
        return asyncio.run(_supervise(job, count, surface, reloader, limit))


async def _supervise(
    job: Job, count: int, surface: "AdminAddress | None", reloader: Reloader | None, limit: float
) -> int:
    """Run the workers, and the admin surface if it was asked for."""

    def shown(known: banner.ReadyReport, more: banner.Lines) -> None:
        banner.show(known, count, (*more, *(() if surface is None else surface.lines())))

    if surface is None:
        return await Supervisor(job, count, start_limit=limit).run(shown, reloader)
    from limpet.ops.admin.workers import Workers  # noqa: PLC0415 - imported only by this command

    clock, asked = SystemClock(), Workers()
    async with surface.serving(asked, clock, LogObserver(clock)):
        supervisor = Supervisor(job, count, asked, tls=surface.tls, start_limit=limit)
        return await supervisor.run(shown, reloader)


class WorkerProcess:
    """One process."""

    def __init__(
        self,
        number: int,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.number = number
        self.process = process
        self._reader = reader
        self._writer = writer
        self.began: float = asyncio.get_running_loop().time()
        self.facts: banner.ReadyReport | None = None
        """The report of the worker when it was ready."""
        self.files: tuple[str, ...] = ()
        """The source files that it named, if they are watched."""
        self.retired = False
        """True if the worker got the signal to stop: it is not restarted."""
        self.line: Line | None = None
        """The way of operators' questions to it."""

    def __repr__(self) -> str:
        return f"worker {self.number} (pid {self.process.pid})"

    async def ready(self) -> bool:
        """Wait until the worker serves; False if it ended before."""
        await self.reported()
        if self.line is not None:
            self.line.is_ready = self.facts is not None
        return self.facts is not None

    async def reported(self) -> bool:
        """Wait for the next report and take it; False if the worker has ended."""
        # A worker that ends before it has read its job resets the connection.
        with contextlib.suppress(OSError):
            if line := await self._reader.readline():
                started = msgspec.json.decode(line, type=Started)
                self.facts, self.files = started.report, started.files
                return True
        return False

    def tell(self, number: signal.Signals) -> None:
        """Send a signal to the worker if it still runs."""
        if self.process.returncode is None:
            self.process.send_signal(number)

    def order(self, order: bytes, before: signal.Signals) -> None:
        """Send an order to the worker; one that does not serve yet gets the signal `before` instead."""
        if self.facts is None:
            self.tell(before)
        elif self.process.returncode is None:
            self._writer.write(order)

    def close(self) -> None:
        """Close the socket to a worker that has ended."""
        self._writer.close()

    def how_it_ended(self) -> str:
        """Return a text for the log."""
        code = self.process.returncode or 0
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


class Supervisor:
    """Keeps a number of workers running."""

    def __init__(
        self,
        job: Job,
        count: int,
        asked: "Workers | None" = None,
        *,
        tls: ssl.SSLContext | None = None,
        start_limit: float = START_LIMIT,
    ) -> None:
        """`asked`: the workers as operators ask them; None: there is no admin surface.

        `tls`: the context of this surface.
        """
        self._job = job
        self._start_limit = start_limit
        self._tls = tls
        self._count = count
        self._asked = asked
        self._places: dict[int, WorkerProcess] = {}
        """The present worker of each number."""
        self._alive: set[WorkerProcess] = set()
        """Every process that has not ended, including those that are stopping."""
        self._starting: set[asyncio.Task[WorkerProcess]] = set()
        """Processes that are being started, and are not in `_alive` yet."""
        # Look now: a terminal that was closed is not one any more.
        self._has_terminal = os.isatty(0)
        self._patience = 0.0
        self._failures: dict[int, int] = {}
        self._failed_starts = 0
        """Failed starts since a worker started. One that took too long counts for all tries."""
        self._may_give_up = True
        self._stopping = asyncio.Event()
        self._status = 0
        self._rolling = asyncio.Lock()
        """Held while workers are replaced."""
        self._is_rolling = False
        self._hung_up = asyncio.Event()
        """Set if a SIGHUP came, and the workers have not been replaced since."""
        self._replacing: WorkerProcess | None = None
        """The new worker of a replacement, while it starts."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, shown: Shown, reloader: Reloader | None = None) -> int:
        """Serve; return the exit status, which is that of the first worker if it could not start."""
        self._handle_signals()
        # With --reload the author is about to change the code.
        self._may_give_up = reloader is None
        if reloader is None:
            await self._begin_all(shown)
            await self._stopping.wait()
        else:
            reloading = asyncio.get_running_loop().create_task(reloader.run(self, shown))
            # It ends only with an unexpected error.
            reloading.add_done_callback(lambda _: self._stopping.set())
            await self._stopping.wait()
            reloading.cancel()
            await asyncio.wait([reloading])
            status = await self._end()
            return status if reloading.cancelled() else reloading.result()
        return await self._end()

    async def _begin_all(self, shown: Shown) -> None:
        first = await self._start(1, replace(self._job, probes=True))
        if not await self._wait_ready(first) or first.facts is None:
            status = await first.process.wait()
            if not self._stopping.is_set():
                self.give_up(max(status, 1))
            return
        self._install(first)
        await asyncio.gather(*(self._begin(number) for number in range(2, self._count + 1)))
        if not self._stopping.is_set():
            shown(first.facts, ())

    def give_up(self, status: int) -> None:
        """Stop, because no worker can start. The exit status is this one."""
        self._status = status
        self._stopping.set()

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    # Starting

    async def _begin(self, number: int, before: WorkerProcess | None = None) -> None:
        """Start the worker of a number, or the next one after `before`."""
        worker = await self._start(number)
        await self._wait_ready(worker)
        if self._places.get(number) is before:
            self._install(worker)
        else:
            # Meanwhile SIGHUP has given the place to another one.
            await self._retire(worker)

    async def _wait_ready(self, worker: WorkerProcess) -> bool:
        """Wait until a worker serves; False if it ended before, or took too long and was ended."""
        limit = asyncio.timeout(self._start_limit)
        with contextlib.suppress(TimeoutError):
            async with limit:
                await worker.ready()
        if limit.expired():
            LOGGER.error(
                "%r has not started within %g s (--start-limit) and is ended", worker, self._start_limit
            )
            await self._end_unready(worker)
        if worker.facts is not None:
            self._failed_starts = 0
        else:
            self._failed_starts += START_TRIES if limit.expired() else 1
        return worker.facts is not None

    async def _end_unready(self, worker: WorkerProcess) -> None:
        """End a worker that does not serve. The author's code may keep it from ending: then it is killed."""
        worker.tell(signal.SIGTERM)
        await self._wait_for_end(worker, MARGIN)

    def _install(self, worker: WorkerProcess) -> None:
        """Make a worker the present one of its number, and restart it when it dies."""
        if worker.facts is not None:
            self._patience = worker.facts.patience
        self._places[worker.number] = worker
        self._spawn(self._keep(worker))

    async def _start(self, number: int, job: Job | None = None) -> WorkerProcess:
        """Start the process of a worker.

        Cancelling the caller does not stop it halfway: no object would have the process.
        """
        starting = asyncio.get_running_loop().create_task(self._start_process(number, job or self._job))
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)
        return await asyncio.shield(starting)

    async def _start_process(self, number: int, job: Job) -> WorkerProcess:
        ours, theirs = socket.socketpair()
        ends = None if self._asked is None else socket.socketpair()
        job = job if ends is None else replace(job, line=ends[1].fileno())
        passed = job.sockets if job.line is None else (*job.sockets, job.line)
        # A Ctrl+C must not kill it before its signal handlers are installed.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with theirs, contextlib.nullcontext() if ends is None else ends[1]:
                process = await asyncio.create_subprocess_exec(
                    *_command(), stdin=theirs.fileno(), pass_fds=passed
                )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=LONGEST_REPORT)
        worker = WorkerProcess(number, process, reader, writer)
        self._alive.add(worker)
        if self._asked is not None and ends is not None:
            worker.line = await self._asked.add(ends[0])
        self._spawn(self._outlive(worker))
        writer.write(msgspec.json.encode(job) + b"\n")
        if self._stopping.is_set():
            worker.tell(signal.SIGTERM)
        return worker

    async def _outlive(self, worker: WorkerProcess) -> None:
        await worker.process.wait()
        self._alive.discard(worker)
        worker.close()
        if self._asked is not None and worker.line is not None:
            await self._asked.remove(worker.line)

    # Keeping

    async def _keep(self, worker: WorkerProcess) -> None:
        """Start another worker when this one ends without the signal to stop."""
        await worker.process.wait()
        if worker.retired or self._stopping.is_set():
            return
        if self._may_give_up and not self._is_served() and self._failed_starts >= START_TRIES * self._count:
            LOGGER.error(
                "%r %s; no worker can start, so the socket is closed and this process ends",
                worker,
                worker.how_it_ended(),
            )
            self.give_up(1)
            return
        pause = self._pause(worker)
        LOGGER.warning("%r %s; another starts in %.1f s", worker, worker.how_it_ended(), pause)
        await asyncio.sleep(pause)
        if not self._stopping.is_set() and self._places[worker.number] is worker:
            await self._begin(worker.number, worker)

    def _is_served(self) -> bool:
        """True if a worker serves. Without one, clients would wait in the queue of the socket."""
        return any(
            worker.facts is not None and not worker.retired and worker.process.returncode is None
            for worker in self._alive
        )

    def _pause(self, worker: WorkerProcess) -> float:
        lived = asyncio.get_running_loop().time() - worker.began
        steady = worker.facts is not None and lived >= STEADY
        failures = 0 if steady else self._failures.get(worker.number, 0)
        self._failures[worker.number] = failures + 1
        return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2**failures))

    # Replacing

    def _hang_up(self) -> None:
        """Handle SIGHUP: a closed terminal ends the server; any other SIGHUP replaces the workers."""
        if self._has_terminal:
            self._stop(signal.SIGTERM)
        elif not self._stopping.is_set():
            self._hung_up.set()
            if not self._is_rolling:
                self._is_rolling = True
                self._spawn(self._roll())
            elif self._replacing is not None:
                # It may hang, and what it has loaded may be outdated.
                self._spawn(self._end_unready(self._replacing))

    async def _roll(self) -> None:
        """Replace the workers one after another. A SIGHUP that comes meanwhile begins again with the first one."""
        try:
            async with self._rolling:
                while self._hung_up.is_set():
                    self._hung_up.clear()
                    await self._replace_all()
        finally:
            self._is_rolling = False

    async def _replace_all(self) -> None:
        """Replace the workers, unless one cannot start: an old one stops when the new one serves."""
        for number in sorted(self._places):
            if self._hung_up.is_set():
                return
            new = self._replacing = await self._start(number)
            has_started = await self._wait_ready(new)
            self._replacing = None
            if self._hung_up.is_set():
                await self._retire(new)
                return
            old = self._places[number]
            if not has_started:
                LOGGER.error("%r could not start; %r and the workers after it continue", new, old)
                return
            self._install(new)
            await self._retire(old)
        self._renew_certificate()
        LOGGER.warning("every worker was replaced")

    def _renew_certificate(self) -> None:
        """Let the admin surface use the certificate that the new workers have read."""
        if self._tls is not None and self._job.process.tls_cert is not None:
            try:
                load_certificate(self._tls, self._job.process.tls_cert, self._job.process.tls_key)
            except ConfigError as error:
                LOGGER.warning("the admin surface keeps its certificate: %s", error)

    async def renew(self, endpoints: tuple[Endpoint, ...]) -> WorkerProcess:
        """Start a worker for these endpoints; if it serves, it is the only one, and the old one drains.

        Return the new worker.

        A new worker that cannot start has ended when this returns. If the task is cancelled, the new worker drains: it
        may serve already.
        """
        async with self._rolling:
            job = replace(self._job, endpoints=endpoints)
            new = await self._start(1, job)
            try:
                has_started = await self._wait_ready(new)
                if not has_started:
                    # A thread of the author's code may keep it from ending.
                    await self._wait_for_end(new, MARGIN)
            except asyncio.CancelledError:
                self._spawn(self._retire(new))
                raise
            if has_started:
                self._job, old = job, self._places.get(1)
                self._install(new)
                if old is not None:
                    self._spawn(self._retire(old))
            return new

    async def _retire(self, worker: WorkerProcess) -> None:
        """Stop a worker, and wait for its end. If the others stay, it leaves new connections to them."""
        worker.retired = True
        if self._stopping.is_set():
            worker.tell(signal.SIGTERM)
        else:
            worker.order(RETIRE, signal.SIGTERM)
        await self._wait_for_end(worker, self._patience + MARGIN)

    async def _wait_for_end(self, worker: WorkerProcess, seconds: float) -> None:
        """Wait for the end of a worker; after so many seconds, kill it."""
        try:
            async with asyncio.timeout(seconds):
                await worker.process.wait()
        except TimeoutError:
            LOGGER.warning("%r did not end in time and is killed", worker)
            worker.tell(signal.SIGKILL)
            await worker.process.wait()

    # Ending

    def _stop(self, number: signal.Signals) -> None:
        """Drain all workers; a second Ctrl+C stops waiting."""
        # A terminal sends SIGINT to the workers too, before or after this: the parent counts for all.
        is_second = self._stopping.is_set() and number == signal.SIGINT
        self._stopping.set()
        for worker in self._alive:
            if is_second:
                worker.order(AT_ONCE, signal.SIGINT)
            else:
                worker.tell(signal.SIGTERM)

    async def _end(self) -> int:
        await asyncio.gather(*self._starting, return_exceptions=True)
        await asyncio.gather(*(self._retire(worker) for worker in list(self._alive)))
        killed = [worker for worker in self._places.values() if worker.process.returncode == -signal.SIGKILL]
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return self._status or (1 if killed else 0)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _command() -> list[str]:
    """Return the command of a worker. It imports from the working directory only if this process does."""
    safe = [] if Path.cwd() == _ROOT else ["-P"]
    return [sys.executable, *safe, "-m", "limpet.cli.worker"]
