"""A command that was read: the servers and their options. `run` executes it."""

import os
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Final

from msgspec import Struct

from limpet.cli.config.plan import Plan
from limpet.cli.config.sources import planned
from limpet.cli.option_values import laid_over, tables
from limpet.cli.options import Options
from limpet.cli.process_options import ProcessOptions
from limpet.cli.rows import entries
from limpet.errors import ConfigError

MOST_WORKERS: Final = 1_024
_PREFIX: Final = "LIMPET_"
_FURTHER: Final = frozenset(
    f"{_PREFIX}{name}"
    for name in (
        "ADMIN_TOKEN",
        "ADMIN_URL",
        "FORWARD_KEY",
        "INTROSPECTION_SECRET",
        "OAUTH_SECRET",
        "TRACEBACK",
        "UPSTREAM_TOKEN",
    )
)
"""The variables that are not in the table of options: most of them are secrets."""
_OF_SOCKETS: Final = ("http", "fd", "tls_cert", "tls_key")


class ServeCommand(Struct, frozen=True, kw_only=True):
    """The parsed words of `limpet serve`."""

    target: str | None = None
    command: tuple[str, ...] = ()
    """The words after `--`."""
    stdio: bool = False
    only: tuple[str, ...] = ()
    options: Options = Options()
    process: ProcessOptions = ProcessOptions()
    named: tuple[str, ...] = ()
    """The options that are on the command line itself, and not only in the environment."""

    def plan(self) -> Plan:
        """Return the servers and their options. A file is read again by each call.

        Raises:
            ConfigError: the target, the file or the options cannot work.
        """
        options = self.options
        if options.headers or options.env or "store" in self.named or "@" in (self.target or ""):
            from limpet.cli.config.literals import from_arguments  # noqa: PLC0415 - needed for these only

            options = from_arguments(options, self.target, self.named)
        options = laid_over(tables(Options, os.environ), options)
        return planned(self.target, self.command, options, self.process, only=self.only)


def run(asked: ServeCommand) -> int:
    """Serve until a signal stops it; return the exit status.

    Raises:
        ConfigError: the target or the options cannot work.
    """
    for line in misspelt(os.environ):
        print(f"limpet: {line}", file=sys.stderr)
    plan = asked.plan()
    workers = plan.process.workers or 1
    if workers > MOST_WORKERS:
        raise ConfigError(
            f"--workers {workers}: give at most {MOST_WORKERS}, and about one for each processor"
        )
    if plan.process.reload:
        _check_reload(stdio=asked.stdio, workers=workers)
        from limpet.cli.workers import serve_with_reload  # noqa: PLC0415 - imported only by this command

        return serve_with_reload(asked.plan, asked.target or "")
    if workers > 1:
        if asked.stdio:
            raise ConfigError("--stdio serves one client in one process: leave --workers out")
        from limpet.cli.workers import serve_with_workers  # noqa: PLC0415 - imported only by this command

        return serve_with_workers(plan, workers)
    _check_stdio(asked)
    from limpet.cli.serve import serve  # noqa: PLC0415 - imported only by this command

    serve(plan, stdio=asked.stdio)
    return 0


def misspelt(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning for each variable whose name is nearly one of ours.

    Others, such as those of Kubernetes, are not ours.
    """
    ours = {entry.variable for kind in (Options, ProcessOptions) for entry in entries(kind)} | _FURTHER
    unknown = [name for name in environment if name.startswith(_PREFIX) and name not in ours]
    if unknown:
        known = sorted(name for name in ours if name)
        for name in unknown:
            for near in get_close_matches(name, known, n=1, cutoff=0.88):
                yield f"warning: {name} is not a variable of Limpet and has no effect; did you mean {near}?"


def _check_stdio(asked: ServeCommand) -> None:
    """Refuse an option of a connection that stdio does not have. In a file or a variable it is for other runs."""
    for entry in entries(ProcessOptions) if asked.stdio else ():
        if entry.parameter in _OF_SOCKETS and entry.parameter in asked.named:
            raise ConfigError(f"--stdio listens on no address: leave out --stdio, or {entry.flag}")


def _check_reload(*, stdio: bool, workers: int) -> None:
    if stdio:
        raise ConfigError(
            "--reload replaces the process that serves, and a client on --stdio keeps one process: leave out --stdio, or --reload"
        )
    if workers > 1:
        raise ConfigError(
            f"--reload is for development with one worker: leave out --workers {workers}, or leave out --reload and replace "
            "the workers with SIGHUP"
        )
