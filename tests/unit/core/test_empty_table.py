"""The table that idle sessions share."""

from collections.abc import Callable
from typing import Any

import pytest

from limpet.core.empty_table import EMPTY


def _merge(table: dict[str, int]) -> None:
    table |= {"a": 1}


@pytest.mark.parametrize(
    "add",
    [
        lambda table: table.__setitem__("a", 1),
        lambda table: table.setdefault("a", 1),
        lambda table: table.update(a=1),
        _merge,
    ],
)
def test_the_shared_table_takes_no_entries(add: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(TypeError, match="takes no entries"):
        add(EMPTY)
    assert EMPTY == {}
