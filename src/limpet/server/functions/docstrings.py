"""A docstring as a tool's description, and its parameters' descriptions: Google, NumPy and reST styles."""

import inspect
import re
from collections.abc import Iterator
from typing import Final

GOOGLE: Final = re.compile(
    r"(Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters):\s*"
)
NUMPY: Final = re.compile(r"(Parameters|Other Parameters)\s*")
RULE: Final = re.compile(r"-{3,}\s*")
ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
NUMPY_NAMES: Final = re.compile(r"\*{0,2}(\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
REST: Final = re.compile(r":(param|parameter|arg|argument|type)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")


def parse(text: str | None) -> tuple[str, dict[str, str]]:
    """Return the docstring without its parameter sections, and each parameter's description in one line."""
    lines = inspect.cleandoc(text or "").splitlines()
    kept: list[str] = []
    found: dict[str, str] = {}
    at = 0
    while at < len(lines):
        section = _section(lines, at)
        if section is None:
            kept.append(lines[at])
            at += 1
            continue
        at, described = section
        found.update({name: " ".join(text.split()) for name, text in described if text.strip()})
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip(), found


Section = tuple[int, list[tuple[str, str]]]


def _section(lines: list[str], at: int) -> Section | None:
    """Return the end of the parameter section that starts here, and its contents; None if no section starts here."""
    line = lines[at]
    if (entry := REST.fullmatch(line.strip())) is not None:
        end = _indented(lines, at + 1, _indent(line) + 1)
        text = " ".join([entry[3], *lines[at + 1 : end]])
        return end, [] if entry[1] == "type" else [(entry[2], text)]
    if GOOGLE.fullmatch(line):
        end = _indented(lines, at + 1, 1)
        return (end, list(_google(lines[at + 1 : end]))) if end > at + 1 else None
    if NUMPY.fullmatch(line) and at + 1 < len(lines) and RULE.fullmatch(lines[at + 1]):
        end = _numpy_end(lines, at + 2)
        return end, list(_numpy(lines[at + 2 : end]))
    return None


def _google(lines: list[str]) -> Iterator[tuple[str, str]]:
    base = min((_indent(line) for line in lines if line.strip()), default=0)
    name, text = "", ""
    for line in lines:
        entry = ENTRY.fullmatch(line.strip()) if _indent(line) == base else None
        if entry is None:
            text += " " + line
            continue
        if name:
            yield name, text
        name, text = entry[1], entry[2]
    if name:
        yield name, text


def _numpy(lines: list[str]) -> Iterator[tuple[str, str]]:
    names: list[str] = []
    text = ""
    for line in lines:
        entry = NUMPY_NAMES.fullmatch(line) if line.strip() and not _indent(line) else None
        if entry is None:
            text += " " + line
            continue
        yield from ((name, text) for name in names)
        names, text = [part.strip().lstrip("*") for part in entry[1].split(",")], ""
    yield from ((name, text) for name in names)


def _numpy_end(lines: list[str], at: int) -> int:
    """A NumPy section ends at the next underlined heading."""
    for index in range(at, len(lines) - 1):
        if lines[index].strip() and not _indent(lines[index]) and RULE.fullmatch(lines[index + 1]):
            return index
    return len(lines)


def _indented(lines: list[str], at: int, indent: int) -> int:
    """Return where lines indented by at least so much end; blank lines between them belong to them."""
    end = at
    for index in range(at, len(lines)):
        if not lines[index].strip():
            continue
        if _indent(lines[index]) < indent:
            break
        end = index + 1
    return end


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
