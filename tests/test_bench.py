"""The benchmark (`make bench`), in its shortest form: it runs, it refuses wrong answers, and it writes tables and charts."""

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench.__main__ import main
from bench.connection import WrongAnswer
from bench.contest import at
from bench.contestants import LIMIT, LIMPET, ROOT, Contestant, limpet
from bench.goals import GOALS, goals
from bench.loads import (
    create,
    echo,
    events,
    first_call,
    idle_connections,
    idle_sessions,
    left_sessions,
    open_streams,
)
from bench.report import write_charts, write_page
from bench.results import read
from bench.runner import Plan, Turns, chosen
from bench.running import Running
from bench.surroundings import Around
from bench.workloads import WORKLOADS

LIAR = """
import json, os
from http.server import BaseHTTPRequestHandler, HTTPServer

class Liar(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        result = {"content": [{"type": "text", "text": "hello 7"}], "protocolVersion": os.environ["VERSION"]}
        body = json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), "result": result}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Mcp-Session-Id", os.urandom(8).hex())
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Liar).serve_forever()
"""


def liar(version: str = "2025-11-25") -> Contestant:
    """Return a server that opens sessions, and gives every call the same answer."""
    return Contestant(
        "liar",
        [sys.executable, "-c", LIAR.replace("{", "{{").replace("}", "}}")],
        ROOT,
        env={"VERSION": version},
    )


def test_a_short_run_measures_and_writes_results_and_charts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = ["echo-json", "events", "memory-stream"]
    assert main(["--quick", "--only", *only, "--peers", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "FAILED" not in printed
    assert "echo, 1 session, JSON, 32 connections, of the bare application by CPU" in printed
    results = read(tmp_path / "results.json")
    assert list(results) == only
    (point,) = results["echo-json"]["points"]
    assert set(point["figures"]) == {"bare uvicorn", "limpet"}
    for rounds in point["figures"].values():
        assert set(rounds[0]) == {"per_second", "cpu_us", "p50_us", "p99_us"}
        assert all(value > 0 for value in rounds[0].values())
    assert str(ROOT) not in (tmp_path / "results.json").read_text(encoding="utf-8")
    for name in ("echo-json", "events"):
        assert ET.parse(tmp_path / f"{name}.svg").getroot().tag.endswith("svg")  # noqa: S314 - our own file


def test_a_server_with_wrong_answers_gets_no_figures() -> None:
    workload = WORKLOADS["echo-json"]
    said: list[str] = []
    measured = Turns(workload, Plan(quick=True), said.append).run([liar(), LIMIT])
    assert "hello 7" in measured.faults["liar"]
    assert [set(table) for _, table in measured.points] == [{"bare uvicorn"}]
    assert any("FAILED liar" in line for line in said)


def test_peers_are_measured_in_one_round_unless_one_of_them_counts_as_1() -> None:
    plan, echoes, clients = Plan(), WORKLOADS["echo-json"], WORKLOADS["client"]
    assert [plan.rounds_of(echoes, name) for name in ("bare uvicorn", "limpet", "mcp2")] == [3, 3, 1]
    assert plan.rounds_of(clients, "mcp2") == clients.rounds == 3
    whole = sum(plan.estimate(one, chosen(one, None)) for one in WORKLOADS.values())
    assert whole < 20 * 60, "the time of a whole run"


def test_each_goal_has_a_workload_and_each_of_ours_is_measured_without_peers() -> None:
    assert {goal.workload for goal in GOALS} <= WORKLOADS.keys()
    for name in ("telemetry", "growth-connections", "growth-tools", "workers", "memory-connection"):
        assert chosen(WORKLOADS[name], []), name


def test_every_load_refuses_a_wrong_answer() -> None:
    with Running(liar()) as server:
        for load in (
            lambda: first_call(server),
            lambda: echo(server, seconds=1, connections=1),
            lambda: events(server, seconds=1, streams=1, count=3),
        ):
            with pytest.raises(WrongAnswer):
                load()
    with Running(liar("2024-01-01")) as server, pytest.raises(WrongAnswer):
        create(server, seconds=1, connections=1)


def test_proxies_are_compared_in_one_run() -> None:
    workload = WORKLOADS["url"]
    names = ("remote", "fastmcp's proxy", "mcp-proxy of stdio")
    with Around() as around:
        contestants = [workload.entries[name](around) for name in names]
        shortest = workload._replace(points=workload.points[:1])
        measured = Turns(shortest, Plan(rounds=1, seconds=1), print).run(contestants)
    assert not measured.faults
    assert set(measured.points[0][1]) == set(names)


def test_a_checkout_or_an_interpreter_takes_the_place_of_our_code() -> None:
    assert at(str(ROOT), LIMPET, "new").env["PYTHONPATH"] == str(ROOT / "src")
    assert at(sys.executable, LIMPET, "new").command[1:] == LIMPET.command[1:]


def test_the_page_is_the_one_of_the_stored_results(tmp_path: Path) -> None:
    """A generated part that was edited by hand, or not written again, fails here."""
    results = read(ROOT / "docs" / "speed" / "results.json")
    page = tmp_path / "speed.md"
    before = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    page.write_text(before, encoding="utf-8")
    write_page(page, results)
    assert page.read_text(encoding="utf-8") == before
    for chart in write_charts(tmp_path, results):
        assert chart.read_bytes() == (ROOT / "docs" / "speed" / chart.name).read_bytes()
        assert f"](speed/{chart.name})" in before


def test_a_page_keeps_its_hand_written_part(tmp_path: Path) -> None:
    page = tmp_path / "speed.md"
    page.write_text(
        "by hand\n<!-- bench: goals -->\nold\n<!-- /bench -->\nalso by hand\n<!-- bench: url -->\nno result\n<!-- /bench -->\n",
        encoding="utf-8",
    )
    write_page(page, {})
    text = page.read_text(encoding="utf-8")
    assert text.startswith("by hand\n<!-- bench: goals -->\n\n| goal |")
    assert "\n<!-- /bench -->\nalso by hand\n<!-- bench: url -->\nno result\n<!-- /bench -->\n" in text


def test_sessions_and_streams_take_little_memory() -> None:
    """Broken if a session gets collections that it does not need, a complete log stays loose, or a call leaves a cycle."""
    streaming = limpet("limpet", "--response", "sse")
    assert idle_sessions(LIMPET, count=1500)["bytes"] < 3 * 1024
    assert left_sessions(streaming, count=1000)["bytes"] < 8 * 1024
    assert open_streams(streaming, count=600)["bytes"] < 13 * 1024
    assert idle_connections(LIMPET, count=600)["bytes"] < 16 * 1024


def test_every_goal_has_a_row_and_one_without_a_result_says_so() -> None:
    rows = goals({})[1:]
    assert len(rows) == len(GOALS) == len({row[0] for row in rows})
    assert {tuple(row[2:]) for row in rows} == {("–", "not measured")}
    assert {goal.workload for goal in GOALS} <= set(WORKLOADS)
    figures = {"limpet": [{"bytes": 8.0 * 1024}]}
    found = {
        name: {"points": [{"label": "", "figures": figures}]} for name in ("memory-idle", "memory-connection")
    }
    reached = {row[0]: row[1:] for row in goals(found) if row[3] != "not measured"}
    assert reached == {
        "goal": ["limit", "measured", "reached"],
        "an idle session": ["at most 1.5 KiB", "8.0 KiB", "**no**"],
        "an idle connection": ["at most 8 KiB", "8.0 KiB", "yes"],
    }
