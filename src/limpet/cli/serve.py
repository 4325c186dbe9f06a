"""`limpet serve` in one process: the servers of a plan over HTTP, or one of them over stdio."""

import logging
from typing import TYPE_CHECKING

from limpet.cli import banner, collector
from limpet.cli.admin import admin
from limpet.cli.config.plan import Plan
from limpet.cli.prepared import Prepared
from limpet.cli.rows import OBJECT
from limpet.cli.sockets import sockets, tls_of
from limpet.cli.telemetry import begin_tracing, pusher
from limpet.errors import ConfigError
from limpet.fronts.http.serve import run_on
from limpet.ops.log_lines import LogFormat, log_to_stderr
from limpet.transports.loops import Beside

if TYPE_CHECKING:
    from limpet.server.running.operations import Operations


def begin_logging(level: str | None, form: LogFormat | None) -> None:
    """Send log records to stderr, as `--log-level` and `--log-format` say.

    Raises:
        ConfigError: there is no such level.
    """
    names = logging.getLevelNamesMapping()
    if level is not None and level.upper() not in names:
        raise ConfigError(f"--log-level is one of debug, info, warning, error, critical, not {level!r}")
    log_to_stderr(None if level is None else names[level.upper()], form or "auto")


def serve(plan: Plan, *, stdio: bool) -> None:
    """Serve in this process: over HTTP, or one server over stdio.

    Raises:
        ConfigError: the options cannot work.
    """
    begin_logging(plan.process.log_level, plan.process.log_format)
    if stdio and len(plan.endpoints) > 1:
        names = ", ".join(endpoint.name for endpoint in plan.endpoints)
        raise ConfigError(f"--stdio serves one server: choose it with --only NAME; the file has {names}")
    with admin(plan.process) as surface:
        operations = operations_of(is_wanted=surface is not None)
        beside = (
            None if operations is None else operations.alone() if surface is None else operations.at(surface)
        )
        shown = () if surface is None else surface.lines()
        if stdio:
            _serve_stdio(plan, operations, beside, shown)
        else:
            _serve_http(plan, operations, beside, shown)


def operations_of(*, is_wanted: bool) -> "Operations | None":
    """Return the view of operators on this process; None: no admin surface wants it, and no metrics are pushed.

    Raises:
        ConfigError: the variables ask for metrics, and their exporter is not installed.
    """
    pushes = pusher()
    if not is_wanted and pushes is None:
        return None
    from limpet.server.running.operations import Operations  # noqa: PLC0415 - imported only by this command

    return Operations(pushes)


def probed(prepared: Prepared, beside: Beside | None) -> Beside | None:
    """Return the context beside the serving; it first tries the servers behind and the hosted objects."""
    if all(
        endpoint.source.kind == OBJECT and not endpoint.source.parts and not server.is_hosted
        for _, server, endpoint in prepared.each()
    ):
        return beside
    from limpet.cli.probing import probing  # noqa: PLC0415 - only for a server behind

    return probing(prepared, beside)


def _serve_stdio(
    plan: Plan, operations: "Operations | None", beside: Beside | None, shown: banner.Lines
) -> None:
    from limpet.fronts.stdio import run_pipes  # noqa: PLC0415 - imported only by this command
    from limpet.transports.stdio import claimed_stdio  # noqa: PLC0415 - imported only by this command

    # Before the author's code is imported, because its output is not protocol.
    with claimed_stdio() as pipes:
        begin_tracing()
        prepared = Prepared(plan.endpoints, operations)
        ((name, server),) = prepared.servers.items()
        with prepared.explained(lambda: name):
            engine = server.engine
            collector.go_on()
            banner.show_lines(shown)
            run_pipes(engine, *pipes, beside=beside)


def _serve_http(
    plan: Plan, operations: "Operations | None", beside: Beside | None, shown: banner.Lines
) -> None:
    begin_tracing()
    tls = tls_of(plan.process)
    with sockets(plan.process) as opened:
        prepared = Prepared(plan.endpoints, operations)
        front = prepared.front()

        def ready(url: str) -> None:
            banner.show(prepared.report(url), more=shown)
            collector.go_on()

        with prepared.running(front):
            run_on(front, *opened, ready=ready, tls=tls, beside=probed(prepared, beside))
