"""The usual forms of `holdfast serve`, read from the table of options without typer, whose import takes long.

It reads a command completely or not at all. Help, a wrong word, a value that is not allowed, a variable whose value is not a
plain one: then `read` returns None and typer reads the same words, with its texts (`whole.py`). A command that is read
here means the same there; `tests/unit/cli/test_quick.py` compares both.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, get_args, get_origin

from holdfast.cli.asked import Asked
from holdfast.cli.collecting import collected, readable
from holdfast.cli.options import Options
from holdfast.cli.process_options import ProcessOptions
from holdfast.cli.rows import Entry, entries

_NUMBERS: Final = {int: re.compile(r"[0-9]{1,9}"), float: re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")}
_REPEATED: Final = "--only"


class _NotReadHere(Exception):
    """The words are for typer."""


def read(words: Sequence[str], environment: Mapping[str, str]) -> Asked | None:
    """Return the command that was read; None if typer must read it."""
    if not words or words[0] != "serve":
        return None
    own, command = list(words[1:]), tuple[str, ...]()
    if "--" in own:
        at = own.index("--")
        own, command = own[:at], tuple(own[at + 1 :])
        if not command:
            return None
    try:
        return _Reader(environment).read(own, command)
    except _NotReadHere:
        return None


class _Reader:
    """Reads the words of one command."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._entries: dict[str, Entry] = {
            entry.flag: entry for kind in (ProcessOptions, Options) for entry in entries(kind)
        }
        self._given: dict[str, Any] = {}
        self._targets: list[str] = []
        self._only: list[str] = []
        self._stdio = False
        self._environment = environment

    def read(self, words: list[str], command: tuple[str, ...]) -> Asked:
        rest = iter(words)
        for word in rest:
            self._take(word, rest)
        if len(self._targets) > 1:
            raise _NotReadHere
        named = tuple(sorted(self._given))
        self._take_variables()
        return Asked(
            target=self._targets[0] if self._targets else None,
            command=command,
            stdio=self._stdio,
            only=tuple(self._only),
            options=collected(Options, self._given),
            process=collected(ProcessOptions, self._given),
            named=named,
        )

    def _take(self, word: str, rest: Any) -> None:
        if not word.startswith("-"):
            self._targets.append(word)
            return
        flag, has_value, value = word.partition("=")
        if word == "--stdio":
            self._stdio = True
        elif flag == _REPEATED:
            self._only.append(value if has_value else _next(rest))
        elif (entry := self._entries.get(flag)) is None or _kind(entry) is bool:
            self._take_switch(word)
        else:
            self._set(entry, value if has_value else _next(rest))

    def _take_switch(self, word: str) -> None:
        on = not word.startswith("--no-")
        entry = self._entries.get(word if on else f"--{word.removeprefix('--no-')}")
        if entry is None or _kind(entry) is not bool:
            raise _NotReadHere
        self._given[entry.parameter] = on

    def _set(self, entry: Entry, text: str) -> None:
        if get_origin(_kind(entry)) is list:
            self._given.setdefault(entry.parameter, []).append(text)
        else:
            self._given[entry.parameter] = _value(entry, text)

    def _take_variables(self) -> None:
        for entry in self._entries.values():
            text = self._environment.get(entry.variable or "", "")
            if not text or entry.is_table or entry.parameter in self._given:
                continue
            if _kind(entry) is bool or get_origin(_kind(entry)) is list:
                raise _NotReadHere
            self._given[entry.parameter] = _value(entry, text)


def _kind(entry: Entry) -> Any:
    return readable(entry.type)[0]


def _next(rest: Any) -> str:
    word: str | None = next(rest, None)
    if word is None or word.startswith("-"):
        raise _NotReadHere
    return word


def _value(entry: Entry, text: str) -> Any:
    kind, least = readable(entry.type)
    if kind is str:
        return text
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise _NotReadHere
        return text
    if _NUMBERS[kind].fullmatch(text) is None or (least is not None and kind(text) < least):
        raise _NotReadHere
    return kind(text)
