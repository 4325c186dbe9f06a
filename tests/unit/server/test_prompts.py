"""Prompts and completions as a client meets them."""

from collections.abc import AsyncIterator

import pytest

from limpet import ConfigError, Context, Image, McpError, Server
from limpet.content import AssistantMessage, ResourceLink
from limpet.protocol.types import CompletionArgument, CompletionContext, PromptReference, ResourceReference
from limpet.types import Completion
from tests.support import async_test
from tests.unit.server.peer import connected


@async_test
async def test_a_prompt_is_listed_with_its_arguments_and_got() -> None:
    server = Server("s")

    @server.prompt(title="Review")
    def review(code: str, tone: str = "kind") -> str:
        """Review code.

        Args:
            code: What to look at.
        """
        return f"{tone}: {code}"

    async with connected(server) as peer:
        (listed,) = (await peer.request("prompts/list"))["prompts"]
        assert listed["title"] == "Review"
        assert listed["arguments"][0] == {"name": "code", "description": "What to look at.", "required": True}
        result = await peer.request("prompts/get", {"name": "review", "arguments": {"code": "x"}})
        assert result["messages"] == [{"role": "user", "content": {"type": "text", "text": "kind: x"}}]
        assert result["description"] == "Review code."


@async_test
async def test_messages_of_all_kinds_and_old_clients() -> None:
    server = Server("s")

    @server.prompt
    async def mixed(ctx: Context) -> list[object]:
        link = ResourceLink(uri="a://b", name="b")
        return ["hello", AssistantMessage("hi"), Image(b"x"), link, str(ctx.request_id)]

    async with connected(server, version="2025-03-26") as peer:
        messages = (await peer.request("prompts/get", {"name": "mixed"}))["messages"]
        assert [item["role"] for item in messages] == ["user", "assistant", "user", "user", "user"]
        assert [item["content"]["type"] for item in messages] == ["text", "text", "image", "text", "text"]


@async_test
async def test_unknown_prompts_and_bad_arguments_are_invalid_params() -> None:
    server = Server("s")

    @server.prompt
    def one(number: int) -> str:
        return str(number)

    async with connected(server) as peer:
        for params in ({"name": "two"}, {"name": "one"}, {"name": "one", "arguments": {"number": "x"}}, {}):
            with pytest.raises(McpError) as raised:
                await peer.request("prompts/get", params)
            assert raised.value.code == -32602
        result = await peer.request("prompts/get", {"name": "one", "arguments": {"number": "7"}})
        assert result["messages"][0]["content"]["text"] == "7"


def asking(prompt: str, argument: str, value: str, **others: str) -> dict[str, object]:
    return {
        "ref": {"type": "ref/prompt", "name": prompt},
        "argument": {"name": argument, "value": value},
        "context": {"arguments": others},
    }


@async_test
async def test_the_most_particular_completion_answers_first() -> None:
    server = Server("s")
    server.add_prompt(lambda language="", other="": language + other, name="review")
    server.add_resource("a://{city}", lambda city: city, name="city")

    @server.completion
    async def anything(
        ref: PromptReference | ResourceReference,
        argument: CompletionArgument,
        context: CompletionContext | None,
    ) -> list[str]:
        return ["anything"]

    @server.completion(prompt="review", argument="language")
    def languages(value: str, arguments: dict[str, str], ctx: Context) -> list[str] | None:
        if arguments.get("mood") == "silent":
            return None
        return [name for name in ("python", "perl", "rust") if name.startswith(value)]

    @server.completion(resource="a://{city}")
    def cities() -> Completion:
        return Completion(values=["paris"], total=9, has_more=True)

    async with connected(server) as peer:
        assert peer.initialized["capabilities"]["completions"] == {}

        async def values(params: dict[str, object]) -> list[str]:
            found: list[str] = (await peer.request("completion/complete", params))["completion"]["values"]
            return found

        assert await values(asking("review", "language", "p")) == ["python", "perl"]
        assert await values(asking("review", "language", "p", mood="silent")) == ["anything"]
        assert await values(asking("review", "other", "p")) == ["anything"]
        reference = {"type": "ref/resource", "uri": "a://{city}"}
        params = {"ref": reference, "argument": {"name": "city", "value": ""}}
        result = await peer.request("completion/complete", params)
        assert result["completion"] == {"values": ["paris"], "total": 9, "hasMore": True}


@async_test
async def test_completions_are_cut_at_a_hundred_and_a_missing_one_is_an_empty_list() -> None:
    server = Server("s")
    for name in ("many", "none"):
        server.add_prompt(lambda: "hi", name=name)

    @server.completion(prompt="many")
    def many() -> list[str]:
        return [str(number) for number in range(250)]

    async with connected(server) as peer:
        completion = (await peer.request("completion/complete", asking("many", "a", "")))["completion"]
        assert (len(completion["values"]), completion["total"], completion["hasMore"]) == (100, 250, True)
        result = await peer.request("completion/complete", asking("none", "a", ""))
        assert result["completion"] == {"values": []}
        unknown = {"ref": {"type": "ref/resource", "uri": "a://b"}, "argument": {"name": "a", "value": ""}}
        for params in ({"ref": {"type": "ref/moon"}}, asking("mayn", "a", ""), unknown):
            with pytest.raises(McpError) as raised:
                await peer.request("completion/complete", params)
            assert raised.value.code == -32602


@async_test
async def test_a_completion_for_a_prompt_or_template_that_does_not_exist_is_refused_at_the_start() -> None:
    for wrong, hint in (
        ({"prompt": "meny"}, "did you mean 'menu'?"),
        ({"resource": "a://{x}"}, "there are: none"),
    ):
        server = Server("s")
        server.add_prompt(lambda guest: guest, name="menu")

        def complete_it() -> list[str]:
            return []

        server.completion(**wrong)(complete_it)
        with pytest.raises(ConfigError, match="complete_it completes the ") as raised:
            async with connected(server):
                pass
        assert hint in str(raised.value)


@async_test
async def test_a_completion_may_be_for_a_prompt_that_the_lifespan_registers() -> None:
    async def lifespan(server: Server) -> AsyncIterator[None]:
        server.add_prompt(lambda guest: guest, name="menu")
        yield

    server = Server("s", lifespan=lifespan)
    server.completion(prompt="menu")(lambda: ["a"])
    async with connected(server) as peer:
        assert (await peer.request("completion/complete", asking("menu", "guest", "")))["completion"][
            "values"
        ] == ["a"]


def test_a_completion_function_with_an_unknown_parameter_is_refused() -> None:
    server = Server("s")

    def wants(weather: str) -> list[str]:
        return [weather]

    with pytest.raises(TypeError, match="not 'weather'"):
        server.completion(wants)
