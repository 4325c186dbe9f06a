"""Checks for every client on every transport: its output and the server's counts."""

import base64
from typing import Any

from tests.interop.peers import Run
from tests.interop.server import NOTE, PIXEL, POEM

TOOLS = [
    "announce", "book", "chatter", "echo", "fail", "fanout", "got_it", "hang", "hang_up", "hung", "image",
    "impatient", "late_error", "learn", "places", "slow", "ticks", "touch", "walk", "weather",
]  # fmt: skip
ECHOED = "höhö \u2028 ✓"


class EitherEra:
    """Checks that are the same with a session and without.

    Each test reads one part of the same conversation; `run` is the fixture that has held it.
    """

    def test_a_client_sees_all_that_the_server_offers(self, run: Run) -> None:
        assert run.steps["tools"]["names"] == TOOLS
        assert run.steps["resources"]["uris"] == [NOTE, POEM]
        assert run.steps["templates"]["uris"] == ["note://{name}/page"]
        assert run.steps["prompts"]["names"] == ["greet", "toast"]

    def test_a_client_reads_a_resource_and_gets_a_prompt_and_completions(self, run: Run) -> None:
        assert run.steps["read"]["text"] == "hello from the note"
        assert run.steps["prompt"]["text"] == "Say hello to Ada."
        assert run.steps["complete"]["values"] == ["Ada", "Alan"]

    def test_text_comes_back_as_it_was_sent(self, run: Run) -> None:
        assert content(run, "echo") == {"type": "text", "text": ECHOED}
        assert run.steps["echo"]["result"]["structuredContent"] == {"result": ECHOED}
        assert run.counts["echo"] == 1

    def test_an_image_arrives_byte_for_byte(self, run: Run) -> None:
        assert content(run, "image")["mimeType"] == "image/png"
        assert base64.b64decode(content(run, "image")["data"]) == PIXEL

    def test_structured_content_passes_the_clients_own_validation(self, run: Run) -> None:
        weather = {"city": "Bonn", "degrees": 21.5, "warnings": ["wind"]}
        assert run.steps["structured"]["result"]["structuredContent"] == weather

    def test_a_tool_error_is_a_result_that_the_model_can_read(self, run: Run) -> None:
        assert run.steps["failed"]["result"]["isError"] is True
        assert content(run, "failed") == {"type": "text", "text": "the kettle is empty"}

    def test_progress_arrives_in_order_before_the_result(self, run: Run) -> None:
        assert heard(run, "progress", told("tick", 3)) == "3 done"
        assert run.counts["ticks"] == 1

    def test_log_messages_arrive_from_the_level_that_the_client_set(self, run: Run) -> None:
        assert run.steps["logs"]["logs"] == [["info", {"step": 1}], ["error", "loud"]]

    def test_a_client_answers_five_questions_of_one_call(self, run: Run) -> None:
        fanout = run.steps["fanout"]
        assert fanout["text"] == "answer 0,answer 1,answer 2,answer 3,answer 4"
        assert fanout["asked"] == 5
        assert fanout["peak"] == run.peer.asks_at_once
        assert run.counts["fanout"] == 1

    def test_a_client_fills_in_a_form(self, run: Run) -> None:
        assert run.steps["elicit"]["text"] == "accept: Ada takes 2"
        assert run.counts["book"] == 1

    def test_a_protocol_error_that_comes_late_is_the_callers_error(self, run: Run) -> None:
        assert run.steps["late error"]["code"] == -32077
        assert run.steps["late error"]["message"].endswith("refused late")
        assert run.counts["late_error"] == 1

    def test_a_cancelled_call_stops_its_handler(self, run: Run) -> None:
        assert "cancelled" in run.steps
        assert run.counts["hang"] == run.counts["hang cancelled"] == 1

    def test_twenty_calls_at_once_get_each_its_own_answer(self, run: Run) -> None:
        assert run.steps["parallel"]["texts"] == [f"call {i}" for i in range(20)]
        assert run.counts["slow"] == 20

    def test_neither_side_complains(self, run: Run) -> None:
        assert run.client_errors == ""
        assert run.server_complaints == ""


