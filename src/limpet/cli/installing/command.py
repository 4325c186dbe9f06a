"""`limpet install TARGET`: show the change, ask, write."""

import difflib
import os
import re
import stat
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from limpet.cli.behind import ServerSource, source
from limpet.cli.commands import COMMAND, WithCommand
from limpet.cli.config.literals import literals
from limpet.cli.installing.clients import CLIENTS, Wanted, client_program
from limpet.cli.installing.files import with_entry
from limpet.cli.option_values import pairs
from limpet.cli.parameters import completes
from limpet.cli.target import load, split
from limpet.cli.using.plain import plain
from limpet.errors import ConfigError

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]+")
_HELP: Final = """Write a server into the configuration of a client program. The change is shown first, and the rest of the file stays.

[bold]limpet install server.py --client cursor[/bold]
[bold]limpet install https://example.com/mcp --client claude-code --client vscode[/bold]
[bold]limpet install --client claude-desktop --name files -- npx -y some-server[/bold]"""

Target = Annotated[
    str | None,
    typer.Argument(
        metavar="[TARGET]",
        help="file.py:object, package.module:object, or a URL. For a program: nothing, and `-- COMMAND…`.",
        show_default=False,
    ),
]
ClientNames = Annotated[
    list[str] | None,
    typer.Option(
        "--client",
        metavar="NAME",
        autocompletion=completes(CLIENTS),
        help=f"{', '.join(CLIENTS)}; may be repeated.",
    ),
]
Name = Annotated[
    str | None, typer.Option(metavar="NAME", help="The server's name in the file; by default its own.")
]
Env = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="A variable for the server; may be repeated.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Write without a question.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the change, and do not write.")]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("install", cls=WithCommand, help=_HELP, rich_help_panel="Use a server")(_install)


def _install(
    context: typer.Context,
    target: Target = None,
    client: ClientNames = None,
    name: Name = None,
    env: Env = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    if not client:
        raise ConfigError(f"--client NAME is missing; NAME is one of {', '.join(CLIENTS)}")
    programs = [client_program(one) for one in client]
    if any(literals({"url": target})):
        raise ConfigError(
            "the URL has a user or a password, which would be in the client's file: leave them out, and let the client sign in"
        )
    found = source(target, context.meta[COMMAND])
    named = name or _name_of(found)
    if not _NAME.fullmatch(named):
        raise ConfigError(f"--name {named!r}: use letters, digits, '_' and '-', at most 64")
    wanted = _wanted(found, pairs(env, "--env") or {})
    for program in programs:
        file = program.place()
        before = _text(file)
        after = with_entry(before, file, program.member, named, program.entry(wanted))
        if before == after:
            print(f"{program.title}: {file} has this entry already.")
            continue
        _show(before, after, file)
        if dry_run:
            continue
        if not yes and not _agreed(program.title):
            print("Nothing was changed.")
            continue
        _write(file, after)
        print(f"{program.title}: {named} is in {file}. {program.restart}")


def _wanted(found: ServerSource, env: dict[str, str]) -> Wanted:
    """Return the entry's contents. Programs get absolute paths: a client starts them in a directory of its own."""
    limpet = (sys.executable, "-m", "limpet", "serve")
    if found.url:
        return Wanted(url=found.url, words=(*limpet, found.url, "--stdio"), env=env)
    if found.command:
        return Wanted(words=(*limpet, "--stdio", "--", *found.command), env=env)
    place, name = split(found.object)
    if not place.endswith(".py"):
        # A module is found from the working directory, which is another one in the client.
        env = {"PYTHONPATH": str(Path.cwd()), **env}
    shown = f"{Path(place).resolve()}:{name}" if place.endswith(".py") else f"{place}:{name}"
    return Wanted(words=(*limpet, shown, "--stdio"), env=env)


def _name_of(found: ServerSource) -> str:
    if found.object:
        return _OTHER.sub("-", load(found.object).name).strip("-")[:64] or "server"
    if found.url:
        return _OTHER.sub("-", urlsplit(found.url).hostname or "").strip("-")[:64] or "server"
    raise ConfigError("a program needs a name in the file: give --name NAME")


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None


def _show(before: str, after: str, file: Path) -> None:
    """Print the changed lines alone: the lines around them may be secrets of other servers."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(file), str(file), lineterm="", n=0
    )
    print("\n".join(map(plain, lines)))


def _agreed(title: str) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError(
            "there is no terminal to ask on: give --yes to write, or --dry-run to see the change"
        )
    sys.stderr.write(f"Write this for {title}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _write(file: Path, text: str) -> None:
    """Replace the file in one step, with the same permissions; a link stays a link."""
    try:
        file = file.resolve()
        if file.exists() and not file.stat().st_mode & stat.S_IWUSR:
            raise ConfigError(f"{file} is read-only: nothing was changed")
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as opened:
                opened.write(text)
            Path(temporary).chmod(file.stat().st_mode & 0o777 if file.exists() else 0o600)
            Path(temporary).replace(file)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except (OSError, RuntimeError) as error:
        # RuntimeError: a link that leads to itself.
        raise ConfigError(f"{file} cannot be written: {error}") from None
