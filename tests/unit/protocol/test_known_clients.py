"""What is known of clients by their names: quirks, patience, and how often they needed them."""

import pytest

from limpet.config import Quirks
from limpet.errors import ConfigError
from limpet.protocol.patience import MARGIN, UNKNOWN_PATIENCE, check_time, hand_over_after
from limpet.protocol.quirks import (
    NAMES,
    NONE,
    SHOWN_NAME,
    ClientCounts,
    ClientQuirks,
    name_of,
    quirks_of,
    shown_name,
)
from limpet.testing.notes import NotingObserver


def test_a_known_client_has_its_quirks_and_a_table_of_the_operator_replaces_them() -> None:
    assert quirks_of({"name": "claude-ai"}, None).isolate
    assert quirks_of({"name": "claude-ai"}, {}) == NONE
    assert quirks_of({"name": "mine"}, {"mine": Quirks(no_priming=True)}).no_priming
    assert quirks_of(None, None) == NONE


def test_a_client_without_a_name_has_an_empty_one_and_a_long_name_is_cut_for_the_log() -> None:
    assert [name_of(client) for client in (None, {}, {"name": 1}, "x")] == [""] * 4
    assert len(shown_name({"name": "x" * 1_000})) == SHOWN_NAME


def test_the_uses_of_the_table_are_counted_and_reported_by_client() -> None:
    noted = NotingObserver()
    quirks = ClientQuirks(None, noted)
    client = {"name": "claude-ai"}
    quirks.applied(client, "isolate")
    quirks.duplicate(client, "s1")
    quirks.duplicate(client, "s2")
    quirks.duplicate({}, "s3")
    assert quirks.of(client).isolate
    assert quirks.duplicates() == {"claude-ai": 2, "unknown": 1}
    assert noted.named("quirk.applied") == [{"client": "claude-ai", "quirk": "isolate", "count": 1}]
    assert noted.named("exchange.duplicate")[1] == {"session": "s2", "client": "claude-ai", "count": 2}
    assert repr(quirks) == "<ClientQuirks <ClientCounts of 2 clients>>"


def test_clients_beyond_the_limit_are_counted_together() -> None:
    counts = ClientCounts()
    for number in range(NAMES + 5):
        counts.add({"name": f"client {number}"}, "duplicate")
    assert counts.add({"name": "client 0"}, "duplicate") == ("client 0", 2)
    assert counts.of("duplicate")["other"] == 5
    assert len(counts.of("duplicate")) == NAMES + 1
    assert counts.of("isolate") == {}


def test_a_call_is_handed_over_before_the_patience_of_its_client_ends() -> None:
    assert hand_over_after({"name": "no such client"}) == MARGIN * UNKNOWN_PATIENCE
    named, through_mcp_remote = {"name": "claude-ai"}, {"name": "claude-ai (via mcp-remote 0.1.37)"}
    assert hand_over_after(named) == hand_over_after(through_mcp_remote)


@pytest.mark.parametrize("time", [0, -1, True, float("inf"), "soon", None])
def test_an_invalid_time_of_a_hand_over_names_its_setting(time: object) -> None:
    with pytest.raises(ConfigError, match=r"hand_over=.*seconds above 0, auto, or off"):
        check_time("hand_over", time)


@pytest.mark.parametrize("time", [0.5, 30, "auto", "off"])
def test_seconds_auto_and_off_are_times_of_a_hand_over(time: object) -> None:
    check_time("hand_over", time)
