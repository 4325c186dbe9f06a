"""The place of a value, for errors: an option, an environment variable, or a key of `limpet.toml`.

The code that finds an error does not know where the value was written. It names the option (`--store`), or the member
of the settings (`public_url=…`). Before the error is printed, `with_places` replaces such a name by the name at that
place.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from limpet.cli.options import Options
from limpet.cli.process_options import ProcessOptions
from limpet.cli.rows import OptionEntry, entries

_NAME: Final = r"(?P<flag>(?<![\w-])--[a-z][a-z-]*)|^(?P<member>[a-z_]+)(?=[=:])"
_SERVER: Final = r"(?:\[servers\.(?P<server>[^\]]+)\] )?"
_VARIABLES: Final = {"sessions": {"--admin": "LIMPET_ADMIN_URL"}}
"""The variables of commands that do not have the table of options."""


def with_places(text: str, words: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the text of an error, with each option named as the user has written it.

    `words` are those of the command line.
    """
    return _Places(words, environment).named(text)


class _Places:
    """The places of the values of one command."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        own = words[: words.index("--")] if "--" in words else words
        every = [entry for kind in (ProcessOptions, Options) for entry in entries(kind)]
        self._entries = {entry.flag: entry for entry in every}
        self._members = {entry.place[-1]: entry.flag for entry in every}
        self._given = {word.partition("=")[0].replace("--no-", "--", 1) for word in own}
        variables = _VARIABLES.get(own[0] if own else "", {})
        if "serve" in own[:1]:
            variables = {entry.flag: entry.variable for entry in every if entry.variable}
        self._variables = {flag: name for flag, name in variables.items() if environment.get(name)}
        self._file = next((Path(word) for word in own if word.lower().endswith(".toml")), None)
        self._content = {} if self._file is None else _content(self._file)

    def named(self, text: str) -> str:
        file = re.escape(f"{self._file}: ")
        return re.sub(rf"(?P<where>{file}{_SERVER})?(?:{_NAME})", self._name, text)

    def _name(self, found: re.Match[str]) -> str:
        flag = found["flag"] or self._members.get(found["member"])
        if flag is None:
            return found[0]
        where = found["where"] or ""
        if flag in self._given:
            return where + flag
        if variable := self._variables.get(flag):
            return where + variable
        entry = self._entries.get(flag)
        # Without a place here, the value was given in Python: it keeps its name there.
        return found[0] if entry is None else self._key(entry, found["server"]) or found[0]

    def _key(self, entry: OptionEntry, server: str | None) -> str:
        """Return the file, the table and the key; empty: the file does not have the key."""
        servers = self._content.get("servers")
        for name, table in servers.items() if isinstance(servers, dict) else ():
            if (server is None or name == server) and _has(table, entry):
                return f"{self._file}: [servers.{name}] {entry.key}"
        return f"{self._file}: {entry.key}" if _has(self._content, entry) else ""


def _content(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}


def _has(table: Any, entry: OptionEntry) -> bool:
    for step in entry.place:
        if not isinstance(table, dict) or step not in table:
            return False
        table = table[step]
    return True
