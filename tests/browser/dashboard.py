"""Steps of an operator on the dashboard's page."""

import json
from typing import Final

from tests.browser.chromium import Tab
from tests.support import BOUND

CALLS: Final = "#calls-table tbody tr"
SESSIONS: Final = "#sessions-table tbody tr"


async def signed_in(tab: Tab, url: str, token: str) -> None:
    """Load the page and type the token."""
    await tab.go(url)
    await tab.until("document.activeElement.id === 'token'")
    await tab.type(token)
    await tab.press("Enter")
    await tab.until("document.querySelector('#dashboard').checkVisibility()")


async def rows(tab: Tab, selector: str) -> list[str]:
    """Return the texts of the rows of a table."""
    return list(
        await tab.js(f"[...document.querySelectorAll({json.dumps(selector)})].map((row) => row.innerText)")
    )


async def count_is(tab: Tab, selector: str, number: int) -> None:
    """Wait until so many elements are there."""
    await tab.until(f"document.querySelectorAll({json.dumps(selector)}).length === {number}")


async def row_shows(tab: Tab, selector: str, *texts: str, seconds: float = BOUND) -> None:
    """Wait until one row of a table has all these texts."""
    await tab.until(f"{_matching(selector, texts)} !== undefined", seconds)


async def row_is_gone(tab: Tab, selector: str, *texts: str, seconds: float = BOUND) -> None:
    """Wait until no row of a table has all these texts."""
    await tab.until(f"{_matching(selector, texts)} === undefined", seconds)


async def act_on(tab: Tab, selector: str, *texts: str) -> None:
    """Press the button of a row that has all these texts, and confirm."""
    await tab.js(f"{_matching(selector, texts)}.querySelector('td:last-child button').click()")
    await tab.until("document.querySelector('#confirm').open")
    await tab.click("#confirm [value=yes]")


def _matching(selector: str, texts: tuple[str, ...]) -> str:
    return (
        f"[...document.querySelectorAll({json.dumps(selector)})]"
        f".find((row) => {json.dumps(texts)}.every((text) => row.innerText.includes(text)))"
    )
