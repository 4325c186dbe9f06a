"""The commands that use a server: their words, their options and their exit status.

A command writes its result to standard output, and everything else (progress, questions, log messages) to standard
error. Its exit status is 0; 1 if the server or the tool answers with an error or cannot be reached; 2 for wrong usage.
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Final

import typer
from msgspec.json import encode as encode_json
from rich.console import Console
from rich.text import Text

from limpet.cli.behind import ServerSource
from limpet.cli.commands import COMMAND, WithCommand
from limpet.cli.config.literals import from_arguments
from limpet.cli.config.plan import Endpoint
from limpet.cli.config.sources import planned
from limpet.cli.option_values import pairs
from limpet.cli.options import Options
from limpet.cli.parameters import completes, within
from limpet.cli.process_options import ProcessOptions
from limpet.cli.using.arguments import typed
from limpet.cli.using.asking import Terminal
from limpet.cli.using.bar import Bar
from limpet.cli.using.plain import plain, print_json
from limpet.cli.using.showing import show_blocks, show_contents, tree
from limpet.client.client import Client
from limpet.errors import (
    MISSING_CAPABILITY,
    ConfigError,
    LimpetError,
    McpError,
    Unauthorized,
    WrongResult,
)
from limpet.ops import tracebacks

_FAILED: Final = 1
_ENDLESS: Final = 10_000
"""Columns, where the output is not a terminal."""
_CREDENTIALS: Final = "; pass --token-env NAME, --token-file PATH or --oauth"
_TARGET: Final = (
    "TARGET is what `limpet serve` takes: file.py:object, package.module:object, a URL, or a file with servers (with "
    "--only). For a program, leave TARGET out and write `-- COMMAND…` at the end."
)
_PANEL: Final = "The server"
_TIMEOUT: Final = 60.0

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Header = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A header for the URL; may be repeated.", rich_help_panel=_PANEL),
]
TokenFile = Annotated[
    str | None, typer.Option(metavar="PATH", help="A file with the bearer token.", rich_help_panel=_PANEL)
]
TokenEnv = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The variable with the bearer token.", rich_help_panel=_PANEL),
]
OAuthFlag = Annotated[
    bool, typer.Option("--oauth", help="Sign in with OAuth in the browser.", rich_help_panel=_PANEL)
]
Env = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE", help="A variable for the program; may be repeated.", rich_help_panel=_PANEL
    ),
]
Only = Annotated[
    str | None, typer.Option(metavar="NAME", help="The server of the file.", rich_help_panel=_PANEL)
]
Revision = Annotated[
    str,
    typer.Option(
        "--protocol",
        metavar="VERSION",
        autocompletion=completes(("auto", "sessions", "sessionless")),
        show_default=False,
        help="auto, sessions, sessionless, or one revision. Default: auto.",
        rich_help_panel=_PANEL,
    ),
]
Traceback = Annotated[bool, typer.Option("--traceback", help="Show every frame of an error.")]
Timeout = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        callback=within(0.1),
        show_default=False,
        help=f"How long an answer may take. Default: {_TIMEOUT:g}.",
    ),
]

Use = Callable[[Client, list[str]], Awaitable[int]]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for name, use, needed, text in (
        ("inspect", _inspect, "", _INSPECT),
        ("call", _call, "TOOL key=value…", _CALL),
        ("read", _read, "URI…", _READ),
        ("prompt", _prompt, "NAME key=value…", _PROMPT),
    ):
        app.command(name, cls=WithCommand, help=text, rich_help_panel="Use a server")(
            _command(name, use, needed)
        )


_INSPECT: Final = """Show the tools, resources and prompts of a server, with their schemas.

[bold]limpet inspect server.py[/bold]
[bold]limpet inspect https://example.com/mcp --oauth[/bold]
[bold]limpet inspect -- npx -y some-server[/bold]"""
_CALL: Final = """Call a tool: limpet call TARGET TOOL key=value…

