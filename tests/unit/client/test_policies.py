"""The decisions of a client that need no connection: caching, changes, results."""

import asyncio
from typing import Any

import pytest

from limpet.client.cache import ResultCache, cache_key
from limpet.client.changes import Change, UnreadChanges, change_of
from limpet.client.paging import Pages
from limpet.client.results import tool_call_result
from limpet.errors import BadAnswer
from limpet.protocol.results import ListToolsResult
from limpet.upstream.settings import ClientLimits
from tests.support import virtual_test

# Caching


def test_a_result_is_cached_for_its_ttl_and_only_for_the_same_request() -> None:
    cache = ResultCache(10, 10_000)
    key = cache_key("resources/read", {"uri": "a", "_meta": {"x": 1}})
    assert key == cache_key("resources/read", {"uri": "a"})
    assert key is not None
    cache.keep(key, {"ttlMs": 1_000, "contents": []}, now=5.0)
    assert cache.find(key, 5.9) is not None
    assert cache.find(key, 6.0) is None
    other = cache_key("resources/read", {"uri": "b"})
    assert other is not None
    assert cache.find(other, 5.0) is None


@pytest.mark.parametrize("ttl", [0, -5, None, "long"])
def test_a_result_without_a_sensible_hint_is_not_kept(ttl: object) -> None:
    cache = ResultCache(10, 10_000)
    cache.keep(("tools/list", b"{}"), {"ttlMs": ttl}, now=0.0)
    assert cache.find(("tools/list", b"{}"), 0.0) is None


def test_a_result_that_depends_on_more_than_its_parameters_is_never_cached() -> None:
    assert cache_key("tools/call", {"name": "x"}) is None
    assert cache_key("resources/read", {"uri": "a", "inputResponses": {}}) is None
    assert cache_key("resources/read", {"uri": "a", "requestState": "s"}) is None


def test_a_notification_invalidates_only_the_results_that_it_names() -> None:
    cache = ResultCache(10, 10_000)
    keys = [
        cache_key("resources/read", {"uri": "a"}),
        cache_key("resources/read", {"uri": "b"}),
        cache_key("tools/list", {}),
        cache_key("tools/list", {"cursor": "2"}),
    ]
    for key in keys:
        assert key is not None
        cache.keep(key, {"ttlMs": 1_000}, now=0.0)
    cache.invalidate("notifications/resources/updated", {"uri": "a"})
    cache.invalidate("notifications/tools/list_changed", {})
    assert [cache.find(key, 0.5) is not None for key in keys if key is not None] == [
        False,
        True,
        False,
        False,
    ]


def test_the_longest_unused_result_goes_first() -> None:
    cache = ResultCache(2, 10_000)
    for name in (b"1", b"2"):
        cache.keep(("tools/list", name), {"ttlMs": 1_000}, now=0.0)
    cache.find(("tools/list", b"1"), 0.0)
    cache.keep(("tools/list", b"3"), {"ttlMs": 1_000}, now=0.0)
    assert cache.find(("tools/list", b"2"), 0.0) is None
    assert cache.find(("tools/list", b"1"), 0.0) is not None


def test_results_are_limited_in_their_memory_and_one_that_is_larger_is_not_kept() -> None:
    cache = ResultCache(100, 100_000)
    keys = [("resources/read", b"%d" % number) for number in range(20)]
    for key in keys:
        cache.keep(key, {"ttlMs": 1_000, "text": "x" * 10_000}, now=0.0)
    kept = [key for key in keys if cache.find(key, 0.5) is not None]
    assert kept == keys[-len(kept) :]
    assert 3 <= len(kept) <= 5
    cache.keep(keys[0], {"ttlMs": 1_000, "text": "x" * 60_000}, now=0.0)
    assert [key for key in keys if cache.find(key, 0.5) is not None] == []
    for _ in range(50):
        cache.keep(keys[0], {"ttlMs": 1_000, "text": "x" * 30_000}, now=0.0)
    assert cache.find(keys[0], 0.5) is not None, "the same key again"


# Listening


@virtual_test
async def test_unread_changes_of_one_kind_are_delivered_once() -> None:
    listener = UnreadChanges(["tools"], ["a://b"])
    for _ in range(1_000):
        listener.offer(Change(kind="tools"))
        listener.offer(Change(kind="resource", uri="a://b/part"))
        listener.offer(Change(kind="prompts"))
        listener.offer(Change(kind="resource", uri="c://d"))
    assert await listener.next() == Change(kind="tools")
    assert await listener.next() == Change(kind="resource", uri="a://b/part")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await listener.next()


def test_only_changes_are_changes() -> None:
    assert change_of("notifications/message", {}) is None
    assert change_of("notifications/resources/updated", {"uri": 5}) == Change(kind="resource")


# Results


def test_data_that_does_not_fit_is_a_bad_answer() -> None:
    with pytest.raises(BadAnswer, match="int"):
        tool_call_result({"content": [], "structuredContent": {"result": "x"}}, int)
    with pytest.raises(BadAnswer):
        tool_call_result({"content": [{"type": "text"}]}, None)
    with pytest.raises(BadAnswer):
        tool_call_result({"content": [{"type": "text", "text": "no JSON"}]}, int)


def test_data_is_read_from_text_where_there_is_no_structured_content() -> None:
    assert tool_call_result({"content": [{"type": "text", "text": "5"}]}, int).data == 5
    assert tool_call_result({"content": [{"type": "text", "text": "five"}]}, str).data == "five"


@virtual_test
async def test_a_list_ends_when_its_pages_are_too_long_together() -> None:
    class Endless:
        """A client of a server whose list has no end."""

        _limits = ClientLimits(message=10_000)
        asked = 0

        async def request(self, *_: object, **__: object) -> Any:
            self.asked += 1
            return {"tools": [], "nextCursor": f"{self.asked}", "more": "x" * 5_000}

    client: Any = Endless()
    with pytest.raises(BadAnswer, match="too long"):
        async for _ in Pages(client, "tools/list", ListToolsResult):
            pass
    assert client.asked == 8
