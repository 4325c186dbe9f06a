"""Pages: complete, in order, and steady while the listing changes."""

from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.errors import INVALID_PARAMS, InvalidCursor
from limpet.server.catalog.pagination import page

names = st.lists(st.text(max_size=8), unique=True, max_size=30)


def table(keys: list[str]) -> dict[str, str]:
    return {key: key.upper() for key in keys}


def walk(items: dict[str, str], size: int, cursor: str | None = None) -> list[str]:
    seen, cursor = page(items, cursor, size)
    while cursor is not None:
        more, cursor = page(items, cursor, size)
        assert 0 < len(more) <= size
        seen += more
    return seen


@given(keys=names, size=st.integers(1, 40))
def test_all_pages_together_are_the_listing(keys: list[str], size: int) -> None:
    items = table(keys)
    assert walk(items, size) == list(items.values())


def test_no_size_means_one_page() -> None:
    assert page(table(["a", "b", "c"]), None, 0) == (["A", "B", "C"], None)


def test_a_full_last_page_has_no_cursor() -> None:
    assert page(table(["a", "b"]), None, 2) == (["A", "B"], None)


@given(keys=names, size=st.integers(1, 10), data=st.data())
def test_removing_any_one_item_hides_and_repeats_no_other(
    keys: list[str], size: int, data: st.DataObject
) -> None:
    items = table(keys)
    first, cursor = page(items, None, size)
    if cursor is None:
        return
    gone = data.draw(st.sampled_from(keys))
    rest = walk({key: value for key, value in items.items() if key != gone}, size, cursor)
    assert first + rest == [key.upper() for key in keys if key != gone or key in keys[:size]]


@given(keys=names, size=st.integers(1, 10), at=st.integers(0, 30))
def test_adding_an_item_hides_and_repeats_no_other(keys: list[str], size: int, at: int) -> None:
    first, cursor = page(table(keys), None, size)
    if cursor is None:
        return
    grown = [*keys[:at], "brand new item", *keys[at:]]
    seen = first + walk(table(grown), size, cursor)
    assert [value for value in seen if value != "BRAND NEW ITEM"] == [key.upper() for key in keys]


def test_a_cursor_past_a_listing_that_shrank_ends_it() -> None:
    _, cursor = page(table(["a", "b", "c", "d"]), None, 3)
    assert page({}, cursor, 3) == ([], None)


@pytest.mark.parametrize(
    "cursor",
    ["", "!", "a", "zzzz", "é", "A" * 5000]
    + [
        urlsafe_b64encode(text).decode()
        for text in (b'[0,"a"]', b'[-1,"a"]', b"[1]", b'[1,"a",2]', b"{}", b"1", b'["a",1]', b"\xff")
    ],
)
def test_a_cursor_that_is_not_ours_is_refused_as_invalid_params(cursor: str) -> None:
    with pytest.raises(InvalidCursor) as raised:
        page(table(["a"]), cursor, 1)
    assert raised.value.code == INVALID_PARAMS


@given(cursor=st.text(max_size=30))
def test_no_text_breaks_the_reader(cursor: str) -> None:
    try:
        page(table(["a", "b"]), cursor, 1)
    except InvalidCursor:
        return
