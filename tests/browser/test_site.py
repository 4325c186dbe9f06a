"""`make docs`: the site builds without warnings, has every page once in its navigation, and its search works without internet."""

import functools
import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.browser.chromium import Chromium
from tests.support import async_test
from tools import site

OTHER_HOST: Final = re.compile(
    r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?(?:https?:)?//|<link[^>]*\shref=[\"']?(?:https?:)?//"
    r"|url\([\"']?(?:https?:)?//|@import"
)
"""Something that a page would load from another host. A link that a reader may click is not among them."""
SEARCH: Final = "[...document.querySelectorAll('*')].find(one => one.shadowRoot)?.shadowRoot"
FOUND: Final = f"[...{SEARCH}?.querySelectorAll('[role=option]') ?? []].map(one => one.href)"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site. A warning fails the build."""
    return site.build(tmp_path_factory.mktemp("site") / "work")


@pytest.fixture(scope="module")
def served(built: Path) -> Iterator[str]:
    """The address of a plain static server."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_arguments: Any) -> None:
            """Print nothing."""

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=built)
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def pages(entries: Any) -> Iterator[str]:
    """Yield the paths of a navigation."""
    for entry in entries:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from pages(value)


def test_the_navigation_has_every_page_once_in_the_order_of_the_index() -> None:
    found = list(pages(site.navigation()))
    assert sorted(found) == sorted(path.relative_to(site.DOCS).as_posix() for path in site.DOCS.rglob("*.md"))
    _, _, sections = (site.DOCS / "index.md").read_text().partition("\n## ")
    linked = dict.fromkeys(site.PAGE.findall(sections))
    assert [path for path in found if path in linked] == list(linked)


def test_every_page_is_built_and_loads_nothing_from_another_host(built: Path) -> None:
    for path in pages(site.navigation()):
        assert (built / path).with_suffix(".html").exists(), path
    texts = [*built.rglob("*.html"), *built.rglob("*.css")]
    assert [file.name for file in texts if OTHER_HOST.search(file.read_text())] == []
    # Each page names the script that takes the place of a foreign one.
    assert 'src="../site_worker.js"' in (built / "decisions" / "0006-http-client.html").read_text()


def test_fences_and_links_are_made_for_the_site(built: Path) -> None:
    migration = (built / "from-fastmcp.html").read_text()
    assert "no-run" not in migration
    assert 'href="files/examples/from_fastmcp/travel_fastmcp.py.html"' in migration
    shown = built / "files" / "examples" / "from_fastmcp" / "travel_fastmcp.py.html"
    assert "Plan a journey." in shown.read_text()
    assert "sessions_<wbr>per_<wbr>principal" in (built / "limits.html").read_text()
    assert ">server.md</a>" not in (built / "index.html").read_text()


@pytest.mark.parametrize("way", ["file", "server"])
@async_test
async def test_the_search_finds_a_word_without_internet(
    way: str, built: Path, served: str, browser: Chromium
) -> None:
    base = built.as_uri() if way == "file" else served
    async with browser.tab() as tab:
        await tab.go(f"{base}/index.html")
        await tab.until("document.documentElement.classList.contains('js')")
        await tab.press("/")
        await tab.until(f"Boolean({SEARCH}?.querySelector('input'))")
        await tab.press(*"elicit")
        await tab.until(f"{FOUND}.some(one => one.startsWith('{base}/reference/context.html'))")
        assert await tab.js(f"{SEARCH}.querySelector('input').value") == "elicit"
        loaded = await tab.js("performance.getEntriesByType('resource').map(one => one.name)")
        assert [name for name in loaded if not name.startswith(base)] == []
        assert tab.complaints == []


@async_test
async def test_the_copy_button_takes_commands_without_prompts_and_output(
    built: Path, browser: Chromium
) -> None:
    """The button marks the block while it reads the visible text; our style hides the rest then."""
    mark = "data-md-copying"
    assert any(mark in script.read_text() for script in built.rglob("*.js"))
    async with browser.tab() as tab:
        await tab.go(f"{built.as_uri()}/tutorial.html")
        await tab.js(
            f"document.querySelectorAll('pre > code').forEach(one => one.setAttribute('{mark}', ''))"
        )
        copied = await tab.js("[...document.querySelectorAll('pre > code')].map(one => one.innerText.trim())")
        assert copied[0].startswith("mkdir weather\ncd weather\n")
        assert copied[1] == "limpet --version"


def test_a_link_without_a_target_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# Documents\n\n## First\n\n[notes.md](notes.md)\n")
    (docs / "notes.md").write_text("# Notes\n\n[nowhere](notes.md#nowhere)\n")
    monkeypatch.setattr(site, "DOCS", docs)
    with pytest.raises(RuntimeError, match="anchor does not exist"):
        site.build(tmp_path / "work")
