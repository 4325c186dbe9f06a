"""Make the pictures of docs/observe.md: the dashboard over two real workers at work, in Chromium, light and dark.

python -m tools.screenshots [DIRECTORY]
"""

import asyncio
import sys
from pathlib import Path
from typing import Final

from tests.browser.chromium import Tab, chromium
from tests.browser.dashboard import row_shows, signed_in
from tests.browser.product import FLOOR, TOKEN, admin_url, night, operated

PICTURES: Final = Path(__file__).parents[1] / "docs" / "pictures"
NAMES: Final = ("dashboard-light.png", "dashboard-dark.png", "dashboard-narrow.png")
BUSY_SECONDS: Final = 75.0
"""How long the load runs before the pictures: the hung call must be old enough to need attention, and the charts need points."""


async def taken(tab: Tab, url: str, busy_seconds: float) -> dict[str, bytes]:
    """Return the pictures by name, after so many seconds of work."""
    await signed_in(tab, url, TOKEN)
    await row_shows(tab, "#calls-table tbody tr", "reindex", "handler")
    await row_shows(tab, "#calls-table tbody tr", "book_trip", "ask")
    await asyncio.sleep(busy_seconds)
    found = {}
    for name, dark, (width, height) in zip(
        NAMES, (False, True, False), ((1280, 960), (1280, 960), (390, 844)), strict=True
    ):
        await tab.colours(dark=dark)
        await tab.resize(width, height)
        found[name] = await tab.picture()
    return found


async def pictures(busy_seconds: float = BUSY_SECONDS) -> dict[str, bytes]:
    """Serve the shop floor with two workers, keep it busy, and take the pictures."""
    with operated("--workers", "2", "--drain", "1", target=FLOOR) as process, chromium() as browser:
        async with night(process.port), browser.tab() as tab:
            return await taken(tab, admin_url(process), busy_seconds)


def main() -> None:
    """Write the pictures."""
    directory = Path(sys.argv[1]) if sys.argv[1:] else PICTURES
    directory.mkdir(parents=True, exist_ok=True)
    for name, picture in asyncio.run(pictures()).items():
        (directory / name).write_bytes(picture)
        print(f"{directory / name}: {len(picture) // 1024} KiB")


if __name__ == "__main__":
    main()
