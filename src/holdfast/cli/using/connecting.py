"""A client of a target: everything that `holdfast serve` takes."""

from typing import Any

from holdfast.cli.behind import Source
from holdfast.cli.config.literals import from_arguments
from holdfast.cli.config.plan import Endpoint
from holdfast.cli.config.sources import planned
from holdfast.cli.options import Options
from holdfast.cli.process_options import ProcessOptions
from holdfast.cli.using.asking import Terminal
from holdfast.client.client import Client
from holdfast.errors import ConfigError


def client_of(
    target: str | None, command: tuple[str, ...], options: Options, only: str | None, **further: Any
) -> Client:
    """Return a client that is not connected yet. It answers the questions of the server in the terminal.

    Raises:
        ConfigError: the target or an option cannot work.
    """
    options = from_arguments(options, target, ())
    plan = planned(target, command, options, ProcessOptions(), only=(only,) if only else ())
    if len(plan.endpoints) != 1:
        names = ", ".join(endpoint.name for endpoint in plan.endpoints)
        raise ConfigError(f"choose one server of the file with --only NAME; it has {names}")
    endpoint = plan.endpoints[0]
    return Client(
        **_target(endpoint),
        elicitation=Terminal().elicit,
        info={"name": "holdfast command line"},
        # A task sends no log messages and no progress.
        capabilities={"extensions": {}},
        **further,
    )


def _target(endpoint: Endpoint) -> dict[str, Any]:
    source: Source = endpoint.source
    options = endpoint.options
    if source.url:
        from holdfast.cli.proxied import authorizer  # noqa: PLC0415 - imported only by this command

        return {"target": source.url, "headers": options.headers, "auth": authorizer(options)}
    if source.command:
        cwd = options.cwd or source.directory or None
        return {"target": list(source.command), "env": options.env, "cwd": cwd}
    from holdfast.cli.prepared import prepare  # noqa: PLC0415 - imported only by this command

    return {"target": prepare(source, options)}
