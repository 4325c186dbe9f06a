"""`limpet inspect`, `call`, `read` and `prompt`: a server used from the terminal."""

import asyncio
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from limpet.cli.options import Options
from limpet.cli.using import bar
from limpet.cli.using.arguments import typed
from limpet.cli.using.commands import _use_client, client_of
from limpet.cli.using.showing import tree
from limpet.cli.whole import app
from limpet.client import Client
from limpet.errors import Broken, ConfigError
from limpet.types import Tool
from tests.support import BOUND, async_test

SERVER = '''
from typing import Literal
from limpet import Context, Image, InputRequired, Server, ToolError, Want
from pydantic import BaseModel

server = Server("kitchen", version="2")

class Order(BaseModel):
    dish: Literal["soup", "stew"]
    portions: int = 2

class Consent(BaseModel):
    publish: bool

@server.tool
async def add(a: int, b: float = 1.5, tags: list[str] | None = None, loud: bool = False) -> str:
    """Add numbers."""
    return f"{a + b} {tags} {loud}"

@server.tool
async def fail() -> str:
    raise ToolError("burnt \\x1b[31m")

@server.tool
async def order(ctx: Context) -> str:
    answer = await ctx.elicit("What would you like?", Order)
    return f"{answer.action} {answer.data}"

@server.tool
async def register(ctx: Context) -> str | InputRequired:
    answer = ctx.input_responses.get("who")
    if answer is not None:
        return str(answer["content"])
    fields = {"user name=": {"type": "string"}, "ok": {"type": "boolean"}}
    return InputRequired(requests={"who": Want.form("\\x1b[2JWho?", {"type": "object", "properties": fields})})

@server.tool
async def slow(ctx: Context) -> str:
    for step in range(3):
        await ctx.progress(step + 1, 3, f"step {step + 1}")
    return "done"

@server.tool
async def publish(ctx: Context) -> str:
    await ctx.progress(1, 2)
    answer = await ctx.elicit("Publish it?", Consent)
    await ctx.progress(2, 2)
    return f"{answer.action} {answer.data}"

@server.tool
async def picture() -> Image:
    return Image(b"12345")

@server.resource("note://{name}")
async def note(name: str) -> str:
    """A note."""
    return f"about {name}"

@server.prompt
async def menu(guest: str) -> str:
    return f"Cook for {guest}."
'''


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    place = tmp_path / f"kitchen_{tmp_path.name}.py"
    place.write_text(SERVER)
    monkeypatch.syspath_prepend(str(tmp_path))
    return str(place)


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def run_json(*words: str) -> Any:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


# Commands


def test_inspect_shows_every_component_with_its_schema(server: str) -> None:
    result = run("inspect", server)
    assert result.exit_code == 0, result.output
    for part in (
        "kitchen 2 (2026-07-28)",
        "tools (7)",
        "a: integer",
        "b: number = 1.5",
        "note://{name}",
        "A note.",
        "menu",
        "guest: string",
    ):
        assert part in result.stdout
    found = run_json("inspect", server)
    assert found["server"] == {"name": "kitchen", "version": "2"}
    assert [tool["name"] for tool in found["tools"]] == [
        "add",
        "fail",
        "order",
        "register",
        "slow",
        "publish",
        "picture",
    ]


LONG = "It is a long description " * 6 + "with an end."


def test_inspect_shows_the_whole_text_of_a_long_description(server: str) -> None:
    Path(server).write_text(SERVER.replace("Add numbers.", LONG))
    assert LONG in run("inspect", server).stdout


