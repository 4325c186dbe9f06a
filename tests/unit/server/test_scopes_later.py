"""Requests that reach an earlier call: each is judged by its own token."""

from contextlib import aclosing
from typing import Any

import pytest

from limpet import Context, Principal, Server
from limpet.engine.access import Access
from limpet.engine.caller import Caller
from tests.asgi import Call, Peer
from tests.messages import metadata
from tests.support import async_test
from tests.unit.server.post_office import Known, PostOffice
from tests.unit.server.task_client import TASKS

SAMPLING = metadata(capabilities={"sampling": {}})
MAILER = Caller("ada", Principal(subject="ada", scopes=frozenset({"mail.send"})))
ANSWER = {"role": "assistant", "content": {"type": "text", "text": "Ada"}, "model": "m"}


def with_token(peer: Peer, token: str) -> Peer:
    """Return the same client with another token of the same subject."""
    other = Peer(peer.app, token=token)
    other.session, other.version = peer.session, peer.version
    return other


async def begun(server: PostOffice, token: str, tool: str) -> tuple[Peer, Call]:
    """Begin a call that has sent a message and waits."""
    peer = Peer(server.asgi(), token=token)
    await peer.initialize()
    call = await peer.call(1, tool).until(1)
    return peer, call


@pytest.mark.parametrize(
    ("tool", "scope", "expected"),
    [("post", "mail.send", (403, -31004)), ("burn", "admin", (400, -32600))],
)
@async_test
async def test_a_repeat_with_a_token_that_lacks_the_scope_does_not_receive_the_answer(
    tool: str, scope: str, expected: tuple[int, int]
) -> None:
    server = PostOffice()
    async with aclosing(server.engine):
        peer, call = await begun(server, scope, tool)
        await call.cut()
        refused = await with_token(peer, "mail.read").call(1, tool).done()
        assert (refused.status, refused.json["error"]["code"]) == expected
        server.release.set()
        repeat = await with_token(peer, f"{scope}+mail.read").call(1, tool).done()
        assert repeat.messages[-1]["result"]["content"][0]["text"] in {"posted", "burnt"}
        assert server.ran == [tool], "the repeat does not run the call again"


@pytest.mark.parametrize(
    ("tool", "scope", "status", "challenge"),
    [("post", "mail.send", 403, 'scope="mail.read mail.send"'), ("burn", "admin", 400, "")],
)
@async_test
async def test_a_stream_is_resumed_only_with_the_scopes_of_its_call(
    tool: str, scope: str, status: int, challenge: str
) -> None:
    server = PostOffice()
    async with aclosing(server.engine):
        peer, call = await begun(server, scope, tool)
        await call.cut()
        position = call.ids[-1]
        refused = await with_token(peer, "mail.read").get(position).done()
        assert refused.status == status
        assert challenge in refused.headers.get("www-authenticate", "")
        assert b"admin" not in refused.body, "a hidden scope is not named"
        server.release.set()
        resumed = await with_token(peer, f"{scope}+mail.read").get(position).done()
        assert resumed.messages[-1]["result"]["content"][0]["text"] in {"posted", "burnt"}


@async_test
async def test_a_position_whose_scopes_are_unknown_or_forged_is_not_one_of_the_session() -> None:
    server = PostOffice()
    async with aclosing(server.engine):
        peer, call = await begun(server, "mail.send", "post")
        stream, _, rest = call.ids[-1].partition(".")
        bare, _, _ = stream.partition("~")
        server.release.set()
        await call.done()
        for forged in (bare, f"{bare}~AAAAAAAA"):
            refused = await with_token(peer, "mail.read").get(f"{forged}.{rest}").done()
            assert (refused.status, refused.json["error"]["data"]) == (
                400,
                {"reason": "event_id_unresumable"},
            )
        peer.session = "another"
        assert (await peer.get(f"{bare}~AAAAAAAA.{rest}").done()).status == 404
        peer.token = "none"
        assert (await peer.get(f"{stream}.{rest}").done()).status == 404


