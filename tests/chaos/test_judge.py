"""The judge of a trial: what it finds, what it allows, and that it finds the same in the file."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from limpet.stores.base import SessionRecord
from limpet.stores.shared.fields import encode_record
from tests.chaos.databases import OUTLIVED, Postgres
from tests.chaos.history import Found, History, Life, Opening, Outage, read_history
from tests.chaos.judge import Judge, main
from tests.chaos.notes import Call, Notes, Received
from tests.chaos.replica import Entry
from tests.chaos.trial import SMALL


def start(at: float, replica: str) -> Entry:
    return Entry(at=at, replica=replica, what="start", nonce="n", claim=replica)


def end(at: float, replica: str) -> Entry:
    return Entry(at=at, replica=replica, what="end", nonce="n")


def left(at: float, replica: str) -> Entry:
    return Entry(at=at, replica=replica, what="left", claim=replica)


TWICE = (start(1.0, "a.1"), start(9.0, "b.1"))


@pytest.mark.parametrize(
    ("journal", "cuts", "died", "fault"),
    [
        ((*TWICE, end(3.0, "a.1"), left(5.0, "a.1")), [4.0], None, False),
        ((*TWICE, left(4.5, "a.1"), end(5.0, "a.1")), [4.0], None, True),
        ((*TWICE, end(4.5, "a.1"), left(5.0, "a.1")), [4.0], None, False),
        ((*TWICE, end(3.0, "a.1")), [], None, True),
        ((*TWICE, end(9.5, "b.1")), [4.0], None, True),
        (TWICE, [4.0], None, True),
        (TWICE, [4.0], 3.0, False),
        (TWICE, [2.0], 3.0, True),
        (TWICE, [10.0], 3.0, True),
        (TWICE, [], 3.0, True),
    ],
    ids=[
        "cut after the end",
        "the replica knew it before the end",
        "the replica learned it after the end",
        "not cut",
        "another run has ended",
        "still running",
        "cut after the death",
        "cut before the death",
        "cut after the second start",
        "dead and not cut",
    ],
)
def test_a_second_run_is_a_fault_unless_the_client_cut_the_end_of_the_first(
    journal: tuple[Entry, ...], cuts: list[float], died: float | None, *, fault: bool
) -> None:
    lives = [Life("a.1", 1, 0.0, ended=died), Life("b.1", 2, 0.0)]
    call = a_call(posts=3, left=cuts, ended=20.0)
    leaver = a_call(nonce="left")
    starts = {"n": [one for one in journal if one.what == "start"], "left": [start(1.0, "c.1")]}
    judge = Judge(a_history(call, leaver, lives=lives, journal=list(journal)))
    judge._starts(starts)
    assert [one.law for one in judge.violations] == ["I4"] * fault


MARKS = ["m/1", "m/2"]


def said(*texts: str) -> list[Received]:
    """Return the events of a stream, one after another, and the answer."""
    found = [Received(n + 1.0, f"s.{n + 2}.t", "progress", text) for n, text in enumerate(texts)]
    return [*found, Received(9.0, f"s.{len(texts) + 2}.t", "answer", "1")]


@pytest.mark.parametrize(
    ("received", "laws"),
    [
        (said(*MARKS), set()),
        (said("m/2", "m/1"), {"I2"}),
        (said("m/1", "m/1", "m/2"), {"I2"}),
        (said("m/1"), {"I2"}),
        (said("m/1", "other/2"), {"I3"}),
        ([*said(*MARKS), *said()], {"I1", "I2"}),
        ([replace(one, text="'1'") if one.what == "answer" else one for one in said(*MARKS)], {"I1"}),
        ([one for one in said(*MARKS) if one.id != "s.2.t"], {"I2"}),
        ([replace(one, id=one.id.replace("s", "r", n == 1)) for n, one in enumerate(said(*MARKS))], {"I2"}),
    ],
    ids=[
        "as it should be",
        "out of order",
        "twice",
        "an event is missing",
        "of another call",
        "two ends",
        "the end of another id",
        "the first is lost",
        "two streams",
    ],
)
def test_a_stream_that_is_not_as_promised_is_a_fault(received: list[Received], laws: set[str]) -> None:
    result = {"id": 1, "result": {"content": [{"text": "m"}]}}
    judge = Judge(a_history(a_call(received=received, answer=result, steps_wanted=2, ended=20.0)))
    assert {one.law for one in judge.judge()} == laws


@pytest.mark.parametrize(
    ("answered", "frozen", "laws"),
    [(1, "a.1", []), (1, "b.1", ["I1"]), (None, "b.1", ["I1"]), (2, "b.1", []), (2, "", ["I1"])],
    ids=[
        "its replica froze",
        "another one",
        "another one, of a task",
        "that of its collection",
        "none froze",
    ],
)
def test_a_lost_call_needs_a_reason_at_its_replica_or_at_that_of_its_collection(
    answered: int | None, frozen: str, laws: list[str]
) -> None:
    error: dict[str, Any] = {"error": {"code": -31002, "message": "lost"}}
    lost = error if answered is None else error | {"id": answered}
    stops = {frozen: [(3.0, 10.0)]}
    lives = [Life(name, 1, 0.0, stopped=stops.get(name, [])) for name in ("a.1", "b.1")]
    judge = Judge(a_history(a_call(answer=lost, ended=11.0), lives=lives))
    judge._ends({"n": [start(1.0, "a.1")]})
    assert [one.law for one in judge.violations] == laws


@pytest.mark.parametrize(("asked", "laws"), [(15.0, []), (19.5, ["I12"])])
def test_a_refusal_needs_a_reason_while_its_request_waited(asked: float, laws: list[str]) -> None:
    notes = Notes(unavailable=[(asked, 20.0)])
    judge = Judge(replace(a_history(lives=[Life("a.1", 1, 0.0, stopped=[(9.0, 16.0)])]), notes=notes))
    judge._availability()
    assert [one.law for one in judge.violations] == laws


FAILOVER = Outage(5.0, 7.0, "failover", lost=True)


@pytest.mark.parametrize(
    ("opened", "laws"), [(1.0, ["I1", "I8"]), (4.5, ["I1"]), (9.0, ["I1"]), (12.0, ["I1", "I8"])]
)
def test_a_failover_excuses_a_lost_session_only_if_it_was_opened_then(opened: float, laws: list[str]) -> None:
    calls = [a_call(ended=20.0, gave_up=why) for why in ("nothing came for 9 s", "404 no session")]
    history = a_history(*calls, outages=[FAILOVER])
    history.notes.sessions["s"] = opened
    assert [one.law for one in Judge(history).judge()] == laws


@pytest.mark.parametrize(
    ("read_at", "stopped", "laws"),
    [(1.0, [], ["I2"]), (6.0, [], []), (12.0, [], ["I2"]), (12.0, [(6.0, 11.0)], [])],
)
def test_a_failover_excuses_a_lost_place_of_a_stream_only_if_it_was_written_then(
    read_at: float, stopped: list[tuple[float, float]], laws: list[str]
) -> None:
    received = [Received(read_at, "s.2.t", "progress", "m/1")]
    call = a_call(received=received, ended=20.0, gave_up="400 event_id_unresumable")
    lives = [Life("a.1", 1, 0.0, stopped=stopped)]
    assert [one.law for one in Judge(a_history(call, lives=lives, outages=[FAILOVER])).judge()] == laws


@pytest.mark.parametrize(
    ("first", "second", "fault"), [(1.0, 9.0, True), (5.5, 9.0, False), (1.0, 20.0, True)]
)
def test_a_failover_excuses_a_second_run_only_if_the_first_one_began_or_ended_then(
    first: float, second: float, *, fault: bool
) -> None:
    journal = [start(first, "a.1"), start(second, "b.1")]
    call = a_call(posts=2, began=first, ended=30.0, is_left=True)
    judge = Judge(a_history(call, journal=journal, outages=[FAILOVER]))
    assert ["I4"] * fault == [one.law for one in judge.judge()]
    ended = Judge(a_history(call, journal=[*journal, end(6.0, "a.1")], outages=[FAILOVER]))
    assert [one.law for one in ended.judge()] == []


@pytest.mark.parametrize(("leaving", "laws"), [(None, []), (4.0, ["I1"])], ids=["killed", "ended in order"])
def test_only_a_killed_replica_excuses_an_unknown_outcome(leaving: float | None, laws: list[str]) -> None:
    lives = [Life("a.1", 1, 0.0, leaving=leaving, ended=5.0), Life("b.1", 2, 0.0)]
    lost = a_call(answer={"id": 1, "error": {"code": -31002, "message": "lost"}}, began=1.0, ended=8.0)
    judge = Judge(a_history(lost, lives=lives, journal=[start(1.0, "a.1")]))
    assert [one.law for one in judge.judge()] == laws
    assert sum(judge.excused.values()) == (not laws)


@pytest.mark.parametrize(("what", "name"), [("behind", "the server behind"), ("restart", "the database")])
def test_what_was_away_is_named_where_it_excuses_an_unknown_outcome(what: str, name: str) -> None:
    lost = a_call(answer={"id": 1, "error": {"code": -31002, "message": "lost"}}, began=1.0, ended=8.0)
    judge = Judge(a_history(lost, lives=[Life("a.1", 1, 0.0)], outages=[Outage(2.0, 3.0, what)]))
    assert judge.judge() == []
    assert list(+judge.excused) == [f"an unknown outcome: {name} had failed"]


@pytest.mark.parametrize(("opened", "laws"), [(1.0, ["I1"]), (12.0, [])])
def test_an_end_is_late_if_a_replica_was_there_to_tell_it(opened: float, laws: list[str]) -> None:
    lives = [Life("a.1", 1, 0.0, ended=5.0), Life("b.1", 2, opened)]
    lost = a_call(answer={"id": 1, "error": {"code": -31002, "message": "lost"}}, began=1.0, ended=15.0)
    assert [
        one.law for one in Judge(a_history(lost, lives=lives, journal=[start(1.0, "a.1")])).judge()
    ] == laws


def test_a_call_that_was_refused_as_busy_is_excused_by_a_failed_replica_too() -> None:
    call = a_call(answer={"id": 1, "error": {"code": -31001, "message": "busy"}}, began=1.0, ended=9.0)
    assert [one.law for one in Judge(a_history(call)).judge()] == ["I1"]
    assert [one.law for one in Judge(a_history(call, lives=[Life("a.1", 1, 0.0, ended=5.0)])).judge()] == []


def test_another_error_is_excused_by_an_outage_only() -> None:
    call = a_call(answer={"id": 1, "error": {"code": -32603, "message": "?"}}, began=1.0, ended=9.0)
    lives = [Life("a.1", 1, 0.0, ended=5.0)]
    assert [one.law for one in Judge(a_history(call, lives=lives)).judge()] == ["I1"]
    assert [one.law for one in Judge(a_history(call, outages=[FAILOVER])).judge()] == []


def test_counters_are_exact_as_far_as_increments_were_acknowledged() -> None:
    answer = {"id": 1, "result": {"content": [{"text": "m/1"}]}}
    calls = [a_call(nonce=nonce, tool="bump", answer=answer, ended=2.0) for nonce in "ab"]
    journal = [Entry(at=1.0, replica="a.1", what="start", nonce=nonce) for nonce in "ab"]
    for value, laws in ((2, []), (1, ["I5"]), (3, ["I5"])):
        history = a_history(*calls, journal=journal)
        history.notes.counters["s"] = value
        assert [one.law for one in Judge(history).judge()] == laws


def test_a_history_is_judged_from_its_file_as_at_once(tmp_path: Path) -> None:
    call = a_call(received=said("m/2"), ended=20.0, gave_up="nothing came")
    history = a_history(
        call,
        lives=[Life("a.1", 1, 0.0)],
        journal=[start(1.0, "a.1")],
        outages=[Outage(5.0, 7.0, "restart")],
        found=[Found("I11", "a token", 1.0)],
    )
    history.notes.secrets.append("secret-id")
    for name in ("history.jsonl", "history.jsonl.gz"):
        history.write(tmp_path / name)
        again = read_history(tmp_path / name)
        assert again == replace(history, notes=replace(history.notes, secrets=[]))
        assert Judge(again).judge() == Judge(history).judge() != []
        assert main([str(tmp_path / name)]) == 1
    assert "secret-id" not in (tmp_path / "history.jsonl").read_text()


def test_a_file_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    a_history(a_call()).write(path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(ValueError, match="not whole"):
        read_history(path)


@pytest.mark.parametrize(
    ("key", "fault"),
    [("5f1ecafe", OUTLIVED), ("~hidden", ""), ("", OUTLIVED)],
    ids=["of a client", "of a key", "unknown"],
)
def test_a_closing_that_is_not_reported_is_a_fault_unless_its_session_only_kept_an_answer(
    key: str, fault: str
) -> None:
    record = SessionRecord(
        key=key + "beef", principal="u", version="v", standalone="s", client={}, capabilities={},
        grace=1, idle=1, lifetime=1, opened=1,
    )  # fmt: skip
    opened = encode_record(record)[0] if key else b""

    class Told:
        def tell(self, sql: str) -> str:
            return f"{opened.hex()};\n" if ".closing" in sql else "0" if "count" in sql else ""

    database = Postgres.__new__(Postgres)
    database.server = Told()  # type: ignore[assignment]
    assert list(database.left(["5f1ecafe"])) == [("closing", fault)]


def a_call(**more: Any) -> Call:
    given: dict[str, Any] = {"nonce": "n", "session": "s", "id": 1, "tool": "ticks", "mark": "m"}
    return Call(**(given | more))


def a_history(*calls: Call, **more: Any) -> History:
    opening = Opening(plan=SMALL, versions={}, planned={}, fired={}, weather=[])
    return History(opening=opening, notes=Notes(calls=list(calls)), **more)
