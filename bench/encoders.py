"""`python -m bench.encoders`: what encoding a tool's result costs, by encoder and size.

Each encoder is given what the server has in its hands: a result made of Structs. One that does
not know Structs pays for turning them into plain values first. orjson is measured where it is
installed; Limpet does not need it.
"""

import importlib
import json
import statistics
import timeit
from collections.abc import Callable
from typing import Any

import msgspec

from limpet.protocol.types import CallToolResult, TextContent
from limpet.wire.jsonrpc import encode

Encoder = Callable[[object], bytes | str]
ROUNDS, SECONDS = 7, 0.05
TEXTS = {
    "4 bytes": "echo",
    "10 KB, plain": "x" * 10_240,
    "10 KB, prose": ("It said “no”.\n" * 1_000)[:9_140],
}
"""The last has quotation marks beyond ASCII and line ends to escape; its size is that of its UTF-8, about."""


def encoders() -> dict[str, Encoder]:
    """Return the candidates that are installed."""
    found: dict[str, Encoder] = {
        "msgspec": encode,
        "json": lambda value: json.dumps(value, default=msgspec.to_builtins, separators=(",", ":")),
    }
    try:
        orjson: Any = importlib.import_module("orjson")
    except ImportError:
        return found
    return {**found, "orjson": lambda value: orjson.dumps(value, default=msgspec.to_builtins)}


def microseconds(encoder: Encoder, value: object) -> float:
    """Return the median time of one call."""
    timer = timeit.Timer(lambda: encoder(value))
    number = max(1, int(SECONDS / max(timer.timeit(100) / 100, 1e-9)))
    return statistics.median(timer.repeat(ROUNDS, number)) / number * 1e6


def main() -> None:
    """Measure and print."""
    for title, text in TEXTS.items():
        result = CallToolResult(content=[TextContent(text=text)])
        figures = {name: microseconds(encoder, result) for name, encoder in encoders().items()}
        print(f"  {title:14s}" + "".join(f"  {name} {value:7.2f} µs" for name, value in figures.items()))


if __name__ == "__main__":
    main()
