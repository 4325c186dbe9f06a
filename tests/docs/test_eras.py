"""docs/eras.md has a row for every member of the context and the session, and for every hook of a server."""

import re
from pathlib import Path
from typing import Final

import pytest

from limpet import Context, Server, SessionView

PAGE: Final = (Path(__file__).parents[2] / "docs" / "eras.md").read_text(encoding="utf-8")


def first_column(header: str) -> set[str]:
    """Return the names in the first column of the table under this header."""
    table = PAGE.partition(f"| {header} |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


HOOKS: Final = {
    "lifespan",
    "middleware",
    "resource_updated",
    *(name for name in public(Server) if name.startswith(("on_", "notify_"))),
}


@pytest.mark.parametrize(
    ("header", "members"),
    [
        ("member", {f"ctx.{name}" for name in public(Context)}),
        ("member of `ctx.session`", public(SessionView)),
        ("hook of `Server`", HOOKS),
    ],
)
def test_every_member_has_a_row_and_no_row_is_of_another(header: str, members: set[str]) -> None:
    assert first_column(header) == members
    assert len(members) > 5
