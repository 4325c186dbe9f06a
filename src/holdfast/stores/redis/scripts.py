"""The scripts: files of sections, each with the preludes it needs. One script is one atomic step.

    --## settle: session log !allow-oom

begins the script `settle`, which is preceded by the files session.lua and log.lua. What stands before the first section of a
file is for readers, and comments are left out of what is sent. A script that frees more than it takes (`allow-oom`) runs
even when Redis is out of memory; any other is then refused before it has changed anything. One that changes nothing
says so (`no-writes`).
"""

from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Final, NamedTuple

SECTIONS: Final = ("sessions", "exchanges", "streams", "turns", "asks", "state", "index", "replicas")
_MARK: Final = "--## "


class Script(NamedTuple):
    """A script and the name Redis knows it by."""

    name: str
    text: bytes
    sha: bytes


def _script(section: str) -> Script:
    head, _, body = section.partition("\n")
    name, _, needs = head.partition(":")
    words = needs.split()
    flags = ",".join(word[1:] for word in words if word.startswith("!"))
    preludes = [_read(word) for word in words if not word.startswith("!")]
    text = "\n".join([f"#!lua flags={flags}" if flags else "#!lua", *preludes, body]).encode()
    return Script(name, text, sha1(text, usedforsecurity=False).hexdigest().encode())


def _read(name: str) -> str:
    text = (files(__package__) / "lua" / f"{name}.lua").read_text(encoding="utf-8")
    lines = (
        line for line in text.splitlines() if line.startswith(_MARK) or not line.lstrip().startswith("--")
    )
    return "\n".join(lines)


@cache
def scripts() -> dict[str, Script]:
    """Return all scripts by name."""
    found: dict[str, Script] = {}
    for name in SECTIONS:
        for section in _read(name).split(_MARK)[1:]:
            script = _script(section)
            found[script.name] = script
    return found
