"""Write deploy/grafana-dashboard.json: `python tools/grafana.py`. A table of panels is easier to change than their JSON."""

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

FILE: Final = Path(__file__).parents[1] / "deploy" / "grafana-dashboard.json"
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_CHOSEN: Final = 'server=~"$server", instance=~"$instance"'
_HERE: Final = 'instance=~"$instance"'
_WIDTH, _HEIGHT, _COLUMNS = 8, 7, 24


class Panel(NamedTuple):
    """A chart: its title, its unit, and what it shows, each with a legend."""

    title: str
    unit: str
    shows: dict[str, str]
    """By legend: an expression, in which # stands for the chosen servers and @ for the chosen processes."""


_CALLS: Final = "mcp_server_operation_duration_seconds"
ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Calls": (
        Panel("Calls by outcome", "reqps", {"{{outcome}}": f"sum by (outcome) (rate({_CALLS}_count{{#}}[$__rate_interval]))"}),
        Panel("Calls by tool", "reqps", {"{{gen_ai_tool_name}}": f'topk(10, sum by (gen_ai_tool_name) (rate({_CALLS}_count{{mcp_method_name="tools/call", #}}[$__rate_interval])))'}),
        Panel("Duration", "s", {
            f"{share:.0%}": f"histogram_quantile({share}, sum by (le) (rate({_CALLS}_bucket{{#}}[$__rate_interval])))" for share in (0.5, 0.95, 0.99)
        }),
        Panel("Slowest tools, 95 %", "s", {"{{gen_ai_tool_name}}": f'topk(10, histogram_quantile(0.95, sum by (le, gen_ai_tool_name) (rate({_CALLS}_bucket{{mcp_method_name="tools/call", #}}[$__rate_interval]))))'}),
        Panel("In flight, by what they wait for", "short", {"{{waits_for}}": "sum by (waits_for) (limpet_exchanges_waiting{#})"}),
        Panel("Age of the oldest call", "s", {"{{waits_for}}": "max by (waits_for) (limpet_exchange_oldest_seconds{#})"}),
    ),
    "Sessions": (
        Panel("Sessions", "short", {"{{state}}": "max by (server, state) (limpet_sessions{#})"}),
        Panel("Opened, detached, resumed, closed", "ops", {"{{change}}": "sum by (change) (rate(limpet_session_changes_total{#}[$__rate_interval]))"}),
        Panel("Running, queued, parked", "short", {"{{state}}": "sum by (state) (limpet_exchanges{#})"}),
        Panel("Questions to clients", "short", {"open, {{era}}": "sum by (era) (limpet_asks{#})"}),
        Panel("Streams", "short", {"readers": "sum(limpet_stream_readers{#})", "listeners": "sum(limpet_listeners{#})"}),
        Panel("Events of streams", "ops", {"events": "sum(rate(limpet_stream_events_total{#}[$__rate_interval]))"}),
    ),
    "Trouble": (
        Panel("Refusals", "ops", {"{{reason}}": "sum by (reason) (rate(limpet_refusals_total{#}[$__rate_interval])) > 0"}),
        Panel("Duplicates refused", "ops", {"{{client}}": "sum by (client) (rate(limpet_duplicates_refused_total{#}[$__rate_interval]))"}),
        Panel("Resumes, gaps, repeats, stalls", "ops", {
            name: f"sum(rate(limpet_{metric}_total{{#}}[$__rate_interval]))"
            for name, metric in {"resumes": "stream_resumes", "gaps": "stream_gaps", "repeats": "repeats", "stalls": "stream_stalls"}.items()
        }),
        Panel("Reaped, fenced, leases lost", "ops", {
            name: f"sum(increase(limpet_{metric}_total{{#}}[$__rate_interval]))"
            for name, metric in {"reaped": "exchanges_reaped", "fenced": "exchanges_fenced", "leases lost": "leases_lost"}.items()
        }),
        Panel("Servers behind", "ops", {
            name: f"sum by (server) (increase(limpet_upstream_{name}_total{{#}}[$__rate_interval]))" for name in ("ended", "restarts", "unreachable")
        }),
        Panel("Event loop: largest delay", "s", {"{{instance}}": "max by (instance) (limpet_loop_delay_max_seconds{@})"}),
    ),
    "Store and process": (
        Panel("Store, 95 %", "s", {"{{part}}": "histogram_quantile(0.95, sum by (le, part) (rate(limpet_store_duration_seconds_bucket{#}[$__rate_interval])))"}),
        Panel("Store errors", "ops", {"{{part}} {{error}}": "sum by (part, error) (rate(limpet_store_errors_total{#}[$__rate_interval]))", "unreachable {{instance}}": "max by (instance) (limpet_store_unreachable{#})"}),
        Panel("Bytes in the store", "bytes", {"logs": "max by (server) (limpet_store_log_bytes{#})", "state": "max by (server) (limpet_store_state_bytes{#})"}),
        Panel("Replicas", "short", {"{{server}}": "max by (server) (limpet_replicas{#})", "processes": "sum(limpet_processes{@})"}),
        Panel("Processor", "percentunit", {"{{instance}}": "sum by (instance) (rate(process_cpu_seconds_total{@}[$__rate_interval]))"}),
        Panel("Memory", "bytes", {"{{instance}}": "sum by (instance) (process_resident_memory_bytes{@})", "messages in work": "sum(limpet_memory_bytes{#})"}),
    ),
}  # fmt: skip


def _panel(number: int, top: int, column: int, panel: Panel) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + place),
            "datasource": _SOURCE,
            "expr": expression.replace("#", _CHOSEN).replace("@", _HERE),
            "legendFormat": legend,
        }
        for place, (legend, expression) in enumerate(panel.shows.items())
    ]
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": top, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": targets,
    }


def _variable(name: str) -> dict[str, Any]:
    query = f"label_values(limpet_exchanges, {name})"
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }


def dashboard() -> dict[str, Any]:
    """Return the whole dashboard."""
    panels: list[dict[str, Any]] = []
    top = 0
    per_line = _COLUMNS // _WIDTH
    for title, row in ROWS.items():
        place = {"x": 0, "y": top, "w": _COLUMNS, "h": 1}
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "gridPos": place,
                "collapsed": False,
                "panels": [],
            }
        )
        top += 1
        for place_in_row, panel in enumerate(row):
            line, column = divmod(place_in_row, per_line)
            panels.append(_panel(len(panels) + 1, top + line * _HEIGHT, column, panel))
        top += -(-len(row) // per_line) * _HEIGHT
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    return {
        "title": "Limpet",
        "uid": "limpet",
        "tags": ["mcp", "limpet"],
        "schemaVersion": 39,
        "version": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source, _variable("server"), _variable("instance")]},
        "panels": panels,
    }


def text() -> str:
    """Return the text of the file."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
