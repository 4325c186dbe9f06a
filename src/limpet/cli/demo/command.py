"""`limpet demo`: run the acts and show them live.

On a terminal one table changes while the acts run; elsewhere each act prints a line when it ends. The exit status is 0
if every act held at our side, 1 if one did not, 2 for wrong usage, 130 after Ctrl+C.
"""

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, Self

import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from limpet.cli.commands import PlainCommand
from limpet.cli.demo.acts import ACTS, Act
from limpet.cli.demo.run import ActResult, DemoReport, Verdict, Watcher, chosen, our_side, peer_side, run
from limpet.cli.demo.stage import Side
from limpet.cli.parameters import completes
from limpet.cli.using.commands import Json
from limpet.cli.using.plain import plain, print_json

_FAILED: Final = 1
_STOPPED: Final = 130
_STYLES: Final[dict[Verdict, str]] = {
    "held": "bold green",
    "failed": "bold red",
    "not offered": "bold yellow",
    "not run": "bold yellow",
}
_NOTE: Final = "`pip install mcp` adds a column: the same acts at a server of the official SDK."
_HELP: Final = """See four problems of MCP servers survived, live: parallel calls, a duplicate id, a cut stream, a killed replica.

It starts two server processes with a temporary store, and removes both. If the official SDK (mcp) is installed, the same acts run at a server of it, and the table shows what happened there. It takes less than a minute.

[bold]limpet demo[/bold]
[bold]limpet demo --only cut --only replicas[/bold]
[bold]limpet demo --json[/bold]"""

Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ACT",
        autocompletion=completes([act.name for act in ACTS]),
        help="parallel, duplicate, cut or replicas; may be repeated.",
    ),
]
Peer = Annotated[
    bool,
    typer.Option(
        "--peer/--no-peer",
        show_default=False,
        help="Run the acts at the official SDK too, if it is installed. Default: --peer.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("demo", cls=PlainCommand, help=_HELP, rich_help_panel="Use a server")(_demo)


def _demo(only: Only = None, peer: Peer = True, json: Json = False) -> None:
    acts = chosen(only or ())
    other = peer_side() if peer else None
    console = Console(stderr=json, highlight=False)
    try:
        with _stopped_in_order(), our_side() as ours:
            sides = [ours, *([other] if other is not None else [])]
            with _view(console, acts, sides, silent=json) as view:
                report = asyncio.run(run(sides, acts, view))
    except KeyboardInterrupt:
        console.print("Stopped. No process and no file is left.")
        raise typer.Exit(_STOPPED) from None
    if json:
        print_json({"held": report.held, **msgspec.to_builtins(report)})
    else:
        console.print(_summary(report))
        if peer and other is None:
            console.print(Text(_NOTE, style="dim"))
    raise typer.Exit(0 if report.held else _FAILED)


@contextlib.contextmanager
def _stopped_in_order() -> Iterator[None]:
    """Let SIGTERM do the same as Ctrl+C, also in a script in the background, where Ctrl+C is ignored."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _summary(report: DemoReport) -> Text:
    said = []
    for side in report.sides:
        counts = Counter(result.verdict for result in side.results)
        counted = ", ".join(f"{counts[verdict]} {verdict}" for verdict in _STYLES if counts[verdict])
        said.append(f"{side.name} {side.version}: {counted}")
    return Text(f"{'; '.join(said)}. {report.seconds:.0f} s.", style="bold")


# Views


def _view(console: Console, acts: Sequence[Act], sides: Sequence[Side], *, silent: bool) -> "_Lines | _Table":
    if console.is_terminal:
        return _Table(console, acts, sides)
    return _Lines(console, silent=silent)


class _Lines(Watcher):
    """A line for each act that has ended."""

    def __init__(self, console: Console, *, silent: bool) -> None:
        self._console = console
        self._silent = silent

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @override
    def say(self, act: Act, side: Side, text: str) -> None:
        pass

    @override
    def ended(self, side: Side, result: ActResult) -> None:
        if not self._silent:
            said = f"{result.title}: {result.verdict}: {plain(result.happened)} ({result.seconds:.1f} s)"
            self._console.print(Text(f"{side.name} {side.version}: {said}"), soft_wrap=True)


class _Table(Watcher):
    """A row for each act and a column for each side."""

    def __init__(self, console: Console, acts: Sequence[Act], sides: Sequence[Side]) -> None:
        self._acts = acts
        self._sides = sides
        self._cells: dict[tuple[str, str], RenderableType] = {
            (acts[0].name, side.name): _running("two processes start") for side in sides
        }
        self._live = Live(console=console, get_renderable=self._table, refresh_per_second=10)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    @override
    def say(self, act: Act, side: Side, text: str) -> None:
        cell = self._cells.get((act.name, side.name))
        if isinstance(cell, Spinner):
            cell.update(text=Text(text, style="cyan"))
        else:
            self._cells[act.name, side.name] = _running(text)

    @override
    def ended(self, side: Side, result: ActResult) -> None:
        verdict = Text(result.verdict, style=_STYLES[result.verdict])
        verdict.append(f"  {result.seconds:.1f} s", style="not bold dim")
        self._cells[result.act, side.name] = Group(verdict, Text(plain(result.happened)))

    def _table(self) -> Table:
        table = Table(show_lines=True, expand=True)
        table.add_column("", ratio=2, style="bold")
        for side in self._sides:
            table.add_column(f"{side.name} {side.version}", ratio=4)
        for act in self._acts:
            table.add_row(act.title, *(self._cells.get((act.name, side.name), "") for side in self._sides))
        return table


def _running(text: str) -> Spinner:
    return Spinner("dots", text=Text(text, style="cyan"))
