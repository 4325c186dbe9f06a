"""Questions of a server, answered in the terminal: forms field by field, pages by opening them, models not at all."""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any, Final

from holdfast.cli.using.arguments import kinds_of, typed
from holdfast.errors import ConfigError
from holdfast.types import ElicitFormParams, ElicitResult, ElicitURLParams

_DECLINE: Final = ":decline"
_CANCEL: Final = ":cancel"


class Terminal:
    """Asks the person at the terminal. One question at a time: concurrent questions wait."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def elicit(self, asked: ElicitFormParams | ElicitURLParams) -> ElicitResult:
        """Ask, and return the answer; without a terminal, the question is declined."""
        async with self._turn:
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
        answer = await _line("Open it yourself, then press Enter (n: decline) ")
        return ElicitResult(action="decline" if answer.lower() in {"n", "no"} else "accept")

    async def _form(self, asked: ElicitFormParams) -> ElicitResult:
        schema: Mapping[str, Any] = asked.requested_schema
        required = schema.get("required") or ()
        _say(f"The server asks: {asked.message}\n({_DECLINE} declines, {_CANCEL} cancels)")
        content: dict[str, Any] = {}
        for name, member in (schema.get("properties") or {}).items():
            while True:
                text = await _line(f"  {_label(name, member, needed=name in required)}: ")
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
                    content |= typed([f"{name}={text}"], {"properties": {name: member}}, "The form")
                except ConfigError as error:
                    _say(f"  {error}")
                else:
                    break
        return ElicitResult(action="accept", content=content)


def _label(name: str, member: Mapping[str, Any], *, needed: bool) -> str:
    """Return the name of a field, with the rules for its value."""
    choices = member.get("enum")
    kind = "|".join(map(str, choices)) if isinstance(choices, list) else "|".join(sorted(kinds_of(member)))
    notes = [kind] if kind else []
    if "default" in member:
        notes.append(f"Enter: {member['default']}")
    elif not needed:
        notes.append("optional")
    title = member.get("title") or name
    return f"{title} ({', '.join(notes)})" if notes else str(title)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


async def _line(prompt: str) -> str:
    """Read a line in a thread, so that the connection stays alive meanwhile."""
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line: str = await asyncio.to_thread(sys.stdin.readline)
    if not line:
        raise EOFError
    return line.strip()