def test_inspect_breaks_long_lines_in_a_terminal(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(server).write_text(SERVER.replace("Add numbers.", LONG))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", run("inspect", server).stdout)
    assert max(map(len, shown.splitlines())) <= 60
    words = re.sub(r"[│├└─\s]+", " ", shown)
    assert LONG in words


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
def test_call_takes_arguments_by_the_schema(server: str, protocol: str) -> None:
    result = run("call", server, "add", "a=1", 'tags=["x"]', "loud=yes", "--protocol", protocol)
    assert (result.exit_code, result.stdout) == (0, "2.5 ['x'] True\n")
    found = run_json("call", server, "add", "a=2", "b:=3")
    assert found["structuredContent"] == {"result": "5.0 None False"}


def test_a_failed_tool_has_exit_status_one_and_no_control_characters(server: str) -> None:
    result = run("call", server, "fail")
    assert result.exit_code == 1
    assert result.stderr == "burnt �[31m\n"


def test_the_error_of_a_tool_goes_to_standard_error_and_its_json_to_standard_output(server: str) -> None:
    failed = run("call", server, "fail")
    assert (failed.stdout, "burnt" in failed.stderr) == ("", True)
    failed = run("call", server, "fail", "--json")
    assert (json.loads(failed.stdout)["isError"], failed.stderr) == (True, "")


@pytest.mark.parametrize("protocol", ["auto", "sessions", "sessionless"])
@pytest.mark.parametrize("task", ["", 'task="optional"', 'task="required"'])
def test_log_messages_go_to_standard_error_in_both_eras(tmp_path: Path, protocol: str, task: str) -> None:
    (tmp_path / "talks.py").write_text(TALKS.replace("TASK", task))
    result = run("call", str(tmp_path / "talks.py"), "talk", "--protocol", protocol)
    assert (result.exit_code, result.stdout) == (0, "done\n")
    # A task has no log messages.
    expected = "" if "required" in task and protocol != "sessions" else 'info: stirring\nwarning: {"hot":1}\n'
    assert result.stderr == expected


TALKS = """
from limpet import Context, Server, Settings, Times

server = Server("talks", settings=Settings(times=Times(task_poll=0.05)))

@server.tool(TASK)
async def talk(ctx: Context) -> str:
    await ctx.debug("not shown")
    await ctx.info("stirring")
    await ctx.warning({"hot": 1})
    return "done"
"""


def test_media_is_described(server: str) -> None:
    assert run("call", server, "picture").stdout == "[image image/png, 5 bytes]\n"


def test_progress_does_not_reach_standard_output(server: str) -> None:
    result = run("call", server, "slow")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("protocol", ["sessions", "sessionless"])
def test_a_terminal_shows_the_wait_for_a_call_that_is_handed_over(
    tmp_path: Path, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(bar, "QUIET_SECONDS", 0.0)
    (tmp_path / "works.py").write_text(WORKS)
    result = run("call", str(tmp_path / "works.py"), "report", "--protocol", protocol)
    assert (result.exit_code, result.stdout) == (0, "done\n")
    assert "waiting for report" in result.stderr
    assert "ticket" not in result.stderr


WORKS = """
import asyncio
from limpet import Server
from limpet.ops.waits import live_state

server = Server("works", hand_over=0.1)

@server.tool
async def report() -> str:
    while "handed over" not in map(live_state, server.engine.live_exchanges()):
        await asyncio.sleep(0.01)
    return "done"
"""


def test_read_and_prompt(server: str) -> None:
    assert run("read", server, "note://soup", "note://stew").stdout == "about soup\nabout stew\n"
    assert run_json("read", server, "note://soup")[0]["text"] == "about soup"
    assert run("prompt", server, "menu", "guest=Ada").stdout == "user\nCook for Ada.\n"
    assert run("read", server, "none://x").exit_code == 1


def test_a_program_is_used_without_a_target(server: str) -> None:
    program = Path(server)
    program.write_text(SERVER + "\nserver.run()\n")
    assert run("call", "add", "a=1", "--", sys.executable, str(program)).stdout == "2.5 None False\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("call",), "TOOL is missing. Use: limpet call TARGET TOOL key=value…"),
        (
            ("call", "{server}"),
            "TOOL is missing; limpet inspect {server} lists them. Use: limpet call",
        ),
        (
            ("read", "{server}"),
            "URI is missing; limpet inspect {server} lists them. Use: limpet read TARGET URI",
        ),
        (
            ("call", "{server}", "nothing"),
            "has no tool 'nothing'; it has: add, fail, order, register, slow, publish, picture",
        ),
        (("call", "{server}", "add"), "add needs a=<integer>"),
        (("call", "{server}", "add", "a=x"), "a=x: a must be an integer"),
        (("call", "{server}", "add", "a=1", "loud=loud"), "loud=loud: loud must be true or false"),
        (("call", "{server}", "add", "a=1", "tags=x"), "tags=x: tags must be a list as JSON or null"),
        (("call", "{server}", "add", "a=1", "c=2"), "add has no argument 'c'; it has a, b, tags, loud"),
        (("prompt", "{server}", "menu"), "menu needs guest=<string>"),
        (("prompt", "{server}", "none"), "no prompt 'none'; it has: menu"),
        (("inspect", "{server}", "more"), "'more' is too many"),
        (("inspect", "{server}", "--header", "x"), "--header takes NAME=VALUE"),
        (("inspect",), "the target is missing"),
        (("inspect", "none.py"), "there is no file none.py"),
    ],
)
def test_wrong_words_are_explained(server: str, words: tuple[str, ...], message: str) -> None:
    result = run(*(word.format(server=server) for word in words))
    assert isinstance(result.exception, ConfigError)
    assert message.format(server=server) in str(result.exception)


