"""`limpet sessions` against a real admin surface: tables, JSON, confirmations, errors and exit statuses."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from limpet.cli import admin_client
from limpet.ops.ring import Happened
from limpet.ops.views import ServerView
from tests.browser.fleet import PAGE, TOKEN, Fleet, call, served, session
from tests.command_line import Done, run
from tests.support import async_test
from tools.ports import free_port

Operate = Callable[..., Done]


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMPET_ADMIN_TOKEN", TOKEN)
    monkeypatch.delenv("LIMPET_ADMIN_URL", raising=False)


def operate(fleet: Fleet, conversation: Callable[[Operate], None]) -> None:
    """Serve a fleet while a conversation runs commands about it."""

    @async_test
    async def attempt() -> None:
        async with served(fleet) as server:

            def command(*words: str, typed: str | None = None) -> Done:
                return run("sessions", *words, "--admin", server.url, typed=typed)

            await asyncio.to_thread(conversation, command)

    attempt()


def test_sessions_are_listed_as_a_table_and_as_json() -> None:
    def conversation(command: Operate) -> None:
        empty = command("ls")
        assert (empty.status, empty.out) == (0, "No session is open.\n")
        fleet.sessions = [session(number) for number in range(2 * PAGE + 5)]
        fleet.sessions[1] = session(
            1, client="\x1b[31m\u202eevil\n", state="detached", closes_in=95.0, log_bytes=3_000_000
        )
        head, first, second, *rest = command("ls").out.splitlines()
        assert len(rest) == 2 * PAGE + 3
        assert head.split() == [
            "SESSION",
            "CLIENT",
            "ERA",
            "STATE",
            "CLOSES",
            "IN",
            "CALLS",
            "STREAMS",
            "LOG",
            "PRINCIPAL",
            "REPLICA",
        ]
        assert first.split() == [
            "s0000000",
            "claude-code",
            "2025-11-25",
            "attached",
            "0",
            "1",
            "18.0",
            "KiB",
            "p-77aa",
            "r1",
        ]
        # Control characters of a terminal are escaped.
        assert "\\x1b[31m\\u202eevil\\n" in second
        assert "1 min 35 s" in second
        assert "2.9 MiB" in second
        assert head.index("STATE") == first.index("attached") == second.index("detached")
        listed = json.loads(command("ls", "--json").out)
        assert [one["id"] for one in listed] == [one.id for one in fleet.sessions]
        assert listed[1]["client"] == "\x1b[31m\u202eevil\n"
        few = command("ls", "--limit", "7")
        assert len(few.out.splitlines()) == 8
        assert "--limit" in few.err

    fleet = Fleet()
    operate(fleet, conversation)


def test_a_list_has_the_oldest_calls_also_those_without_a_session() -> None:
    def conversation(command: Operate) -> None:
        listed = command("ls")
        assert listed.out.startswith("No session is open.\n\nCalls in flight, the oldest first\n")
        assert len(listed.out.splitlines()) == 24
        assert "hangs" in listed.out
        (handed,) = [line for line in listed.out.splitlines() if line.startswith("report")]
        assert "handed over" in handed
        assert "10 min 12 s" in handed
        assert "Only the 20 oldest of 30 calls" in listed.err
        assert json.loads(command("ls", "--json").out) == []

    fleet = Fleet()
    fleet.calls = [call(number, session="", name="hangs") for number in range(29)]
    fleet.calls.insert(0, call(29, name="report", age=612.0, state="handed over"))
    operate(fleet, conversation)


def test_a_store_that_is_unavailable_is_not_treated_as_a_server_without_sessions() -> None:
    def conversation(command: Operate) -> None:
        for words in (["ls"], ["ls", "--json"]):
            away = command(*words)
            assert away.status == 2
            assert "No session" not in away.out
            assert "the store of shop does not answer: sessions are missing here" in away.err
        shown = command("show", "s0000002")
        assert shown.out.startswith("Session s0000002 may be open: the store of shop does not answer.")

    fleet = Fleet()
    fleet.servers = [ServerView("shop", "1", "redis", is_away=True)]
    fleet.happen("session.opened", 1_700_000_001, session="s0000002")
    operate(fleet, conversation)


def test_a_session_is_shown_with_its_calls_and_its_last_events() -> None:
    def conversation(command: Operate) -> None:
        shown = command("show", "s0000001")
        assert shown.status == 0
        assert "claude-code" in shown.out
        assert "search" in shown.out
        assert "handler" in shown.out
        assert "other" not in shown.out
        assert "session.detached  session=s0000001  reason=the connection broke\\n" in shown.out
        known = json.loads(command("show", "s0000001", "--json").out)
        assert known["session"]["id"] == "s0000001"
        assert [one["id"] for one in known["calls"]] == ["c0000001"]
        assert len(known["events"]) == 1
        # A closed one has only its events; one that never was has none.
        closed = command("show", "s0000002")
        assert closed.out.startswith("Session s0000002 is closed.")
        assert "session.closed" in closed.out
        missing = command("show", "s/../0000003")
        assert (missing.status, missing.out) == (1, "")
        assert missing.err == "limpet: there is no session s/../0000003\n"

    fleet = Fleet()
    fleet.sessions = [session(1)]
    fleet.calls = [call(1, session="s0000001"), call(2, session="s0000009", name="other")]
    fleet.happen("session.detached", 1_700_000_000, session="s0000001", reason="the connection broke\n")
    fleet.happen("session.closed", 1_700_000_001, session="s0000002", reason="grace over")
    operate(fleet, conversation)


def test_events_are_found_by_the_correlation_id_that_a_client_saw() -> None:
    def conversation(command: Operate) -> None:
        found = command("find", "9c2f0b77aa10")
        assert found.status == 0
        assert "handler.failed  correlation=9c2f0b77aa10  tool=search" in found.out
        assert json.loads(command("find", "9c2f0b77aa10", "--json").out)[0]["event"] == "handler.failed"
        missing = command("find", "000000000000")
        assert missing.status == 1
        assert "search the logs" in missing.err
        assert json.loads(command("find", "000000000000", "--json").out) == []

    fleet = Fleet()
    fleet.events.append(
        Happened(1, 1_700_000_000, "handler.failed", {"correlation": "9c2f0b77aa10", "tool": "search"})
    )
    operate(fleet, conversation)


def test_a_session_is_closed_after_a_confirmation() -> None:
    def conversation(command: Operate) -> None:
        no_terminal = command("close", "s0000001")
        assert no_terminal.status == 2
        assert "--yes" in no_terminal.err
        refused = command("close", "s0000001", typed="n\n")
        assert refused.status == 1
        assert "Close session s0000001 of claude-code, with 0 calls in flight?" in refused.out + refused.err
        assert not fleet.done
        assert command("close", "s0000001", typed="y\n").status == 0
        assert json.loads(command("close", "s0000002", "--yes", "--json").out) == {"done": True}
        assert fleet.done == ["closed s0000001", "closed s0000002"]
        for words in (["close", "s0000001", "--yes"], ["close", "s0000003", "--yes"]):
            again = command(*words)
            assert again.status == 1
            assert "there is no open session" in again.err
        assert command("close", "s0000001", typed="y\n").status == 1

    fleet = Fleet()
    fleet.sessions = [session(1), session(2)]
    operate(fleet, conversation)


def test_errors_name_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def conversation(command: Operate) -> None:
        file = tmp_path / "token"
        file.write_text("another-token\n")
        wrong = command("ls", "--admin-token-file", str(file))
        assert wrong.status == 2
        assert "refuses the token" in wrong.err
        assert "another-token" not in wrong.err
        file.write_text(f"{TOKEN}\n")
        assert command("ls", "--admin-token-file", str(file)).status == 0
        fleet.away = True
        away = command("ls")
        assert away.status == 2
        assert "503: the store does not answer" in away.err
        monkeypatch.setenv("LIMPET_ADMIN_TOKEN", "two words")
        assert "no space" in command("ls").err
        monkeypatch.delenv("LIMPET_ADMIN_TOKEN")
        assert "--admin-token-file FILE" in command("ls").err

    fleet = Fleet()
    operate(fleet, conversation)


def test_an_address_that_does_not_answer_is_named() -> None:
    for address in (f"127.0.0.1:{free_port()}", "unix:/nowhere/socket"):
        away = run("sessions", "ls", "--admin", address)
        assert away.status == 2
        assert f"{address}: " in away.err
        assert "--admin" in away.err
    for address in ("ftp://here", "http://", "http://here:x", "http://[", "unix"):
        wrong = run("sessions", "ls", "--admin", address)
        assert wrong.status == 2, address
        assert address in wrong.err


def test_another_server_is_no_admin_surface(monkeypatch: pytest.MonkeyPatch) -> None:
    class Answer:
        status = 200

        def read(self, size: int) -> bytes:
            return b"<html>"

    class Connection:
        def __init__(self, host: str, *args: object, **options: object) -> None: ...

        def request(self, *args: object, **options: object) -> None: ...

        def getresponse(self) -> Answer:
            return Answer()

        def close(self) -> None: ...

    monkeypatch.setattr("http.client.HTTPConnection", Connection)
    assert "another form" in run("sessions", "ls").err
    monkeypatch.setattr(Answer, "status", 404)
    assert "not an admin surface" in run("sessions", "ls").err
    monkeypatch.setattr(admin_client, "MOST_BYTES", 3)
    assert "more than 3 bytes" in run("sessions", "ls").err
