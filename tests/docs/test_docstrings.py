"""The source names its own files, classes and functions in prose: what it names exists."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "src" / "limpet"
_QUOTED: Final = re.compile(r"`([^`\n]+)`")
_FILE: Final = re.compile(r"[\w/]+\.(?:py|lua|sql)")
_MEMBER: Final = re.compile(r"([A-Z]\w+)\.(\w+)")
_PRIVATE: Final = re.compile(r"_[a-z]\w*")
_CLASS: Final = re.compile(r"^class (\w+):", re.MULTILINE)
"""A class without a base: all its members are in one file."""
_META: Final = "_meta"
"""A member of messages."""


def missing(sources: Mapping[str, str]) -> Iterator[str]:
    """Yield what the prose names and no source has, by files below the package and their texts."""
    code = {file: _QUOTED.sub("", text) for file, text in sources.items()}
    words = {word for text in code.values() for word in re.findall(r"\w+", text)}
    homes: dict[str, str] = defaultdict(str)
    for text in code.values():
        for name in _CLASS.findall(text):
            homes[name] += text
    for file, text in sources.items():
        for quoted in _QUOTED.findall(text):
            if _FILE.fullmatch(quoted):
                is_there = (ROOT / quoted).exists() or any(
                    f"/{one}".endswith(f"/{quoted}") for one in sources
                )
            elif member := _MEMBER.fullmatch(quoted):
                is_there = member[1] not in homes or member[2] in re.findall(r"\w+", homes[member[1]])
            else:
                is_there = not _PRIVATE.fullmatch(quoted) or quoted in words or quoted == _META
            if not is_there:
                yield f"{file}: `{quoted}`"


def test_what_the_source_names_exists() -> None:
    files = [path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".lua", ".sql"}]
    assert list(missing({str(path.relative_to(PACKAGE)): path.read_text() for path in files})) == []


def test_a_name_that_does_not_exist_is_found() -> None:
    one = '"""See `two.py`, `gone.py`, `Two.run`, `Two.stop`, `_open`, `_close`, `Other.thing`."""'
    two = "class Two:\n    def run(self): ...\ndef _open(): ..."
    assert list(missing({"a/one.py": one, "b/two.py": two})) == [
        "a/one.py: `gone.py`",
        "a/one.py: `Two.stop`",
        "a/one.py: `_close`",
    ]
