"""`python -m bench.decoding`: the time to decode a message, beside that of msgspec alone.

The difference is the price of the checks: levels, values, members twice. Each message is measured as msgspec writes it and as
`json.dumps` does, with spaces and escapes.
"""

import json
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from limpet.config import Limits
from limpet.wire.jsonrpc import decode, encode

ROWS: Final = 120
"""About 4.7 KB."""
AT_ONCE: Final = 4_096
"""So many bytes are decoded between two readings of the clock."""
SECONDS: Final = 0.05

_plain: Callable[[bytes], object] = msgspec.json.Decoder().decode


class Ratio(NamedTuple):
    """The time of one message, in microseconds."""

    plain: float
    checked: float

    @property
    def times(self) -> float:
        """The checked time as a multiple of the plain one."""
        return self.checked / self.plain


def row(number: int) -> list[Any]:
    """Return a row of a table."""
    return [number, f"name {number}", number * 1.5, True, None, f"é{number}"]


def messages() -> dict[str, dict[str, Any]]:
    """Return the messages that are measured."""
    names = ("id", "name", "price", "is_new", "note", "mark")
    arguments: dict[str, object] = {
        "a plain call": "hello",
        "a call with a URL": "https://example.org/a?b=c:d",
        "a table of 1 KB": [row(number) for number in range(ROWS // 5)],
        "objects of 1 KB": [dict(zip(names, row(number), strict=True)) for number in range(ROWS // 10)],
        "a table of rows": [row(number) for number in range(ROWS)],
        "a table of objects": [dict(zip(names, row(number), strict=True)) for number in range(ROWS)],
        "a long table of rows": [row(number) for number in range(10 * ROWS)],
        "a long table of objects": [
            dict(zip(names, row(number), strict=True)) for number in range(10 * ROWS)
        ],
        "numbers": list(range(10 * ROWS)),
        "a text": "Once, there was: a text with {braces} and [brackets]. " * ROWS,
        "a program": 'if name == "main":\n    print({"a": [1, 2, 3]})\n' * ROWS,
    }
    return {
        title: {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t", "arguments": {"a": one}}}
        for title, one in arguments.items()
    }  # fmt: skip


def ratio(data: bytes, *, seconds: float = SECONDS) -> Ratio:
    """Measure both ways in turn, and return the smallest time of each."""
    limits = Limits()
    plain = checked = float("inf")
    # A short message is decoded several times, so that reading the clock is not measured.
    times = range(1 + AT_ONCE // len(data))
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        for _ in times:
            _plain(data)
        between = time.perf_counter()
        for _ in times:
            decode(data, max_depth=limits.depth, max_values=limits.values)
        ended = time.perf_counter()
        plain, checked = min(plain, between - began), min(checked, ended - between)
    return Ratio(plain / len(times) * 1e6, checked / len(times) * 1e6)


def main() -> None:
    """Measure and print."""
    for title, message in messages().items():
        for form, data in (("msgspec", encode(message)), ("json.dumps", json.dumps(message).encode())):
            found = ratio(data, seconds=10 * SECONDS)
            print(
                f"  {title:24s} {form:10s} {len(data):7,d} bytes  msgspec {found.plain:8.2f} µs  "
                f"with checks {found.checked:8.2f} µs  {found.times:.2f} times"
            )


if __name__ == "__main__":
    main()
