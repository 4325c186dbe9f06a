"""The decisions of a connection that need no connection: pauses, eras, statuses."""

import pytest

from limpet.errors import Broken, HttpRefused, McpError, NotSent, OutcomeUnknown, VersionRefused
from limpet.testing.seeded_random import SeededRandom
from limpet.upstream.backoff import Backoff
from limpet.upstream.http_status import json_rpc_error, moved_to, refused, seconds_to_wait
from limpet.upstream.link import Doubtful, Overloaded, SessionLost
from limpet.upstream.negotiation import EraMemory, ServerEra, choose, judge_result

# Pauses


def test_pauses_double_up_to_the_bound_and_start_again_after_success() -> None:
    backoff = Backoff(SeededRandom(), (1.0, 8.0))
    pauses = [backoff.pause() for _ in range(6)]
    for pause, whole in zip(pauses, (1, 2, 4, 8, 8, 8), strict=True):
        assert whole / 2 <= pause <= whole
    backoff.worked()
    assert 0.5 <= backoff.pause() <= 1.0


def test_a_servers_wish_is_never_undercut_and_hardly_exceeded() -> None:
    backoff = Backoff(SeededRandom(), (1.0, 8.0))
    backoff.hint = 0.5
    assert 0.5 <= backoff.pause() <= 0.525
    assert 0.5 <= backoff.pause() <= 2.5
    assert 3.0 <= backoff.pause(3.0) <= 3.15


# Eras


def test_the_best_version_in_common_decides() -> None:
    assert choose(["2026-07-28", "2025-11-25"]) is ServerEra.SESSIONLESS
    assert choose(["2025-06-18", 7]) is ServerEra.SESSION
    with pytest.raises(VersionRefused, match="2031-01-01"):
        choose(["2031-01-01"])
    assert judge_result({"tools": []}) is ServerEra.SESSION
    assert judge_result(None) is ServerEra.SESSION


def test_the_refusals_of_a_server_are_remembered_until_it_speaks_that_era() -> None:
    eras = EraMemory()
    assert eras.refused("https://a/mcp") == set()
    eras.learn("https://a/mcp", {ServerEra.SESSIONLESS}, ServerEra.SESSION)
    assert eras.refused("https://a/mcp") == {ServerEra.SESSIONLESS}
    assert eras.refused("https://a/other") == set()
    eras.learn("https://a/mcp", set(), ServerEra.SESSIONLESS)
    assert eras.refused("https://a/mcp") == set()
    eras.learn("", {ServerEra.SESSIONLESS}, ServerEra.SESSION)
    assert eras.refused("") == set()


# Statuses


@pytest.mark.parametrize(
    ("status", "body", "in_session", "kind"),
    [
        (404, b"", True, SessionLost),
        (404, b"", False, HttpRefused),
        (429, b"", True, Overloaded),
        (503, b"upstream connect error or disconnect/reset before headers", True, Overloaded),
        (503, b'{"jsonrpc":"2.0","id":1,"error":{"code":-31001,"message":"busy"}}', True, Overloaded),
        (400, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}', True, Doubtful),
        (400, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}', False, McpError),
        (404, b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}', False, McpError),
        (500, b"oops", True, Broken),
        (504, b"", False, Broken),
        (500, b'{"jsonrpc":"2.0","id":1,"error":{"code":-31002,"message":"gone"}}', True, OutcomeUnknown),
        (400, b"what", True, Doubtful),
        (400, b"what", False, HttpRefused),
    ],
)
def test_each_status_means_executed_not_executed_or_unknown(
    status: int, body: bytes, in_session: bool, kind: type[Exception]
) -> None:
    assert type(refused(status, body, None, in_session=in_session)) is kind


@pytest.mark.parametrize("status", [429, 503])
def test_only_our_own_mark_makes_a_refusal_certain(status: int) -> None:
    certain = refused(status, b"", 3.0, in_session=True, mark="not-executed")
    assert type(certain) is NotSent
    assert certain.retry_after == 3.0
    assert type(refused(status, b"", None, in_session=True, mark="executed")) is Overloaded


def test_a_refusal_has_the_message_of_its_error_or_the_beginning_of_its_body() -> None:
    error = b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"a token is needed"}}'
    for body, end in (
        (error, "(HTTP 401): a token is needed"),
        (b"no", "(HTTP 401): no"),
        (b"", "(HTTP 401)"),
    ):
        assert str(refused(401, body, None, in_session=True)).endswith(end)


def test_garbage_holds_no_error() -> None:
    for body in (
        b"",
        b"[]",
        b"{",
        b'{"error":"text"}',
        b'{"error":{"code":"1","message":"x"}}',
        b"[" * 100_000,
    ):
        assert json_rpc_error(body) is None


def test_retry_after_is_read_as_seconds_or_as_a_date() -> None:
    assert seconds_to_wait("7", 0.0) == 7.0
    assert seconds_to_wait("Thu, 01 Jan 1970 00:01:00 GMT", 50.0) == 10.0
    assert seconds_to_wait("Thu, 01 Jan 1970 00:00:01 GMT", 50.0) == 0.0
    assert seconds_to_wait("99999999999", 0.0) == 3_600.0
    assert seconds_to_wait("soon", 0.0) is None
    assert seconds_to_wait("", 0.0) is None


def test_a_refused_redirect_shows_no_password_and_no_query() -> None:
    with pytest.raises(HttpRefused, match="redirects to http://host/there;"):
        moved_to(302, "http://user:secret@host/here", "/there?key=secret", has_credentials=False)
