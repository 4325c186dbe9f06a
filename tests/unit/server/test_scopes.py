"""Scopes of a server's own components, over HTTP in both eras, over stdio, and in the same process."""

import json
import re
from contextlib import aclosing
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from limpet import Cache, Client, Limits, Server, Settings
from limpet.auth import Principal
from limpet.config import HttpSettings
from limpet.engine.caller import Caller
from limpet.errors import ConfigError
from limpet.middleware import CallNext, MiddlewareRequest
from tests.asgi import Call, Peer
from tests.duplex import DuplexClient
from tests.messages import metadata, request
from tests.support import async_test
from tests.unit.server.post_office import (
    HIDDEN,
    LETTER,
    METADATA,
    NEEDED,
    UNKNOWN,
    Known,
    PostOffice,
    Sessionless,
    Sessions,
    as_misspelt,
    both,
    prompt,
)
from tests.unit.server.task_client import TASKS


@both
@pytest.mark.parametrize(("method", "params", "scope"), NEEDED)
@async_test
async def test_a_missing_scope_is_refused_before_anything_runs(
    era: type[Sessions], method: str, params: dict[str, Any], scope: str
) -> None:
    server = PostOffice()
    client = era(server.asgi())
    async with aclosing(server.engine):
        refused = await client.ask("none", method, params)
        assert refused.status == 403
        assert refused.headers["www-authenticate"] == (
            f'Bearer error="insufficient_scope", scope="{scope}", {METADATA}'
        )
        assert refused.headers["limpet-refused"] == "not-executed"
        assert refused.json["id"] == 1
        assert refused.json["error"]["code"] == -31004
        assert refused.json["error"]["data"] == {"error": "insufficient_scope", "scope": scope}
        assert not server.ran
        allowed = await client.ask(scope, method, params)
        assert (allowed.status, "result" in allowed.json) == (200, True)


@both
@async_test
async def test_an_unknown_or_hidden_component_needs_the_scopes_of_its_server(era: type[Sessions]) -> None:
    server = PostOffice(scopes={"post"})
    client = era(server.asgi())
    async with aclosing(server.engine):
        for method, params in UNKNOWN:
            refused = await client.ask("none", method, params)
            assert (refused.status, 'scope="post"' in refused.headers["www-authenticate"]) == (403, True), (
                params
            )
        for method, params, other in HIDDEN:
            hidden, unknown = [await client.ask("none", method, asked) for asked in (params, other)]
            assert (hidden.status, as_misspelt(hidden)) == (403, as_misspelt(unknown))
        assert not server.ran
        found = await client.ask("post+admin", "completion/complete", prompt("plot"))
        assert found.json["result"]["completion"]["values"] == ["a1"]
        assert server.ran == ["complete"]


@async_test
async def test_a_listener_for_an_unknown_resource_needs_the_scopes_of_the_server() -> None:
    server = PostOffice(scopes={"post"})
    wanted = {"notifications": {"resourceSubscriptions": ["vault://kex"]}}
    async with aclosing(server.engine):
        refused = await Sessionless(server.asgi()).ask("none", "subscriptions/listen", wanted)
        assert (refused.status, 'scope="post"' in refused.headers["www-authenticate"]) == (403, True)


@both
@async_test
async def test_a_completion_for_anything_of_an_included_server_needs_the_scopes_of_that_server(
    era: type[Sessions],
) -> None:
    ran: list[str] = []
    outer, inner = Server("outer", verifier=Known()), Server("inner", scopes={"inner"})

    @outer.prompt
    def draft(topic: str) -> str:
        return topic

    @inner.completion
    def any_prompt(value: str) -> list[str]:
        ran.append(value)
        return [value]

    outer.include(inner, "in")
    client = era(outer.asgi())
    async with aclosing(outer.engine):
        for token, values in (("none", []), ("inner", ["a"])):
            found = await client.ask(token, "completion/complete", prompt("draft"))
            assert found.json["result"]["completion"]["values"] == values
        assert ran == ["a"]


@both
@pytest.mark.parametrize(("method", "params", "other"), HIDDEN)
@async_test
async def test_a_hidden_component_answers_as_an_unknown_one(
    era: type[Sessions], method: str, params: dict[str, Any], other: dict[str, Any]
) -> None:
    server = PostOffice()
    client = era(server.asgi())
    async with aclosing(server.engine):
        hidden, unknown = [await client.ask("mail.read", method, asked) for asked in (params, other)]
        assert as_misspelt(hidden) == as_misspelt(unknown)
        assert not server.ran
        allowed = await client.ask("admin", method, params)
        assert "error" not in allowed.json or "victim" in str(allowed.json), (
            "the owner of the scope reaches it"
        )


