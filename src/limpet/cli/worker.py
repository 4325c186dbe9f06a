"""One of several workers: a process that serves an inherited socket until a signal stops it or its parent dies.

Its standard input is a socket to the parent. The job comes in, facts about the server go back, then come the orders
that a signal cannot express, and the end of the socket means that the parent is dead. So no worker outlives its parent
for longer than the drain time, also if an import hangs.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING, Final, Never, Self

import msgspec
from msgspec import Struct

from limpet.auth.forward_key import ForwardKey
from limpet.cli import banner, collector
from limpet.cli.config.plan import Endpoint
from limpet.cli.loaded import files_in, loaded_files
from limpet.cli.prepared import Prepared
from limpet.cli.private_store import PrivateStoreUser
from limpet.cli.process_options import ProcessOptions
from limpet.cli.refusing import fail, refuse
from limpet.cli.serve import begin_logging, operations_of, probed
from limpet.cli.sockets import tls_of
from limpet.cli.telemetry import begin_tracing
from limpet.engine.observed_store import store_kind
from limpet.errors import ConfigError, LifespanEnded
from limpet.fronts.http.serve import check_sockets, serve
from limpet.ops.log_lines import write_last_lines
from limpet.transports.loops import Beside, Orders, run

if TYPE_CHECKING:
    from limpet.server.running.operations import Operations
    from limpet.server.served import Served

MARGIN: Final = 8.0
"""Seconds after the drain time at which a worker that has not ended is killed."""


RETIRE: Final = b"r"
"""The order to stop while other workers stay."""
AT_ONCE: Final = b"a"
"""The order to end running calls without a wait."""
LATER: Final = 0.5
"""Seconds between two looks at the modules that calls have imported."""


class Job(Struct, frozen=True, kw_only=True):
    """What a worker serves. It is sent through a socket, so that no secret is in an argument list."""

    endpoints: tuple[Endpoint, ...]
    process: ProcessOptions
    sockets: tuple[int, ...]
    """The descriptors of the inherited listening sockets."""
    private: str | None = None
    """The private store for a server that names none."""
    private_key: str = ""
    """The forward key of the workers that use the private store. No other process needs it."""
    processes: int = 1
    """How many workers share the figure of memory."""
    words: tuple[str, ...] = ()
    """The words of the command line, for an error."""
    probes: bool = False
    """True if it tries the servers behind: the first worker does it for all."""
    watched: bool = False
    """True if the parent watches the source files, which the worker then names."""
    line: int | None = None
    """The descriptor on which the parent asks for the state; None: there is no admin surface."""


class Started(Struct, frozen=True, kw_only=True):
    """The report of a worker to its parent, when it serves or when it cannot start."""

    report: banner.ReadyReport | None = None
    """None: it cannot start."""
    files: tuple[str, ...] = ()
    """The author's source files, if the parent watches them."""


def main() -> None:
    """Read the job from standard input and serve it."""
    collector.pause()
    parent = _parent_socket()
    job = msgspec.json.decode(_line(parent), type=Job)
    try:
        if job.watched:
            _serve_watched(job, parent)
        else:
            _serve(job, parent)
    except ConfigError as error:
        refuse(error, job.words)
    except LifespanEnded:
        # The log has the cause. The parent starts another worker.
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - the author's code may raise anything
        fail(error)


def _serve_watched(job: Job, parent: socket.socket) -> None:
    """Serve, and name the source files also if they cannot be imported: one of them has to change."""
    # Two saves within a second may leave a file with the same time and size, and Python would take the compiled former
    # one.
    sys.dont_write_bytecode = True
    try:
        _serve(job, parent)
    except BaseException as error:
        _send(parent, Started(files=(*loaded_files(job.endpoints), *files_in(error, job.endpoints))))
        raise


