"""Principals: no principal can imitate another."""

import pytest

from limpet.auth import Principal
from limpet.errors import ConfigError


@pytest.mark.parametrize("part", ["subject", "issuer", "client"])
def test_no_part_of_a_principal_contains_the_separator_of_its_key(part: str) -> None:
    parts = {"subject": "alice", part: "a\0b"}
    with pytest.raises(ConfigError, match="may not contain NUL"):
        Principal(**parts)  # type: ignore[arg-type]


def test_equal_texts_in_other_places_are_another_principal() -> None:
    keys = {
        Principal(subject="a", issuer="b").key,
        Principal(subject="b", issuer="a").key,
        Principal(subject="a", client="b").key,
        Principal(subject="ab").key,
    }
    assert len(keys) == 4


@pytest.mark.parametrize("scopes", [["mail.read"], "mail.read", None])
def test_the_scopes_of_a_principal_are_a_set(scopes: object) -> None:
    with pytest.raises(ConfigError, match="scopes are a set of texts"):
        Principal(subject="ada", scopes=scopes)  # type: ignore[arg-type]
