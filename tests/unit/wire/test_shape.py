"""What a message costs in memory, estimated from its bytes before it is decoded."""

import pytest

from limpet.errors import INVALID_REQUEST, WireError
from limpet.wire.jsonrpc import decode
from limpet.wire.shape import VALUE_BYTES, counted_cost

MOST = 10_000_000


@pytest.mark.parametrize(("letter", "width"), [("x", 1), ("é", 2), ("€", 2), ("😀", 4)])
def test_a_text_costs_the_width_of_its_widest_letter(letter: str, width: int) -> None:
    data = f'{{"a":"{"x" * 1_000}{letter}"}}'.encode()
    assert counted_cost(data, MOST) == len(data) * (1 + width) + counted_values(data) * VALUE_BYTES


def counted_values(data: bytes) -> int:
    """Return the values of a text in which no string contains a comma, a colon or a bracket."""
    return data.count(b",") + data.count(b":") + data.count(b"{") + data.count(b"[")


def test_commas_inside_of_a_string_are_no_values() -> None:
    table = b'{"rows":"' + b"1,2,3;" * 5_000 + b'"}'
    values = (counted_cost(table, MOST) - 2 * len(table)) / VALUE_BYTES
    assert values < 10
    assert (counted_cost(b"[" + b"1," * 10_000 + b"1]", MOST) - 2 * 20_003) / VALUE_BYTES >= 10_000


def test_a_batch_beyond_its_limit_is_refused_with_the_limit() -> None:
    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    assert len(decode(b"[" + b",".join([ping] * 3) + b"]", max_batch=3)) == 3  # type: ignore[arg-type]
    with pytest.raises(WireError, match="a batch has at most 3 messages") as refused:
        decode(b"[" + b",".join([ping] * 4) + b"]", max_batch=3)
    assert refused.value.code == INVALID_REQUEST