def _parent_socket() -> socket.socket:
    """Move the socket to the parent away from standard input, and leave signals to the parent and the front."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = socket.socket(fileno=os.dup(0))
    with open(os.devnull) as nothing:  # noqa: PTH123 - a descriptor is needed
        os.dup2(nothing.fileno(), 0)
    return parent


def _line(parent: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        part = parent.recv(65_536)
        if not part:
            sys.exit(0)
        line += part
    return line


def _serve(job: Job, parent: socket.socket) -> None:
    begin_logging(job.process.log_level, job.process.log_format)
    begin_tracing()
    with contextlib.ExitStack() as stack:
        operations, beside = _operations(job.line, stack)
        watch = stack.enter_context(_Watch(parent, job.private))
        watch.start()
        prepared = Prepared(job.endpoints, operations)
        if job.private is not None:
            _use_private(prepared, job.private, job.private_key)
        opened = [stack.enter_context(socket.socket(fileno=number)) for number in job.sockets]
        front = prepared.front()
        stack.enter_context(prepared.running(front))
        for name, server in prepared.servers.items():
            with prepared.explained(lambda: name):  # noqa: B023 - it is called in this pass of the loop
                _check_shared(server)
        check_sockets(front, opened)
        watch.patience = prepared.patience
        run(
            serve(
                front,
                *opened,
                ready=lambda url: _report(parent, job, prepared.report(url)),
                orders=watch.orders,
                processes=job.processes,
                tls=tls_of(job.process),
                beside=probed(prepared, beside) if job.probes else beside,
            ),
            threads=front.engine.settings.limits.threads,
        )


def _operations(line: int | None, stack: contextlib.ExitStack) -> tuple["Operations | None", Beside | None]:
    """Return the view of operators on this process, and the task that answers the parent's questions.

    None without an admin surface.
    """
    operations = operations_of(is_wanted=line is not None)
    if operations is None or line is None:
        return operations, None if operations is None else operations.alone()
    opened = stack.enter_context(socket.socket(fileno=line))
    # A child process that kept it open would hide the end of this one.
    opened.set_inheritable(False)
    return operations, operations.on(opened)


def _use_private(prepared: Prepared, store: str, key: str) -> None:
    """Give the private store to every server that names none."""
    for server in prepared.servers.values():
        if server.store is None:
            server.store = store
            server.forward_key = server.forward_key or ForwardKey(key)


def _check_shared(server: "Served") -> None:
    store = server.engine.store
    if not store.is_shared:
        raise ConfigError(
            f"several processes (--workers, --reload) need a shared store, and the {store_kind(store)} store serves one process only: "
            "use --store sqlite:///path or redis://…, or leave --store out"
        )


def _report(parent: socket.socket, job: Job, known: banner.ReadyReport) -> None:
    collector.go_on()
    files = tuple(loaded_files(job.endpoints)) if job.watched else ()
    _send(parent, Started(report=known, files=files))
    if job.watched:
        threading.Thread(target=_name_later_files, args=(parent, job, known, files), daemon=True).start()


def _name_later_files(
    parent: socket.socket, job: Job, known: banner.ReadyReport, named: tuple[str, ...]
) -> None:
    """Name the files again each time when a call has imported more of them."""
    seen, pause = len(sys.modules), threading.Event()
    while not pause.wait(LATER):
        if len(sys.modules) != seen:
            seen = len(sys.modules)
            files = tuple(loaded_files(job.endpoints))
            if files != named:
                named = files
                _send(parent, Started(report=known, files=files))


def _send(parent: socket.socket, report: Started) -> None:
    with contextlib.suppress(OSError):
        parent.sendall(msgspec.json.encode(report) + b"\n")


class _Watch:
    """Takes the orders of the parent, and notices its death.

    In a thread: a busy event loop would be late, and so would an import that hangs.

    The private store is in use until the end. The last worker removes it if the parent is dead.
    """

    def __init__(self, parent: socket.socket, private: str | None) -> None:
        self._parent_socket = parent
        self._private = private
        self._user: PrivateStoreUser | None = None
        self._done = threading.Event()
        self._is_alone = False
        self.orders = Orders()
        self.patience: float | None = None
        """The drain time; None: nothing is served yet."""

    def __enter__(self) -> Self:
        if self._private is not None:
            with contextlib.suppress(FileNotFoundError):
                self._user = PrivateStoreUser(self._private)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_alone:
            self._remove()

    def start(self) -> None:
        """Start to watch."""
        threading.Thread(target=self._watch, name="limpet-parent", daemon=True).start()

    def _watch(self) -> None:
        with contextlib.suppress(OSError):
            while order := self._parent_socket.recv(1):
                self.orders.siblings_stay |= order == RETIRE
                self.orders.at_once |= order == AT_ONCE
                os.kill(os.getpid(), signal.SIGTERM)
        self._is_alone = True
        if self.patience is None:
            self._remove()
            _end()
        os.kill(os.getpid(), signal.SIGTERM)
        if not self._done.wait(self.patience + MARGIN):
            _end()

    def _remove(self) -> None:
        if self._user is not None:
            self._user.remove_if_last()


def _end() -> Never:
    write_last_lines()
    os._exit(1)


if __name__ == "__main__":
    main()
