"""What a request says of itself: its conversation, its idempotency key, its version and its client."""

from typing import Any, Final

import pytest

from limpet.errors import InvalidParams
from limpet.protocol.affinity import MAX_CONVERSATION, Affinity
from limpet.protocol.idempotency import MAX_KEY, read_key
from limpet.protocol.sessionless import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    LEVEL_KEY,
    VERSION,
    VERSION_KEY,
    RequestMeta,
    declared_version,
    read_meta,
)

META: Final = {VERSION_KEY: VERSION, CAPABILITIES_KEY: {}}


@pytest.mark.parametrize(
    ("place", "params", "headers", "key"),
    [
        ("header:X-Conversation-Id", {}, {"x-conversation-id": "c1"}, "c1"),
        ("header:X-Conversation-Id", {}, {}, ""),
        ("argument:session_id", {"arguments": {"session_id": "c2"}}, {}, "c2"),
        ("argument:session_id", {"arguments": ["session_id"]}, {}, ""),
        ("meta:chat", {"_meta": {"chat": "c3"}}, {}, "c3"),
        ("meta:chat", {"_meta": {"baggage": "a=1, chat = c%204 ;p=1,chat=5"}}, {}, "c 4"),
        ("meta:chat", {"_meta": {"chat": "own", "baggage": "chat=other"}}, {}, "own"),
        ("meta:chat", {"_meta": {"baggage": "chat,b=1"}}, {}, ""),
        ("meta:chat", {"_meta": {"baggage": 7}}, {}, ""),
        ("argument:chat", {"arguments": {"baggage": "chat=1"}}, {}, ""),
    ],
)
def test_a_conversation_has_the_key_that_a_request_names_in_its_place(
    place: str, params: dict[str, Any], headers: dict[str, str], key: str
) -> None:
    affinity = Affinity.read(place)
    assert str(affinity) == place
    assert affinity.key_of(params, headers) == key


@pytest.mark.parametrize("key", ["", "x" * (MAX_CONVERSATION + 1), 7, ["a"]])
def test_a_key_that_is_no_short_text_is_refused_with_its_place(key: object) -> None:
    with pytest.raises(InvalidParams, match=f"argument:chat .*1 to {MAX_CONVERSATION} characters"):
        Affinity.read("argument:chat").key_of({"arguments": {"chat": key}}, {})


@pytest.mark.parametrize(
    ("said", "header", "key"),
    [
        ("k1", None, "k1"),
        (None, b"k2", "k2"),
        (None, b' "k3" ', "k3"),
        ("k4", b'"k4"', "k4"),
        ("!~", None, "!~"),
    ],
)
def test_an_idempotency_key_is_in_the_metadata_or_in_a_header(
    said: object, header: bytes | None, key: str
) -> None:
    assert read_key(said, header) == key


@pytest.mark.parametrize("said", ["", "a b", "ä", "x" * (MAX_KEY + 1), 1, True])
def test_a_key_with_other_characters_is_refused(said: object) -> None:
    with pytest.raises(InvalidParams, match="visible ASCII"):
        read_key(said)


def test_a_header_and_a_member_that_differ_are_refused() -> None:
    with pytest.raises(InvalidParams, match="differ"):
        read_key("one", b"two")


def test_a_request_of_2026_07_28_describes_itself_and_its_client() -> None:
    assert declared_version({"_meta": META}) == VERSION
    others: list[dict[str, Any]] = [{}, {"_meta": []}, {"_meta": {VERSION_KEY: 1}}]
    assert [declared_version(params) for params in others] == [None, None, None]
    assert read_meta({"_meta": META}) == RequestMeta(VERSION, {}, {}, "", None)
    whole = {**META, CLIENT_KEY: {"name": "x"}, LEVEL_KEY: "debug"}
    assert read_meta({"_meta": whole}) == RequestMeta(VERSION, {}, {"name": "x"}, "debug", None)


@pytest.mark.parametrize(
    ("meta", "fault"),
    [
        (None, "_meta must be an object"),
        ({CAPABILITIES_KEY: {}}, f"{VERSION_KEY}, a string"),
        ({**META, CAPABILITIES_KEY: []}, f"{CAPABILITIES_KEY}, an object"),
        ({**META, CLIENT_KEY: "x"}, f"{CLIENT_KEY} must be an object"),
        ({**META, LEVEL_KEY: "loud"}, "must be a log level"),
        ({**META, LEVEL_KEY: ""}, "must be a log level"),
    ],
)
def test_metadata_with_a_fault_is_refused_with_the_member(meta: object, fault: str) -> None:
    with pytest.raises(InvalidParams, match=fault):
        read_meta({"_meta": meta})
