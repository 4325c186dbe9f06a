"""The whole command line, by typer: help, the version, and every error of usage. `quick.py` reads the usual commands faster."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from holdfast import __version__
from holdfast.cli import sessions
from holdfast.cli.asked import Asked, run
from holdfast.cli.collecting import collected
from holdfast.cli.options import Options, ProcessOptions
from holdfast.cli.parameters import parameters
from holdfast.errors import ConfigError

_COMMAND: Final = "holdfast.command"
"""Where the words after `--` are kept."""

app: Final = typer.Typer(
    name="holdfast",
    help="Serve MCP servers. Their sessions survive broken connections and restarts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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
        help="path/to/file.py:object, package.module:object, the URL of a server, a file with several servers "
        "(holdfast.toml, mcp.json), or nothing and `-- COMMAND…`: a program that speaks MCP on its standard input and output.",
        show_default=False,
    ),
]
Stdio = Annotated[bool, typer.Option("--stdio", help="Serve standard input and output instead of HTTP.")]

Only = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Serve this server of the file, and no other; may be repeated."),
]


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


def _serve(
    context: typer.Context, target: str | None, stdio: bool, only: list[str] | None, **given: Any
) -> None:
    """Serve a server object, the server behind a URL or a command, or every server of a file.

    An option for every kind of target can also be set by a variable: HOLDFAST_GRACE for --grace, and so on. The command
    line counts before the variables, and these count before a file.
    """
    asked = Asked(
        target=target,
        command=context.meta[_COMMAND],
        stdio=stdio,
        only=tuple(only or ()),
        options=collected(Options, given),
        process=collected(ProcessOptions, given),
        names_address=_is_argument(context, "http"),
    )
    raise typer.Exit(run(asked))


def _is_argument(context: typer.Context, name: str) -> bool:
    """True if an option is on the command line itself, and not only in the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the parameters of its own and one for each option of the table."""
    own = [
        inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
        inspect.Parameter("target", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Target),
        inspect.Parameter("stdio", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Stdio),
        inspect.Parameter("only", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Only),
    ]
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*own, *parameters(ProcessOptions), *parameters(Options)]
    )
    return function


app.command("serve", cls=_ServeCommand)(_with_options(_serve))
app.add_typer(sessions.app, name="sessions")