A value is read by the tool's schema; key:=JSON gives JSON, key=@FILE reads a file. Questions of the tool are asked in the terminal.

[bold]limpet call server.py add a=1 b=2[/bold]
[bold]limpet call https://example.com/mcp search query="red wine" --json[/bold]
[bold]limpet call echo text=hi -- npx -y some-server[/bold]"""
_READ: Final = """Read resources: limpet read TARGET URI…

[bold]limpet read server.py note://1[/bold]"""
_PROMPT: Final = """Get a prompt: limpet prompt TARGET NAME key=value…

[bold]limpet prompt server.py greeting name=Ada[/bold]"""


class _ResultOutput:
    """Where results go, and in which form."""

    as_json = False
    console = Console(highlight=False, soft_wrap=True)


def _command(name: str, use: Use, needed: str) -> Callable[..., None]:
    usage = f"[TARGET] {needed}".strip()

    def command(  # noqa: PLR0913, PLR0917 - the options of a command
        context: typer.Context,
        words: Annotated[list[str] | None, typer.Argument(metavar=usage, help=_TARGET)] = None,
        json: Json = False,
        timeout: Timeout = _TIMEOUT,
        header: Header = None,
        token_file: TokenFile = None,
        token_env: TokenEnv = None,
        oauth: OAuthFlag = False,
        env: Env = None,
        only: Only = None,
        protocol: Revision = "auto",
        traceback: Traceback = False,  # noqa: ARG001 - read by `main`
    ) -> None:
        given = list(words or ())
        for word in given:
            if word.encode(errors="replace").decode() != word:
                raise ConfigError(f"{word!r} is not a text in UTF-8")
        program = context.meta[COMMAND]
        target = None if program or not given else given.pop(0)
        if needed and not given:
            found = f"; limpet inspect {target} lists them" if target else ""
            first = needed.split(maxsplit=1)[0].rstrip("…")
            raise ConfigError(f"{first} is missing{found}. Use: limpet {name} TARGET {needed}")
        options = Options(
            headers=pairs(header, "--header"),
            token_file=token_file,
            token_env=token_env,
            oauth=oauth or None,
            env=pairs(env, "--env"),
        )
        client = client_of(
            target, program, options, only, protocol_version=protocol, timeout=timeout, on_log=_show_log
        )
        _ResultOutput.as_json = json
        logging.basicConfig(handlers=[_FailureLines()], level=logging.WARNING)
        raise typer.Exit(asyncio.run(_use_client(client, use, given)))

    return command


async def _use_client(client: Client, use: Use, words: list[str]) -> int:
    try:
        async with client:
            return await use(client, words)
    except ConfigError:
        raise
    except LimpetError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # After Ctrl+C the error is a result of the cancellation.
            raise asyncio.CancelledError from None
        hint = _CREDENTIALS if type(error) is Unauthorized else ""
        sys.stderr.write(f"limpet: {plain(error)}{hint}\n")
        return _FAILED


# The commands


async def _inspect(client: Client, words: list[str]) -> int:
    if words:
        raise ConfigError(f"limpet inspect takes one target; {words[0]!r} is too many")
    able = client.agreed.capabilities
    tools = await client.list_tools() if "tools" in able else []
    resources = await client.list_resources() if "resources" in able else []
    templates = await client.list_resource_templates() if "resources" in able else []
    prompts = await client.list_prompts() if "prompts" in able else []
    info, version = client.agreed.server, client.agreed.version
    if _ResultOutput.as_json:
        print_json(
            {
                "server": info,
                "protocolVersion": version,
                "capabilities": able,
                "instructions": client.agreed.instructions,
                "tools": tools,
                "resources": resources,
                "resourceTemplates": templates,
                "prompts": prompts,
            }
        )
        return 0
    title = f"{info.get('name', 'server')} {info.get('version', '')} ({version})"
    # A terminal breaks long lines within the tree. A pipe gets each text on one line, so that other programs find it.
    width = None if _ResultOutput.console.is_terminal else _ENDLESS
    Console(highlight=False, width=width).print(tree(title, tools, resources, templates, prompts))
    return 0


