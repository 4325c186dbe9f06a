"""`limpet check URL`: probe a server, ours or another, and print a verdict for each probe.

The report goes to standard output, the progress to standard error. The exit status is 0 if no probe fails, 1 if one
does, 2 for wrong usage, and 3 if none fails and most did not finish.
"""

import asyncio
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

import msgspec
import typer
from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from limpet.auth.authorizer import Authorizer, Challenge
from limpet.auth.oauth.oauth import OAuth
from limpet.checking.lane import initialize
from limpet.checking.peer import Peer
from limpet.checking.report import Report, Row, Verdict
from limpet.checking.run import PATIENCE, CheckPlan, check
from limpet.checking.survey import UNAUTHORIZED
from limpet.checking.table import PROBES
from limpet.cli.commands import PlainCommand
from limpet.cli.config.literals import from_arguments
from limpet.cli.option_values import pairs
from limpet.cli.options import Options
from limpet.cli.parameters import completes, within
from limpet.cli.proxied import authorizer
from limpet.cli.using.commands import Header, Json, OAuthFlag, TokenEnv, TokenFile
from limpet.cli.using.plain import plain, print_json
from limpet.errors import ConfigError, LimpetError
from limpet.transports.http import place_of

# Signing in before a check: the headers with the token that the server accepts.

_ATTEMPTS: Final = 4
_SECONDS: Final = 10.0


