"""The file of a client program with one entry more: everything else in it stays as it was.

JSON is written again with the indent that it had; the order of members stays. A file that this cannot keep, because it has
comments or is not an object, is refused and not changed. In TOML only the lines of the entry's own table are replaced.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any, Final

from holdfast.errors import ConfigError

_INDENT: Final = re.compile(r"^([ \t]+)\S", re.MULTILINE)
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_TABLE: Final = re.compile(r"^[ \t]*\[", re.MULTILINE)


def with_entry(text: str, file: Path, member: tuple[str, ...], name: str, entry: dict[str, Any]) -> str:
    """Return the text of the file with the entry.

    Raises:
        ConfigError: the file cannot be changed without losing something.
    """
    change = _toml if file.suffix == ".toml" else _json
    return change(text, file, member, name, entry)


def _json(text: str, file: Path, member: tuple[str, ...], name: str, entry: dict[str, Any]) -> str:
    try:
        whole = json.loads(text, object_pairs_hook=_once) if text.strip() else {}
    except ValueError as error:
        raise ConfigError(f"{file} is not plain JSON ({error}): {_by_hand(name, entry)}") from None
    place = whole
    for step in member:
        if not isinstance(place, dict) or not isinstance(place.setdefault(step, {}), dict):
            raise ConfigError(f"{file} has no object {step!r} for servers: {_by_hand(name, entry)}")
        place = place[step]
    place[name] = entry
    found = _INDENT.search(text)
    indent: str | int = found.group(1) if found else 2
    return json.dumps(whole, indent=indent, ensure_ascii=False) + "\n"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name is there twice")
    return made


def _by_hand(name: str, entry: dict[str, Any]) -> str:
    return f"nothing was changed; add this yourself:\n{json.dumps({name: entry}, indent=2)}"


def _toml(text: str, file: Path, member: tuple[str, ...], name: str, entry: dict[str, Any]) -> str:
    lines = "".join(
        f"{key} = {_value(value)}\n" for key, value in entry.items() if not isinstance(value, dict)
    )
    heading = ".".join(map(_key, (*member, name)))
    table = f"[{heading}]\n{lines}"
    for key, value in entry.items():
        if isinstance(value, dict):
            table += f"\n[{heading}.{_key(key)}]\n" + "".join(
                f"{_key(k)} = {_value(v)}\n" for k, v in value.items()
            )
    kept = _without_table(text, (*member, name))
    made = f"{kept.rstrip()}\n\n{table}" if kept.strip() else table
    try:
        before, after = tomllib.loads(text), tomllib.loads(made)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} cannot be read as TOML ({error}): nothing was changed") from None
    if _drop(before, (*member, name)) != _drop(after, (*member, name)):
        raise ConfigError(
            f"{file} has the server {name!r} in a form that cannot be replaced: change it by hand"
        )
    return made


def _without_table(text: str, path: tuple[str, ...]) -> str:
    """Return the text without the table of this name and its sub-tables."""
    name = r"\s*\.\s*".join(rf'(?:{re.escape(step)}|"{re.escape(step)}")' for step in path)
    heading = re.compile(rf"^[ \t]*\[\s*{name}\s*(?:\.[^\]]*)?\][^\n]*\n?", re.MULTILINE)
    while found := heading.search(text):
        following = _TABLE.search(text, found.end())
        text = text[: found.start()] + (text[following.start() :] if following else "")
    return text


def _drop(whole: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return a document without one member, and without the tables above it that are empty then."""
    first, *rest = path
    if first not in whole:
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
