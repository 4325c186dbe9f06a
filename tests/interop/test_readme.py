"""The README's first server works with the official clients of both eras, as it stands on the page."""

import re
from pathlib import Path

import pytest

from tests.interop.peers import ROOT, Peer, converse, serving

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
