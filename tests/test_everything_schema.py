"""Every tool, resource and prompt of the everything server, in every revision: each message as its schema says."""

from typing import Final

import pytest
from jsonschema import Draft202012Validator

from limpet import McpError
from tests.example_client import ANSWERS, CAPABILITIES, load, session
from tests.schema import VERSIONS, Json
from tests.support import async_test
from tests.unit.server.sessionless_client import sessionless

ARGUMENTS: Final[dict[str, Json]] = {
    "echo": {"text": "hello"},
    "slow": {"seconds": 0.3, "text": "late"},
    "ticks": {"n": 3, "interval": 0},
    "fanout": {"n": 5},
    "bump": {"key": "k"},
    "test_sampling": {"prompt": "well?"},
    "test_elicitation": {"message": "who?"},
    "json_schema_2020_12_tool": {"name": "x", "email": "a@b.c"},
    "test_x_mcp_header": {"region": "eu"},
    "greet": {"name": "Ada"},
    "slow_compute": {"seconds": 0},
    "confirm_delete": {"filename": "notes.txt"},
}
"""Of the tools that take any."""
TEXTS: Final = {
    "echo": "hello",
    "slow": "late",
    "ticks": "3 ticks",
    "fanout": "yes,yes,yes,yes,yes",
    "bump": "1",
    "test_sampling": "LLM response: yes",
    "test_simple_text": "This is a simple text response for testing.",
}
TELLING: Final = {
    "notifications/progress",
    "notifications/message",
    "sampling/createMessage",
    "elicitation/create",
    "roots/list",
}
"""The messages that tools send before their result, where the response is a stream."""
UNKNOWN: Final = {"2025-03-26": {"elicitation/create"}}
PROMPTS: Final[dict[str, Json]] = {
    "test_input_required_result_prompt": {},
    "test_simple_prompt": {},
    "test_prompt_with_arguments": {"arg1": "hello", "arg2": "world"},
    "test_prompt_with_embedded_resource": {"resourceUri": "test://x"},
    "test_prompt_with_image": {},
}


every_version = pytest.mark.parametrize("version", VERSIONS)
every_mode = pytest.mark.parametrize("mode", ["adaptive", "sse", "json"])


@every_mode
@every_version
@async_test
async def test_every_tool_answers_by_the_schema(version: str, mode: str) -> None:
    async with session("everything", version, response=mode) as (_, client, recorder):
        await client.result("logging/setLevel", {"level": "debug"})
        tools = (await client.result("tools/list"))["tools"]
        assert {tool["name"] for tool in tools} >= ARGUMENTS.keys() | TEXTS.keys()
        for tool in tools:
            name = tool["name"]
            answer = await client.ask("tools/call", {"name": name, "arguments": ARGUMENTS.get(name, {})})
            assert ("error" in answer) is (name == "protocol_error_job")
            result = answer.get("result", {})
            if name in TEXTS and (mode != "json" or name not in ("fanout", "test_sampling")):
                assert result["content"] == [{"type": "text", "text": TEXTS[name]}]
            if "outputSchema" in tool and result and not result.get("isError"):
                Draft202012Validator(tool["outputSchema"]).validate(result["structuredContent"])
        seen = {method for method in TELLING if method in recorder.methods_seen()}
        assert seen == (set() if mode == "json" else TELLING - UNKNOWN.get(version, set()))


@every_version
@async_test
async def test_every_resource_reads_by_the_schema(version: str) -> None:
    async with session("everything", version) as (_, client, _recorder):
        resources = (await client.result("resources/list"))["resources"]
        templates = (await client.result("resources/templates/list"))["resourceTemplates"]
        assert len(resources) == 3
        assert [item["uriTemplate"] for item in templates] == ["test://template/{id}/data"]
        for uri in (*(item["uri"] for item in resources), "test://template/123/data"):
            contents = (await client.result("resources/read", {"uri": uri}))["contents"]
            assert [item["uri"] for item in contents] == [uri]
        missing = await client.ask("resources/read", {"uri": "test://nowhere"})
        assert missing["error"]["code"] == -32002


