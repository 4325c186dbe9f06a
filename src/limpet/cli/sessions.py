"""`limpet sessions`: the sessions of a running fleet, listed, shown, found and closed over the admin surface.

Exit status: 0 done; 1 there is no such session or event, or the operator answered no; 2 wrong usage, or the surface
cannot be asked.

Names come from clients: control characters are escaped.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import typer
from msgspec import Struct

from limpet.cli.admin_client import DEFAULT_URL, AdminClient, NotFound
from limpet.cli.commands import Group, PlainCommand
from limpet.cli.parameters import within
from limpet.cli.secrets import operator_token
from limpet.cli.using.plain import print_json
from limpet.engine.audit import short
from limpet.errors import ConfigError
from limpet.ops.log import escaped
from limpet.ops.ring import Happened
from limpet.ops.views import NO_EVENTS, CallView, FleetState, ShownSession

LIMIT: Final = 1000
_OLDEST: Final = 20
"""How many calls a list has."""
_LONGEST: Final = 48
_MINUTE: Final = 60
_KIB: Final = 1024
_MISSING: Final = 1

app: Final = typer.Typer(
    cls=Group,
    rich_markup_mode="rich",
    help="List, show, find and close the sessions of a running server, over its admin surface.",
    no_args_is_help=True,
)

Admin = Annotated[
    str,
    typer.Option(
        metavar="URL",
        envvar="LIMPET_ADMIN_URL",
        show_envvar=False,
        show_default=False,
        help=f"The admin surface, or unix:PATH. Or put it into LIMPET_ADMIN_URL. Default: {DEFAULT_URL}.",
    ),
]
TokenFile = Annotated[
    str | None,
    typer.Option(
        "--admin-token-file",
        metavar="PATH",
        help="A file with the token of operators. Or put it into LIMPET_ADMIN_TOKEN.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Limit = Annotated[
    int,
    typer.Option(
        metavar="NUMBER",
        callback=within(1),
        show_default=False,
        help=f"How many sessions are shown. Default: {LIMIT}.",
    ),
]
Name = Annotated[
    str, typer.Argument(metavar="SESSION", help="The short name of the session, as the log has it.")
]


class _Known(Struct, frozen=True):
    """The facts of one session."""

    session: ShownSession | None
    events: list[Happened]


class _Found(Struct, frozen=True):
    events: list[Happened]


@app.command("ls", cls=PlainCommand)
def list_sessions(
    admin: Admin = DEFAULT_URL,
    token_file: TokenFile = None,
    json: AsJson = False,
    limit: Limit = LIMIT,
) -> None:
    """List the open sessions of all replicas, and the calls that have run longest.

    [bold]limpet sessions ls --admin http://127.0.0.1:9000 --admin-token-file admin.token[/bold]
    [bold]limpet sessions ls --json[/bold]
    """
    sessions, more, state = _listed(_client(admin, token_file), limit)
    if json:
        print_json(sessions)
    else:
        _print_list(sessions, state)
    if more:
        print(f"Only the first {limit} sessions: --limit shows more.", file=sys.stderr)
    if away := _away(state):
        raise ConfigError(f"{away}: sessions are missing here")


@app.command("show", cls=PlainCommand)
def show_session(
    name: Name, admin: Admin = DEFAULT_URL, token_file: TokenFile = None, json: AsJson = False
) -> None:
    """Show a session, its calls, and its last events with their reasons.

    [bold]limpet sessions show 3f9a1c[/bold]
    """
    client = _client(admin, token_file)
    known = _or_exit(lambda: client.get(_Known, "sessions", name), f"there is no session {escaped(name)}")
    state = client.get(FleetState, "state", events=NO_EVENTS)
    calls = [call for call in state.calls if call.session == short(name)]
    if json:
        print_json({"session": known.session, "calls": calls, "events": known.events})
        return
    if known.session is not None:
        _print_table(_SESSION_COLUMNS, [known.session])
    elif away := _away(state):
        print(f"Session {escaped(name)} may be open: {away}.")
    else:
        print(f"Session {escaped(name)} is closed.")
    if calls:
        print("\nCalls in flight")
        _print_table(_CALL_COLUMNS, calls)
    print("\nLast events")
    _print_events(known.events)


@app.command("find", cls=PlainCommand)
def find_events(
    correlation: Annotated[
        str, typer.Argument(metavar="ID", help="The correlation id of an error that a client received.")
    ],
    admin: Admin = DEFAULT_URL,
    token_file: TokenFile = None,
    json: AsJson = False,
) -> None:
    """Find the events of a correlation id.

    [bold]limpet sessions find 7c0ffee1[/bold]
    """
    found = _client(admin, token_file).get(_Found, "find", correlation)
    if json:
        print_json(found.events)
    elif found.events:
        _print_events(found.events)
    if not found.events:
        _leave(
            f"no replica remembers an event with the correlation id {escaped(correlation)}: search the logs"
        )


@app.command("close", cls=PlainCommand)
def close_session(
    name: Name,
    admin: Admin = DEFAULT_URL,
    token_file: TokenFile = None,
    json: AsJson = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for a confirmation.")] = False,
) -> None:
    """Close a session. Its calls are cancelled, and its client must open a new one.

    [bold]limpet sessions close 3f9a1c --yes[/bold]
    """
    client = _client(admin, token_file)
    missing = f"there is no open session {escaped(name)}"
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError("close asks for a confirmation, and there is no terminal: give --yes")
        session = _or_exit(lambda: client.get(_Known, "sessions", name), missing).session
        if session is None:
            _leave(missing)
        elif not typer.confirm(
            f"Close session {escaped(name)} of {_cut(session.client)}, with {session.calls} calls in flight?"
        ):
            _leave("the session stays open")
    _or_exit(lambda: client.post("sessions", name, "close"), missing)
    if json:
        print_json({"done": True})
    else:
        print(f"Session {escaped(name)} is closed.")


# Asking


def _client(admin: str, token_file: str | None) -> AdminClient:
    return AdminClient(admin, operator_token(token_file))


def _listed(client: AdminClient, limit: int) -> tuple[list[ShownSession], bool, FleetState]:
    """Return the first sessions, whether there are more, and the last state that was read."""
    state = client.get(FleetState, "state", events=NO_EVENTS)
    sessions = state.sessions
    while state.next_page and len(sessions) < limit:
        state = client.get(FleetState, "state", page=state.next_page, events=NO_EVENTS)
        sessions += state.sessions
    return sessions[:limit], bool(state.next_page) or len(sessions) > limit, state


def _away(state: FleetState) -> str:
    """Return a sentence about stores that do not answer; empty: all do."""
    names = ", ".join(escaped(server.name) for server in state.servers if server.is_away)
    return f"the store of {names} does not answer" if names else ""


def _or_exit(ask: Callable[[], Any], missing: str) -> Any:
    try:
        return ask()
    except NotFound:
        return _leave(missing)


def _leave(reason: str) -> None:
    print(f"limpet: {reason}", file=sys.stderr)
    raise typer.Exit(_MISSING)


# Printing


def _cut(text: str) -> str:
    shown = escaped(text)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    if value < _MINUTE:
        return f"{value:.1f} s"
    minutes, seconds = divmod(round(value), _MINUTE)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def _bytes(value: int) -> str:
    size, unit = float(value), "B"
    for bigger in ("KiB", "MiB", "GiB"):
        if size < _KIB:
            break
        size, unit = size / _KIB, bigger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


_Columns = Sequence[tuple[str, Callable[[Any], str]]]
_SESSION_COLUMNS: Final[_Columns] = (
    ("SESSION", lambda one: one.id),
    ("CLIENT", lambda one: one.client),
    ("ERA", lambda one: one.era),
    ("STATE", lambda one: one.state),
    ("CLOSES IN", lambda one: _seconds(one.closes_in)),
    ("CALLS", lambda one: str(one.calls)),
    ("STREAMS", lambda one: str(one.streams)),
    ("LOG", lambda one: _bytes(one.log_bytes)),
    ("PRINCIPAL", lambda one: one.principal),
    ("REPLICA", lambda one: one.replica),
)
_CALL_COLUMNS: Final[_Columns] = (
    ("CALL", lambda one: one.name or one.method),
    ("ID", lambda one: one.id),
    ("STATE", lambda one: one.state),
    ("WAITS FOR", lambda one: one.waits_for),
    ("AGE", lambda one: _seconds(one.age)),
    ("CLIENT", lambda one: one.client),
    ("SESSION", lambda one: one.session),
    ("REPLICA", lambda one: one.replica),
)


def _print_list(sessions: Sequence[ShownSession], state: FleetState) -> None:
    """Print sessions and the oldest calls. A call without a session is only there."""
    if sessions:
        _print_table(_SESSION_COLUMNS, sessions)
    elif not _away(state):
        print("No session is open.")
    if state.calls:
        print("\nCalls in flight, the oldest first")
        _print_table(_CALL_COLUMNS, state.calls[:_OLDEST])
        if len(state.calls) > _OLDEST:
            print(f"Only the {_OLDEST} oldest of {len(state.calls)} calls.", file=sys.stderr)


def _print_table(columns: _Columns, things: Iterable[ShownSession | CallView]) -> None:
    rows = [[head for head, _ in columns], *([_cut(cell(one)) for _, cell in columns] for one in things)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(columns))]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _print_events(events: Sequence[Happened]) -> None:
    for line in _event_lines(events):
        print(line)
    if not events:
        print("None of the last events belongs to it.")


def _event_lines(events: Sequence[Happened]) -> Iterator[str]:
    width = max((len(happened.event) for happened in events), default=0)
    for happened in events:
        moment = datetime.fromtimestamp(happened.at).astimezone()
        facts = "  ".join(f"{name}={escaped(value)}" for name, value in happened.facts.items())
        yield f"{moment:%Y-%m-%d %H:%M:%S}  {happened.event:<{width}}  {facts}".rstrip()
