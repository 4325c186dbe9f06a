"""The messages that `ctx.sample` accepts."""

from base64 import b64encode
from typing import Any

import pytest

from limpet.protocol.types import (
    ImageContent,
    PromptMessage,
    ResourceLink,
    SamplingMessage,
    TextContent,
    ToolUseContent,
)
from limpet.server.app import Server
from limpet.server.context.context import Context
from limpet.server.context.sampling import to_sampling
from limpet.server.functions.content import AssistantMessage, File, Image, Message, UserMessage
from tests.support import async_test
from tests.unit.server.peer import connected
from tests.unit.server.sessionless_client import say, sessionless

LINK = ResourceLink(uri="x://y", name="y")
PIXEL = b"\x89PNG"
PIXEL64 = b64encode(PIXEL).decode()
A = TextContent(text="a")


def user(*blocks: Any) -> SamplingMessage:
    return SamplingMessage(role="user", content=blocks[0] if len(blocks) == 1 else list(blocks))


def test_sampling_messages_carry_one_block_or_a_list() -> None:
    use = ToolUseContent(id="1", name="t", input={})
    text = TextContent(text="a")
    assert to_sampling(SamplingMessage(role="assistant", content=use)) == [
        SamplingMessage(role="assistant", content=use)
    ]
    assert to_sampling("a") == [SamplingMessage(role="user", content=text)]
    assert to_sampling(["a", AssistantMessage([text, use])]) == [
        SamplingMessage(role="user", content=text),
        SamplingMessage(role="assistant", content=[text, use]),
    ]
    assert to_sampling([text, Image(PIXEL)]) == [
        SamplingMessage(role="user", content=[text, ImageContent(data=PIXEL64, mime_type="image/png")])
    ]
    with pytest.raises(TypeError, match="not ResourceLink"):
        to_sampling(UserMessage(LINK))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"role": "user", "content": "a"}, user(A)),
        ({"role": "user", "content": {"type": "text", "text": "a"}}, user(A)),
        ({"role": "user", "content": [{"type": "text", "text": "a"}, "a"]}, user(A, A)),
        ({"role": "user", "content": Image(PIXEL)}, user(ImageContent(data=PIXEL64, mime_type="image/png"))),
        (
            {"role": "assistant", "content": {"type": "tool_use", "id": "1", "name": "t", "input": {}}},
            SamplingMessage(role="assistant", content=ToolUseContent(id="1", name="t", input={})),
        ),
        (
            {"role": "user", "content": "a", "_meta": {"k": 1}},
            SamplingMessage(role="user", content=A, meta={"k": 1}),
        ),
        ({"type": "text", "text": "a"}, user(A)),
        ([{"type": "text", "text": "a"}, A], user(A, A)),
        (PromptMessage(role="user", content=A), user(A)),
    ],
)
def test_messages_and_blocks_may_be_written_as_the_protocol_writes_them(
    value: object, message: SamplingMessage
) -> None:
    assert to_sampling(value) == [message]


@pytest.mark.parametrize(
    "value",
    [
        7,
        None,
        b"bytes",
        {},
        {"city": "Oslo"},
        {"role": "user"},
        {"role": "user", "content": {"city": "Oslo"}},
        {"role": "user", "content": 7},
        {"role": "user", "content": "a", "name": "ada"},
        {"role": "system", "content": "a"},
        {"type": "resource_link", "uri": "x://y", "name": "y"},
        {"type": "text"},
        object(),
        File(b"x"),
        LINK,
        PromptMessage(role="user", content=LINK),
        Message({"city": "Oslo"}),
    ],
)
def test_anything_else_is_a_type_error_and_never_reaches_the_model(value: object) -> None:
    for given in (value, [value], ["a", value]):
        with pytest.raises(TypeError):
            to_sampling(given)


@async_test
async def test_a_dict_that_is_no_message_fails_the_call_before_the_client_is_asked() -> None:
    server = Server("s")

    @server.tool
    async def think(ctx: Context, right: bool) -> str:
        given: object = {"role": "user", "content": "hi"} if right else {"city": "Oslo"}
        return (await ctx.sample(given)).text

    async with connected(server, capabilities={"sampling": {}}) as peer:
        peer.answers["sampling/createMessage"] = say("42")
        assert await peer.text("think", right=True) == "42"
        assert "TypeError: ctx.sample takes text" in await peer.failure("think", right=False)
        assert [ask["params"]["messages"] for ask in peer.asked] == [
            [{"role": "user", "content": {"type": "text", "text": "hi"}}]
        ]
    async with sessionless(server) as client:
        client.answers["sampling/createMessage"] = say("42")
        assert await client.text("think", right=True) == "42"
