"""`home="any"`: the server behind keeps nothing between two calls, so sessions share upstreams as 2026-07-28 clients do."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from limpet import ConfigError, McpError, Process, Remote
from limpet.auth.forward_key import new_key
from limpet.engine.caller import Caller
from limpet.errors import METHOD_NOT_FOUND, AskError
from limpet.options import ProxyOptions
from limpet.ports import SystemRandom
from tests.backs.behind import Behind, Front, in_front
from tests.backs.test_bridge import a_server
from tests.backs.test_homes import replicas
from tests.duplex import DuplexClient
from tests.support import async_test, until

ANY = ProxyOptions(home="any")
ERAS = ["sessions", "sessionless"]


@async_test
async def test_sessions_of_one_principal_share_an_upstream_that_outlives_them() -> None:
    behind = Behind(a_server())
    async with in_front(behind, ANY) as front:
        async with front.client("sessions") as one, front.client("sessions") as two:
            for number, client in enumerate((one, two)):
                assert (await client.call_tool("add", {"a": number, "b": 1})).data == number + 1
            assert [client.session for client in behind.clients] == [""]
            async with front.client("sessions", elicitation=lambda _: {}):
                assert len(behind.clients) == 2, "other capabilities, another upstream"
        assert behind.living == 2


@async_test
async def test_principals_share_no_upstream_and_remote_anonymous_clients_have_one_for_each_request() -> None:
    behind = Behind(a_server())
    async with in_front(behind, ANY) as front:
        for key in ("ada", "bob", "ada"):
            await opened(front, key)
        assert [client.caller.key for client in behind.clients] == ["ada", "bob"]
        front.back.shares_anonymous = False
        client = await opened(front, "")
        await client.say("tools/list", 1)
        assert "result" in await client.answer(1)
        await until(lambda: behind.living == 2)
        assert len(behind.clients) == 4, "one for initialize, one for the list"


async def opened(front: Front, key: str) -> DuplexClient:
    client = DuplexClient(front.engine, Caller(key))
    await client.open()
    return client


@pytest.mark.parametrize("server_era", ERAS)
@async_test
async def test_questions_reach_the_session_whose_call_asks(server_era: str) -> None:
    behind = Behind(a_server(), server_era)
    async with in_front(behind, ANY) as front:

        async def interview(name: str) -> str:
            def answer(_question: Any) -> dict[str, Any]:
                return {"text": name}

            async with front.client("sessions", elicitation=answer) as client:
                return (await client.call_tool("two_questions")).text

        said = await asyncio.gather(*(interview(name) for name in "abc"))
        assert said == [f"{{'text': '{name}'}} {{'text': '{name}'}}" for name in "abc"]
        # While a client of a 2025 server is asked, the other calls run on connections of their own.
        assert len(behind.clients) == (3 if server_era == "sessions" else 1)


@async_test
async def test_a_question_outside_of_any_call_is_refused_at_once() -> None:
    behind = Behind(a_server(), "sessions")
    async with in_front(behind, ANY) as front, front.client("sessions", elicitation=lambda _: {}) as client:
        await client.call_tool("add", {"a": 1, "b": 1})
        # The one session of the server behind is our upstream.
        [session] = behind.server.engine.runtime.sessions.values()
        with pytest.raises(AskError, match="belongs to no call"):
            await behind.server.engine.sessions.ask(session, "elicitation/create", {"message": "now?"})


@async_test
async def test_subscriptions_are_not_declared_and_refused() -> None:
    behind = Behind(a_server(), "sessions")
    async with in_front(behind, ANY) as front, front.client("sessions") as client:
        assert "resources" in client.agreed.capabilities
        assert "subscribe" not in client.agreed.capabilities["resources"]
        with pytest.raises(McpError, match="declared stateless") as refused:
            await client.request("resources/subscribe", {"uri": "memo://one"})
        assert refused.value.code == METHOD_NOT_FOUND
        await client.request("resources/unsubscribe", {"uri": "memo://one"})


@async_test
async def test_each_session_has_its_own_log_level_and_receives_changes_of_lists() -> None:
    behind = Behind(a_server(), "sessions")
    logs: dict[str, list[str]] = {"debug": [], "warning": []}
    changes: list[str] = []
    async with (
        in_front(behind, ANY) as front,
        front.client("sessions", on_log=lambda message: logs["debug"].append(message["data"])) as one,
        front.client(
            "sessions",
            on_log=lambda message: logs["warning"].append(message["data"]),
            on_notification=lambda method, _params: changes.append(method),
        ) as two,
    ):
        await one.set_log_level("debug")
        await two.set_log_level("warning")
        for client in (one, two):
            await client.call_tool("steps")
        await until(lambda: logs == {"debug": ["careful", "detail"], "warning": ["careful"]})
        behind.server.add_tool(lambda: "new", name="new")
        await until(lambda: "notifications/tools/list_changed" in changes)


@async_test
async def test_an_upstream_that_is_opened_later_gets_the_log_level_of_the_session_that_calls() -> None:
    behind = Behind(a_server(), "sessions")
    logs: list[str] = []
    async with (
        in_front(behind, ANY) as front,
        front.client("sessions", on_log=lambda message: logs.append(message["data"])) as client,
    ):
        await client.set_log_level("debug")
        # As at another replica: there no upstream knows the level.
        [key] = front.back._upstreams._by_key
        front.back._upstreams.end(key)
        await client.call_tool("steps")
        await until(lambda: logs == ["careful", "detail"])


@async_test
async def test_a_changed_resource_of_one_principal_is_reported_to_no_session_of_another() -> None:
    behind = Behind(a_server(), "sessions")
    async with in_front(behind) as front:
        ada, bob = await opened(front, "ada"), DuplexClient(front.engine, Caller("bob"))
        await ada.say("resources/subscribe", 1, uri="memo://one")
        await ada.answer(1)
        await bob.sessionless("subscriptions/listen", 1, notifications={"resources": ["memo://one"]})
        await until(lambda: len(behind.clients) == 2)
        await bob.sessionless("tools/list", 2)
        await bob.answer(2)
        [upstream] = [
            found
            for key in front.back._upstreams._by_key
            if key[0] == "bob" and (found := front.back._upstreams.find(key)) is not None
        ]
        upstream._messages._outbox.put("notifications/resources/updated", {"uri": "memo://one"})
        await upstream._messages._outbox.flush()
        await ada.say("ping", 2)
        await ada.answer(2)
        assert not [message for message in ada.received if message.get("method", "").endswith("updated")]


def test_what_cannot_work_is_refused(tmp_path: Path) -> None:
    url = "https://example.test/mcp"
    with pytest.raises(ConfigError, match="home is one of session, any"):
        Remote(url, home="nowhere")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="strict does not fit"):
        Process(["program"], home="any", strict=True)
    store = f"sqlite:///{tmp_path / 'a.db'}"
    assert Remote(url, store=store, home="any").engine.store.is_shared


def test_a_server_that_uses_credentials_of_clients_needs_a_key_where_processes_share_a_store(
    tmp_path: Path,
) -> None:
    def passing(**more: Any) -> Remote:
        remote = Remote("https://example.test/mcp", home="any", **more)
        remote._target.needs_credentials = True
        return remote

    store = f"sqlite:///{tmp_path / 'a.db'}"
    with pytest.raises(ConfigError, match="--forward-key-file PATH, the variable LIMPET_FORWARD_KEY"):
        _ = passing(store=store).engine
    key = new_key(SystemRandom())
    for served in (passing(), passing(store=store, forward_key=key)):
        assert served.engine is not None


@async_test
async def test_each_replica_answers_every_request_of_a_session_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_: object, **__: object) -> bool:
        raise AssertionError("a request was forwarded")

    async with replicas(ANY) as (one, two):
        for replica in (one, two):
            monkeypatch.setattr(replica.engine.store, "forward", refuse)
        await one.call(1, "logging/setLevel", {"level": "error"})
        assert [await replica.tool(n, "count") for n, replica in enumerate((one, two, one, two), 2)] == list(
            "1122"
        )
        post = await two.post(6, params={"name": "speak", "arguments": {}})
        messages = await post.whole()
        assert [message["params"]["data"] for message in messages[:-1]] == ["trouble"], "the session's level"
        assert (len(one.behind.links), len(two.behind.links)) == (1, 1)
