"""Questions of a server, answered in the terminal: forms field by field, pages by opening them, models not at all."""

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from limpet.cli.using.arguments import value_of
from limpet.cli.using.bar import Bar
from limpet.cli.using.plain import plain
from limpet.cli.using.schemas import choices_of, kinds_of, properties_of, required_of
from limpet.errors import ConfigError
from limpet.types import ElicitFormParams, ElicitResult, ElicitURLParams

_DECLINE: Final = ":decline"
_CANCEL: Final = ":cancel"


class Terminal:
    """Asks the person at the terminal. One question at a time: concurrent questions wait."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._typed = bytearray()
        """Bytes that were typed and not taken yet."""

    async def elicit(self, asked: ElicitFormParams | ElicitURLParams) -> ElicitResult:
        """Ask, and return the answer; without a terminal, the question is declined."""
        async with self._turn:
            if Bar.shown:
                Bar.shown.hide()
            if not sys.stdin.isatty():
                _say(f"The server asks: {asked.message}\nThere is no terminal to answer on: declined.")
                return ElicitResult(action="decline")
            try:
                if isinstance(asked, ElicitURLParams):
                    return await self._page(asked)
                return await self._form(asked)
            except EOFError:
                return ElicitResult(action="cancel")

    async def _page(self, asked: ElicitURLParams) -> ElicitResult:
        _say(f"The server asks you to open a page: {asked.message}\n  {asked.url}")
        answer = await self._line("Open it yourself, then press Enter (n: decline) ")
        return ElicitResult(action="decline" if answer.lower() in {"n", "no"} else "accept")

    async def _form(self, asked: ElicitFormParams) -> ElicitResult:
        schema: Mapping[str, Any] = asked.requested_schema
        required = required_of(schema)
        _say(f"The server asks: {asked.message}\n({_DECLINE} declines, {_CANCEL} cancels)")
        content: dict[str, Any] = {}
        for name, member in properties_of(schema).items():
            while True:
                text = await self._line(f"  {_label(name, member, needed=name in required)}: ")
                if text in {_DECLINE, _CANCEL}:
                    return ElicitResult(action="decline" if text == _DECLINE else "cancel")
                if not text:
                    if "default" in member:
                        content[name] = member["default"]
                    elif name in required:
                        _say("  This field is required.")
                        continue
                    break
                try:
                    content[name] = value_of(name, text, member)
                except ConfigError as error:
                    _say(f"  {error}")
                else:
                    break
        return ElicitResult(action="accept", content=content)

    async def _line(self, prompt: str) -> str:
        """Read a line; the connection stays alive meanwhile, and Ctrl-C ends the wait.

        Raises:
            EOFError: there is no further line.
        """
        sys.stderr.write(plain(prompt))
        sys.stderr.flush()
        while b"\n" not in self._typed:
            try:
                descriptor = sys.stdin.fileno()
                await _until_readable(descriptor)
            except (NotImplementedError, OSError):
                # Windows, and input that is not a file: a thread reads.
                line: str = await asyncio.to_thread(sys.stdin.readline)
                data = line.encode()
            else:
                data = os.read(descriptor, 4096)
            if not data:
                raise EOFError
            self._typed += data
        taken, _, rest = bytes(self._typed).partition(b"\n")
        self._typed = bytearray(rest)
        return taken.decode(errors="replace").strip()


async def _until_readable(descriptor: int) -> None:
    """Wait until bytes can be read.

    Raises:
        NotImplementedError, OSError: the loop cannot watch this file.
    """
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)


def _label(name: str, member: Mapping[str, Any], *, needed: bool) -> str:
    """Return the name of a field, with the rules for its value."""
    kinds = ("yes|no" if kind == "boolean" else kind for kind in sorted(kinds_of(member)))
    kind = "|".join(map(str, choices_of(member))) or "|".join(kinds)
    notes = [kind] if kind else []
    if "default" in member:
        notes.append(f"Enter: {member['default']}")
    elif not needed:
        notes.append("optional")
    title = member.get("title") or name
    return f"{title} ({', '.join(notes)})" if notes else str(title)


def _say(text: str) -> None:
    sys.stderr.write(f"{plain(text)}\n")
    sys.stderr.flush()
