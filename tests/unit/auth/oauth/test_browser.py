"""The listener on this machine: one answer with the right state ends the journey, and nothing else does."""

import asyncio
import re
import urllib.error
import urllib.request
from contextlib import suppress
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from limpet.auth.oauth import AuthorizationCode, Loopback, MemoryStorage, OAuth
from limpet.auth.oauth.identity import ClientIdentity
from limpet.auth.oauth.pkce import AuthorizationRequest, Begun
from limpet.errors import AuthorizationFailed, ConfigError
from tests.support import BOUND, async_test
from tests.unit.auth.oauth.authority import authority, call


def get(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=BOUND) as page:
            return int(page.status)
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code


@async_test
async def test_the_browser_returns_to_a_free_port_and_other_requests_are_refused() -> None:
    statuses: list[int] = []

    def launch(url: str) -> bool:
        fields = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        back = fields["redirect_uri"]
        statuses.append(get(f"{back}?{urlencode({'code': 'evil', 'state': 'guessed'})}"))
        statuses.append(get(f"{back}?code=evil"))
        statuses.append(get(back.replace("/callback", "/favicon.ico")))
        statuses.append(
            get(f"{back}?{urlencode({'code': 'the-code', 'state': fields['state'], 'iss': at.base})}")
        )
        at._challenge = fields["code_challenge"]
        return True

    async with authority() as at:
        oauth = OAuth(AuthorizationCode(browser=Loopback(launch=launch)), storage=MemoryStorage())
        assert await call(oauth, at.url) == 200
        assert statuses == [400, 400, 400, 200]
        assert at.forms[0]["code"] == "the-code"


def begun(state: str) -> Begun:
    request = AuthorizationRequest(
        state=state, verifier="v", issuer="https://auth.example.com", redirect_uri=""
    )
    return Begun(request=request, client=ClientIdentity("c"), scopes=())


@async_test
async def test_the_port_of_an_earlier_registration_is_taken_again_if_it_is_free() -> None:
    browser = Loopback(launch=lambda _url: True)
    async with browser.visit("") as first:
        taken = first.redirect_uri
        async with browser.visit(taken) as second:
            assert second.redirect_uri != taken
    async with browser.visit(taken) as third:
        assert third.redirect_uri == taken


@async_test
async def test_garbage_and_silence_at_the_listener_do_not_disturb_the_authorization() -> None:
    browser = Loopback(launch=lambda _url: True)
    async with browser.visit("") as visit:
        journey = asyncio.create_task(visit.go("https://auth.example.com", begun("right")))
        port = urlsplit(visit.redirect_uri).port
        for garbage in (
            b"\x00\xff\r\n\r\n",
            b"GET\r\n\r\n",
            b"A" * 40_000,
            b"POST /callback?state=right x\r\n\r\n",
            b"",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(garbage)
            writer.write_eof()
            with suppress(ConnectionError):
                assert b"200 OK" not in await reader.read()
            writer.close()
        assert not journey.done()
        assert await asyncio.to_thread(get, f"{visit.redirect_uri}?state=right&code=c") == 200
        assert await journey == f"{visit.redirect_uri}?state=right&code=c"


@async_test
async def test_a_machine_without_a_browser_gets_instructions() -> None:
    async with Loopback(launch=lambda _url: False).visit("") as visit:
        with pytest.raises(AuthorizationFailed, match="open_browser"):
            await visit.go("https://auth.example.com", begun("s"))


@pytest.mark.parametrize(
    ("registered", "used"),
    [
        ("http://127.0.0.1/callback", r"http://127\.0\.0\.1:\d+/callback"),
        ("http://localhost/a/b", r"http://localhost:\d+/a/b"),
        ("http://[::1]", r"http://\[::1\]:\d+/"),
    ],
)
@async_test
async def test_a_redirect_uri_that_was_registered_by_hand_is_used_and_a_free_port_if_it_names_none(
    registered: str, used: str
) -> None:
    async with Loopback.at(registered).visit("") as visit:
        assert re.fullmatch(used, visit.redirect_uri)
        with pytest.raises(AuthorizationFailed, match="cannot listen"):
            async with Loopback.at(visit.redirect_uri).visit(""):
                pass


@pytest.mark.parametrize(
    "uri",
    [
        "https://127.0.0.1/x",
        "http://tools.example/x",
        "http://127.0.0.1/x?y",
        "urn:ietf:wg:oauth:2.0:oob",
        "",
    ],
)
def test_a_redirect_uri_that_leads_elsewhere_is_refused(uri: str) -> None:
    with pytest.raises(ConfigError, match="must lead to this machine"):
        Loopback.at(uri)
