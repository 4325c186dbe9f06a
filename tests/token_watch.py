"""Watches the whole test run: no token that a server of this process has received may be in an event of its log.

The tests of `tests/attacks/test_token_scan.py` search logs, stores and responses thoroughly. This one costs nothing, and sees
every way through the code that any test takes.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from limpet.fronts.http.decide import identity
from limpet.fronts.http.read.head import Head
from limpet.ops.log import LogObserver
from limpet.testing import NotingObserver

_SHORTEST: Final = 10
"""Shorter tokens of tests are names, which other texts contain too."""
_MOST: Final = 200
_seen: OrderedDict[str, None] = OrderedDict()
_leaks: list[str] = []


def _watched_token(read: Callable[[Head], str]) -> Callable[[Head], str]:
    def token(head: Head) -> str:
        found = read(head)
        if len(found) >= _SHORTEST:
            _seen[found] = None
            if len(_seen) > _MOST:
                _seen.popitem(last=False)
        return found

    return token


def _watched_note(note: Callable[..., None]) -> Callable[..., None]:
    def noting(self: Any, event: str, /, **facts: Any) -> None:
        if _seen:
            text = f"{event} {facts}"
            _leaks.extend(f"the event {event} has a token" for token in _seen if token in text)
        note(self, event, **facts)

    return noting


identity.token_of = _watched_token(identity.token_of)  # type: ignore[assignment]
for _kind in (LogObserver, NotingObserver):
    _kind.note = _watched_note(_kind.note)  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def no_token_is_logged() -> Iterator[None]:
    """Fail a test in which a token was logged."""
    _seen.clear()
    yield
    leaks, _leaks[:] = list(_leaks), []
    assert leaks == []
