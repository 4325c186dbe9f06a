"""Settings that cannot work are refused where they are written, in words that say what would."""

from typing import Any

import pytest

from holdfast import HttpSettings, Settings
from holdfast.errors import ConfigError


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"response": "xml"}, "response='xml': choose adaptive, json, sse"),
        ({"path": "mcp"}, "path='mcp': an endpoint's path begins with a slash"),
        (
            {"allowed_hosts": "a.example"},
            r"allowed_hosts is a list of texts, not one text: write \['a.example'\]",
        ),
        ({"allowed_origins": "https://a.example"}, "allowed_origins is a list of texts"),
    ],
)
def test_what_an_endpoint_cannot_be_told_is_named_with_what_would_do(
    wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        HttpSettings(**wrong)


def test_a_call_cannot_be_run_again_less_often_than_never() -> None:
    with pytest.raises(ConfigError, match="reruns=-1: give a number of runs"):
        Settings(reruns=-1)


def test_there_are_two_ways_to_treat_duplicates() -> None:
    wrong: Any = "ignore"
    with pytest.raises(ConfigError, match="duplicates='ignore': choose reject, isolate"):
        Settings(duplicates=wrong)
