"""`limpet check`: the table, JSON, the token, the exit status."""

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from limpet.cli.whole import app
from tests.checking.faulty import Faulty, Request, Wrong
from tests.command_line import run
from tests.http.serving import under_uvicorn
from tests.support import async_test
from tools.ports import free_port


def checked(faulty: Faulty, conversation: Callable[[Callable[..., Result]], None]) -> None:
    """Serve while a conversation runs `limpet check` against the server."""

    @async_test
    async def attempt() -> None:
        async with aclosing(faulty), under_uvicorn(faulty) as port:

            def command(*words: str, **environment: str) -> Result:
                address = f"http://127.0.0.1:{port}/mcp"
                return CliRunner().invoke(
                    app, ["check", address, *words], env={"COLUMNS": "200", **environment}
                )

            await asyncio.to_thread(conversation, command)

    attempt()


def test_a_table_shows_the_results_and_for_failures_the_rule_and_the_remedy() -> None:
    def conversation(command: Callable[..., Result]) -> None:
        done = command("--only", "version-header", "--only", "parallel", "--only", "origin")
        assert done.exit_code == 1, done.output
        assert "kitchen 2 (2025-11-25, 2026-07-28; tool look)" in done.output
        assert "24 requests at once on one session" in done.output
        assert "FAIL" in done.output
        assert "Specification: 2025-11-25, Transports, Security Warning" in done.output
        assert "To do: Compare Origin with a list." in done.output
        assert "Protocol Version Header" not in done.output, "only a failure shows its rule"
        assert "3 pass, 1 fail, 0 not applicable" in done.output
        assert command("--only", "parallel").exit_code == 0

    checked(Faulty(lambda r: Wrong(200) if "origin" in r.headers else None), conversation)


def test_a_terminal_shows_the_running_probe() -> None:
    def conversation(command: Callable[..., Result]) -> None:
        done = command("--only", "parallel", FORCE_COLOR="1", TERM="xterm")
        assert done.exit_code == 0
        assert "parallel requests get their own answers" in done.stderr
        assert "parallel requests get their own answers" not in command("--only", "parallel").stderr

    checked(Faulty(lambda _: None), conversation)


def test_json_has_every_row_with_its_rule_and_its_remedy() -> None:
    def conversation(command: Callable[..., Result]) -> None:
        done = command("--only", "cancel", "--tool", "cook", "--arguments", "{}", "--json")
        assert done.exit_code == 0, done.output
        report = json.loads(done.stdout)
        assert (report["passed"], report["tool"], report["server"]) == (True, "cook", "kitchen 2")
        assert [row["verdict"] for row in report["rows"]] == ["pass", "pass"]
        assert report["rows"][1].keys() == {
            "probe", "title", "verdict", "happened", "specification", "remedy", "seconds", "finished",
        }  # fmt: skip

    checked(Faulty(lambda _: None), conversation)


def test_a_check_whose_probes_mostly_did_not_finish_has_a_status_of_its_own() -> None:
    def conversation(command: Callable[..., Result]) -> None:
        done = command("--only", "unknown-method", "--only", "unknown-tool")
        assert done.exit_code == 3, done.output
        assert "1 pass, 0 fail, 2 not applicable" in done.output
        assert "Most probes did not finish" in done.output
        report = json.loads(command("--only", "unknown-method", "--only", "unknown-tool", "--json").stdout)
        assert report["passed"] is False
        assert [row["finished"] for row in report["rows"]] == [True, False, False]
        assert command("--only", "parallel", "--only", "unknown-tool").exit_code == 0, "half have finished"

    def busy(request: Request) -> Wrong | None:
        return Wrong(429) if b"no-such" in request.body else None

    checked(Faulty(busy), conversation)


def test_the_token_and_the_headers_go_with_every_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("right\n")
    monkeypatch.setenv("CHECK_TOKEN", "right")

    def guard(request: Request) -> Wrong | None:
        right = {"authorization": "Bearer right", "x-tenant": "a"}
        return None if right.items() <= request.headers.items() else Wrong(401)

    def conversation(command: Callable[..., Result]) -> None:
        words = ("--only", "parallel", "--header", "X-Tenant=a")
        assert command(*words, "--token-file", str(tmp_path / "token")).exit_code == 0
        assert command(*words, "--token-env", "CHECK_TOKEN").exit_code == 0
        refused = command(*words)
        assert refused.exit_code == 1
        assert "--token-file" in refused.output

    checked(Faulty(guard), conversation)


def test_wrong_usage_ends_with_2_and_a_server_that_is_absent_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp"
    for words, said in (
        (("ftp://x",), "not a URL"),
        (("server.py",), "server.py is not a URL. The check needs a server that is running: limpet serve"),
        ((url, "--arguments", "{}"), "--arguments needs --tool"),
        ((url, "--tool", "x", "--arguments", "[]"), "--arguments is not a JSON object"),
        ((url, "--only", "nothing"), "there is no probe 'nothing'; there are reachable, "),
        ((url, "--header", "x"), "--header takes NAME=VALUE"),
        (
            (url, "--header", "Authorization=Bearer abc"),
            "--header Authorization has a secret: put it into a variable",
        ),
        ((url, "--token-env", "NO_SUCH_VARIABLE"), "NO_SUCH_VARIABLE"),
    ):
        done = run("check", *words)
        assert done.status == 2, words
        assert said in done.err
    monkeypatch.setenv("COLUMNS", "50")
    absent = run("check", url)
    assert absent.status == 1
    assert "cannot connect" in " ".join(absent.out.split())
    assert run("inspect", url).err == f"limpet: cannot connect to {url}: Connection refused\n"
    assert "…" not in absent.out, "a long URL goes on in the next line"
    assert absent.out.count("│ n/a") == 0, "one row says it, not one for each probe"
    assert "1 fail, 33 not applicable" in absent.out


def test_a_server_that_refuses_the_first_request_is_quoted() -> None:
    def conversation(command: Callable[..., Result]) -> None:
        done = command("--only", "parallel")
        assert "initialize got status 404 with the error -32600: the endpoint is /api" in done.output

    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "the endpoint is /api"}}
    checked(Faulty(lambda _: Wrong(404, json.dumps(error).encode())), conversation)
