"""Errors of an author's code: one line with the author's file and line, and everything with --traceback."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from limpet import ConfigError, Server, Servers
from limpet.cli.main import _warning, main
from limpet.ops import tracebacks

HEAD = "from limpet import Server\nserver = Server('s')\n"
LIFESPAN = """from limpet import Server
async def lifespan(server):
    raise RuntimeError("no database")
    yield
server = Server("s", lifespan=lifespan)
"""
WRONG = {
    "the name of two tools": (
        f"{HEAD}@server.tool\ndef t() -> int: ...\n@server.tool('t')\ndef u() -> int: ...\n",
        "a.py:5: a tool 't' is registered already at a.py:3; remove it first\n",
    ),
    "a timeout": (
        f"{HEAD}@server.tool(timeout='10s')\ndef t() -> int: ...\n",
        "a.py:3: tool t: a timeout is a number of seconds above 0, not '10s'\n",
    ),
    "a parameter": (
        f"{HEAD}class Thing: ...\n@server.tool\ndef t(x: Thing) -> int: ...\n",
        "a.py:4: a.t: parameter 'x' has a type that JSON cannot carry: Thing is not a pydantic model, ",
    ),
    "a result": (
        f"{HEAD}class Thing: ...\n@server.tool\ndef t() -> Thing: ...\n",
        "a.py:4: a.t: its return type has no JSON schema: Thing is not a pydantic model, ",
    ),
    "a completion": (
        f"{HEAD}server.completion(prompt='x')(lambda: [])\n",
        "a.py:3: a.<lambda> completes the prompt 'x'",
    ),
    "a lifespan": (LIFESPAN, "a.py:3: RuntimeError: no database (--traceback shows everything)\n"),
    "a lifespan that does not yield": (
        LIFESPAN.replace("    yield\n", "").replace("raise RuntimeError", "return str"),
        "a.py:2: a lifespan is an `async def` that yields once, and this one returns coroutine: ",
    ),
    "a lifespan that is not asynchronous": (
        LIFESPAN.replace("async def", "def").replace("raise RuntimeError", "str"),
        "a.py:2: a lifespan is an `async def` that yields once, and this one returns generator: ",
    ),
    "a class": (f"{HEAD}@server.tool\nclass T: ...\n", "a.py:3: a.T is a class; register a function "),
    "an option of annotations": (
        f"{HEAD}@server.tool(read_only=True)\ndef t() -> int: ...\n",
        "a.py:3: a tool has no option 'read_only'; use annotations=ToolAnnotations(read_only_hint=True)\n",
    ),
    "a variable": (
        f"import os\n{HEAD}os.environ['LIMPET_NO_SUCH']\n",
        "a.py cannot be imported: a.py:4: KeyError: 'LIMPET_NO_SUCH' (--traceback shows everything)\n",
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "a", raising=False)
    monkeypatch.setenv(tracebacks.VARIABLE, "")
    yield tmp_path
    sys.modules.pop("a", None)


def ended(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    monkeypatch.setattr(sys, "argv", ["limpet", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize(
    "words", [["serve", "a.py", "--http", "127.0.0.1:0"], ["call", "a.py", "t"]], ids=" ".join
)
def test_an_error_has_one_line_with_the_place_in_the_author_s_code(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fault: str,
    words: list[str],
) -> None:
    source, expected = WRONG[fault]
    (folder / "a.py").write_text(source)
    assert ended(monkeypatch, *words) in (1, 2)
    told = capsys.readouterr().err
    assert told.startswith(f"limpet: {expected}")
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "return 'x'",
            "limpet: a.py:3 returned a wrong value\nWrongResult: tool t: it does not return int: ",
        ),
        ("raise SystemExit(3)", "limpet: a.py:5 raised SystemExit (--traceback shows everything)\n"),
        ("return undefined", "limpet: a.py:5 raised NameError (--traceback shows everything)\n"),
    ],
)
def test_a_call_that_fails_has_the_place_of_its_function(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], body: str, said: str
) -> None:
    (folder / "a.py").write_text(f"{HEAD}@server.tool\nasync def t() -> int:\n    {body}\n")
    monkeypatch.setattr("logging.root.handlers", [])
    assert ended(monkeypatch, "call", "a.py", "t") == 1
    assert capsys.readouterr().err.startswith(said)


def test_a_forgotten_await_has_one_line() -> None:
    text = "coroutine 'Context.info' was never awaited"
    assert _warning(RuntimeWarning(text), RuntimeWarning, "a.py", 5) == (
        f"limpet: a.py:5: RuntimeWarning: {text}: write `await` before the call, in a function that begins "
        "with `async def`\n"
    )
    assert _warning(UserWarning("old"), UserWarning, "a.py", 6) == "limpet: a.py:6: UserWarning: old\n"


def test_traceback_shows_every_frame(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for fault in ("the name of two tools", "a parameter"):
        (folder / "a.py").write_text(WRONG[fault][0])
        ended(monkeypatch, "serve", "a.py", "--traceback")
        assert "registration.py" in capsys.readouterr().err
        sys.modules.pop("a", None)
        monkeypatch.setattr("limpet.cli.target._FILES", {})
    (folder / "a.py").write_text(LIFESPAN)
    monkeypatch.setattr(sys, "argv", ["limpet", "call", "a.py", "t", "--traceback"])
    with pytest.raises(RuntimeError, match="no database"):
        main()


def test_a_fault_of_limpet_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr("limpet.cli.words.read", broken)
    monkeypatch.setattr(sys, "argv", ["limpet", "serve"])
    # The function above is in a file of the tests: it is the author's.
    with pytest.raises(SystemExit):
        main()
    monkeypatch.setattr(tracebacks, "_BETWEEN", (*tracebacks._BETWEEN, __file__))
    with pytest.raises(KeyError):
        main()


def test_a_program_sees_its_own_frames_and_run(folder: Path) -> None:
    spaces: dict[str, object] = {}
    (folder / "a.py").write_text(LIFESPAN)
    exec(compile(LIFESPAN, str(folder / "a.py"), "exec"), spaces)  # noqa: S102 - the program of an author
    server = spaces["server"]
    assert isinstance(server, Server)
    with pytest.raises(RuntimeError) as raised:
        server.run("http", port=0)
    assert [Path(str(entry.path)).name for entry in raised.traceback][1:] == ["served.py", "a.py"]
    with pytest.raises(RuntimeError) as raised:
        Servers({"/mcp": server}).run(port=0)
    assert [Path(str(entry.path)).name for entry in raised.traceback][1:] == ["servers.py", "a.py"]


def test_run_inside_a_running_loop_says_what_to_use() -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match=r"one runs here already: call run\(\) outside of async code"):
            Server("s").run("http")

    asyncio.run(main())


def test_a_log_line_has_the_frames_of_the_author_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async def inner() -> None:
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad") as raised:
        asyncio.run(inner())
    shown = tracebacks.text(raised.value)
    assert "in inner" in shown
    assert "runners.py" not in shown
    monkeypatch.setenv(tracebacks.VARIABLE, "1")
    assert "runners.py" in tracebacks.text(raised.value)
