# mypy: disable-error-code="import-not-found"
# `mcp` lives in .peers, never in our environment.
"""A low-level object of `mcp` 2 that asks as 2026-07-28 does: its handlers return `input_required`."""

from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server

from limpet import Hosted

FORM = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def asked(key: str, message: str, state: str) -> types.InputRequiredResult:
    """Return a result that asks the user."""
    params = types.ElicitRequestFormParams(message=message, requested_schema=FORM)
    request = types.ElicitRequest(method="elicitation/create", params=params)
    return types.InputRequiredResult(input_requests={key: request}, request_state=state)


def said(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


def two(params: types.CallToolRequestParams) -> Any:
    """Ask the user twice, and keep the first answer in the state."""
    answers: Any = params.input_responses or {}
    if "second" in answers:
        return said(f"{params.request_state} {answers['second'].content['text']}")
    if "first" in answers:
        return asked("second", "second?", answers["first"].content["text"])
    return asked("first", "first?", "nothing yet")


def five(params: types.CallToolRequestParams) -> Any:
    """Ask the client's model five questions at once."""
    answers: Any = params.input_responses or {}
    if answers:
        return said(",".join(answers[str(number)].content.text for number in range(5)))
    questions: dict[str, Any] = {}
    for number in range(5):
        message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=str(number)))
        wanted = types.CreateMessageRequestParams(messages=[message], max_tokens=10)
        questions[str(number)] = types.CreateMessageRequest(method="sampling/createMessage", params=wanted)
    return types.InputRequiredResult(input_requests=questions)


TOOLS = {"two": two, "five": five}


async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in TOOLS]
    )


async def call_tool(_ctx: Any, params: types.CallToolRequestParams) -> Any:
    return TOOLS[params.name](params)


server = Hosted(
    Server("asking", on_list_tools=list_tools, on_call_tool=call_tool), protocol_version="sessionless"
)