def test_a_server_that_cannot_be_reached_has_exit_status_one() -> None:
    result = run("inspect", "http://127.0.0.1:9/mcp", "--timeout", "5")
    assert result.exit_code == 1
    assert "limpet: " in result.stderr


def test_a_file_with_several_servers_needs_a_choice(server: str, tmp_path: Path) -> None:
    file = tmp_path / "limpet.toml"
    file.write_text(f'[servers.a]\nobject = "{server}"\n[servers.b]\nobject = "{server}"\n')
    result = run("inspect", str(file))
    assert "choose one server of the file with --only NAME; it has a, b" in str(result.exception)
    assert run("call", str(file), "add", "a=1", "--only", "a").stdout == "2.5 None False\n"


@pytest.mark.parametrize(
    "words", ["", "serve", "call", "check", "demo", "install", "sessions", "sessions ls"]
)
def test_help_shows_a_switch_without_a_type(words: str) -> None:
    shown = run(*words.split(), "--help").output
    assert "--help" in shown
    assert "<bool>" not in shown


# Questions


class Tty(io.StringIO):
    """Standard input of a person."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed_in", "answer"),
    [
        ("soup\n3\n", "accept dish='soup' portions=3"),
        ("pie\nstew\n\n", "accept dish='stew' portions=2"),
        ("\nsoup\nmany\n1\n", "accept dish='soup' portions=1"),
        (":decline\n", "decline None"),
        ("soup\n:cancel\n", "cancel None"),
        ("", "cancel None"),
    ],
)
def test_a_form_is_asked_in_the_terminal(
    server: str,
    typed_in: str,
    answer: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", Tty(typed_in))
    with pytest.raises(SystemExit) as ended:
        app(["call", server, "order"])
    assert not ended.value.code
    shown = capfd.readouterr()
    assert shown.out == f"{answer}\n"
    assert "What would you like?" in shown.err


@pytest.mark.parametrize(("typed_in", "answer"), [("y\n", "publish=True"), ("no\n", "publish=False")])
def test_the_bar_gives_way_to_a_question(
    server: str,
    typed_in: str,
    answer: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """While rich shows a bar it takes over standard error: the field would end with a line end and a new bar."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys, "stdin", Tty(typed_in))
    with pytest.raises(SystemExit):
        app(["call", server, "publish"])
    shown = capfd.readouterr()
    assert shown.out == f"accept {answer}\n"
    before, _, after = shown.err.partition(
        "Publish it?\n(:decline declines, :cancel cancels)\n  Publish (yes|no): "
    )
    assert " 50 %" in before
    assert "100 %" in after
    assert not after.startswith("\n")


def asked_on_a_terminal(server: str, tool: str) -> tuple[subprocess.Popen[bytes], int, bytes]:
    """Start a call in a real terminal; return the process, the terminal, and its output up to the first field."""
    terminal, its_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "limpet", "call", server, tool],
        stdin=its_end,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(its_end)
    assert process.stderr is not None
    said = b""
    while not said.endswith(b": "):
        part = os.read(process.stderr.fileno(), 1000)
        assert part, said
        said += part
    return process, terminal, said


def test_ctrl_c_at_a_question_ends_the_command_at_once(server: str) -> None:
    process, terminal, _ = asked_on_a_terminal(server, "order")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=BOUND)
    os.close(terminal)
    assert process.returncode == 130


def test_lines_that_are_pasted_together_answer_one_field_each_and_nothing_of_a_server_changes_the_terminal(
    server: str,
) -> None:
    process, terminal, said = asked_on_a_terminal(server, "register")
    assert b"\x1b" not in said, "the message of the server has control characters"
    os.write(terminal, b"@alice\nyes\n")
    out, _ = process.communicate(timeout=BOUND)
    os.close(terminal)
    assert out == b"{'user name=': '@alice', 'ok': True}\n", "a field is not the name of a file"


