"""The `holdfast` command. An error says what is wrong, where, and what would be right; a usage error has no traceback."""

import sys
from typing import Annotated, Any, Final, TypeVar

import typer
from msgspec import Struct
from msgspec.structs import replace
from typer.core import TyperCommand

from holdfast import __version__
from holdfast.cli.behind import Behind, behind
from holdfast.cli.serve import Options, serve
from holdfast.cli.workers import serve_with_workers
from holdfast.config import Duplicates, ResponseMode
from holdfast.errors import ConfigError

_WRONG: Final = 2
"""The exit status of a command that could not start."""

_COMMAND: Final = "holdfast.command"
"""Where the words after `--` are kept."""

_PARAMETERS: Final = {
    "allowed_hosts": "allow_host",
    "allowed_origins": "allow_origin",
    "headers": "header",
    "version": "upstream_version",
}
"""Members whose parameter has another name: an option that may be repeated is named in the singular."""
S = TypeVar("S", bound=Struct)

app: Final = typer.Typer(
    name="holdfast",
    help="Serve MCP servers. Their sessions survive broken connections and restarts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line."""
    try:
        app()
    except ConfigError as error:
        print(f"holdfast: {error}", file=sys.stderr)
        sys.exit(_WRONG)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"holdfast {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
]
Target = Annotated[
    str | None,
    typer.Argument(
        help="path/to/file.py:object, package.module:object, the URL of a server, or nothing and `-- COMMAND…`: a program "
        "that speaks MCP on its standard input and output.",
        show_default=False,
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="How many calls of one session the server behind gets at once; 1 for one that cannot run several.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Close a session when the server behind loses its own, or its process ends."
    ),
]
Header = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A header for the server behind a URL; may be repeated."),
]
TokenFile = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="A file with the bearer token for the server behind a URL. Or put it into HOLDFAST_UPSTREAM_TOKEN.",
    ),
]
Env = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A variable for the command after --; may be repeated."),
]
UpstreamVersion = Annotated[
    str | None,
    typer.Option(
        metavar="VERSION",
        help="The protocol version for the server behind: auto, modern, legacy, or one revision. Default: auto.",
    ),
]
Children = Annotated[
    int | None, typer.Option(min=1, help="How many processes of the command may run. Default: 64.")
]
_ADDRESS: Final = "127.0.0.1:8000"
Http = Annotated[str, typer.Option(metavar="HOST:PORT", help="Serve Streamable HTTP at this address.")]
Stdio = Annotated[bool, typer.Option("--stdio", help="Serve standard input and output instead of HTTP.")]
Path = Annotated[str, typer.Option(help="The path of the MCP endpoint.")]
Grace = Annotated[
    float | None, typer.Option(min=0, help="Seconds that a session lives after its last connection broke.")
]
Drain = Annotated[
    float | None, typer.Option(min=0, help="Seconds that running calls have to finish when the server stops.")
]
DrainNotice = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Seconds before the drain in which the server still serves but reports not ready, so that load balancers stop sending.",
    ),
]
OnDuplicates = Annotated[
    Duplicates | None,
    typer.Option(help="What happens to a request whose id is in flight: refuse it, or run both."),
]
Response = Annotated[ResponseMode, typer.Option(help="How requests are answered.")]
InOrder = Annotated[bool, typer.Option("--in-order", help="Run the calls of a session one at a time.")]
Reruns = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="How often a call of an idempotent tool runs again after its replica died.",
    ),
]
MaskErrors = Annotated[
    bool,
    typer.Option("--mask-errors", help="Send clients a correlation id instead of the text of an exception."),
]
Stateless = Annotated[bool, typer.Option("--stateless", help="Keep nothing between requests.")]
AllowHost = Annotated[list[str] | None, typer.Option(help="A Host header that is accepted; may be repeated.")]
AllowOrigin = Annotated[
    list[str] | None, typer.Option(help="A browser origin that is accepted; may be repeated.")
]
AllowAnonymous = Annotated[
    bool, typer.Option("--allow-anonymous", help="Serve other machines without authentication.")
]
Store = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="HOLDFAST_STORE",
        help="The store for sessions: memory:, sqlite:///path, redis://host, rediss://, valkey://, redis+cluster://, "
        "redis+sentinel://. Put a URL with a password into the variable: other users of the machine can read arguments.",
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Separates servers that share a store. Default: the server's name."),
]
Workers = Annotated[
    int,
    typer.Option(min=1, help="How many processes serve. Without --store they share a temporary SQLite file."),
]
LogLevel = Annotated[str, typer.Option(help="debug, info, warning, error or critical.")]


def _check_address(http: str, *, stdio: bool) -> None:
    """Refuse an address that would have no effect."""
    if stdio and http != _ADDRESS:
        raise ConfigError(f"--stdio does not use an address: leave out --stdio, or --http {http}")


@app.callback()
def holdfast(version: Version = False) -> None:
    """Serve MCP servers whose sessions hold."""


class _ServeCommand(TyperCommand):
    """Takes everything after `--` as the command of the server behind, its options included."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own, command = args, list[str]()
        if "--" in args:
            at = args.index("--")
            own, command = args[:at], args[at + 1 :]
            if not command:
                raise ConfigError("-- needs a command after it, such as -- npx -y some-server")
        ctx.meta[_COMMAND] = tuple(command)
        return super().parse_args(ctx, own)


@app.command("serve", cls=_ServeCommand)
def serve_command(  # noqa: PLR0913, PLR0917 - one parameter for each option
    context: typer.Context,
    target: Target = None,
    http: Http = _ADDRESS,
    stdio: Stdio = False,
    path: Path = "/mcp",
    grace: Grace = None,
    drain: Drain = None,
    drain_notice: DrainNotice = None,
    duplicates: OnDuplicates = None,
    response: Response = "adaptive",
    in_order: InOrder = False,
    reruns: Reruns = None,
    mask_errors: MaskErrors = False,
    stateless: Stateless = False,
    store: Store = None,
    namespace: Namespace = None,
    workers: Workers = 1,
    allow_host: AllowHost = None,
    allow_origin: AllowOrigin = None,
    allow_anonymous: AllowAnonymous = False,
    log_level: LogLevel = "warning",
    concurrency: Concurrency = None,
    strict: Strict = False,
    header: Header = None,
    token_file: TokenFile = None,
    env: Env = None,
    children: Children = None,
    upstream_version: UpstreamVersion = None,
) -> None:
    """Serve a server object, or the server behind a URL or a command, over HTTP or over stdio."""
    given = locals()
    other = behind(target, context.meta[_COMMAND], _collected(Behind, given), workers)
    options = replace(_collected(Options, given), behind=other)
    named, where = target or "", None if stdio else http
    if workers == 1:
        _check_address(http, stdio=stdio)
        serve(named, where, options, log_level=log_level)
    else:
        raise typer.Exit(serve_with_workers(named, where, options, workers, log_level=log_level))


def _collected(kind: type[S], given: dict[str, Any]) -> S:
    """Return a structure of those parameters that are its members; an option that was not given has its default."""
    known: dict[str, Any] = {}
    for name in kind.__struct_fields__:
        value = given.get(_PARAMETERS.get(name, name))
        if value is not None and value != "":
            known[name] = tuple(value) if isinstance(value, list) else value
    return kind(**known)