@both
@async_test
async def test_a_component_whose_scope_is_missing_is_listed_and_a_hidden_one_is_not(
    era: type[Sessions],
) -> None:
    server = PostOffice()
    client = era(server.asgi())

    async def listed(token: str) -> list[str]:
        found: list[str] = []
        for method, member, name in (
            ("tools/list", "tools", "name"),
            ("resources/list", "resources", "uri"),
            ("resources/templates/list", "resourceTemplates", "uriTemplate"),
            ("prompts/list", "prompts", "name"),
        ):
            answer = await client.ask(token, method, {})
            found += [item[name] for item in answer.json["result"][member]]
        return found

    usual = ["count", "send", "post", "sign", "bulk", "mail://inbox", LETTER, "draft"]
    async with aclosing(server.engine):
        assert await listed("none") == usual
        assert await listed("admin") == [
            "count", "send", "purge", "post", "burn", "sign", "seal", "bulk",
            "mail://inbox", "vault://key", LETTER, "vault://box/{name}", "draft", "plot",
        ]  # fmt: skip


# More about the scopes that a refusal names


@both
@async_test
async def test_a_refusal_names_the_scopes_to_keep_and_none_that_this_server_does_not_know(
    era: type[Sessions],
) -> None:
    server = PostOffice()
    async with aclosing(server.engine):
        refused = await era(server.asgi()).ask(
            "mail.read+openid+offline_access", "tools/call", {"name": "send"}
        )
        assert 'scope="mail.read mail.send"' in refused.headers["www-authenticate"]


@async_test
async def test_a_broader_scope_stands_for_narrower_ones() -> None:
    implied = {"all": {"mail"}, "mail": {"mail.send", "mail.read"}}
    server = PostOffice(implied_scopes=implied)
    client = Sessionless(server.asgi())
    async with aclosing(server.engine):
        for token, status in (("mail", 200), ("all", 200), ("mail.read", 403)):
            assert (await client.ask(token, "tools/call", {"name": "send"})).status == status
        refused = await client.ask("mail", "tools/call", {"name": "purge"})
        assert refused.json["error"]["message"] == "Unknown tool: purge"
        kept = await Sessionless(PostOffice(implied_scopes=implied, scopes={"post"}).asgi()).ask(
            "mail", "tools/call", {"name": "send"}
        )
        assert 'scope="mail mail.send post"' in kept.headers["www-authenticate"], "the broad scope is kept"


@both
@async_test
async def test_the_scopes_of_servers_and_components_add_up(era: type[Sessions]) -> None:
    inner = Server("inner", scopes={"inner"})

    @inner.tool(scopes={"own"})
    def work() -> str:
        return "done"

    outer = Server("outer", scopes={"outer"}, verifier=Known())
    outer.include(inner, "in")

    @inner.tool
    def later() -> str:
        return "done too"

    client = era(outer.asgi())
    async with aclosing(outer.engine):
        refused = await client.ask("own", "tools/call", {"name": "in_work"})
        assert 'scope="inner outer own"' in refused.headers["www-authenticate"]
        assert (await client.ask("own+inner+outer", "tools/call", {"name": "in_work"})).status == 200
        added = await client.ask("inner", "tools/call", {"name": "in_later"})
        assert 'scope="inner outer"' in added.headers["www-authenticate"]


@async_test
async def test_a_401_names_the_scopes_of_the_whole_server_and_the_metadata_lists_all_but_hidden_ones() -> (
    None
):
    async def documents(server: Server, **http: Any) -> tuple[str, Any]:
        app = server.asgi(**http)
        refused = await Peer(app).initialize()
        found = await Peer(app).send("GET", path="/.well-known/oauth-protected-resource/mcp").done()
        return refused.headers["www-authenticate"], found.json.get("scopes_supported")

    assert await documents(PostOffice()) == (f"Bearer {METADATA}", ["mail.read", "mail.send"])
    whole = PostOffice(scopes={"post"})
    assert await documents(whole) == (
        f'Bearer scope="post", {METADATA}',
        ["mail.read", "mail.send", "post"],
    )
    given = await documents(PostOffice(), scopes_supported=["mail.read", "admin"])
    assert given[1] == ["admin", "mail.read"]
    assert (await documents(Server("plain", verifier=Known())))[1] is None


# Other ways to a component