def test_without_a_terminal_a_form_is_declined(server: str) -> None:
    assert run("call", server, "order").stdout == "decline None\n"


# Arguments


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "3", "3"),
        ({"type": "integer"}, "3", 3),
        ({"type": "number"}, "3", 3),
        ({"type": "boolean"}, "off", False),
        ({"type": "array"}, "[1]", [1]),
        ({"type": "object"}, '{"a":1}', {"a": 1}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", None),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "7", 7),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "[7]", "[7]"),
        ({"enum": ["a", "b"]}, "a", "a"),
        ({"enum": [1, 2, "x"]}, "2", 2),
        ({"enum": [1, None, "2"]}, "2", "2"),
        ({"enum": [1, None, True]}, "null", None),
        ({"type": "integer", "enum": [1, 2]}, "1", 1),
        ({}, "word", "word"),
        ({}, "7", 7),
        ({"$ref": "#/$defs/Kind"}, "a", "a"),
    ],
)
def test_a_value_has_the_type_of_its_schema(schema: dict[str, Any], text: str, value: object) -> None:
    whole = {"properties": {"x": schema}, "$defs": {"Kind": {"enum": ["a", "b"], "type": "string"}}}
    assert typed([f"x={text}"], whole, "t") == {"x": value}


@async_test
async def test_an_error_after_ctrl_c_is_not_the_result_of_the_command(server: str) -> None:
    waits = asyncio.Event()

    async def fails_when_cancelled(_: Client, __: list[str]) -> int:
        waits.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise Broken("the connection broke") from None
        return 0

    client = client_of(server, (), Options(), None)
    task = asyncio.create_task(_use_client(client, fails_when_cancelled, []))
    await waits.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_word_that_is_not_utf_8_is_refused(server: str) -> None:
    told = run("call", server, "order", "x=\udcff")
    assert str(told.exception) == "'x=\\udcff' is not a text in UTF-8"


def test_a_value_may_come_from_a_file(tmp_path: Path) -> None:
    place = tmp_path / "text"
    place.write_text("from a file\n")
    schema = {"properties": {"x": {"type": "string"}}}
    assert typed([f"x=@{place}"], schema, "t") == {"x": "from a file\n"}
    with pytest.raises(ConfigError, match="cannot be read"):
        typed(["x=@/none"], schema, "t")
    place.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not a text in UTF-8"):
        typed([f"x=@{place}"], schema, "t")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x"], "write key=value"),
        (["x=a", "x=b"], "given twice"),
        (["x=c"], "must be one of a, b"),
        (["x:=c"], "x:=c is not JSON"),
        ([f"x:={'[' * 100_000}"], "is not JSON: maximum recursion depth"),
    ],
)
def test_wrong_arguments_are_explained(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        typed(words, {"properties": {"x": {"enum": ["a", "b"], "type": "string"}}}, "t")


ODD: list[Any] = [
    {"type": "object", "properties": [1, 2]},
    {"type": "object", "properties": {"a": {"type": "string"}}, "required": 5},
    {"type": "object", "properties": {"a": {"type": [{}, 1, "string"]}}},
    {"type": "object", "properties": {"a": {"type": 7, "enum": 5}}},
    {"type": "object", "properties": {"a": {"anyOf": [1, {"type": [[]]}]}}},
    {"type": "object", "properties": {"a": {"$ref": "#/properties/a", "items": 3}, "b": 7}},
    {"type": "object", "properties": {"a\x1b[31m": {"description": {"x": 1}}}, "required": ["a\x1b[31m"]},
]


@pytest.mark.parametrize("schema", ODD)
def test_a_schema_that_is_not_valid_is_shown_and_used_as_far_as_it_goes(schema: dict[str, Any]) -> None:
    console = Console(file=io.StringIO(), width=200)
    tool = Tool(name="odd", input_schema=schema)
    console.print(tree("server", [tool], [], [], []))
    if schema is ODD[-1]:
        with pytest.raises(ConfigError, match="it has a�"):
            typed(["a=1"], schema, "odd")
    else:
        assert typed(["a=1"], schema, "odd") in ({"a": "1"}, {"a": 1})
