"""Mistakes about the home of a session: each a line of `engine/home.py` that is wrong again."""

from limpet.engine.home import Homes
from tests.bugbank.rewriting import rewritten

FORMER_HOME = rewritten(Homes._claim, "claimed.record.home != self._me", "False")
STARTED_WHILE_STOPPING = rewritten(Homes._claim, "if self._is_stopping():", "if False:")
NEVER_TAKEN = rewritten(
    Homes._arrive,
    "await runtime.store.take_home(key, home)",
    "await runtime.store.take_home(key, self._me)",
)
