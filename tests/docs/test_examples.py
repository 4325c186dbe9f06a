"""The documents' own examples: every block runs, in the order of its page, in an empty folder; every command line exists.

- ```python: runs in the module of its page.
- ```python weather.py, ```toml limpet.toml: a file, written into the folder.
- ```console: commands and their output (`tests/docs/terminal.py`).

A block that cannot run says why: ```python no-run: it waits for a browser.
"""

import ast
import asyncio
import inspect
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

import pytest
import typer.main

from limpet import Server
from limpet.cli.whole import app
from limpet.protocol.hand_over import UNKNOWN_TICKET
from tests.docs.calling import failures
from tests.docs.terminal import Terminal, commands_of, pattern_of

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/how-to/*.md")])
EVERYTHING: Final = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE: Final = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
SKIPPED: Final = re.compile(r"\w+ no-run: \S.*")
FILE: Final = re.compile(r"\w+ ([\w/-]+(?:\.\w+)+)")
CONSOLE: Final = ("console", "console fails", "console running")


class Block(NamedTuple):
    """A fenced block: the line of its fence, its text, and the line it starts on."""

    info: str
    text: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in FENCE.finditer(text):
        yield Block(found[1].strip(), found[2], text.count("\n", 0, found.start(2)) + 1)


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def run(block: Block, page: Path, module: ModuleType) -> None:
    """Run a block in its page's module; names of files and lines in a traceback are the page's."""
    tree = ast.parse("\n" * (block.line - 1) + block.text, named(page))
    code = compile(tree, named(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    outcome = eval(code, vars(module))  # noqa: S307 - our own documents
    if inspect.iscoroutine(outcome):
        asyncio.run(outcome)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_block_runs(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = ModuleType(f"page_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)
    with closing(Terminal(tmp_path)) as terminal:
        for block in blocks(page):
            if block.info == "python":
                run(block, page, module)
            elif file := FILE.fullmatch(block.info):
                Path(file[1]).parent.mkdir(parents=True, exist_ok=True)
                Path(file[1]).write_text(block.text)
            elif block.info in CONSOLE:
                terminal.show(block.info, block.text)
    modules = [module, *map(loaded, sorted(tmp_path.glob("*.py")))]
    assert asyncio.run(failing_tools(modules)) == FAILING.get(named(page), {})


FAILING: Final = {
    "docs/testing.md": {"buy": "RuntimeError: no soap left"},
    "docs/how-to/slow-calls.md": {"collect": UNKNOWN_TICKET},
}
"""By page and tool: the error of a tool that fails on purpose."""


def loaded(file: Path) -> ModuleType:
    """Return the module of a file if it makes a server; else an empty one. A program calls its tools itself."""
    module = ModuleType(file.stem)
    if "= Server(" in file.read_text() and "asyncio.run(main" not in file.read_text():
        exec(compile(file.read_text(), file, "exec"), vars(module))  # noqa: S102 - our own documents
    return module


async def failing_tools(modules: list[ModuleType]) -> dict[str, str]:
    """Call each tool of the servers of a page, and return the errors by tool."""
    found = dict[str, str]()
    for server in [one for module in modules for one in vars(module).values() if isinstance(one, Server)]:
        found |= await failures(server)
    return found


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_block_that_does_not_run_says_why(page: Path) -> None:
    unmarked = [
        block.info
        for block in blocks(page)
        if block.info.startswith(("py", "console")) and block.info not in ("python", *CONSOLE)
    ]
    assert [info for info in unmarked if not SKIPPED.fullmatch(info) and not FILE.fullmatch(info)] == []


def test_a_terminal_finds_an_output_and_an_exit_status_that_differ_from_the_page(tmp_path: Path) -> None:
    with closing(Terminal(tmp_path)) as terminal:
        terminal.show("console", "$ printf 'a\\nb c\\n' && \\\n  true\na\n…c\n$ true\n")
        terminal.show("console running", "$ printf 'a\\nb\\n'; sleep 60\na\n")
        terminal.show("console fails", "$ false\n")
        for info, text in (
            ("console", "$ echo a\nb\n"),
            ("console", "$ false\n"),
            ("console fails", "$ true\n"),
            ("console running", "$ echo a\nb\n"),
        ):
            with pytest.raises(AssertionError):
                terminal.show(info, text)


def test_three_dots_stand_for_any_text_or_any_lines() -> None:
    assert pattern_of("a\n…\nd\n").fullmatch("a\nb\nc\nd\n")
    assert pattern_of("a … d\n").fullmatch("a b c d\n")
    assert not pattern_of("a … d\n").fullmatch("a b\nc d\n")
    assert list(commands_of("$ a \\\n  b\nx\n$ c\n")) == [("a \\\n  b\n", "x\n"), ("c\n", "")]


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the `limpet …` command lines of a page's blocks, without comments."""
    for block in blocks(page):
        prompt = {"sh": "", "console": "$ "}.get(block.info.split(" ")[0])
        if prompt is not None:
            for line in block.text.replace("\\\n", " ").splitlines():
                if line.startswith(f"{prompt}limpet "):
                    yield shlex.split(line.removeprefix(prompt), comments=True)[1:]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_line_has_only_options_that_exist(page: Path) -> None:
    group: Any = typer.main.get_command(app)
    for words in commands(page):
        command = group.commands.get(words[0]) if not words[0].startswith("-") else group
        assert command is not None, f"limpet has no command {words[0]!r}"
        if words[1:] and words[1] in getattr(command, "commands", ()):
            command = command.commands[words[1]]
        known = {
            name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)
        }
        # The words after `--` are the command of another program.
        own = words[: words.index("--")] if "--" in words else words
        asked = {word.partition("=")[0] for word in own if word.startswith("--")}
        assert asked <= known, f"limpet {words[0]} has no option {', '.join(sorted(asked - known))}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_command_line_for_other_machines_is_not_refused(page: Path) -> None:
    for words in commands(page):
        address = words[words.index("--http") + 1] if "--http" in words else "127.0.0.1:8000"
        if not address.startswith(("127.0.0.1:", "unix:")):
            assert {"--verifier", "--allow-anonymous"} & {*words}, shlex.join(words)
            assert {"--allow-host", "--public-url"} & {*words}, shlex.join(words)


@pytest.mark.parametrize("page", EVERYTHING, ids=named)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", EVERYTHING, ids=named)
def test_every_link_to_a_section_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", page.read_text())
    targets = [(page.parent / file if file else page, section) for file, section in links]
    assert [f"{file}#{section}" for file, section in targets if section not in sections(file)] == []


def sections(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_and_example_is_reached_from_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/how-to/*.md"), *ROOT.glob("docs/decisions/*.md")]
    examples = {f"../examples/{path.name}" for path in (ROOT / "examples").glob("*.*")}
    names = {path.relative_to(ROOT / "docs").as_posix() for path in pages} - {"index.md"} | examples
    assert names - set(LINK.findall(index)) == set()


FROM_AN_INDEX: Final = re.compile(r"pip install(?:(?!`|\n).)*?\s['\"]?limpet\b(?!-)")
"""`pip install limpet` and `pip install 'limpet[redis]'`."""


def test_no_command_installs_the_package_of_another_project() -> None:
    folders = ("docs", "deploy", "src", "examples")
    files = [ROOT / "README.md", *(path for name in folders for path in (ROOT / name).rglob("*"))]
    texts = {
        path: path.read_text(errors="ignore") for path in files if path.is_file() and path.suffix != ".pyc"
    }
    found = {named(path): FROM_AN_INDEX.findall(text) for path, text in texts.items()}
    warning = "Do not run `pip install limpet`"
    assert {page: lines for page, lines in found.items() if lines and warning not in texts[ROOT / page]} == {}
    assert FROM_AN_INDEX.search("RUN pip install --no-cache-dir 'limpet[redis,auth]'")