async def signed_in(url: str, authorizer: Authorizer, headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a check, with those of the sign-in.

    Raises:
        ConfigError: the server needs a new proof for each request (DPoP), which a check cannot make.
        LimpetError: the sign-in failed, or the server cannot be reached.
    """
    peer = Peer(url, headers, _SECONDS)
    try:
        sent: Mapping[str, str] = {}
        for attempt in range(1, _ATTEMPTS + 1):
            sent = await authorizer.headers("POST", url)
            outcome, lane = await initialize(peer.branch({**headers, **sent}))
            if lane is not None and lane.session:
                await lane.delete()
            if outcome.status not in UNAUTHORIZED:
                break
            refused = Challenge(
                method="POST",
                url=url,
                status=outcome.status,
                headers=outcome.headers,
                sent=sent,
                attempt=attempt,
            )
            if not await authorizer.challenged(refused):
                break
    finally:
        await peer.aclose()
    if "dpop" in sent:
        raise ConfigError(
            "the server needs a proof for each request (DPoP): give a bearer token with --token-env"
        )
    return {**headers, **sent}


_FAILED: Final = 1
_UNFINISHED: Final = 3
_STYLES: Final[dict[Verdict, tuple[str, str]]] = {
    "pass": ("pass", "green"),
    "fail": ("FAIL", "bold red"),
    "not applicable": ("n/a", "dim"),
}
_LITTLE: Final = "Most probes did not finish, so this says little about the server. Check it while it is not busy, with --timeout SECONDS, or with --only PROBE."
_HELP: Final = """Probe a server for the usual faults: parallel calls, duplicate ids, cuts, wrong requests, proxies. It takes less than a minute.

Only the tool named by --tool is called, or one that is annotated read-only. The sessions that the probes open are deleted.

[bold]limpet check http://127.0.0.1:8000/mcp[/bold]
[bold]limpet check https://example.com/mcp --token-env TOKEN --tool search --arguments '{"query": "tea"}'[/bold]
[bold]limpet check https://example.com/mcp --slow --json[/bold]"""

Url = Annotated[str, typer.Argument(metavar="URL", help="The endpoint of the server.", show_default=False)]
Tool = Annotated[
    str,
    typer.Option(metavar="NAME", help="The tool to call, best one that takes a second and sends progress."),
]
Arguments = Annotated[str | None, typer.Option(metavar="JSON", help="The arguments of --tool.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PROBE",
        autocompletion=completes([probe.name for probe in PROBES]),
        help="Run this probe; may be repeated.",
    ),
]
Slow = Annotated[
    bool, typer.Option("--slow", help="Also wait, for up to 4 minutes, until an idle stream is cut.")
]
Timeout = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        callback=within(0.1, 30),
        show_default=False,
        help=f"How long an answer may take, at most 30. Default: {PATIENCE:g}.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("check", cls=PlainCommand, help=_HELP, rich_help_panel="Use a server")(_check)


def _check(  # noqa: PLR0913, PLR0917 - the options of a command
    url: Url,
    tool: Tool = "",
    arguments: Arguments = None,
    only: Only = None,
    slow: Slow = False,
    timeout: Timeout = PATIENCE,
    header: Header = None,
    token_file: TokenFile = None,
    token_env: TokenEnv = None,
    oauth: OAuthFlag = False,
    json: Json = False,
) -> None:
    if "://" not in url:
        example = "limpet serve TARGET, then limpet check http://127.0.0.1:8000/mcp"
        raise ConfigError(f"{url} is not a URL. The check needs a server that is running: {example}")
    options = Options(
        headers=pairs(header, "--header"), token_file=token_file, token_env=token_env, oauth=oauth or None
    )
    options = from_arguments(options, url, ())
    headers = dict(options.headers or {})
    credentials = authorizer(options)
    if isinstance(credentials, str):
        headers["authorization"] = f"Bearer {credentials}"
    elif credentials is not None:
        place_of(url)
        headers = _signed_in(url, credentials, headers)
    if arguments is not None and not tool:
        raise ConfigError("--arguments needs --tool NAME")
    wanted = CheckPlan(
        tool=tool,
        arguments=_arguments(arguments),
        headers=headers,
        slow=slow,
        patience=timeout,
        only=tuple(only or ()),
    )
    with _Progress() as progress:
        report = asyncio.run(check(url, wanted, progress.show))
    if json:
        print_json({"passed": report.passed, **msgspec.to_builtins(report)})
    else:
        _print(report)
    raise typer.Exit(_FAILED if report.failures else 0 if report.finished else _UNFINISHED)


def _signed_in(url: str, oauth: OAuth, headers: dict[str, str]) -> dict[str, str]:
    try:
        return asyncio.run(signed_in(url, oauth, headers))
    except ConfigError:
        raise
    except LimpetError as error:
        sys.stderr.write(f"limpet: {plain(error)}\n")
        raise typer.Exit(_FAILED) from None


def _arguments(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"--arguments is not a JSON object: {error}") from None


def _print(report: Report) -> None:
    console = Console(highlight=False)
    table = Table(title=_title(report), title_justify="left", title_style="bold", show_lines=False)
    table.add_column("verdict", no_wrap=True)
    table.add_column("probe", ratio=2)
    table.add_column("what happened", ratio=5, overflow="fold")
    reached = not report.rows or report.rows[0].verdict != "fail"
    for row in report.rows if reached else report.rows[:1]:
        word, style = _STYLES[row.verdict]
        table.add_row(Text(word, style=style), Text(row.title), _happened(row))
    console.print(table)
    counts = [
        f"{sum(row.verdict == verdict for row in report.rows)} {verdict}"
        for verdict in ("pass", "fail", "not applicable")
    ]
    console.print(Text(f"{', '.join(counts)}; {report.seconds:.1f} s"))
    if not report.finished:
        console.print(Text(_LITTLE, style="yellow"))


def _title(report: Report) -> Text:
    versions = ", ".join(report.versions) or "no version"
    tool = f"tool {report.tool}" if report.tool else "no tool called"
    return Text(plain(f"{report.url}: {report.server or 'no server'} ({versions}; {tool})"))


def _happened(row: Row) -> Group | Text:
    happened = Text(plain(row.happened))
    if row.verdict != "fail":
        return happened
    return Group(
        happened,
        Text(f"Specification: {row.specification}", style="dim"),
        Text(f"To do: {row.remedy}", style="yellow"),
    )


class _Progress:
    """The running probe on standard error, if that is a terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        columns = (BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeElapsedColumn())
        self._bar = Progress(
            *columns,
            TextColumn("{task.description}", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("the server is looked at", total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, done: int, total: int, title: str) -> None:
        """Show the next probe."""
        self._bar.update(self._task, completed=done, total=total, description=title)
