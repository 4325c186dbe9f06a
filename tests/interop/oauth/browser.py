"""A browser and its user in one program: it signs in as ada at the authorization server, and agrees.

    browser.py URL            print the URL that the authorization server redirects to
    browser.py URL --visit    open that URL instead, as soon as the application listens there

It uses the standard library only: the clients of all SDKs start it.
"""

import re
import sys
import time
import urllib.error
import urllib.request
from http.client import HTTPResponse
from http.cookiejar import CookieJar
from typing import Final
from urllib.parse import urlencode, urljoin, urlsplit

_FORM: Final = re.compile(
    r'<form[^>]* action="(?P<action>[^"]+)" method="post">.*?name="prompt" value="(?P<prompt>\w+)"', re.DOTALL
)
_PAGES: Final = 20
_PATIENCE: Final = 60.0


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect."""

    def redirect_request(self, *_: object) -> None:
        return None


class Browser:
    """Cookies, and the habit of agreeing."""

    def __init__(self) -> None:
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()), _Stay)

    def agree(self, url: str) -> str:
        """Open the page, sign in and agree; return the URL that leads away from the authorization server."""
        here, form = url, None
        for _ in range(_PAGES):
            page = self._open(here, form)
            location = page.headers.get("location")
            if location is None:
                found = _FORM.search(page.read().decode())
                if found is None:
                    raise SystemExit(f"no form and no redirect: {page.status} {here}")
                here, form = (
                    urljoin(here, found["action"]),
                    {"prompt": found["prompt"], "login": "ada", "password": "x"},
                )
                continue
            here, form = urljoin(here, location), None
            if urlsplit(here).netloc != urlsplit(url).netloc:
                return here
        raise SystemExit(f"{_PAGES} pages and no end: {here}")

    def visit(self, url: str) -> None:
        """Open a page of the application, which may not listen yet."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                self._open(url)
            except urllib.error.URLError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)
            else:
                return

    def _open(self, url: str, form: dict[str, str] | None = None) -> HTTPResponse:
        data = urlencode(form).encode() if form is not None else None
        try:
            page: HTTPResponse = self._opener.open(url, data, timeout=_PATIENCE)
        except urllib.error.HTTPError as answer:
            if answer.code >= 400:
                raise SystemExit(f"{answer.code} {url}: {answer.read().decode()[:2000]}") from None
            return answer  # type: ignore[return-value]
        return page


if __name__ == "__main__":
    browser = Browser()
    redirect = browser.agree(sys.argv[1])
    if "--visit" in sys.argv:
        browser.visit(redirect)
    else:
        print(redirect)
