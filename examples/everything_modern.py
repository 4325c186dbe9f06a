"""The second half of the everything server: what protocol 2026-07-28 is tried out with.

Most of it are ordinary functions that await what they ask for; they work in sessions too. A
client of 2026-07-28 sees each ask as an answer that wants input, under the ask's `key`.
"""

import asyncio
from typing import Annotated, Any

from pydantic import BaseModel, Field

from limpet import Context, InputRequired, Server, Want


class Name(BaseModel):
    name: str


class Confirmation(BaseModel):
    ok: bool


class Color(BaseModel):
    color: str


class Topic(BaseModel):
    context: str


class Answers(BaseModel):
    """What `interview` found out, and how often its body ran."""

    name: str
    color: str
    lines: list[str]
    runs: int


feature = Server("everything, continued")
runs = 0


@feature.tool
async def interview(ctx: Context) -> Answers:
    """Ask the user twice, one question after the other, then the model five questions at once."""
    global runs  # noqa: PLW0603 - the count is the point: the body runs once, for any number of rounds
    runs += 1
    name = await ctx.elicit("What is your name?", Name)
    color = await ctx.elicit("What is your favorite color?", Color)
    if name.data is None or color.data is None:
        return Answers(name="", color="", lines=[], runs=runs)
    questions = [f"Line {number} about {color.data.color}" for number in range(1, 6)]
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(ctx.sample(question, max_tokens=50)) for question in questions]
    lines = [task.result().text for task in asked]
    return Answers(name=name.data.name, color=color.data.color, lines=lines, runs=runs)


# Asking: one thing, several at once, one after another


@feature.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Ask the user's name."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    return f"Hello, {answer.data.name}!" if answer.data else "Hello, stranger!"


@feature.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the client's model for the capital of France."""
    answer = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return answer.text


@feature.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask for the client's roots."""
    roots = await ctx.roots(key="client_roots")
    return f"Roots: {', '.join(root.uri for root in roots)}"


@feature.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Ask for a confirmation. That this line is reached after it means that the state was good."""
    answer = await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return f"state-ok: {answer.action}"


@feature.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask the user, the model and for the roots at once."""
    async with asyncio.TaskGroup() as group:
        name = group.create_task(ctx.elicit("What is your name?", Name, key="user_name"))
        greeting = group.create_task(ctx.sample("Generate a greeting", max_tokens=50, key="greeting"))
        roots = group.create_task(ctx.roots(key="client_roots"))
    data = name.result().data
    return f"{greeting.result().text} {data.name if data else ''} ({len(roots.result())} roots)"


@feature.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask one thing, then another."""
    name = await ctx.elicit("Step 1: What is your name?", Name, key="step1")
    color = await ctx.elicit("Step 2: What is your favorite color?", Color, key="step2")
    return (
        f"{name.data.name if name.data else 'no one'} likes {color.data.color if color.data else 'nothing'}"
    )


@feature.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str | InputRequired:
    """Ask for a confirmation without waiting for it: the client carries the state, sealed."""
    if ctx.request_state is None:
        return InputRequired(
            requests={"confirm": Want.form("Please confirm", Confirmation)}, state="as it was given"
        )
    return f"The state is {ctx.request_state}."


@feature.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask only for what the client says it can answer."""
    can = ctx.session.capabilities
    asked: dict[str, Any] = {}
    async with asyncio.TaskGroup() as group:
        if can.sampling is not None:
            asked["model"] = group.create_task(ctx.sample("Say hello", max_tokens=50, key="model"))
        if can.elicits_form:
            asked["user"] = group.create_task(ctx.elicit("What is your name?", Name, key="user"))
    return f"Asked: {', '.join(asked)}"


@feature.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """Ask the user what the prompt should be about."""
    answer = await ctx.elicit("What context should the prompt use?", Topic, key="user_context")
    return f"Please help with: {answer.data.context if answer.data else 'anything'}"


# What a client must have declared, and what it receives on the way


@feature.tool
async def test_missing_capability(ctx: Context) -> str:
    """Need a client that samples."""
    return (await ctx.sample("Anything", max_tokens=10)).text


@feature.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Tell progress, then ask: the answer that wants input ends the stream."""
    await ctx.progress(0, 1)
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    return f"Action: {answer.action}"


@feature.tool
async def test_logging_tool(ctx: Context) -> str:
    """Log at three levels; the client gets those that its request wants."""
    await ctx.debug("a detail")
    await ctx.info("an information")
    await ctx.error("an error")
    return "Logged at three levels."


# Lists that change


async def nothing() -> str:
    """Be here for a moment."""
    return "nothing"


@feature.tool
async def test_trigger_tool_change() -> str:
    """Add a tool and take it away again; listeners are notified."""
    feature.add_tool(nothing, name="test_dynamic_tool")
    feature.remove_tool("test_dynamic_tool")
    return "The list of tools has changed."


@feature.tool
async def test_trigger_prompt_change() -> str:
    """Add a prompt and take it away again; listeners are notified."""
    feature.add_prompt(nothing, name="test_dynamic_prompt")
    feature.remove_prompt("test_dynamic_prompt")
    return "The list of prompts has changed."


# A parameter that a header repeats, so that a proxy can route by it


@feature.tool
async def test_x_mcp_header(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
) -> str:
    """Say which region was asked for."""
    return f"Region: {region}"