@async_test
async def test_a_subscription_needs_the_scope_and_a_hidden_resource_is_unknown() -> None:
    server = PostOffice()
    client = Sessions(server.asgi())
    async with aclosing(server.engine):
        refused = await client.ask("none", "resources/subscribe", {"uri": "mail://inbox"})
        assert (refused.status, "mail.read" in refused.headers["www-authenticate"]) == (403, True)
        hidden = await client.ask("none", "resources/subscribe", {"uri": "vault://key"})
        assert hidden.json["error"]["code"] == -32002
        assert (await client.ask("mail.read", "resources/subscribe", {"uri": "mail://inbox"})).status == 200


@async_test
async def test_a_listener_needs_the_scopes_of_its_resources_and_gets_no_hidden_ones() -> None:
    server = PostOffice()
    app = server.asgi()

    def listen(token: str, *uris: str) -> Call:
        params = {"notifications": {"resourceSubscriptions": [*uris]}}
        return Peer(app, token=token).sessionless("subscriptions/listen", params)

    async with aclosing(server.engine):
        refused = await listen("none", "mail://inbox", "vault://key").done()
        assert (refused.status, 'scope="mail.read"' in refused.headers["www-authenticate"]) == (403, True)
        for token, honoured in (
            ("mail.read", ["mail://inbox"]),
            ("mail.read+admin", ["mail://inbox", "vault://key"]),
        ):
            listening = await listen(token, "mail://inbox", "vault://key", "no://thing").until(1)
            assert listening.messages[0]["params"]["notifications"] == {"resourceSubscriptions": honoured}
            await listening.cut()


@async_test
async def test_a_task_is_reached_only_with_the_scopes_of_its_call() -> None:
    server = PostOffice()
    app = server.asgi()
    meta = metadata(capabilities={"extensions": {TASKS: {}}})

    async def ask(token: str, method: str, **params: Any) -> Call:
        return await Peer(app, token=token).sessionless(method, params, meta=meta).done()

    async with aclosing(server.engine):
        assert (await ask("none", "tools/call", name="bulk")).status == 403
        started = (await ask("mail.send", "tools/call", name="bulk")).json["result"]
        task = {"taskId": started["taskId"]}
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            refused = await ask("mail.read", method, inputResponses={}, **task)
            assert (refused.status, 'scope="mail.read mail.send"' in refused.headers["www-authenticate"]) == (
                403,
                True,
            )
        filtered = {"notifications": {"taskIds": [started["taskId"]]}}
        assert (await ask("mail.read", "subscriptions/listen", **filtered)).status == 403
        found = (await ask("mail.send", "tasks/get", **task)).json["result"]
        assert found["taskId"] == started["taskId"]
        forged = await ask("mail.send", "tasks/get", taskId=started["taskId"].partition("~")[0])
        assert (
            forged.json["error"]["message"]
            == (await ask("mail.send", "tasks/get", taskId="no")).json["error"]["message"]
        )
        unknown = await ask("mail.send", "tasks/get", taskId="no~AAAAAAAA")
        assert unknown.json["error"] == forged.json["error"]


@async_test
async def test_a_server_without_sessions_refuses_in_the_same_way() -> None:
    server = PostOffice(settings=Settings(stateless=True))
    peer = Peer(server.asgi(), token="none")
    async with aclosing(server.engine):
        for tool, status in (("send", 403), ("purge", 200), ("count", 200)):
            assert (await peer.call(1, tool).done()).status == status
        assert not server.ran


@async_test
async def test_each_request_of_a_batch_is_judged_by_itself() -> None:
    server = PostOffice()
    peer = Peer(server.asgi(), token="none")
    async with aclosing(server.engine):
        await peer.initialize("2025-03-26")
        calls = [
            request(n, "tools/call", {"name": name}) for n, name in enumerate(("count", "send", "purge"))
        ]
        answered = await peer.post(calls).done()
        assert answered.status == 200
        by_id = {one["id"]: one for one in json.loads(answered.body)}
        assert by_id[0]["result"]["content"][0]["text"] == "3"
        assert by_id[1]["error"]["code"] == -31004
        assert by_id[2]["error"]["message"] == "Unknown tool: purge"
        assert not server.ran


@async_test
async def test_the_user_of_this_machine_has_all_scopes() -> None:
    server = PostOffice(verifier=None)
    for version in ("2025-11-25", "2026-07-28"):
        async with Client(server, protocol_version=version) as client:
            assert "purge" in [tool.name for tool in await client.list_tools()]
            assert (await client.call_tool("purge")).data == "gone"


