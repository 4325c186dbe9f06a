"""The comparison with other proxies (`python -m bench.proxies`), in its shortest form: it runs, and every answer is right."""

import pytest

from bench.proxies import measure

SERVERS = ("remote", "fastmcp's proxy", "mcp-proxy of stdio")


@pytest.mark.timeout(120)
def test_proxies_are_compared_in_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    measure("url", rounds=1, seconds=1, only=SERVERS, in_flight=(1,), warm_up=0)
    printed = capsys.readouterr().out
    for server in SERVERS:
        assert f"{server} " in printed
    assert "remote / fastmcp's proxy: " in printed
    assert "remote / mcp-proxy of stdio: " in printed
