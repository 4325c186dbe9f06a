"""docs/limits.md has every setting of `limpet.config` with its default, and nothing else."""

import re
from pathlib import Path
from typing import Any, Final

import pytest

from limpet.config import KIB, MIB, HttpSettings, Limits, RateLimits, Settings, Times

PAGE: Final = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()
ROW: Final = re.compile(r"^\| `([a-z]\w*)` \| (.*?) \|", re.MULTILINE)
GROUPS: Final = (Limits, Times, RateLimits, Settings, HttpSettings)
SIZES: Final = {"body", "headers"}
WORDS: Final[dict[str, str]] = {
    "memory": "by the machine",
    "grace": "as `idle`",
    "continue_after": "off",
    "limits": "above",
    "times": "above",
    "rates": "above",
    "allow_anonymous": "this machine only",
    "quirks": "known clients",
}
"""Defaults that a word says better than their value."""


def shown(name: str, value: Any) -> str:
    """Return a default as the page writes it."""
    if name in WORDS:
        return WORDS[name]
    match value:
        case bool():
            return "on" if value else "off"
        case int() if name in SIZES or name.endswith("_bytes"):
            return f"{value // MIB} MiB" if value % MIB == 0 else f"{value // KIB} KiB"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.10g} s"
        case (float(low), float(high)):
            return f"{low:g}–{high:g} s"
        case str():
            return f"`{value}`" if value else "none"
        case _:
            return ", ".join(f"`{item}`" for item in value) or "none"


@pytest.mark.parametrize("group", GROUPS)
def test_every_setting_is_on_the_page_with_its_default(group: type[Any]) -> None:
    section = PAGE.partition(f"\n## {group.__name__}\n")[2].partition("\n## ")[0]
    settings = group()
    expected = {name: shown(name, getattr(settings, name)) for name in group.__struct_fields__}
    assert dict(ROW.findall(section)) == expected
