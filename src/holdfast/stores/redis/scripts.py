"""The scripts: files of sections, each with the preludes it needs. One script is one atomic step.

    --## settle: session log !allow-oom

begins the script `settle`, which is preceded by the files session.lua and log.lua. The text before the first section of a
file is for human readers, and comments are not sent. A script that frees more than it takes (`allow-oom`) runs
even when Redis is out of memory; any other is then refused before it has changed anything. A script that changes nothing
declares it (`no-writes`).

**Functions cost time.** Redis runs all of a script's text each time, so each definition of a function costs every call, used
or not: about forty of them were a third of a plain call. So a script gets the statements of its preludes, and of their functions
those that it uses. A function that is needed in a rare case only is defined where that case begins:

    if c.q then
      --+ forget_asks
      forget_asks(stream, c)
    end

The line `--+` becomes the definitions of the named functions, and of the functions that these need. They hold until the end of
the block, which is the first line with a smaller indentation.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha1
from importlib.resources import files
from textwrap import indent
from typing import Final, NamedTuple

SECTIONS: Final = ("sessions", "exchanges", "streams", "turns", "asks", "state", "index", "replicas")
_SECTION: Final = "--## "
_HERE: Final = "--+ "
_FUNCTION: Final = re.compile(r"^(local function (?:.* end$|.*\n(?:.*\n)*?end$)\n?)", re.MULTILINE)
"""A function of a prelude: from the beginning of a line to its `end`, on the same line or alone on a later one."""
_DEFINED: Final = re.compile(r"local function (\w+)")
_NAME: Final = re.compile(r"\w+")
_CALL: Final = re.compile(r"(?<![.:\w])(\w+)\(")


class Script(NamedTuple):
    """A script and its name in Redis."""

    name: str
    text: bytes
    sha: bytes


class _Functions:
    """The functions of a script's preludes, in their order."""

    def __init__(self, parts: Iterable[str]) -> None:
        found = ((_DEFINED.match(part), part) for part in parts)
        self._texts = {defined[1]: part for defined, part in found if defined is not None}

    def used(self, text: str) -> set[str]:
        """Return the functions that must be defined before a text."""
        return self._all(self._named(text))

    def placed(self, text: str, defined: set[str]) -> str:
        """Return a text with definitions in place of its `--+` lines."""
        lines: list[str] = []
        for line in text.splitlines():
            if line.lstrip().startswith(_HERE):
                lines += self._definitions(line, defined)
            else:
                lines.append(line)
        return "\n".join(lines)

    def _definitions(self, line: str, defined: set[str]) -> Iterator[str]:
        wanted = self._all(set(_NAME.findall(line))) - defined
        for name, text in self._texts.items():
            if name in wanted:
                yield indent(self.placed(text, defined | wanted), line[: line.index(_HERE)])

    def _all(self, names: set[str]) -> set[str]:
        found: set[str] = set()
        while names:
            found |= names
            names = {used for name in names for used in self._named(self._texts[name])} - found
        return found

    def _named(self, text: str) -> set[str]:
        """Return the functions that a text calls, without those that are defined in the block of their use."""
        found: set[str] = set()
        blocks: list[tuple[int, set[str]]] = []
        for line in filter(str.strip, text.splitlines()):
            indentation = len(line) - len(line.lstrip())
            while blocks and indentation < blocks[-1][0]:
                blocks.pop()
            if line.lstrip().startswith(_HERE):
                blocks.append((indentation, set(_NAME.findall(line))))
            else:
                called = set(_CALL.findall(line)) & self._texts.keys()
                found |= called.difference(*(here for _, here in blocks))
        return found


def _script(section: str) -> Script:
    head, _, body = section.partition("\n")
    name, _, needs = head.partition(":")
    words = needs.split()
    flags = ",".join(word[1:] for word in words if word.startswith("!"))
    lines = [f"#!lua flags={flags}" if flags else "#!lua"]
    parts = _FUNCTION.split("\n".join(_read(word) for word in words if not word.startswith("!")))
    functions = _Functions(parts)
    others = [part for part in parts if not _DEFINED.match(part)]
    defined = functions.used("\n".join([*others, body]))
    for part in parts:
        function = _DEFINED.match(part)
        if function is None or function[1] in defined:
            lines.append(functions.placed(part, defined))
    text = "\n".join([*filter(None, lines), functions.placed(body, defined)]).encode()
    return Script(name, text, sha1(text, usedforsecurity=False).hexdigest().encode())


def _read(name: str) -> str:
    text = (files(__package__) / "lua" / f"{name}.lua").read_text(encoding="utf-8")
    kept = (_SECTION, _HERE)
    lines = (
        line
        for line in text.splitlines()
        if line.lstrip().startswith(kept) or not line.lstrip().startswith("--")
    )
    return "\n".join(lines)


@cache
def scripts() -> dict[str, Script]:
    """Return all scripts by name."""
    found: dict[str, Script] = {}
    for name in SECTIONS:
        for section in _read(name).split(_SECTION)[1:]:
            script = _script(section)
            found[script.name] = script
    return found