async def _call(client: Client, words: list[str]) -> int:
    name, *given = words
    tools = {tool.name: tool for tool in await client.list_tools()}
    if name not in tools:
        known = ", ".join(plain(one) for one in tools) or "none"
        raise ConfigError(f"the server has no tool {name!r}; it has: {known}")
    arguments = typed(given, tools[name].input_schema, name)
    with Bar(name) as bar:
        call = partial(client.call_tool, name, arguments, progress=bar.report, raise_on_error=False)
        try:
            result = await call()
        except McpError as error:
            if error.code != MISSING_CAPABILITY:
                raise
            # The tool runs only as a task.
            client.declare_tasks()
            result = await call()
    if _ResultOutput.as_json:
        print_json(
            {
                "content": result.content,
                "structuredContent": result.structured_content,
                "isError": result.is_error,
            }
        )
    elif result.is_error:
        show_blocks(Console(highlight=False, soft_wrap=True, stderr=True), result.content)
    else:
        show_blocks(_ResultOutput.console, result.content)
    return _FAILED if result.is_error else 0


async def _read(client: Client, words: list[str]) -> int:
    for uri in words:
        contents = await client.read_resource(uri)
        if _ResultOutput.as_json:
            print_json(contents)
        else:
            for one in contents:
                show_contents(_ResultOutput.console, one)
    return 0


async def _prompt(client: Client, words: list[str]) -> int:
    name, *given = words
    prompts = {prompt.name: prompt for prompt in await client.list_prompts()}
    if name not in prompts:
        raise ConfigError(
            f"the server has no prompt {name!r}; it has: {', '.join(map(plain, prompts)) or 'none'}"
        )
    wanted = prompts[name].arguments or []
    schema = {
        "properties": {argument.name: {"type": "string"} for argument in wanted},
        "required": [argument.name for argument in wanted if argument.required],
    }
    result = await client.get_prompt(name, typed(given, schema, name))
    if _ResultOutput.as_json:
        print_json(result)
        return 0
    for message in result.messages:
        _ResultOutput.console.print(Text(message.role, style="bold"))
        show_blocks(_ResultOutput.console, [message.content])
    return 0


# Output


class _FailureLines(logging.Handler):
    """Shows the failure of a function of this process in one line: where it is, and its error."""

    def emit(self, record: logging.LogRecord) -> None:
        facts = getattr(record, "facts", {})
        error = facts.get("error")
        if tracebacks.is_whole() or not isinstance(error, BaseException):
            sys.stderr.write(f"{plain(self.format(record))}\n")
        elif isinstance(error, WrongResult) and error.place:
            sys.stderr.write(f"limpet: {plain(error.place)} returned a wrong value\n")
        elif where := tracebacks.place(error):
            sys.stderr.write(f"limpet: {plain(where)} raised {type(error).__name__} {tracebacks.HINT}\n")


def _show_log(message: dict[str, Any]) -> None:
    data = message.get("data")
    text = data if isinstance(data, str) else encode_json(data).decode()
    if Bar.shown is not None:
        Bar.shown.hide()
    sys.stderr.write(f"{plain(message.get('level', 'info'))}: {plain(text)}\n")


# A client of the target


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
        info={"name": "limpet command line"},
        # A task sends no log messages and no progress.
        capabilities={"extensions": {}},
        **further,
    )


def _target(endpoint: Endpoint) -> dict[str, Any]:
    source: ServerSource = endpoint.source
    options = endpoint.options
    if source.url:
        from limpet.cli.proxied import authorizer  # noqa: PLC0415 - imported only by this command

        return {"target": source.url, "headers": options.headers, "auth": authorizer(options)}
    if source.command:
        cwd = options.cwd or source.directory or None
        return {"target": list(source.command), "env": options.env, "cwd": cwd}
    from limpet.cli.prepared import prepare  # noqa: PLC0415 - imported only by this command

    return {"target": prepare(source, options)}
