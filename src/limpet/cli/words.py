"""Reads the words and variables of `limpet serve` by the table of options; typer, slow to import, has its help.

A word that begins with a dash is an option; another one is the target. The value of an option is after `=`, or the next
word.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, Literal, get_args, get_origin

from limpet.cli.asked import ServeCommand
from limpet.cli.option_values import collected, readable
from limpet.cli.options import Options
from limpet.cli.process_options import ProcessOptions
from limpet.cli.rows import OptionEntry, entries
from limpet.errors import ConfigError

_HELP: Final = ("--help", "--help-all")
_SWITCHES: Final = {
    **dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("0", "false", "f", "no", "n", "off"), False),
}
"""The values of a variable that is a switch."""
_THEIR_OPTIONS: Final = {
    "--port": "use --http 127.0.0.1:PORT",
    "-p": "use --http 127.0.0.1:PORT",
    "--host": "use --http HOST:PORT",
    "--transport": "use --stdio, or --http HOST:PORT, which is the default",
    "-t": "use --stdio, or --http HOST:PORT, which is the default",
    "-h": "use --help",
}
"""Options of `fastmcp run`, and those of `limpet serve`."""


def read(words: Sequence[str], environment: Mapping[str, str]) -> ServeCommand | None:
    """Return the command that was read; None if typer is needed: for help, and for every other command.

    Raises:
        ConfigError: a word or a variable is wrong.
    """
    if not words or words[0] != "serve":
        return None
    own, command = list(words[1:]), tuple[str, ...]()
    if "--" in own:
        at = own.index("--")
        own, command = own[:at], tuple(own[at + 1 :])
        if not command:
            raise ConfigError("-- needs a command after it, such as -- npx -y some-server")
    return _Reader(environment).read(own, command)


class _Reader:
    """Reads the words of one command."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._entries: dict[str, OptionEntry] = {
            entry.flag: entry for kind in (ProcessOptions, Options) for entry in entries(kind)
        }
        self._given: dict[str, Any] = {}
        self._targets: list[str] = []
        self._only: list[str] = []
        self._stdio = False
        self._environment = environment

    def read(self, words: list[str], command: tuple[str, ...]) -> ServeCommand | None:
        rest = iter(words)
        for word in rest:
            if word in _HELP:
                return None
            self._take(word, rest)
        if len(self._targets) > 1:
            raise ConfigError(f"serve takes one target, and {self._targets[1]!r} is a second one")
        named = tuple(sorted(self._given))
        self._take_variables()
        return ServeCommand(
            target=self._targets[0] if self._targets else None,
            command=command,
            stdio=self._stdio,
            only=tuple(self._only),
            options=collected(Options, self._given),
            process=collected(ProcessOptions, self._given),
            named=named,
        )

    def _take(self, word: str, rest: Iterator[str]) -> None:
        flag, has_value, value = word.partition("=")
        entry = self._entries.get(flag)
        if not word.startswith("-") or word == "-":
            self._targets.append(word)
        elif flag == "--only":
            self._only.append(value if has_value else self._next(flag, rest))
        elif entry is not None and _kind(entry) is not bool:
            self._set(entry, value if has_value else self._next(flag, rest))
        else:
            self._take_switch(flag)
            if has_value:
                raise ConfigError(f"{flag} takes no value")

    def _take_switch(self, flag: str) -> None:
        if flag == "--stdio":
            self._stdio = True
            return
        on = not flag.startswith("--no-")
        entry = self._entries.get(flag if on else f"--{flag.removeprefix('--no-')}")
        if entry is None or _kind(entry) is not bool:
            known = (*self._entries, *_HELP, "--only", "--stdio")
            hint = "--help-all shows all"
            for near in get_close_matches(flag, known, n=1):
                hint = f"did you mean {near}?"
            raise ConfigError(f"serve has no option {flag}; {_THEIR_OPTIONS.get(flag, hint)}")
        self._given[entry.parameter] = on

    def _next(self, flag: str, rest: Iterator[str]) -> str:
        """Return the value of an option. It may begin with a dash, but it is not an option."""
        word = next(rest, None)
        if word is None or word.partition("=")[0] in self._entries:
            raise ConfigError(f"{flag} needs a value" + (f", and {word} is an option" if word else ""))
        return word

    def _set(self, entry: OptionEntry, text: str) -> None:
        if get_origin(_kind(entry)) is list:
            self._given.setdefault(entry.parameter, []).append(text)
        else:
            self._given[entry.parameter] = _value(entry, text)

    def _take_variables(self) -> None:
        for entry in self._entries.values():
            text = self._environment.get(entry.variable or "", "")
            if not text or entry.is_table or entry.parameter in self._given:
                continue
            if get_origin(_kind(entry)) is list:
                self._given[entry.parameter] = text.split()
            else:
                self._given[entry.parameter] = _value(entry, text)


def _kind(entry: OptionEntry) -> Any:
    return readable(entry.type)[0]


def _value(entry: OptionEntry, text: str) -> Any:
    """Return the value of a text, as the type of the option says.

    Raises:
        ConfigError: the text has no such value.
    """
    kind, least = readable(entry.type)
    if kind is str:
        return text
    if kind is bool:
        return _one_of(entry, _SWITCHES, text.strip().lower())
    if get_origin(kind) is Literal:
        return _one_of(entry, dict(zip(get_args(kind), get_args(kind), strict=True)), text)
    return _number(entry, kind, least, text)


def _one_of(entry: OptionEntry, values: Mapping[str, Any], text: str) -> Any:
    if text not in values:
        raise ConfigError(f"{entry.flag} is one of {', '.join(values)}; not {text!r}")
    return values[text]


def _number(entry: OptionEntry, kind: type[int] | type[float], least: float | None, text: str) -> float:
    try:
        number = kind(text)
    except ValueError:
        raise ConfigError(
            f"{entry.flag}: give a {'whole ' if kind is int else ''}number, not {text!r}"
        ) from None
    if least is not None and not number >= least:
        raise ConfigError(f"{entry.flag}: give {least:g} or more, not {number:g}")
    return number
