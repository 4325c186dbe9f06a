"""Pages of several servers as one page, and their cursor."""

import json
from typing import Any

import pytest

from limpet.backs.renaming import LISTED
from limpet.backs.several.pages import (
    MAX_CURSOR,
    PartPage,
    merged,
    read_cursor,
    read_page,
    write_cursor,
)
from limpet.errors import InvalidCursor

TOOLS = "tools/list"


def page(*names: str, **others: Any) -> PartPage:
    return read_page(TOOLS, json.dumps({"tools": [{"name": name} for name in names], **others}).encode())


def made(pages: dict[str, PartPage], hidden: tuple[str, str] = ("", ""), **options: Any) -> dict[str, Any]:
    options = {"is_whole": True, "put_off": {}, **options}
    result = merged(TOOLS, pages, lambda member, name: (member, name) != hidden, {}, **options)
    found: dict[str, Any] = json.loads(result)
    return found


def test_the_items_come_in_the_order_of_the_members_and_keep_their_members() -> None:
    first = read_page(TOOLS, b'{"tools": [{"name": "b", "x": [1]}, {"name": "a"}]}')
    assert made({"one": first, "two": page("c")}) == {
        "tools": [{"name": "b", "x": [1]}, {"name": "a"}, {"name": "c"}]
    }


def test_an_item_that_another_member_has_is_left_out() -> None:
    found = made({"one": page("a"), "two": page("a", "b")}, hidden=("two", "a"))
    assert [tool["name"] for tool in found["tools"]] == ["a", "b"]


def test_the_cursor_has_the_members_that_have_more() -> None:
    found = made({"one": page("a", nextCursor="1"), "two": page("b"), "three": page("c", nextCursor="x/ü")})
    assert read_cursor(found["nextCursor"]) == {"one": "1", "three": "x/ü"}
    assert "nextCursor" not in made({"one": page("a", nextCursor=None), "two": page("b", nextCursor="")})


def test_a_merged_page_is_valid_as_long_as_its_shortest_part_and_public_if_all_are() -> None:
    def hints(ttl: int, scope: str) -> PartPage:
        return page(ttlMs=ttl, cacheScope=scope)

    found = made({"one": hints(500, "public"), "two": hints(300, "public")})
    assert (found["ttlMs"], found["cacheScope"]) == (300, "public")
    found = made({"one": hints(500, "public"), "two": hints(300, "private")})
    assert (found["ttlMs"], found["cacheScope"]) == (300, "private")
    found = made({"one": hints(500, "public"), "two": page()})
    assert (found["ttlMs"], found["cacheScope"]) == (0, "private")
    found = made({"one": hints(500, "public")}, is_whole=False)
    assert (found["ttlMs"], found["cacheScope"]) == (0, "private")


def test_other_members_of_a_result_stay_and_the_first_one_counts() -> None:
    found = made({"one": page(x=1), "two": page(x=2, y=3)})
    assert (found["x"], found["y"]) == (1, 3)


@pytest.mark.parametrize("method", LISTED)
def test_every_list_is_read_by_its_own_names(method: str) -> None:
    member, _, name = LISTED[method]
    result = json.dumps({member: [{"name": "n", name: "found"}]}).encode()
    assert list(read_page(method, result).items) == ["found"]


@pytest.mark.parametrize(
    "cursor", ["x", "?", "{}", 5, "e30é", "W10", "A" * (MAX_CURSOR + 1), write_cursor({"a": "b"}) + "!"]
)
def test_a_cursor_that_is_not_ours_is_refused(cursor: object) -> None:
    with pytest.raises(InvalidCursor):
        read_cursor(cursor)


def test_no_cursor_means_from_the_start() -> None:
    assert read_cursor(None) is None
    assert read_cursor(write_cursor({"a": ""})) == {"a": ""}
