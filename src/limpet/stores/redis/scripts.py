"""The scripts: files of sections, each with the prelude it needs. One script is one atomic step.

    --## forget: shared !allow-oom

begins the script `forget`, which is preceded by the file shared.lua. The text before the first section of a file is for
human readers, and comments are not sent. A script that frees more than it takes (`allow-oom`) runs even when Redis is
out of memory; any other is then refused before it has changed anything. A script that changes nothing declares it
(`no-writes`).

`commit` and `swap_task` exist twice: `commit_end` and `swap_task_end` are the same for what only ends and forgets, and
run when Redis is out of memory.
"""

from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Final, NamedTuple

SECTIONS: Final = ("documents", "state", "index", "replicas")
_SECTION: Final = "--## "
_TWINS: Final = ("commit", "swap_task")


class Script(NamedTuple):
    """A script and its name in Redis."""

    name: str
    text: bytes
    sha: bytes


def _script(section: str) -> Script:
    head, _, body = section.partition("\n")
    name, _, needs = head.partition(":")
    words = needs.split()
    flags = ",".join(word[1:] for word in words if word.startswith("!"))
    preludes = [_read(word) for word in words if not word.startswith("!")]
    first = f"#!lua flags={flags}" if flags else "#!lua"
    text = "\n".join([first, *preludes, body]).encode()
    return Script(name, text, sha1(text, usedforsecurity=False).hexdigest().encode())


def _read(name: str) -> str:
    text = (files(__package__) / "lua" / f"{name}.lua").read_text(encoding="utf-8")
    lines = (
        line for line in text.splitlines() if line.startswith(_SECTION) or not line.lstrip().startswith("--")
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
            if script.name in _TWINS:
                found[f"{script.name}_end"] = _script(section.replace(":", "_end: !allow-oom", 1))
    return found
