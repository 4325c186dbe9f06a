"""The file of a client program with one entry more: everything else in it stays as it was, also comments and line ends.

In JSON the text of the entry is put into the text of the file. In TOML the lines of the entry's own table are replaced.
The result is decoded and compared: if something else than the entry changed, the file is refused and not changed.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any, Final

from limpet.cli.installing import jsonc
from limpet.errors import ConfigError

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_TABLE: Final = re.compile(r"^[ \t]*\[", re.MULTILINE)
_BETWEEN: Final = re.compile(r"(?:^[ \t]*(?:#[^\n]*)?\n)*\Z", re.MULTILINE)
"""Blank lines and comments before the next table: they belong to that table."""
_BOM: Final = "\ufeff"


def with_entry(text: str, file: Path, member: tuple[str, ...], name: str, entry: dict[str, Any]) -> str:
    """Return the text of the file with the entry.

    Raises:
        ConfigError: the file cannot be changed without losing something.
    """
    change = _toml if file.suffix == ".toml" else _json
    mark = _BOM if text.startswith(_BOM) else ""
    return mark + change(text.removeprefix(_BOM), file, (*member, name), entry)


def _json(text: str, file: Path, path: tuple[str, ...], entry: dict[str, Any]) -> str:
    name = path[-1]
    if not text.strip():
        return jsonc.with_member("{}", path, entry) + "\n"
    try:
        before = jsonc.decoded(text)
        made = jsonc.with_member(text, path, entry)
        after = jsonc.decoded(made)
    except ValueError as error:
        raise ConfigError(f"{file} cannot be changed ({error}): {_by_hand(name, entry)}") from None
    if _drop(before, path) != _drop(after, path) or _at(after, path) != entry:
        raise ConfigError(f"{file} has a form that cannot be changed: {_by_hand(name, entry)}")
    return made


def _at(whole: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        whole = whole[step]
    return whole


def _by_hand(name: str, entry: dict[str, Any]) -> str:
    return f"nothing was changed; add this yourself:\n{json.dumps({name: entry}, indent=2)}"


def _toml(text: str, file: Path, path: tuple[str, ...], entry: dict[str, Any]) -> str:
    crlf = "\r\n" in text and "\n" not in text.replace("\r\n", "")
    plain = text.replace("\r\n", "\n") if crlf else text
    made = _replaced(plain, path, _table(path, entry))
    try:
        before = tomllib.loads(plain)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} cannot be read as TOML ({error}): nothing was changed") from None
    try:
        after = tomllib.loads(made)
        is_good = _drop(before, path) == _drop(after, path) and _at(after, path) == entry
    except tomllib.TOMLDecodeError:
        is_good = False
    if not is_good:
        raise ConfigError(
            f"{file} has the server {path[-1]!r} in a form that cannot be replaced: nothing was changed; change it by hand"
        )
    return made.replace("\n", "\r\n") if crlf else made


def _table(path: tuple[str, ...], entry: dict[str, Any]) -> str:
    heading = ".".join(map(_key, path))
    table = f"[{heading}]\n" + _lines({key: one for key, one in entry.items() if not isinstance(one, dict)})
    for key, value in entry.items():
        if isinstance(value, dict):
            table += f"\n[{heading}.{_key(key)}]\n{_lines(value)}"
    return table


def _lines(values: dict[str, Any]) -> str:
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in values.items())


def _replaced(text: str, path: tuple[str, ...], table: str) -> str:
    """Return the text with this table, in the place of the former one and its sub-tables, or at the end."""
    name = r"\s*\.\s*".join(rf'(?:{re.escape(step)}|"{re.escape(step)}")' for step in path)
    heading = re.compile(rf"^[ \t]*\[\s*{name}\s*(?:\.[^\]]*)?\][^\n]*\n?", re.MULTILINE)
    place: int | None = None
    while found := heading.search(text):
        place = found.start() if place is None else place
        following = _TABLE.search(text, found.end())
        end = following.start() if following else len(text)
        is_next_own = following is not None and heading.match(text, end) is not None
        between = None if following is None or is_next_own else _BETWEEN.search(text[found.end() : end])
        kept = text[found.end() + between.start() : end] if between else ""
        text = text[: found.start()] + kept + text[end:]
    if place is None:
        return f"{text.rstrip()}\n\n{table}" if text.strip() else table
    after = text[place:]
    return text[:place] + table + ("" if not after or after.startswith("\n") else "\n") + after


def _drop(whole: Any, path: tuple[str, ...]) -> Any:
    """Return a document without one member, and without the tables above it that are empty then."""
    first, *rest = path
    if not isinstance(whole, dict) or first not in whole:
        return whole
    inner = _drop(whole[first], tuple(rest)) if rest and isinstance(whole[first], dict) else None
    others = {key: value for key, value in whole.items() if key != first}
    return {**others, first: inner} if inner else others


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key)


def _value(value: Any) -> str:
    """Return a text, or a list of texts, as TOML: its basic strings are those of JSON."""
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
