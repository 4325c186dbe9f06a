"""A command that was read: what is served, and how. `run` does it."""

from msgspec import Struct

from holdfast.cli.config.sources import planned
from holdfast.cli.options import Options
from holdfast.cli.process_options import ProcessOptions
from holdfast.errors import ConfigError


class Asked(Struct, frozen=True, kw_only=True):
    """What the words of `holdfast serve` ask for."""

    target: str | None = None
    command: tuple[str, ...] = ()
    """The words after `--`."""
    stdio: bool = False
    only: tuple[str, ...] = ()
    options: Options = Options()
    process: ProcessOptions = ProcessOptions()
    names_address: bool = False
    """True if --http is on the command line itself, and not only in the environment."""


def run(asked: Asked) -> int:
    """Serve until a signal stops it; return the exit status.

    Raises:
        ConfigError: the target or the options cannot work.
    """
    plan = planned(asked.target, asked.command, asked.options, asked.process, only=asked.only)
    workers = plan.process.workers or 1
    if workers > 1:
        if asked.stdio:
            raise ConfigError("--stdio serves one client in one process: leave --workers out")
        from holdfast.cli.workers import serve_with_workers  # noqa: PLC0415 - a command imports what it needs

        return serve_with_workers(plan, workers)
    if asked.stdio and asked.names_address:
        raise ConfigError(
            f"--stdio does not use an address: leave out --stdio, or --http {asked.process.http}"
        )
    from holdfast.cli.serve import serve  # noqa: PLC0415 - a command imports what it needs

    serve(plan, stdio=asked.stdio)
    return 0
