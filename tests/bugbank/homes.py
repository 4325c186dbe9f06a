"""Mistakes about the home of a session: each a line of `engine/home.py` that is wrong again."""

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from holdfast.engine.home import Homes

Patches = Callable[[], AbstractContextManager[None]]


def _rewritten(owner: type, name: str, line: str, wrong: str) -> Patches:
    """Replace a piece of a method's source, wherever it stands."""
    method = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(method))
    assert line in source, f"{owner.__name__}.{name} has no {line!r}"

    @contextmanager
    def patched() -> Iterator[None]:
        made: dict[str, Any] = {}
        exec(source.replace(line, wrong), vars(inspect.getmodule(method)), made)  # noqa: S102 - a mutant
        with patch.object(owner, name, made[name]):
            yield

    return patched


FORMER_HOME = _rewritten(Homes, "_claim", "claimed.record.home != self._me", "False")
STARTED_WHILE_STOPPING = _rewritten(Homes, "_claim", "if self._is_stopping():", "if False:")
NEVER_TAKEN = _rewritten(
    Homes,
    "_arrive",
    "await runtime.store.take_home(key, home)",
    "await runtime.store.take_home(key, self._me)",
)
