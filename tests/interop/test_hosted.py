"""Unmodified objects of `mcp` 1, `mcp` 2 and fastmcp 4 in our process: tests for them only. The others are in test_behind.py."""

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from limpet import Client
from tests.client.servers import PATIENT
from tests.interop.behind import APPS, FRAMEWORKS, app, environment, limpet, peer, url
from tests.interop.peers import serving
from tests.support import BOUND, async_test

ERAS: Final = ("sessions", "sessionless")
every_framework = pytest.mark.parametrize("framework", FRAMEWORKS)
every_era = pytest.mark.parametrize("era", ERAS)


@pytest.mark.parametrize("framework", ["mcp1", "mcp2"])
@async_test
async def test_a_low_level_server_is_hosted_too(framework: str) -> None:
    words = limpet(framework, "serve", app(framework, "low"), "--stdio")
    async with Client(words, env=environment(), timeout=BOUND, times=PATIENT) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"


@every_era
@async_test
async def test_we_speak_2026_07_28_with_the_object_if_that_is_wanted(era: str) -> None:
    words = limpet("mcp2", "serve", f"{APPS / 'modern.py'}:server", "--stdio")
    async with Client(words, env=environment(), protocol_version=era, timeout=BOUND, times=PATIENT) as client:
        assert (await client.call_tool("revision")).data == "2026-07-28"


@every_framework
def test_handlers_see_the_user_and_the_http_request_of_their_own_call(framework: str, tmp_path: Path) -> None:
    """The package fastmcp also offers the tool that needs the scope `admin` only to a user that has it."""
    sent = ["cyd.0"]

    @async_test
    async def run() -> None:
        for era in ERAS:
            for user, scopes in (("ada", "admin"), ("bob", "")):
                headers = {"X-Color": f"{user}'s"}
                async with Client(
                    target, protocol_version=era, auth=user, headers=headers, timeout=BOUND
                ) as client:
                    assert (await client.call_tool("who")).data == [f"{user} {user} {scopes}", f"{user}'s"]
                    names = {tool.name for tool in await client.list_tools()}
                    assert ("secret" in names) == (framework == "fastmcp" and user == "ada")
            async with Client(target, protocol_version=era, auth=lambda: sent[-1], timeout=BOUND) as client:
                for renewed in ("cyd", "cyd.2"):
                    sent.append(renewed)
                    assert (await client.call_tool("who")).data == [f"cyd {renewed} ", "no color"]

    variables = {**environment(), "HOSTED_FRAMEWORK": framework}
    served = f"{APPS / 'verified.py'}:server"
    with serving(tmp_path, variables, served, command=limpet(framework, "serve")) as port:
        target = url(port)
        run()


TRY_EACH: Final = """
import sys
from limpet.cli.main import main

for target in sys.argv[1:]:
    sys.argv[1:] = ["serve", target, "--http", "127.0.0.1:0"]
    try:
        main()
    except SystemExit as end:
        print("status", end.code, file=sys.stderr)
"""


@every_framework
def test_an_object_with_its_own_sign_in_or_routes_is_refused(framework: str) -> None:
    """One process tries both: the import of a framework takes longer than a refusal."""
    done = subprocess.run(
        [peer(framework), "-c", TRY_EACH, app(framework, "signed_in"), app(framework, "routed")],
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
        env={**os.environ, **environment(), "COLUMNS": "1000"},
    )
    signed_in, routed, rest = re.split(r"status (?!0|None).*\n", done.stderr)
    assert "its own sign-in (`auth=`)" in signed_in
    assert "HTTP routes (/health)" in routed
    assert rest == ""