@every_version
@async_test
async def test_every_prompt_and_completion_answers_by_the_schema(version: str) -> None:
    async with session("everything", version) as (_, client, _recorder):
        prompts = (await client.result("prompts/list"))["prompts"]
        assert {prompt["name"] for prompt in prompts} == PROMPTS.keys()
        for name, arguments in PROMPTS.items():
            answer = await client.ask("prompts/get", {"name": name, "arguments": arguments})
            if "elicitation" in CAPABILITIES[version] or name != "test_input_required_result_prompt":
                assert answer["result"]["messages"]
            else:
                assert "did not declare" in answer["error"]["message"]
        argument = {"name": "arg1", "value": "par"}
        refs = {
            "test_prompt_with_arguments": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
            "test://template/{id}/data": {"type": "ref/resource", "uri": "test://template/{id}/data"},
        }
        found = {
            name: await client.result("completion/complete", {"ref": ref, "argument": argument})
            for name, ref in refs.items()
        }
        assert found["test_prompt_with_arguments"]["completion"]["values"] == ["paris", "park", "party"]
        assert found["test://template/{id}/data"]["completion"]["values"] == []


@every_version
@async_test
async def test_notifications_outside_of_requests_fit_the_schema(version: str) -> None:
    async with session("everything", version) as (server, client, _):
        client.listen()
        uri = "test://watched-resource"
        assert await client.result("resources/subscribe", {"uri": uri}) == {}
        await server.resource_updated(uri)
        assert (await client.heard.get())["params"] == {"uri": uri}
        assert await client.result("resources/unsubscribe", {"uri": uri}) == {}
        server.disable_tool("echo")
        assert (await client.heard.get())["method"] == "notifications/tools/list_changed"
        server.disable_prompt("test_simple_prompt")
        assert (await client.heard.get())["method"] == "notifications/prompts/list_changed"
        server.disable_resource("test://static-text")
        assert (await client.heard.get())["method"] == "notifications/resources/list_changed"
        assert await client.result("ping") == {}


REFUSED: Final[dict[str, tuple[str, Json, int]]] = {
    "an unknown tool": ("tools/call", {"name": "unknown", "arguments": {}}, -32602),
    "an unknown prompt": ("prompts/get", {"name": "unknown"}, -32602),
    "a prompt without its arguments": ("prompts/get", {"name": "test_prompt_with_arguments"}, -32602),
    "an invalid cursor": ("tools/list", {"cursor": "nonsense"}, -32602),
    "an invalid level": ("logging/setLevel", {"level": "loud"}, -32602),
    "an unknown method": ("tools/dance", {}, -32601),
}


@every_version
@async_test
async def test_refusals_follow_the_schema(version: str) -> None:
    async with session("everything", version) as (_, client, _recorder):
        for why, (method, params, code) in REFUSED.items():
            assert (await client.ask(method, params))["error"]["code"] == code, why
        wrong = await client.result("tools/call", {"name": "echo", "arguments": {"txt": 1}})
        assert wrong["isError"] is True


# 2026-07-28: the client itself checks every message


@async_test
async def test_without_a_session_every_tool_prompt_and_resource_answers_by_the_schema() -> None:
    failing = {"bump", "test_error_handling"}
    refused = {"protocol_error_job": -32603, "failing_job": -32021, "test_tool_with_task": -32021}
    async with sessionless(load("everything")) as client:
        client.answers = dict(ANSWERS)
        tools = (await client.request("tools/list"))["tools"]
        for tool in tools:
            name, arguments = tool["name"], ARGUMENTS.get(tool["name"], {})
            call = {"name": name, "arguments": arguments}
            if name == "test_x_mcp_header":
                result = (await client.send("tools/call", call, headers={"mcp-param-region": "eu"})).result
            elif name in refused:
                with pytest.raises(McpError) as error:
                    await client.request("tools/call", call)
                assert error.value.code == refused[name], name
                continue
            else:
                result = await client.request("tools/call", call)
            assert result.get("isError", False) is (name in failing), (name, result)
            if name in TEXTS and name not in failing:
                assert result["content"] == [{"type": "text", "text": TEXTS[name]}]
            if "outputSchema" in tool and not result.get("isError"):
                Draft202012Validator(tool["outputSchema"]).validate(result["structuredContent"])
        for name, arguments in PROMPTS.items():
            assert (await client.request("prompts/get", {"name": name, "arguments": arguments}))["messages"]
        for uri in ("test://static-text", "test://static-binary", "test://template/1/data"):
            assert (await client.request("resources/read", {"uri": uri}))["contents"]


@async_test
async def test_the_interview_asks_in_three_rounds_and_its_body_runs_once_in_either_era() -> None:
    async with sessionless(load("everything")) as client:
        client.answers = dict(ANSWERS)
        found = (await client.call("interview"))["structuredContent"]
        assert found == {"name": "Ada", "color": "green", "lines": ["yes"] * 5, "runs": 1}
        assert client.rounds == 3
    async with session("everything", "2025-11-25") as (_, client, _recorder):
        result = await client.result("tools/call", {"name": "interview", "arguments": {}})
        assert result["structuredContent"] == found