@async_test
async def test_a_caller_with_a_principal_gets_a_json_rpc_error_on_a_connection_without_http() -> None:
    server = PostOffice()
    ada = Principal(subject="ada", scopes=frozenset({"mail.read"}))
    client = DuplexClient(server.engine, Caller(ada.key, ada))
    async with aclosing(server.engine):
        await client.open()
        await client.say("tools/call", 1, name="send")
        await client.sessionless("tools/call", 2, name="send")
        for number in (1, 2):
            error = (await client.answer(number))["error"]
            assert error == {
                "code": -31004,
                "message": "Insufficient scope: this needs a token with the scopes mail.read mail.send",
                "data": {"error": "insufficient_scope", "scope": "mail.read mail.send"},
            }
        await client.say("tools/call", 3, name="purge")
        assert (await client.answer(3))["error"]["message"] == "Unknown tool: purge"
        assert not server.ran


@both
@async_test
async def test_pages_have_the_same_size_with_and_without_hidden_components(era: type[Sessions]) -> None:
    server = PostOffice(settings=Settings(limits=Limits(page_size=2)))
    client = era(server.asgi())

    async def pages(token: str) -> list[list[str]]:
        found: list[list[str]] = []
        params: dict[str, Any] = {}
        while True:
            result = (await client.ask(token, "tools/list", params)).json["result"]
            found.append([tool["name"] for tool in result["tools"]])
            if "nextCursor" not in result:
                return found
            params = {"cursor": result["nextCursor"]}

    async with aclosing(server.engine):
        assert await pages("none") == [["count", "send"], ["post", "sign"], ["bulk"]]
        assert await pages("admin") == [
            ["count", "send"],
            ["purge", "post"],
            ["burn", "sign"],
            ["seal", "bulk"],
        ]


@both
@async_test
async def test_a_middleware_that_names_another_tool_gives_no_access_to_it(era: type[Sessions]) -> None:
    server = PostOffice()

    @server.middleware
    async def rename(request: MiddlewareRequest, call_next: CallNext) -> Any:
        if request.params.get("name") == "count":
            request = replace(request, params={**request.params, "name": "send"})
        return await call_next(request)

    async with aclosing(server.engine):
        answer = (await era(server.asgi()).ask("none", "tools/call", {"name": "count"})).json
        assert "Insufficient scope" in str(answer)
        assert not server.ran


@async_test
async def test_headers_that_do_not_fit_do_not_show_a_hidden_tool() -> None:
    server = Server("s", verifier=Known())
    region = {"type": "string", "x-mcp-header": "Region"}

    @server.tool(
        scopes={"admin"}, hidden=True, input_schema={"type": "object", "properties": {"region": region}}
    )
    def move(region: str) -> str:
        return region

    client = Sessionless(server.asgi())
    params = {"name": "move", "arguments": {"region": "eu"}}
    async with aclosing(server.engine):
        assert (await client.ask("admin", "tools/call", params)).json["error"]["code"] == -32020
        assert (await client.ask("none", "tools/call", params)).json["error"][
            "message"
        ] == "Unknown tool: move"


@async_test
async def test_a_list_with_hidden_components_is_never_shared_by_users() -> None:
    cache = Cache(ttl=60, scope="public")
    for hidden, scope in ((False, "public"), (True, "private")):
        server = Server("s", cache=cache)
        server.add_tool(lambda: 1, name="one", scopes={"a"}, hidden=hidden)
        async with Client(server, protocol_version="2026-07-28") as client:
            assert (await client.request("tools/list", {}))["cacheScope"] == scope


# Declarations


def test_scopes_without_a_verifier_are_refused_at_start() -> None:
    with pytest.raises(ConfigError, match="has no verifier"):
        PostOffice(verifier=None).front(HttpSettings())
    with pytest.raises(ConfigError, match="has no verifier"):
        Server("s", scopes={"a"}).front(HttpSettings())
    inner, outer = Server("inner"), Server("outer")
    outer.include(inner)
    outer.front(HttpSettings())
    with pytest.raises(ConfigError, match="has no verifier"):
        inner.add_tool(lambda: 1, name="late", scopes={"a"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scopes": "mail.send"}, "is a set of texts, not one text"),
        ({"scopes": {"mail send"}}, "'mail send' is not a scope"),
        ({"scopes": {'say "hi"'}}, "is not a scope"),
        ({"scopes": {""}}, "is not a scope"),
        ({"scopes": {7}}, "'7' is not a scope"),
        ({"hidden": True}, "hidden=True needs scopes"),
    ],
)
def test_a_scope_that_cannot_be_sent_is_refused(options: Any, words: str) -> None:
    server = Server("s")
    kinds: list[Any] = [server.add_tool, server.add_prompt, partial(server.add_resource, "a://b")]
    for register in kinds:
        with pytest.raises(ConfigError, match=re.escape(words)):
            register(lambda: "1", name="one", **options)
