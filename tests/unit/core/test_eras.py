"""Which client may use which revision, and how long a client may describe itself."""

from typing import Any

import pytest

from limpet.config import Limits, Settings
from limpet.core.eras import (
    check_client,
    check_handshake,
    check_sessionless,
    has_sessions,
    own_meta,
    supported_versions,
    with_eras,
)
from limpet.errors import ConfigError, InvalidParams, UnsupportedVersion
from limpet.protocol.sessionless import VERSION, RequestMeta
from limpet.protocol.versions import REVISIONS

OLD, NEW = {"name": "old"}, {"name": "new"}


def settings(eras: Any = "both", **by_client: Any) -> Settings:
    return Settings(eras=eras, eras_by_client=by_client)


def meta(client: dict[str, Any], version: str = VERSION) -> RequestMeta:
    return RequestMeta(version, {}, client, "", None)


def test_an_unknown_word_for_eras_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"eras='new': choose .*sessionless"):
        with_eras(Settings(), "new", None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="eras='old'"):
        with_eras(Settings(), None, {"x": "old"})  # type: ignore[dict-item]


def test_a_client_may_use_the_versions_of_its_eras() -> None:
    assert supported_versions(settings()) == (VERSION, *REVISIONS)
    assert supported_versions(settings("sessions")) == tuple(REVISIONS)
    assert supported_versions(settings("sessionless")) == (VERSION,)
    one = settings("sessionless", old="sessions")
    assert supported_versions(one, OLD) == tuple(REVISIONS)
    for other in (NEW, {"name": ["old"]}):
        assert supported_versions(one, other) == (VERSION,)
    assert has_sessions(one)
    assert not has_sessions(settings("sessionless", old="sessionless"))


def test_a_session_is_for_clients_that_may_have_one() -> None:
    check_handshake(settings(), {"clientInfo": NEW})
    check_handshake(settings("sessionless", old="sessions"), {"clientInfo": OLD})
    with pytest.raises(UnsupportedVersion) as refused:
        check_handshake(settings(new="sessionless"), {"clientInfo": NEW, "protocolVersion": "2025-06-18"})
    assert refused.value.data == {"supported": [VERSION], "requested": "2025-06-18"}
    with pytest.raises(UnsupportedVersion):
        check_handshake(settings("sessionless"), {"clientInfo": NEW})


def test_a_sessionless_request_is_for_clients_that_may_send_one() -> None:
    check_sessionless(settings(), meta(NEW))
    check_sessionless(settings("sessions", new="both"), meta(NEW))
    for refused in (settings("sessions"), settings(new="sessions")):
        with pytest.raises(UnsupportedVersion):
            check_sessionless(refused, meta(NEW))
    with pytest.raises(UnsupportedVersion, match="supported: 2026-07-28"):
        check_sessionless(settings(), meta(NEW, "2099-01-01"))


def test_a_client_that_describes_itself_at_length_is_refused_with_both_figures() -> None:
    short = Settings(limits=Limits(headers=40))
    assert check_client(short, NEW, {}, {}) == (b'{"name":"new"}', b"{}")
    with pytest.raises(InvalidParams, match="have 42 bytes together; at most 40"):
        check_client(short, NEW, {"x": "y" * 20}, {})
    check_client(short, NEW, {"x": "y" * 18}, {})
    with pytest.raises(InvalidParams, match="have 41 bytes"):
        check_client(short, NEW, {"x": "y" * 12}, {"z": 3})
    with pytest.raises(InvalidParams, match="at most 40"):
        check_sessionless(short, meta({"name": "x" * 50}), large=True)
    check_sessionless(short, meta({"name": "x" * 50}))


def test_the_server_behind_gets_the_metadata_without_the_progress_token() -> None:
    assert own_meta({"_meta": {"progressToken": 1, "a": 2}}) == {"a": 2}
    assert [own_meta(params) for params in ({}, {"_meta": 7})] == [{}, {}]
