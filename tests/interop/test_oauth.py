"""OAuth clients of several projects sign in to our server, with a real authorization server.

One run for all of them: every client registers and signs in, the authorization server changes its key, every client
needs a further scope, and our server restarts. Each client has a connection of each era.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.interop.oauth.processes import PROGRAMS, LineProcess, authority, client, protected
from tools.ports import free_port


class Run(Struct):
    """The results of each client, by the stage of the run, and the requests at the authorization server."""

    answers: dict[str, dict[str, dict[str, Any]]]
    """By stage, then by client and era: the result of a tool, or the error."""
    keys: list[str]
    events: list[dict[str, Any]]
    resource: str


def start(url: str, directory: Path, stack: ExitStack) -> dict[str, LineProcess]:
    """Start all clients at once, and wait until they are connected."""
    clients = {name: client(name, url, directory) for name in PROGRAMS}
    for process in clients.values():
        stack.callback(process.kill)
    for name, process in clients.items():
        assert process.line() == {"step": "connected"}, name
    return clients


def ask(clients: dict[str, LineProcess], tool: str) -> dict[str, dict[str, Any]]:
    """Let all clients call a tool at once."""
    for process in clients.values():
        process.say(tool)
    said = {name: process.line() for name, process in clients.items()}
    return {f"{name}-{era}": answers[era] for name, answers in said.items() for era in ("legacy", "auto")}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("oauth")
    rooms = [directory / "before", directory / "after"]
    for room in rooms:
        room.mkdir()
    port, store = free_port(), directory / "store.db"
    resource = f"http://127.0.0.1:{port}/mcp"
    answers = {}
    with authority(directory, resource) as at, ExitStack() as stack:
        with protected(rooms[0], port, at.issuer, store):
            clients = start(resource, directory, stack)
            answers["signed in"] = ask(clients, "read")
            at.rotate()
            answers["old key"] = ask(clients, "read")
            answers["stepped up"] = ask(clients, "send")
        with protected(rooms[1], port, at.issuer, store):
            answers["restarted"] = ask(clients, "read")
            for process in clients.values():
                process.end()
        return Run(answers, at.keys, at.seen(), resource)


CLIENTS = [f"{name}-{era}" for name in PROGRAMS for era in ("legacy", "auto")]
SIGN_IN = ["registered", "agreed", "granted"]
STEP_UP = ["agreed", "granted"]


@pytest.mark.parametrize("name", CLIENTS)
class TestClient:
    def test_it_registers_and_signs_in_for_our_resource_with_the_scope_of_the_challenge(
        self, name: str, run: Run
    ) -> None:
        found = run.answers["signed in"][name]
        version = "2025-11-25" if name.endswith("legacy") else "2026-07-28"
        assert (found["subject"], found["scopes"], found["version"]) == ("ada", ["mail.read"], version)
        first = [event for event in run.events if event["client"] == name][:3]
        assert [event["event"] for event in first] == SIGN_IN
        assert {event["resource"] for event in first[1:]} == {run.resource}
        assert "mail.send" not in first[1]["scope"].split()
        # Only ours registers without scopes: see the page about an authorization server that keeps a client to them.
        assert ("scope" in first[0]) is not name.startswith("limpet")

    def test_its_token_of_the_former_key_is_valid_after_a_rotation(self, name: str, run: Run) -> None:
        assert run.answers["signed in"][name]["key"] == run.keys[0]
        assert run.answers["old key"][name]["key"] == run.keys[0]

    def test_it_steps_up_for_a_scope_and_its_new_token_of_the_new_key_is_known_without_a_restart(
        self, name: str, run: Run
    ) -> None:
        found = run.answers["stepped up"][name]
        assert (found["scopes"], found["key"]) == (["mail.read", "mail.send"], run.keys[1])

    def test_it_goes_on_with_its_token_and_its_session_after_a_restart_of_our_server(
        self, name: str, run: Run
    ) -> None:
        before, after = run.answers["stepped up"][name], run.answers["restarted"][name]
        assert (after["scopes"], after["key"]) == (before["scopes"], before["key"])
        counts = [answers[name]["calls"] for answers in run.answers.values()]
        assert counts == ([1, 2, 3, 4] if name.endswith("legacy") else [0, 0, 0, 0])

    def test_its_user_agrees_once_for_the_sign_in_and_once_for_the_scope(self, name: str, run: Run) -> None:
        happened = [event["event"] for event in run.events if event["client"] == name]
        assert happened == SIGN_IN + STEP_UP
