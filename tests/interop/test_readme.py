"""The README's first server works with the official clients of both eras, and its checks are those of real runs."""

import asyncio
import os
import re
import subprocess
from pathlib import Path

import pytest

from limpet.testing import check
from tests.http.serving import wait_until_connected
from tests.interop.behind import environment, limpet, peer
from tests.interop.peers import ROOT, Peer, converse, serving
from tests.support import async_test
from tools.ports import free_port

PEERS = {
    "2025-11-25": Peer("mcp1", "legacy", ".peers/mcp1/bin/python", "readme.py", "peers", 1, rewinds=True),
    "2026-07-28": Peer("mcp2", "modern", ".peers/mcp2/bin/python", "readme.py", "peers", 5, rewinds=True),
}


@pytest.mark.parametrize("version", PEERS)
def test_the_first_server_of_the_readme_works_with_a_client_of_each_era(version: str, tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    program = tmp_path / "weather.py"
    program.write_text(found[1], encoding="utf-8")
    with serving(tmp_path, {}, f"{program}:server") as port:
        steps, _ = converse(PEERS[version], {"url": f"http://127.0.0.1:{port}/mcp"})
    assert steps["connected"]["version"] == version
    assert steps["listed"]["names"] == ["forecast"]
    for step in ("first", "second"):
        assert not steps[step].get("isError"), steps[step]
        assert steps[step]["structuredContent"] == {"city": "Oslo", "days": ["sunny", "sunny"]}
    assert steps["read"]["contents"][0]["text"] == "Sunny in Oslo."


VERDICTS = {"pass": "pass", "FAIL": "fail", "n/a": "not applicable"}
SHOP = ROOT / "tests" / "interop" / "hosted" / "shop.py"


def printed_checks() -> list[tuple[dict[str, str], int]]:
    """Return the runs of `limpet check` in the README: the verdicts by title, and the number of failures."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    [block] = [text for text in re.findall(r"```text\n(.*?)```", page, re.DOTALL) if "limpet check" in text]
    runs = block.split("$ limpet check")[1:]
    return [
        (
            {title: VERDICTS[word] for word, title in re.findall(r"^│ (\S+) +│ (.*?) +│", run, re.MULTILINE)},
            int(re.findall(r"^(\d+) fail$", run, re.MULTILINE)[0]),
        )
        for run in runs
    ]


async def found(port: int, printed: dict[str, str], *, timeout: float) -> tuple[dict[str, str], int]:
    """Check a server; return the verdicts that the README prints, and the number of failures."""
    report = await check(f"http://127.0.0.1:{port}/mcp", timeout=timeout)
    verdicts = {row.title: row.verdict for row in report.rows}
    return {title: verdicts[title] for title in printed}, len(report.failures)


async def checked(port: int, expected: tuple[dict[str, str], int]) -> None:
    """Compare a check with the README. A lost answer takes all its time, so a second check has more of it."""
    if await found(port, expected[0], timeout=2) != expected:
        assert await found(port, expected[0], timeout=15) == expected


def test_the_checks_in_the_readme_are_those_of_a_real_run(tmp_path: Path) -> None:
    before, after = printed_checks()
    assert list(before[0]) == list(after[0])
    bare, words = free_port(), limpet("mcp2", "serve")

    @async_test
    async def both(hosted: int) -> None:
        # They wait for lost answers of the bare server.
        await asyncio.gather(checked(bare, before), checked(hosted, after))

    with subprocess.Popen([peer("mcp2"), SHOP], env={**os.environ, "PORT": str(bare)}) as process:
        try:
            with serving(tmp_path, environment(), f"{SHOP}:mcp", command=words) as hosted:
                wait_until_connected(bare, process)
                both(hosted)
        finally:
            process.kill()
