"""Valid targets of `limpet serve`, and the errors for other ones."""

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from limpet import Server
from limpet.cli.target import load, load_verifier, split
from limpet.errors import ConfigError

SMALL: Final = Path(__file__).parents[1] / "fronts" / "fixtures" / "small.py"


@pytest.mark.parametrize(
    ("target", "place", "name"),
    [
        ("a/b.py", "a/b.py", "server"),
        ("a/b.py:mine", "a/b.py", "mine"),
        ("package.module", "package.module", "server"),
        ("package.module:mine", "package.module", "mine"),
        ("C:\\servers\\mine.py", "C:\\servers\\mine.py", "server"),
        ("C:\\servers\\mine.py:other", "C:\\servers\\mine.py", "other"),
    ],
)
def test_a_target_is_a_place_and_a_name(target: str, place: str, name: str) -> None:
    assert split(target) == (place, name)


@pytest.fixture(autouse=True)
def _own_imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let a loaded target leave nothing behind."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)


def test_a_file_gives_its_server() -> None:
    server = load(f"{SMALL}:server")
    assert isinstance(server, Server)
    assert server.name == "small"


def test_a_module_gives_its_server(tmp_path: Path) -> None:
    (tmp_path / "a_module_of_mine.py").write_text("import limpet\nmine = limpet.Server('mine')\n")
    assert load("a_module_of_mine:mine").name == "mine"


def test_a_file_can_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "beside_it.py").write_text("NAME = 'neighbour'\n")
    (tmp_path / "sub" / "imports_it.py").write_text(
        "from beside_it import NAME\nfrom limpet import Server\nserver = Server(NAME)\n"
    )
    assert load("sub/imports_it.py").name == "neighbour"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nowhere.py", "there is no file nowhere.py"),
        ("no_such_module:server", "does not find the module no_such_module"),
        ("no_such.module", "does not find the module no_such.module"),
        (":server", "names no server"),
        ("../nothing.toml", "names no server"),
        ("./small", "names no server"),
        ("directory/small:server", "names no server"),
        ("a.py:1x", "names no server"),
        (f"{SMALL}:missing", f"has no object 'missing'; it has: {SMALL}:server"),
        (
            f"{SMALL}:nothing",
            "is of type object, not limpet.Server, and not FastMCP or lowlevel.Server of mcp 1",
        ),
    ],
)
def test_a_wrong_target_is_refused_with_a_right_example(target: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(target)
    assert said in str(caught.value)


def test_an_error_in_the_authors_code_shows_the_authors_frames_and_no_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "helps.py").write_text("def half(n):\n    return n / 0\n")
    (tmp_path / "broken_inside.py").write_text("import surely_not_installed\n")
    (tmp_path / "fails.py").write_text(
        "import helps\ntry:\n    helps.half(1)\nexcept ZeroDivisionError as e:\n    raise OSError('no') from e\n"
    )
    (tmp_path / "misspelt.py").write_text("def server(:\n")
    (tmp_path / "camel.py").write_text(
        "from limpet.types import ToolAnnotations\nToolAnnotations(readOnlyHint=True)\n"
    )
    missing = "broken_inside.py:1: ModuleNotFoundError: No module named 'surely_not_installed'"
    for target, said in (
        ("broken_inside:server", f"{missing} (--traceback shows everything)"),
        ("broken_inside.py", f"{missing} (--traceback shows everything)"),
        ("fails", "fails.py:5: OSError: no (--traceback shows everything)"),
        ("fails.py", "fails.py:5: OSError: no (--traceback shows everything)"),
        (
            "camel.py",
            "camel.py:2: TypeError: Unexpected keyword argument 'readOnlyHint' (in Python: read_only_hint)",
        ),
    ):
        with pytest.raises(SystemExit) as ended:
            load(target)
        assert ended.value.code == 1
        place = target.removesuffix(":server")
        first, *rest = capsys.readouterr().err.splitlines()
        assert first == f"limpet: {place} cannot be imported: {said}"
        program = f"limpet serve -- python {place if '.py' in place else f'-m {place}'}"
        assert [program in line for line in rest] == ([True] if "ModuleNotFoundError" in said else [])
    with pytest.raises(SystemExit):
        load("misspelt.py")
    told = capsys.readouterr().err
    assert told.startswith("limpet: misspelt.py cannot be imported\n  File ")
    assert told.endswith("    def server(:\n               ^\nSyntaxError: invalid syntax\n")


def test_a_function_makes_the_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "makes.py").write_text(
        "from limpet import Server\n"
        "def create_server(): return Server('made')\n"
        "async def later(name='later'): return Server(name)\n"
        "def needs(name): return Server(name)\n"
        "def wrong(): return 3\n"
        "def fails(): raise OSError('no')\n"
    )
    place = f"{tmp_path}/makes.py"
    assert [load(f"{place}:{name}").name for name in ("create_server", "later")] == ["made", "later"]
    with pytest.raises(ConfigError, match="is a function that needs name; a function that makes a server"):
        load(f"{place}:needs")
    with pytest.raises(ConfigError, match=r"makes\.py:wrong is of type int, not limpet\.Server"):
        load(f"{place}:wrong")
    with pytest.raises(SystemExit):
        load(f"{place}:fails")
    assert "makes.py:6: OSError: no" in capsys.readouterr().err


def test_two_objects_of_one_file_come_from_one_module(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(
        "from limpet import Server\na, b = Server('a'), Server('b')\nasync def verify(token): return a\n"
    )
    first = load("two.py:a", str(tmp_path))
    assert load(f"{tmp_path}/two.py:a") is first
    verifier: Any = load_verifier("two.py:verify")
    assert asyncio.run(verifier("")) is first


def test_relative_targets_begin_at_the_given_directory(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "in_a_file.py").write_text("from limpet import Server\nserver = Server('file')\n")
    (tmp_path / "deep" / "in_a_module.py").write_text(
        "from limpet import Server\nserver = Server('module')\nasync def verify(token): ...\n"
    )
    deep = str(tmp_path / "deep")
    assert load("in_a_file.py", deep).name == "file"
    assert load("in_a_module", deep).name == "module"
    assert callable(load_verifier("in_a_module:verify", deep))
    with pytest.raises(ConfigError, match=f"the module in_no_module .also not in {deep}, {tmp_path}"):
        load("in_no_module", deep)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("verify", "names no function: write file.py:name"),
        (f"{SMALL}:nothing", "has no function 'nothing'"),
        ("nowhere.py:verify", "the verifier nowhere.py:verify: there is no file nowhere.py"),
    ],
)
def test_a_wrong_verifier_is_refused(target: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_verifier(target)
    assert said in str(caught.value)
