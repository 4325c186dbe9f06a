"""`limpet demo`, with its real processes: what it shows, that it cannot say "held" without reason, and that it leaves nothing."""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from rich.console import Console

from limpet.checking.lane import Lane
from limpet.checking.peer import Peer
from limpet.checking.seen_response import SeenEvent, SeenResponse
from limpet.cli.demo.acts import (
    ACTS,
    AWAY_SECONDS,
    CALL_SECONDS,
    NOTICE_SECONDS,
    STEP_SECONDS,
    STEPS,
    Act,
    judge_answer,
    judge_duplicate,
    judge_replicas,
    judge_stream,
)
from limpet.cli.demo.command import _Table
from limpet.cli.demo.ours import LEASE_SECONDS, server
from limpet.cli.demo.run import ACT_SECONDS, ActResult, DemoReport, SideReport, Watcher, our_side, run
from limpet.cli.demo.stage import PATIENCE, Failed, Side, Stage
from tests.command_line import run as command
from tests.support import BOUND, async_test, wait_until
from tests.workers.fleet import children, lives

ROOT: Final = Path(__file__).parents[2]
NAMES: Final = [act.name for act in ACTS]


def started(
    home: Path, *words: str, python: str = sys.executable, **environment: str
) -> "subprocess.Popen[str]":
    """Start `limpet demo` with a directory of its own for temporary files."""
    return subprocess.Popen(
        [python, "-W", "ignore", "-m", "limpet", "demo", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(home), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(home: Path, *words: str, python: str = sys.executable) -> tuple[int, str]:
    """Run it to its end; return its exit status and its output. It leaves no file."""
    with started(home, *words, python=python) as process:
        out, err = process.communicate(timeout=BOUND)
    assert err == ""
    assert list(home.iterdir()) == []
    return process.returncode, out


def peer(name: str) -> str:
    python = ROOT / ".peers" / name / "bin" / "python"
    if not python.exists():
        pytest.fail(f"{python.relative_to(ROOT)} is not installed: run `make peers`")
    return str(python)


def verdicts(side: dict[str, Any]) -> dict[str, str]:
    return {result["act"]: result["verdict"] for result in side["results"]}


def test_all_four_hold_and_the_table_shows_the_results_of_the_sdk_too(tmp_path: Path) -> None:
    status, out = ended(tmp_path, "--json", python=peer("mcp2"))
    report = json.loads(out)
    ours, theirs = report["sides"]
    assert (status, report["held"]) == (0, True), out
    assert verdicts(ours) == dict.fromkeys(NAMES, "held")
    assert (theirs["name"], theirs["version"].partition(".")[0]) == ("mcp", "2")
    found = verdicts(theirs)
    assert (found["duplicate"], found["replicas"]) == ("failed", "not offered"), theirs
    assert "no shared sessions" in theirs["results"][3]["happened"]


def test_the_first_generation_of_the_sdk_is_shown_too(tmp_path: Path) -> None:
    status, out = ended(tmp_path, "--only", "duplicate", python=peer("mcp1"))
    assert status == 0, out
    ours, theirs, summary, *_ = out.splitlines()
    assert ours.startswith("limpet 0.1.0: ")
    assert theirs.startswith("mcp 1.30.0: ")
    assert [": held: " in line for line in (ours, theirs)] == [True, False]
    assert "limpet 0.1.0: 1 held; mcp 1.30.0: " in summary


def test_without_the_sdk_a_line_says_how_to_see_it(tmp_path: Path) -> None:
    status, out = ended(tmp_path, "--only", "parallel")
    assert status == 0, out
    first, summary, note = out.splitlines()
    assert "200 calls at once on one session: held: 200 calls of 0.3 s" in first
    assert summary.startswith("limpet 0.1.0: 1 held. ")
    assert "pip install mcp" in note


def test_a_terminal_shows_a_table_that_changes(tmp_path: Path) -> None:
    with started(
        tmp_path, "--only", "parallel", "--no-peer", FORCE_COLOR="1", TERM="xterm", COLUMNS="120"
    ) as process:
        out, err = process.communicate(timeout=BOUND)
    assert (process.returncode, err) == (0, ""), out
    assert "\x1b[?25l" in out, "the cursor is hidden while the table changes"
    assert "each got its own answer" in out
    assert "pip install" not in out


def test_the_table_shows_what_an_act_does_and_then_its_result() -> None:
    act, side = ACTS[0], Side(name="limpet", version="1", words=())
    out = io.StringIO()
    table = _Table(Console(file=out, force_terminal=True, width=120), [act], [side])

    def shown() -> str:
        table._live.refresh()
        return out.getvalue()

    # The table draws itself ten times a second, and a loaded machine leaves states out: here each state is drawn.
    with table:
        assert "two processes start" in shown()
        table.say(act, side, "7 of 200 calls have ended")
        assert "7 of 200 calls have ended" in shown()
        table.ended(
            side, ActResult(act=act.name, title=act.title, verdict="held", happened="all came", seconds=1.0)
        )
        assert "all came" in shown()


def test_an_unknown_act_is_refused() -> None:
    done = command("demo", "--only", "nothing")
    assert (done.status, done.err) == (
        2,
        f"limpet: there is no act 'nothing'; there are {', '.join(NAMES)}\n",
    )


# Ends


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_when_it_is_stopped_no_process_and_no_file_is_left(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path, "--no-peer") as process:
        wait_until(lambda: len(list(tmp_path.glob("*/store.demo.db"))) == 1)
        wait_until(lambda: len(children(process.pid)) == 2)
        replicas = children(process.pid)
        process.send_signal(number)
        out, err = process.communicate(timeout=BOUND)
    wait_until(lambda: not any(map(lives, replicas)))
    assert err == ""
    if number != signal.SIGKILL:
        assert process.returncode == 130
        assert out.endswith("Stopped. No process and no file is left.\n")
        assert list(tmp_path.iterdir()) == []


# It does not accuse falsely


def test_a_machine_that_pauses_for_seven_seconds_does_not_make_an_act_fail() -> None:
    times = server.settings.times
    assert times.lease - times.lease_renewal >= 7, "a replica that lives is declared dead"
    assert PATIENCE >= 2 * 7, "an answer comes too late"
    assert NOTICE_SECONDS >= 4 * LEASE_SECONDS, "the end of a killed replica's call comes too late"
    assert ACT_SECONDS >= NOTICE_SECONDS + 3 * PATIENCE, "an act ends too early"


def test_all_acts_wait_less_than_a_minute_also_if_an_answer_of_the_sdk_never_comes() -> None:
    streams = 2 * (2 * STEPS * STEP_SECONDS + STEPS * AWAY_SECONDS)
    assert 2 * CALL_SECONDS + streams + LEASE_SECONDS + PATIENCE < 45


class Unreachable(Stage):
    """Its sessions are at a port where no server listens."""

    async def session(self) -> Lane:
        return Lane(Peer("http://127.0.0.1:9/mcp", {}, 1.0), capabilities={}, session="s")


@async_test
async def test_calls_without_a_connection_are_counted_as_faults() -> None:
    with pytest.raises(Failed, match=r"200 of 200 calls did not get their answer: .*cannot connect"):
        await ACTS[0].run(Unreachable([]))


# It does not say "held" without reason


class Notes(Watcher):
    """Remembers the results."""

    def __init__(self) -> None:
        self.results: list[ActResult] = []

    def say(self, act: Act, side: Side, text: str) -> None:
        pass

    def ended(self, side: Side, result: ActResult) -> None:
        self.results.append(result)


@pytest.fixture(scope="module")
def broken() -> Iterator[DemoReport]:
    """Run all acts at a server whose tools break each of them."""
    with our_side(str(Path(__file__).with_name("broken.py"))) as side:
        yield asyncio.run(run([side], ACTS, Notes()))


@pytest.mark.parametrize(
    ("act", "said"),
    [
        ("parallel", "of 200 calls did not get their answer: "),
        (
            "duplicate",
            "the first call got the answer of another call; the second got status 400 with the error -32600",
        ),
        ("cut", "1 of 12 steps were lost, 0 came twice; 1 answers came"),
        ("replicas", "of 8 calls at the other replica got the answer of another call"),
    ],
)
def test_an_act_at_a_broken_server_does_not_hold(broken: DemoReport, act: str, said: str) -> None:
    assert not broken.held
    [result] = [result for result in broken.sides[0].results if result.act == act]
    assert result.verdict == "failed"
    assert said in result.happened


def test_replicas_without_a_common_store_do_not_hold() -> None:
    with our_side() as side:
        at = side.words.index("--store")
        alone = msgspec.structs.replace(side, words=side.words[:at] + side.words[at + 2 :])
        report = asyncio.run(run([alone], ACTS[3:], Notes()))
    [result] = report.sides[0].results
    assert (result.verdict, report.held) == ("not offered", False)
    assert "the other replica answered 404" in result.happened


def test_a_server_that_does_not_start_is_not_run_and_does_not_hold() -> None:
    side = Side(name="limpet", version="0", words=("serve", "no.such.module", "--http", "127.0.0.1:0"))
    notes = Notes()
    report = asyncio.run(run([side], ACTS, notes))
    assert {result.verdict for result in notes.results} == {"not run"}
    assert "no.such.module" in notes.results[0].happened
    assert not report.held


@pytest.mark.parametrize("verdict", ["failed", "not offered", "not run"])
def test_only_our_own_side_decides(verdict: Any) -> None:
    def side(*found: Any) -> SideReport:
        results = tuple(ActResult(act="a", title="", verdict=one, happened="", seconds=0.0) for one in found)
        return SideReport(name="x", version="1", results=results)

    assert DemoReport(seconds=0.0, sides=(side("held", "held"), side(verdict))).held
    assert not DemoReport(seconds=0.0, sides=(side("held", verdict), side("held"))).held


# The judges


def answer(text: str, used: Any = 7, status: int = 200, **further: Any) -> SeenResponse:
    result = {"content": [{"type": "text", "text": text}], **further}
    return SeenResponse(status=status, events=[SeenEvent({"jsonrpc": "2.0", "id": used, "result": result})])


def error(code: int, status: int = 200) -> SeenResponse:
    return SeenResponse(
        status=status, events=[SeenEvent({"jsonrpc": "2.0", "id": 7, "error": {"code": code}})]
    )


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (answer("mine"), ""),
        (answer("other"), "the answer of another call"),
        (answer("mine", "7"), "an answer with another id"),
        (answer("mine", isError=True), "the failed result 'mine'"),
        (answer("mine", status=500), "status 500 with a result"),
        (error(-32600), "status 200 with the error -32600"),
        (SeenResponse(status=200, events=answer("mine").events * 2), "2 answers"),
        (SeenResponse(seconds=3.0), "no response within 3.0 s"),
    ],
)
def test_an_answer_is_its_own_only_once_and_with_its_id_and_its_text(
    outcome: SeenResponse, said: str
) -> None:
    assert judge_answer(outcome, 7, "mine") == said


