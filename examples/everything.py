"""Everything a server can do with a client, one small function each.

    make serve
    limpet serve examples/everything.py:server --http 127.0.0.1:8000

The first half is to play with: parallel asks, progress, state. The second half has the names and
texts that the official conformance suite looks for, and doubles as a tour of the API. What is
only of interest to protocol 2026-07-28 is in everything_modern.py and tasks.py and included here.
"""

import asyncio
import io
import wave
from base64 import b64decode
from typing import Annotated, Any, Final, Literal, TypedDict

from everything_modern import feature
from pydantic import BaseModel, Field
from tasks import server as tasks

from limpet import Audio, Context, Image, Message, Server, ToolAnnotations, ToolError
from limpet.content import EmbeddedResource, UserMessage
from limpet.types import TextResourceContents

server = Server(
    "everything",
    version="1.0",
    title="Everything",
    instructions="Every feature of the protocol, for trying out clients. Nothing here touches the world outside.",
)

server.include(feature)
server.include(tasks)

READ_ONLY: Final = ToolAnnotations(read_only_hint=True)
"""Some clients call tools in parallel only if they declare it."""


# Calls: quick, slow, chatty, asking, remembering


@server.tool(annotations=READ_ONLY)
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool(annotations=READ_ONLY)
async def slow(seconds: Annotated[float, Field(ge=0, le=3600)], text: str = "done") -> str:
    """Return the text after a while. Cut the connection meanwhile: the answer waits for you."""
    await asyncio.sleep(seconds)
    return text


@server.tool(annotations=READ_ONLY)
async def ticks(
    n: Annotated[int, Field(ge=0)], ctx: Context, interval: Annotated[float, Field(ge=0, le=60)] = 0.1
) -> str:
    """Tell progress n times, then return."""
    for tick in range(1, n + 1):
        await asyncio.sleep(interval)
        await ctx.progress(tick, n, f"tick {tick}")
    return f"{n} ticks"


@server.tool(annotations=READ_ONLY)
async def fanout(n: Annotated[int, Field(ge=0, le=1000)], ctx: Context) -> str:
    """Ask the client's model n questions at once and join its answers with commas."""
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(ctx.sample(f"question {number}", max_tokens=100)) for number in range(n)]
    return ",".join(task.result().text for task in asked)


@server.tool
async def bump(key: str, ctx: Context) -> int:
    """Add one to a counter of this session and return its new value."""
    return await ctx.state.incr(key)


# Content: what a tool can return


PIXEL: Final = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def silence(seconds: float = 0.05) -> bytes:
    """Return a WAV file with nothing to hear."""
    rate = 8000
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(2)
        wav.setframerate(rate)
        wav.writeframes(bytes(2 * int(rate * seconds)))
    return file.getvalue()


def embedded(uri: str, text: str, mime_type: str = "text/plain") -> EmbeddedResource:
    """Return a resource that travels inside a result or a message."""
    return EmbeddedResource(resource=TextResourceContents(uri=uri, mime_type=mime_type, text=text))


@server.tool
async def test_simple_text() -> str:
    """Return text."""
    return "This is a simple text response for testing."


@server.tool
async def test_image_content() -> Image:
    """Return an image."""
    return Image(PIXEL, format="png")


@server.tool
async def test_audio_content() -> Audio:
    """Return sound."""
    return Audio(silence(), format="wav")


@server.tool
async def test_embedded_resource() -> EmbeddedResource:
    """Return a resource inside the result."""
    return embedded("test://embedded-resource", "This is an embedded resource content.")


@server.tool
async def test_multiple_content_types() -> list[str | Image | EmbeddedResource]:
    """Return several kinds of content at once."""
    return [
        "Multiple content types test:",
        Image(PIXEL, format="png"),
        embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json"),
    ]


@server.tool
async def test_error_handling() -> None:
    """Fail with a message for the model."""
    raise ToolError("This tool intentionally returns an error for testing")


# A ready JSON schema instead of a signature


SCHEMA_2020_12: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@server.tool(input_schema=SCHEMA_2020_12, description="Tool with JSON Schema 2020-12 features")
async def json_schema_2020_12_tool(**arguments: Any) -> str:
    return f"JSON Schema 2020-12 tool called with {arguments}"


# Telling: logs and progress while a call runs


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Log three times on the way."""
    await ctx.info("Tool execution started")
    await asyncio.sleep(0.05)
    await ctx.info("Tool processing data")
    await asyncio.sleep(0.05)
    await ctx.info("Tool execution completed")
    return "Logged three messages."


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Tell progress three times on the way."""
    await ctx.progress(0, 100)
    await asyncio.sleep(0.05)
    await ctx.progress(50, 100)
    await asyncio.sleep(0.05)
    await ctx.progress(100, 100)
    return "Progress told three times."


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Close the connection in the middle of the call; the client comes back for the result."""
    await ctx.close_stream()
    await asyncio.sleep(0.1)
    return "Reconnection test completed successfully."


# Asking: the client's model and its user


@server.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the client's model."""
    answer = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {answer.text}"


class Account(BaseModel):
    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


@server.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the user to fill in a form."""
    answer = await ctx.elicit(message, Account)
    return f"User response: action={answer.action}, content={answer.data}"


class Profile(BaseModel):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask with a form that is filled in already."""
    answer = await ctx.elicit("Please check your profile", Profile)
    return f"Elicitation completed: action={answer.action}, content={answer.data}"


def titled(**titles: str) -> list[dict[str, str]]:
    return [{"const": value, "title": title} for value, title in titles.items()]


CHOICES: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": titled(value1="First Option", value2="Second Option", value3="Third Option"),
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {
            "type": "array",
            "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
        },
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": titled(value1="First Choice", value2="Second Choice", value3="Third Choice")},
        },
    },
}


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask with a form of choices of every kind."""
    answer = await ctx.elicit("Please choose", CHOICES)
    return f"Elicitation completed: action={answer.action}, content={answer.data}"


# Resources


@server.resource("test://static-text", mime_type="text/plain")
async def static_text() -> str:
    """A text that never changes."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
async def static_binary() -> bytes:
    """A picture that never changes."""
    return PIXEL


@server.resource("test://watched-resource", mime_type="text/plain")
async def watched_resource() -> str:
    """A text to subscribe to; `server.resource_updated` notifies the subscribers."""
    return "Watched resource content."


class Record(TypedDict):
    id: str
    templateTest: bool
    data: str


@server.resource("test://template/{id}/data", mime_type="application/json")
async def template_data(id: str) -> Record:  # noqa: A002 - the template's variable
    """One of many records."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


# Prompts


@server.prompt
async def test_simple_prompt() -> str:
    """Say something simple."""
    return "This is a simple prompt for testing."


@server.prompt
async def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """Say something with two values.

    Args:
        arg1: First test argument.
        arg2: Second test argument.
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt
async def test_prompt_with_embedded_resource(resourceUri: str) -> list[Message]:  # noqa: N803 - its name on the wire
    """Talk about a resource.

    Args:
        resourceUri: URI of the resource to embed.
    """
    return [
        UserMessage(embedded(resourceUri, "Embedded resource content for testing.")),
        UserMessage("Please process the embedded resource above."),
    ]


@server.prompt
async def test_prompt_with_image() -> list[Message]:
    """Talk about an image."""
    return [UserMessage(Image(PIXEL, format="png")), UserMessage("Please analyze the image above.")]


@server.completion(prompt="test_prompt_with_arguments")
async def completed(value: str) -> list[str]:
    """Offer words that begin with what is typed."""
    return [word for word in ("paris", "park", "party", "test", "text") if word.startswith(value)]
