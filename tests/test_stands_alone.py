"""The repository stands alone: no file reads or names a place outside of it, and `make test` skips no test."""

import gzip
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PARENTS: Final = re.compile(r"__file__\)(?:\.resolve\(\))?\.parents\[(\d+)\]")
RELATIVE: Final = re.compile(r"""(?<=["'`(\s=])((?:\.\./)+[\w.-]+)""")
MACHINE: Final = re.compile(r"(?<![\w.:/])/(?:work|home|root|Users|mnt)/\w")
PAGE: Final = re.compile(r"(?<![\w%/.-])([\w./-]*[\w-]\.md)\b")
MADE_UP: Final = {"notes.md"}
"""Documents that a test makes up."""


@cache
def tracked() -> list[Path]:
    """Return the path of every file of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return [Path(name) for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


@cache
def texts() -> dict[Path, str]:
    """Return every file of the repository that is text, by its path in it."""
    found: dict[Path, str] = {}
    for path in tracked():
        try:
            found[path] = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    return found


def leaves(folder: Path, relative: str) -> bool:
    """True if a path, read from one of the repository's folders, leads out of the repository."""
    return os.path.normpath(folder / relative).startswith("..")


def strays(path: Path, text: str) -> Iterator[str]:
    """Yield the places outside that a file names."""
    for match in PARENTS.finditer(text):
        if int(match[1]) > len(path.parts) - 1:
            yield f"{match[0]} is above the repository"
    for match in RELATIVE.finditer(text):
        if leaves(path.parent, match[1]):
            yield f"{match[1]} is outside of the repository"
    for match in MACHINE.finditer(text):
        yield f"{match[0]}… is a path of some machine"
    names = {item.name for item in texts()}
    for match in PAGE.finditer(text):
        if Path(match[1]).name not in names | MADE_UP:
            yield f"{match[1]} is no document of this repository"


def test_no_file_reads_or_names_a_path_outside_of_the_repository() -> None:
    found = [
        f"{path}: {stray}"
        for path, text in texts().items()
        if path != Path("tests/test_stands_alone.py")
        for stray in strays(path, text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("tests/schema.py", 'Path(__file__).parents[2] / "beside"'),
        ("tests/unit/server/peer.py", "Path(__file__).resolve().parents[4]"),
        ("Makefile", "cp ../beside/spec ."),
        ("docs/a.md", "[the design](../../beside/x.txt)"),
        ("docs/a.md", "read /home/ada/x.txt"),
        ("README.md", "the laws are in elsewhere.md"),
        ("tests/x.py", "# see `outside-notes.md`"),
    ],
)
def test_a_stray_is_found(path: str, text: str) -> None:
    assert list(strays(Path(path), text))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("tests/unit/server/peer.py", "Path(__file__).parents[3]"),
        ("docs/decisions/1.md", "[speed](../speed.md)"),
        ("tests/x.py", '"file:///home/ada"'),
        ("tests/x.py", '"file:///a/../../etc/passwd"'),
    ],
)
def test_a_path_inside_of_the_repository_is_accepted(path: str, text: str) -> None:
    assert list(strays(Path(path), text)) == []


# Skips

SKIPPING: Final = """
import pytest

@pytest.mark.skip(reason="by a mark")
def test_by_a_mark(): ...

def test_inside():
    pytest.skip("inside")

@pytest.mark.xfail(reason="known", strict=True)
def test_known():
    assert False

def test_good(): ...
"""
MODULE: Final = 'import pytest\npytest.skip("the whole module", allow_module_level=True)\n'


def run(folder: Path, forbidden: str) -> str:
    """Run pytest with the guard alone; return its output."""
    (folder / "test_skipping.py").write_text(SKIPPING)
    (folder / "test_module.py").write_text(MODULE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "tests.no_skips", "-p", "no:cacheprovider",
         "-c", os.devnull, "--rootdir", str(folder), "--continue-on-collection-errors", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_SKIPS": forbidden},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    return done.stdout


def test_a_skip_fails_where_skips_are_forbidden(tmp_path: Path) -> None:
    told = run(tmp_path, "1")
    assert "1 failed, 1 passed, 1 xfailed, 2 errors" in told
    assert "by a mark\n`make test` skips no test" in told
    assert "the whole module" in told


def test_a_skip_in_another_project_stays_a_skip(tmp_path: Path) -> None:
    assert "1 passed, 3 skipped, 1 xfailed" in run(tmp_path, "")


def test_make_test_forbids_skips() -> None:
    assert "test: export NO_SKIPS = 1" in (ROOT / "Makefile").read_text().splitlines()


# The name


def test_the_name_before_the_first_release_is_in_one_line_of_the_changelog_only() -> None:
    former = "hold" + "fast"
    named = [path for path in tracked() if former in str(path).lower()]
    texts_and_archives = texts() | {
        path: gzip.decompress((ROOT / path).read_bytes()).decode()
        for path in tracked()
        if path.suffix == ".gz"
    }
    lines = [
        f"{path}: {line}"
        for path, text in texts_and_archives.items()
        for line in text.splitlines()
        if former in line.lower()
    ]
    assert named == []
    assert len(lines) == 1
    assert lines[0].startswith("CHANGELOG.md: ")
