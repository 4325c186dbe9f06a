"""The pictures of the documents: they exist, and the script that makes them still works."""

from pathlib import Path

from tests.browser.chromium import Chromium
from tests.browser.product import FLOOR, admin_url, night, operated
from tests.http.client import http_test
from tools.screenshots import NAMES, PICTURES, taken

PNG = b"\x89PNG\r\n"
MOST_BYTES = 250_000


def test_the_documents_have_the_pictures() -> None:
    page = (Path(__file__).parents[2] / "docs" / "observe.md").read_text()
    for name in NAMES:
        picture = (PICTURES / name).read_bytes()
        assert picture.startswith(PNG)
        assert len(picture) < MOST_BYTES
        assert f"pictures/{name}" in page


@http_test
async def test_the_script_of_the_pictures_finds_what_it_shows(browser: Chromium) -> None:
    with operated("--workers", "2", "--drain", "0", target=FLOOR) as process:
        async with night(process.port), browser.tab() as tab:
            found = await taken(tab, admin_url(process), busy_seconds=0)
            assert set(found) == set(NAMES)
            assert all(picture.startswith(PNG) for picture in found.values())
            assert tab.complaints == []
