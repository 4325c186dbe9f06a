"""`holdfast serve` in one process: the servers of a plan over HTTP, or one of them over stdio."""

import logging

from holdfast.cli import banner
from holdfast.cli.config.plan import Plan
from holdfast.cli.listening import listeners, tls_of
from holdfast.cli.prepared import Prepared
from holdfast.errors import ConfigError
from holdfast.fronts.http.serve import run_on
from holdfast.fronts.stdio import run_pipes
from holdfast.transports.stdio import claimed_stdio


def log_to_stderr(level: str | None) -> None:
    """Send log records of this level and above to stderr; None: warnings and above.

    Raises:
        ConfigError: there is no such level.
    """
    names = logging.getLevelNamesMapping()
    level = level or "warning"
    if level.upper() not in names:
        raise ConfigError(f"--log-level is one of debug, info, warning, error, critical, not {level!r}")
    logging.basicConfig(level=names[level.upper()], format="%(asctime)s %(levelname)s %(name)s %(message)s")


def serve(plan: Plan, *, stdio: bool) -> None:
    """Serve in this process: over HTTP, or one server over stdio.

    Raises:
        ConfigError: the options cannot work.
    """
    log_to_stderr(plan.process.log_level)
    if stdio:
        if len(plan.endpoints) > 1:
            names = ", ".join(endpoint.name for endpoint in plan.endpoints)
            raise ConfigError(f"--stdio serves one server: choose it with --only NAME; the file has {names}")
        # Before the author's code is imported, because its output is not protocol.
        with claimed_stdio() as pipes:
            prepared = Prepared(plan.endpoints)
            ((name, server),) = prepared.servers.items()
            with prepared.explained(lambda: name):
                run_pipes(server.engine, *pipes)
        return
    tls = tls_of(plan.process)
    with listeners(plan.process) as opened:
        prepared = Prepared(plan.endpoints)
        front = prepared.front()
        with prepared.running(front):
            run_on(front, *opened, ready=lambda url: banner.show(prepared.report(url)), tls=tls)