@pytest.mark.parametrize(
    ("first", "second", "ran"),
    [
        (answer("second"), error(-32600, 400), False),
        (answer("first"), error(-32600, 400), True),
        (answer("first"), SeenResponse(seconds=3.0), False),
        (answer("first"), answer("first"), True),
        (SeenResponse(status=200), answer("second"), True),
    ],
)
def test_a_duplicate_that_disturbs_or_runs_though_refused_does_not_hold(
    first: SeenResponse, second: SeenResponse, ran: bool
) -> None:
    with pytest.raises(Failed):
        judge_duplicate(first, second, 7, ran=ran)


def test_a_duplicate_that_is_refused_or_answered_by_itself_holds() -> None:
    assert "did not run" in judge_duplicate(answer("first"), error(-32600, 400), 7, ran=False)
    assert "both calls ran" in judge_duplicate(answer("first"), answer("second"), 7, ran=True)


def step(number: int) -> dict[str, Any]:
    return {"method": "notifications/progress", "params": {"progress": number}}


ALL: Final = [step(number) for number in range(1, STEPS + 1)]
END: Final = {"id": 7, "result": {}}


@pytest.mark.parametrize(
    "messages",
    [
        [*ALL[1:], END],
        [*ALL[:4], ALL[3], *ALL[4:], END],
        [ALL[1], ALL[0], *ALL[2:], END],
        ALL,
        [*ALL, END, END],
        [*ALL[:-1], END, ALL[-1]],
        [*ALL, {"id": 7, "error": {"code": -31002}}],
    ],
    ids=["lost", "twice", "order", "no answer", "two answers", "answer too early", "error"],
)
def test_a_stream_with_a_fault_does_not_hold(messages: list[Any]) -> None:
    judge_stream([*ALL, END])
    with pytest.raises(Failed):
        judge_stream(messages)


LOST: Final = {"id": 7, "error": {"code": -31002}}


@pytest.mark.parametrize(
    ("answers", "faults", "counted", "said"),
    [
        ([], [""], "123", "got 0 answers"),
        ([LOST, LOST], [""], "123", "got 2 answers"),
        ([END], [""], "123", "instead of the error -31002"),
        ([{"id": 7, "error": {"code": -32603}}], [""], "123", "instead of the error -31002"),
        ([LOST], ["", "late"], "123", "1 of 2 calls at the other replica got late"),
        ([LOST], [""], ["1", "2", ""], "was 1, 2, unknown instead of 1, 2, 3"),
        ([LOST], [""], "121", "was 1, 2, 1 instead of 1, 2, 3"),
    ],
)
def test_a_killed_replica_with_a_fault_afterwards_does_not_hold(
    answers: list[Any], faults: list[str], counted: Any, said: str
) -> None:
    assert "got one error" in judge_replicas([LOST], ["", ""], ["1", "2", "3"])
    with pytest.raises(Failed, match=said):
        judge_replicas(answers, faults, counted)