class Conversation(EitherEra):
    """Checks for clients with a session."""

    def test_a_client_and_the_server_agree_on_the_newest_session_revision(self, run: Run) -> None:
        connected = run.steps["connected"]
        # The older TypeScript client tells the version it agreed on over HTTP only.
        assert connected.get("version", "2025-11-25") == "2025-11-25"
        assert connected["server"] == "interop"

    def test_a_subscriber_hears_of_a_change_until_it_unsubscribes(self, run: Run) -> None:
        assert run.steps["updated"]["uris"] == [NOTE]
        assert run.steps["announced"]["uris"] == [NOTE, NOTE]
        assert run.steps["ping"]["uris"] == [NOTE, NOTE]

    def test_a_message_that_belongs_to_no_request_arrives_once(self, run: Run) -> None:
        assert run.steps["announced"]["logs"] == [["warning", "cut standalone"]]

    def test_a_handler_that_hangs_up_still_answers(self, run: Run) -> None:
        assert heard(run, "hung up", [[1, 2, "before"], [2, 2, "after"]]) == "still here"
        assert run.counts["hang_up"] == 1

    def test_a_client_ends_the_one_session_it_opened(self, run: Run) -> None:
        assert "closed" in run.steps
        assert run.counts["opened"] == run.counts[f"opened by {run.peer.name}"] == 1
        assert {name: n for name, n in run.counts.items() if name.startswith("closed")} == {
            "closed: deleted": 1
        }


class ModernConversation(EitherEra):
    """Checks for clients without a session."""

    def test_a_client_left_to_find_out_stays_without_a_session(self, run: Run) -> None:
        assert run.steps["connected"] == {"version": "2026-07-28", "server": "interop"}
        assert run.counts["opened"] == 0

    def test_log_messages_arrive_only_with_a_request_that_wants_them(self, run: Run) -> None:
        # fastmcp's client wants every level with every request.
        everything = [["debug", "too quiet"], ["info", {"step": 1}], ["error", "loud"]]
        assert run.steps["no logs"]["logs"] == (everything if run.peer.name == "fastmcp" else [])

    def test_a_client_says_where_it_works(self, run: Run) -> None:
        assert run.steps["roots"]["text"] == "file:///home/ada"
        assert run.counts["places"] == 1

    def test_a_prompt_and_a_resource_ask_before_they_answer(self, run: Run) -> None:
        assert run.steps["asking prompt"]["text"] == "A toast to Ada."
        assert run.steps["asking resource"]["text"] == "answer of a poem"
        assert run.counts["toast"] == run.counts["poem"] == 1

    def test_a_listener_receives_the_changes_of_its_filter(self, run: Run) -> None:
        if run.peer.listens:
            assert run.steps["honoured"] == {"tools": True, "uris": [NOTE]}
            assert run.steps["heard"]["events"] == [NOTE, "tools"]

    def test_the_handler_of_a_cancelled_call_is_gone_at_once(self, run: Run) -> None:
        assert run.steps["hung"]["text"] == "cancelled"


def content(run: Run, step: str) -> dict[str, Any]:
    """Return the first content block of a step's result."""
    found: dict[str, Any] = run.steps[step]["result"]["content"][0]
    return found


def told(mark: str, n: int) -> list[list[Any]]:
    """Return the progress of a whole call."""
    return [[i, n, f"{mark} {i}"] for i in range(1, n + 1)]


def heard(run: Run, step: str, progress: list[list[Any]]) -> str:
    """Check the progress that a step's client received, and return the call's text.

    The TypeScript clients drop progress that they read in one piece with the result: the last may be missing there, and on a
    busy machine also those before it.
    """
    got = run.steps[step]
    read_before = progress[: len(got["told"])] if run.peer.name.startswith("ts") else progress
    assert got["told"] == read_before
    text: str = got["text"]
    return text
