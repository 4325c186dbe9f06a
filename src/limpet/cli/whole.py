"""The command line by typer: the help of `serve`, whose words are read by `words.py`, and every other command."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from limpet import __version__
from limpet.cli import sessions, store_commands
from limpet.cli.commands import Commands, WithCommand
from limpet.cli.demo import command as demo
from limpet.cli.installing import command as installing
from limpet.cli.options import Options
from limpet.cli.parameters import parameters
from limpet.cli.process_options import ProcessOptions
from limpet.cli.using import check
from limpet.cli.using import commands as using

app: Final = typer.Typer(
    name="limpet",
    cls=Commands,
    help="Serve MCP servers. Their sessions survive broken connections and restarts.",
    epilog="Exit status of every command: 0 it has worked; 1 it has failed; 2 the words or settings are wrong, and nothing was done.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"limpet {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
]


def _show_all(context: typer.Context, asked: bool) -> None:
    if asked:
        for parameter in context.command.params:
            setattr(parameter, "hidden", False)  # noqa: B010 - an argument has no such member
        print(context.get_help(), end="")
        raise typer.Exit


HelpAll = Annotated[
    bool, typer.Option("--help-all", callback=_show_all, is_eager=True, help="Show all options, and exit.")
]
Target = Annotated[
    str | None,
    typer.Argument(
        metavar="[TARGET]",
        help="path/to/file.py:object, package.module:object, the URL of a server, a file with several servers "
        "(limpet.toml, mcp.json), or nothing and `-- COMMAND…`: a program that speaks MCP on its standard input and output.",
        show_default=False,
    ),
]
_LISTENS: Final = "Where it listens"
Stdio = Annotated[
    bool,
    typer.Option(
        "--stdio", help="Serve standard input and output instead of HTTP.", rich_help_panel=_LISTENS
    ),
]

Only = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Serve this server of the file, and no other; may be repeated."),
]


@app.callback()
def limpet(version: Version = False) -> None:
    """Serve MCP servers whose sessions hold."""


def _serve(**_: Any) -> None:
    """Serve a server object, the server behind a URL or a command, or every server of a file.

    This shows the usual options, --help-all all.

    Most options can also be set by a variable (LIMPET_GRACE for --grace) and in limpet.toml. The command line
    counts before the variables, and these count before the file. docs/configuration.md has the table.

    [bold]limpet serve server.py --reload[/bold]
    [bold]limpet serve server.py --http 127.0.0.1:8000 --store sqlite:///store.db[/bold]
    [bold]limpet serve server.py --workers 4 --limit running=32 --time idle=600[/bold]
    [bold]limpet serve server.py --public-url https://mcp.example.com/mcp --verifier auth.py:verify[/bold]
    [bold]limpet serve server.py --stdio[/bold]
    [bold]limpet serve https://example.com/mcp --token-env TOKEN[/bold]
    [bold]limpet serve --http 8000 -- npx -y some-server[/bold]
    [bold]limpet serve limpet.toml --only weather[/bold]

    Exit status: 0 after a signal to stop; 1 if the code of the server fails at the start, or a process had to be
    killed; 2 if the command or a setting is wrong.
    """
    raise AssertionError("words.py reads this command")


def _with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the parameters of its own and one for each option of the table."""
    own = [
        inspect.Parameter("target", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Target),
        inspect.Parameter("stdio", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Stdio),
        inspect.Parameter("only", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Only),
        inspect.Parameter("help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=HelpAll),
    ]
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*own, *parameters(ProcessOptions), *parameters(Options)]
    )
    return function


app.command("serve", cls=WithCommand)(_with_options(_serve))
using.register(app)
check.register(app)
demo.register(app)
installing.register(app)
app.add_typer(sessions.app, name="sessions", rich_help_panel="Operate")
app.add_typer(store_commands.app, name="store", rich_help_panel="Operate")
