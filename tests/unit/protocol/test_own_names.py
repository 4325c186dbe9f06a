"""Names and codes that Limpet defines itself: they keep the rules of the specification for names and codes of others."""

import re
from typing import Final

import pytest

from limpet import errors
from limpet.engine.tasks import REFUSED_KEY
from limpet.fronts.http.write.answer import SESSION_NOT_FOUND
from limpet.protocol import sessionless
from limpet.protocol.hand_over import TICKET_KEY
from limpet.protocol.idempotency import KEY, KEYS_EXTENSION
from limpet.server.functions.client_errors import CORRELATION

LABEL: Final = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
NAME: Final = re.compile(rf"{LABEL}(?:\.{LABEL})*/[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
OWN: Final = (KEY, KEYS_EXTENSION, CORRELATION, TICKET_KEY, REFUSED_KEY)
STANDARD: Final = {-32700, -32600, -32601, -32602, -32603, -32020, -32021, -32022}
OF_SESSIONS: Final = {SESSION_NOT_FOUND, errors.RESOURCE_NOT_FOUND, errors.URL_ELICITATION_REQUIRED}
"""Codes that only sessions have: 2026-07-28 reserves them, and its answers do not have them."""


@pytest.mark.parametrize("name", [*OWN, sessionless.TASKS])
def test_keys_of_our_own_metadata_keep_the_rules(name: str) -> None:
    assert NAME.fullmatch(name)
    labels = name.partition("/")[0].split(".")
    is_reserved = len(labels) > 1 and labels[1] in {"modelcontextprotocol", "mcp"}
    assert is_reserved is (name == sessionless.TASKS), "only names of the specification have its prefix"


def test_our_own_codes_are_outside_the_reserved_range() -> None:
    codes = {value for name, value in vars(errors).items() if name.isupper() and isinstance(value, int)}
    reserved = {code for code in codes if -32768 <= code <= -32000}
    assert reserved | OF_SESSIONS == STANDARD | OF_SESSIONS
    assert {errors.BUSY, errors.OUTCOME_UNKNOWN, errors.PARKED_GONE} <= codes - reserved