@async_test
async def test_a_guessed_mark_does_not_show_whether_a_hidden_scope_exists() -> None:
    server = PostOffice()
    app = server.asgi()
    peer = Peer(app, token="mail.read")
    async with aclosing(server.engine):
        await peer.initialize()
        answers: list[list[Any]] = []
        for scope in ("admin", "nosuch"):
            mark = Access().mark(frozenset({scope}))
            resumed = await peer.get(f"{'0' * 24}{mark}.1.1").done()
            asked = Peer(app, token="mail.read").sessionless("tasks/get", {"taskId": f"0{mark}"})
            answers.append(
                [(answer.status, answer.json["error"]) for answer in (resumed, await asked.done())]
            )
        assert [status for status, _ in answers[0]] == [400, 400]
        assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("tool", "scope", "expected"),
    [("sign", "mail.send", (403, -31004)), ("seal", "admin", (400, -31003))],
)
@async_test
async def test_a_retry_of_a_parked_call_is_judged_by_its_own_token(
    tool: str, scope: str, expected: tuple[int, int]
) -> None:
    server = PostOffice()
    app = server.asgi()

    async def ask(token: str, **params: Any) -> Call:
        peer = Peer(app, token=token)
        return await peer.sessionless("tools/call", {"name": tool, **params}, meta=SAMPLING).done()

    async with aclosing(server.engine):
        parked = (await ask(scope)).json["result"]
        retry = {
            "requestState": parked["requestState"],
            "inputResponses": dict.fromkeys(parked["inputRequests"], ANSWER),
        }
        refused = await ask("mail.read", **retry)
        assert (refused.status, refused.json["error"]["code"]) == expected
        unknown = await Peer(app, token="mail.read").sessionless("tools/call", {"name": "no", **retry}).done()
        assert unknown.json["error"]["code"] == -31003
        signed = await ask(scope, **retry)
        assert signed.json["result"]["content"][0]["text"].endswith("by Ada")
        assert server.ran == [tool]


@async_test
async def test_another_process_knows_the_scopes_of_a_stream_if_it_has_the_component() -> None:
    server = PostOffice()
    async with aclosing(server.engine):
        peer, call = await begun(server, "mail.send", "post")
        stream, _, _ = call.ids[-1].partition(".")
        assert PostOffice().scopes.access.marked(stream, MAILER) == frozenset({"mail.send"})
        await call.cut()
        # As in a process that never had a component with this scope.
        server.scopes.access._marks.clear()
        for tool in ("send", "post", "sign", "bulk"):
            server.remove_tool(tool)
        server.remove_prompt("draft")
        refused = await peer.get(call.ids[-1]).done()
        assert (refused.status, refused.json["error"]["data"]) == (400, {"reason": "event_id_unresumable"})
        server.release.set()


@async_test
async def test_a_task_whose_scopes_no_component_has_is_unknown() -> None:
    server = PostOffice()
    app = server.asgi()
    meta = metadata(capabilities={"extensions": {TASKS: {}}})

    async def ask(method: str, **params: Any) -> Any:
        return (await Peer(app, token="mail.send").sessionless(method, params, meta=meta).done()).json

    async with aclosing(server.engine):
        task_id = (await ask("tools/call", name="bulk"))["result"]["taskId"]
        server.scopes.access._marks.clear()
        for tool in ("send", "post", "sign", "bulk"):
            server.remove_tool(tool)
        server.remove_prompt("draft")
        assert (await ask("tasks/get", taskId=task_id))["error"] == (await ask("tasks/get", taskId="x"))[
            "error"
        ]


@pytest.mark.parametrize("uri", ["vault://key", "vault://{name}"])
@async_test
async def test_a_retry_for_a_hidden_resource_finds_no_call_that_waits(uri: str) -> None:
    server = Server("vault", verifier=Known())

    async with aclosing(server.engine):
        if "{" in uri:

            @server.resource(uri, scopes={"admin"}, hidden=True)
            async def template(name: str, ctx: Context) -> str:
                return f"{name} {(await ctx.sample('who?')).text}"

        else:

            @server.resource(uri, scopes={"admin"}, hidden=True)
            async def resource(ctx: Context) -> str:
                return (await ctx.sample("who?")).text

        app = server.asgi()

        async def ask(token: str, **params: Any) -> Any:
            asked = {"uri": "vault://key", **params}
            return (
                await Peer(app, token=token).sessionless("resources/read", asked, meta=SAMPLING).done()
            ).json

        parked = (await ask("admin"))["result"]
        retry = {
            "requestState": parked["requestState"],
            "inputResponses": dict.fromkeys(parked["inputRequests"], ANSWER),
        }
        assert (await ask("none", **retry))["error"]["code"] == -31003
        assert "Ada" in str((await ask("admin", **retry))["result"])
