"""docs/how-to/slow-calls.md has the table of how long clients wait, and nothing else."""

import re
from pathlib import Path
from typing import Final

from limpet.protocol.patience import KNOWN_PATIENCE, MARGIN, UNKNOWN_PATIENCE, hand_over_after

PAGE: Final = (Path(__file__).parents[2] / "docs" / "how-to" / "slow-calls.md").read_text()
ROW: Final = re.compile(r"^\| (`.*`) \| (\d+) \| (.*) \|$", re.MULTILINE)


def test_the_page_has_every_client_with_its_time_and_source() -> None:
    _, _, section = PAGE.partition("## How long clients wait")
    written = {
        name: (float(seconds), source)
        for names, seconds, source in ROW.findall(section)
        for name in re.findall(r"`([^`]+)`", names)
    }
    assert written == {name: (known.seconds, known.source) for name, known in KNOWN_PATIENCE.items()}
    assert f"count as {UNKNOWN_PATIENCE:g} s" in section
    assert MARGIN == 0.75


def test_a_client_is_known_by_its_name_also_behind_mcp_remote() -> None:
    found = [hand_over_after({"name": name}) for name in ("goose", "goose (via mcp-remote 0.1.37)", "other")]
    assert found == [225, 225, 45]
    assert hand_over_after(None) == 45
