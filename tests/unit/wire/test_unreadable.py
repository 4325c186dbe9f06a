"""The id of an invalid message, and whether it is a request."""

import pytest

from limpet.errors import LineTooLong
from limpet.wire.lines import LineBuffer
from limpet.wire.unreadable import Recognised, recognise, recognise_by_edges


@pytest.mark.parametrize("size", [1, 7, 5_000])
@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        ('{"jsonrpc":"2.0","id":7,"result":{"t":"', '"}}', (7, False)),
        ('{ "id" : 7 , "error" : {"message":"', '"}, "jsonrpc": "2.0"}', (7, False)),
        ('{"result":{"t":"', '"},"jsonrpc":"2.0","id":7}', (7, False)),
        ('{"jsonrpc":"2.0","result":{"t":"', '"},"id":7}\r', (7, False)),
        ('{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"t":"', '"}}', (7, True)),
        (
            '{"method":"sampling/createMessage","params":{"t":"',
            '"},"jsonrpc":"2.0","id":"a-1"}',
            ("a-1", True),
        ),
        ('{"jsonrpc":"2.0","method":"notifications/message","params":{"t":"', '","id":7}}', None),
        ('{"jsonrpc":"2.0","result":{"t":"', '","id":7}}', None),
        ('{"jsonrpc":"2.0","id":"7","result":{"t":"', '"}}', ("7", False)),
        ('{"jsonrpc":"2.0","id":"\\"","method":"x","params":{"t":"', '"}}', None),
        ("no json ", "at all", None),
    ],
)
def test_an_overlong_line_has_its_id_at_its_edges(
    start: str, end: str, found: Recognised | None, size: int
) -> None:
    buffer = LineBuffer(600, keeps_edges=True)
    text = f"{start}{'x' * 2_000}{end}\nok\n".encode()
    chunks = [text[at : at + size] for at in range(0, len(text), size)]
    skipped, following = [item for chunk in chunks for item in buffer.feed(chunk)]
    assert isinstance(skipped, LineTooLong)
    assert recognise_by_edges(skipped.head, skipped.tail) == found
    assert following == b"ok"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'{"id":7,"method":"x"}', (7, True)),
        (b'{"jsonrpc":"2.0","id":"a","method":5}', ("a", True)),
        (b'{"jsonrpc":"2.0","id":7,"params":{}}', (7, True)),
        (b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"n":NaN}}', (7, True)),
        (b'{"method":"x","params":{"n":NaN},"jsonrpc":"2.0","id":7}', (7, True)),
        (b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"t":"\xff"}}', (7, True)),
        (b'{"jsonrpc":"2.0","id":7,"result":"\xff"}', (7, False)),
        (b'{"jsonrpc":"2.0","id":7}', (7, False)),
        (b'{"jsonrpc":"2.0","id":7,"error":"a text"}', (7, False)),
        (b'{"jsonrpc":"2.0","id":null,"method":"x"}', None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"x"}', None),
        (b'{"jsonrpc":"2.0","id":"%b","method":"x"}' % (b"x" * 257), None),
        (b'{"method":"x","params":[]}', None),
        (b"listening on port 8000", None),
        (b"[" * 100_000, None),
    ],
)
def test_an_invalid_message_is_recognised(text: bytes, found: Recognised | None) -> None:
    assert recognise(text) == found
