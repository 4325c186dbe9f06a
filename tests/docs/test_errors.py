"""docs/errors.md has a row for every status and every code that the source can answer with, and for no other."""

import re
from pathlib import Path
from typing import Final

from limpet import errors
from limpet.fronts.http.write import answer
from limpet.protocol.quirks import KNOWN

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "errors.md").read_text()
HTTP: Final = ROOT / "src" / "limpet" / "fronts" / "http"
STATUS: Final = re.compile(
    r"(?:refuse|RefusedRequest|Answer)\(\s*(\d{3})|[A-Z_]+: (\d{3})|status: int = (\d{3})"
)


def codes_of(module: object) -> set[int]:
    return {
        value for name, value in vars(module).items() if name.isupper() and type(value) is int and value < -1
    }


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_status_is_on_the_page() -> None:
    answered = {
        int(next(filter(None, found)))
        for path in HTTP.rglob("*.py")
        for found in STATUS.findall(path.read_text())
    }
    told = {int(number) for number in re.findall(r"^\| (\d{3}) \|", section("HTTP status"), re.MULTILINE)}
    assert told == answered
    assert {200, 404, 421} <= answered


def test_every_code_is_on_the_page() -> None:
    answered = codes_of(errors) | codes_of(answer)
    told = {
        -int(number) for number in re.findall(r"^\| −(\d{5}) \|", section("JSON-RPC codes"), re.MULTILINE)
    }
    assert told == answered
    assert {-32600, -31003} <= answered


def test_every_exception_is_on_the_page() -> None:
    named = set(re.findall(r"`([A-Z]\w+)", section("Exceptions")))
    assert EXCEPTIONS.keys() - {"LimpetError"} <= named


EXCEPTIONS: Final = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.LimpetError)
}


def test_every_client_with_quirks_is_on_the_page() -> None:
    page = (ROOT / "docs" / "sessions.md").read_text()
    told = set(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)) - {
        "deleted", "idle", "grace over", "expired", "evicted", "shutdown", "by an operator",
    }  # fmt: skip
    assert told == set(KNOWN)
