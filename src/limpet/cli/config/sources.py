"""Which value counts: the command line over the environment over the file over the default. Nothing else decides it."""

import os
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from limpet.cli.behind import check_fit, source
from limpet.cli.config.plan import Endpoint, Plan
from limpet.cli.option_values import laid_over
from limpet.cli.options import Options
from limpet.cli.process_options import ProcessOptions
from limpet.cli.rows import FILE, URL
from limpet.cli.secrets import TOKEN_VARIABLE
from limpet.errors import ConfigError

_FILES: Final = (".toml", ".json")


def is_file_of_servers(target: str | None) -> bool:
    """True if a target is a file with several servers."""
    return target is not None and Path(target).suffix.lower() in _FILES


def planned(
    target: str | None,
    command: tuple[str, ...],
    options: Options,
    process: ProcessOptions,
    *,
    only: tuple[str, ...] = (),
) -> Plan:
    """Return the plan of a process. `options` and `process` are those of the command line, over the environment.

    Raises:
        ConfigError: the target, the file or the options cannot work.
    """
    if target is None or command or not is_file_of_servers(target):
        if only:
            raise ConfigError("--only is for a file with several servers")
        return Plan(endpoints=(_single(target, command, options),), process=process)
    check_fit(options, FILE)
    plan = _read(Path(target), only)
    return Plan(
        endpoints=tuple(replace(one, options=laid_over(one.options, options)) for one in plan.endpoints),
        process=laid_over(plan.process, process),
    )


def _read(file: Path, only: tuple[str, ...]) -> Plan:
    if file.suffix.lower() == ".toml":
        from limpet.cli.config.toml_file import read_toml  # noqa: PLC0415 - imported only by this command

        return read_toml(file, only)
    from limpet.cli.config.mcp_json import read_mcp_json  # noqa: PLC0415 - imported only by this command

    return read_mcp_json(file, only)


def _single(target: str | None, command: tuple[str, ...], options: Options) -> Endpoint:
    served = source(target, command)
    check_fit(options, served.kind)
    if served.kind is URL and options.token_file is None and os.environ.get(TOKEN_VARIABLE):
        # Only for the one URL of a command line: a file may name several, and each has a token of its own.
        options = laid_over(Options(token_env=TOKEN_VARIABLE), options)
    return Endpoint(source=served, options=options)
