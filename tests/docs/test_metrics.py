"""The table of metrics in docs/observe.md is the code's, and alert rules and the Grafana dashboard use only metrics that exist."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

import pytest
import yaml

from limpet.engine.audit import REASONS
from limpet.ops.figures import CallOutcome
from limpet.ops.metrics.families import EVENTS, FAMILIES, Family
from limpet.ops.waits import LIVE_STATES, WAITS
from tools import grafana

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "observe.md").read_text()
GIVEN_BY_PROMETHEUS: Final = {"instance", "job"}
VALUES: Final[dict[str, set[str]]] = {
    "waits_for": set(WAITS),
    "reason": set(REASONS),
    "outcome": set(get_args(CallOutcome)),
    "state": {*LIVE_STATES.values(), "ending", "attached", "detached"},
    "error": {"unavailable", "fenced", "other"},
    "mcp_method_name": {"tools/call"},
}
"""By label: the values that the code gives it. Others are not checked."""

FAULTS: Final = {
    "a hung call": "limpet_exchange_oldest_seconds",
    "a stalled reader": "limpet_stream_stalls_total",
    "a lost store": "limpet_store_unreachable",
    "a dead replica": "limpet_exchanges_reaped_total",
    "a full queue": "limpet_refusals_total",
    "an unanswered ask": 'limpet_exchange_oldest_seconds{waits_for="ask"}',
    "a blocked loop": "limpet_loop_delay_max_seconds",
    "restarts of a server behind": "limpet_upstream_ended_total",
    "tokens that cannot be checked": "limpet_verifier_failures_total",
}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((ROOT / "deploy" / "prometheus-alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield rule["alert"], rule["expr"]
    board = json.loads(grafana.FILE.read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def family_of(name: str) -> Family | None:
    """Return the metric of a name in an expression; a histogram has three names."""
    plain = re.sub(r"_(bucket|sum|count)$", "", name)
    family = FAMILIES.get(name) or FAMILIES.get(plain)
    is_histogram = family is not None and family.kind == "histogram"
    return family if is_histogram == (plain != name) else None


def faults_of(expression: str) -> list[str]:
    """Return the faults in the names, labels and values of an expression."""
    found: list[str] = []
    labels = set(GIVEN_BY_PROMETHEUS)
    for name, selector in re.findall(r"\b((?:limpet|mcp_server|process)_\w+|up)\b(\{[^}]*\})?", expression):
        if name == "up":
            continue
        family = family_of(name)
        if family is None:
            found.append(f"no metric {name}")
            continue
        own = {*family.labels, *GIVEN_BY_PROMETHEUS, *(["le"] if family.kind == "histogram" else [])}
        labels |= own
        for label, value in re.findall(r'(\w+)\s*[=!]~?\s*"([^"]*)"', selector):
            if label not in own:
                found.append(f"{name} has no label {label}")
            unknown = set(value.split("|")) - VALUES.get(label, {value, *value.split("|")})
            found += [f"{label} is never {one}" for one in unknown]
    for listed in re.findall(r"\bby \(([^)]*)\)", expression):
        found += [f"no label {label}" for label in re.split(r",\s*", listed) if label not in labels]
    return found


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_alerts_and_charts_use_metrics_and_labels_that_exist(where: str, expression: str) -> None:
    assert faults_of(expression) == [], where


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("limpet_absent > 1", "no metric limpet_absent"),
        ("limpet_exchanges_bucket > 1", "no metric limpet_exchanges_bucket"),
        ("mcp_server_operation_duration_seconds > 1", "no metric mcp_server_operation_duration_seconds"),
        ('limpet_exchanges{tool="x"} > 1', "limpet_exchanges has no label tool"),
        ('limpet_refusals_total{reason=~"busy|moon"} > 1', "reason is never moon"),
        ("sum by (colour) (limpet_exchanges)", "no label colour"),
    ],
)
def test_a_wrong_name_label_or_value_would_be_found(expression: str, fault: str) -> None:
    assert faults_of(expression) == [fault]


def test_every_alert_names_the_fault_and_the_remedy() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    for rule in rules():
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "action"}
        for label in re.findall(r"\$labels\.(\w+)", str(rule["annotations"])):
            assert label in rule["expr"] or label in GIVEN_BY_PROMETHEUS | {"server"}, (rule["alert"], label)


def test_no_alert_waits_for_the_increase_of_a_counter_that_begins_with_its_first_event() -> None:
    """`increase` compares two samples: a counter that appears with the value 1 has not increased."""
    for rule in rules():
        assert EVENTS.name not in rule["expr"], rule["alert"]


@pytest.mark.parametrize(("fault", "metric"), FAULTS.items())
def test_there_is_an_alert_for_each_fault_that_an_operator_must_see(fault: str, metric: str) -> None:
    assert any(metric in rule["expr"] for rule in rules()), fault


def test_the_grafana_dashboard_is_the_one_of_its_table() -> None:
    assert grafana.FILE.read_text() == grafana.text(), "run python tools/grafana.py"


def test_the_page_has_a_row_for_each_metric_with_its_kind_and_labels() -> None:
    rows = re.findall(r"^\| `((?:limpet|mcp_server|process)_\w+)` \| (\w+) \| ([^|]*) \|", PAGE, re.MULTILINE)
    written = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert written == {
        name: (family.kind, tuple(label for label in family.labels if label != "server"))
        for name, family in FAMILIES.items()
    }
    assert len(rows) == len(written)
