"""Return values of authors become content of the protocol."""

from base64 import b64encode
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from limpet.protocol.types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    PromptMessage,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from limpet.server.functions.content import (
    AssistantMessage,
    Audio,
    File,
    Image,
    Message,
    ToolResult,
    UserMessage,
    to_content,
    to_contents,
    to_messages,
    to_prompt_result,
    to_read_result,
    to_result,
)
from limpet.server.functions.registered_function import RegisteredFunction


class Place(BaseModel):
    name: str


@dataclass
class Day:
    at: date


class Name(str):
    __slots__ = ()


LINK = ResourceLink(uri="x://y", name="y")
PIXEL = b"\x89PNG"
PIXEL64 = b64encode(PIXEL).decode()


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ("hi", ["hi"]),
        (Name("hi"), ["hi"]),
        ("", [""]),
        (None, []),
        (3, ["3"]),
        (True, ["true"]),
        ({"a": [1]}, ['{"a":[1]}']),
        ([], ["[]"]),
        (["a", "b"], ['["a","b"]']),
        (Place(name="x"), ['{"name":"x"}']),
        ([Place(name="x")], ['[{"name":"x"}]']),
        (Day(date(2026, 1, 2)), ['{"at":"2026-01-02"}']),
    ],
)
def test_values_become_text_and_objects_json(value: object, texts: list[str]) -> None:
    assert to_content(value) == [TextContent(text=text) for text in texts]


def test_blocks_stay_and_lists_with_blocks_are_mixed() -> None:
    image = ImageContent(data=PIXEL64, mime_type="image/png")
    contents = TextResourceContents(uri="a:b", text="c")
    assert to_content(LINK) == [LINK]
    assert to_content(contents) == [EmbeddedResource(resource=contents)]
    mixed = to_content(["look", LINK, Image(data=PIXEL), {"a": 1}, None, ["deep", LINK]])
    assert mixed == [
        TextContent(text="look"),
        LINK,
        image,
        TextContent(text='{"a":1}'),
        TextContent(text="deep"),
        LINK,
    ]


def test_a_value_without_a_json_form_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="has no JSON form"):
        to_content(object())


# Media


def test_images_and_audio_take_their_type_from_format_path_or_default(tmp_path: Path) -> None:
    path = tmp_path / "picture.JPG"
    path.write_bytes(PIXEL)
    assert Image(PIXEL).block() == ImageContent(data=PIXEL64, mime_type="image/png")
    assert Image(path=path).mime_type == "image/jpeg"
    assert Image(PIXEL, format="avif").mime_type == "image/avif"
    assert Image(PIXEL64, mime_type="image/x-own").block() == ImageContent(
        data=PIXEL64, mime_type="image/x-own"
    )
    assert Audio(PIXEL, format="mp3").block() == AudioContent(data=PIXEL64, mime_type="audio/mpeg")
    assert Audio(PIXEL).mime_type == "audio/wav"


def test_files_are_embedded_resources_text_where_they_are_text(tmp_path: Path) -> None:
    path = tmp_path / "my notes.md"
    path.write_text("# hi", encoding="utf-8")
    assert File(path=path).block() == EmbeddedResource(
        resource=TextResourceContents(uri="file:///my%20notes.md", mime_type="text/markdown", text="# hi")
    )
    assert File(PIXEL, name="a.pdf").block() == EmbeddedResource(
        resource=BlobResourceContents(uri="file:///a.pdf", mime_type="application/pdf", blob=PIXEL64)
    )
    assert File(b"\xff", name="a.txt").block() == EmbeddedResource(
        resource=BlobResourceContents(uri="file:///a.txt", mime_type="text/plain", blob="/w==")
    )
    assert File(b"{}", name="a.bin", mime_type="application/json").mime_type == "application/json"
    assert to_content(PIXEL) == [File(PIXEL).block()]


def test_annotations_and_meta_travel_with_media() -> None:
    annotations = Annotations(priority=1.0)
    block = Image(PIXEL, annotations=annotations, meta={"a": 1}).block()
    assert (block.annotations, block.meta) == (annotations, {"a": 1})


def test_content_objects_have_a_readable_repr() -> None:
    assert repr([Image(PIXEL), UserMessage("hi")]) == "[Image(image/png), Message('hi', 'user')]"


def test_media_take_either_data_or_a_path() -> None:
    for kwargs in ({}, {"data": b"", "path": "x"}):
        with pytest.raises(ValueError, match="Image takes either data or path"):
            Image(**kwargs)  # type: ignore[arg-type]


# Tool results


def result(value: Any, annotation: Any) -> CallToolResult:
    def fn() -> Any: ...

    fn.__annotations__["return"] = annotation
    function = RegisteredFunction(fn)
    return to_result(value, function.structure, wraps_result=function.wraps_result)


def test_a_result_has_text_and_structured_content_that_say_the_same() -> None:
    assert result("hi", str) == CallToolResult(
        content=[TextContent(text="hi")], structured_content={"result": "hi"}
    )
    assert result([1, 2], list[int]) == CallToolResult(
        content=[TextContent(text="[1,2]")], structured_content={"result": [1, 2]}
    )
    assert result(Place(name="x"), Place) == CallToolResult(
        content=[TextContent(text='{"name":"x"}')], structured_content={"name": "x"}
    )
    assert result(None, None) == CallToolResult(content=[])
    assert result(Image(PIXEL), Image).structured_content is None


def test_an_empty_structured_object_is_still_sent() -> None:
    encoded = msgspec.json.decode(msgspec.json.encode(result({}, dict[str, int])))
    assert encoded == {"content": [{"type": "text", "text": "{}"}], "structuredContent": {}}


def test_a_tool_result_is_sent_unchanged() -> None:
    said = ToolResult(content=["a", LINK], structured=Place(name="x"), is_error=True, meta={"k": 1})
    assert result(said, str) == CallToolResult(
        content=[TextContent(text="a"), LINK],
        structured_content={"name": "x"},
        is_error=True,
        meta={"k": 1},
    )
    assert to_result(ToolResult(structured=[1])) == CallToolResult(
        content=[TextContent(text='{"result":[1]}')], structured_content={"result": [1]}
    )
    assert to_result(ToolResult(content="", structured={})).content == [TextContent(text="")]
    ready = CallToolResult(content=[])
    assert to_result(ready) is ready


# Prompts


def user(text: str) -> PromptMessage:
    return PromptMessage(role="user", content=TextContent(text=text))


def assistant(text: str) -> PromptMessage:
    return PromptMessage(role="assistant", content=TextContent(text=text))


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("hi", [user("hi")]),
        (UserMessage("hi"), [user("hi")]),
        (["a", AssistantMessage("b"), user("c")], [user("a"), assistant("b"), user("c")]),
        (Message(["a", "b"], "assistant"), [assistant("a"), assistant("b")]),
        (Message(["a", LINK]), [user("a"), PromptMessage(role="user", content=LINK)]),
        ({"role": "assistant", "content": "b"}, [assistant("b")]),
        ({"role": "user", "content": {"type": "text", "text": "a"}}, [user("a")]),
        ({"role": "user", "content": ["a", {"type": "text", "text": "b"}]}, [user("a"), user("b")]),
        ({"a": 1}, [user('{"a":1}')]),
    ],
)
def test_prompts_become_messages(value: object, messages: list[PromptMessage]) -> None:
    assert to_messages(value) == messages


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ({"role": "system", "content": "a"}, "user or assistant, not 'system'"),
        ({"role": "user", "content": {"text": "a"}}, "content block"),
        ({"role": "user", "content": {"type": "song"}}, "content block"),
    ],
)
def test_an_invalid_message_dict_is_refused(value: object, wrong: str) -> None:
    with pytest.raises(TypeError, match=wrong):
        to_messages(value)


def test_a_prompt_result_keeps_its_description_unless_it_is_ready() -> None:
    assert to_prompt_result("hi", "said") == GetPromptResult(messages=[user("hi")], description="said")
    ready = GetPromptResult(messages=[])
    assert to_prompt_result(ready, "said") is ready


# Resources


@pytest.mark.parametrize(
    ("value", "mime_type", "contents"),
    [
        ("hi", None, TextResourceContents(uri="x:y", text="hi")),
        ("hi", "text/plain", TextResourceContents(uri="x:y", mime_type="text/plain", text="hi")),
        (PIXEL, None, BlobResourceContents(uri="x:y", mime_type="application/octet-stream", blob=PIXEL64)),
        (PIXEL, "image/png", BlobResourceContents(uri="x:y", mime_type="image/png", blob=PIXEL64)),
        ({"a": 1}, None, TextResourceContents(uri="x:y", mime_type="application/json", text='{"a":1}')),
        ([1], None, TextResourceContents(uri="x:y", mime_type="application/json", text="[1]")),
        (Place(name="x"), "a/b", TextResourceContents(uri="x:y", mime_type="a/b", text='{"name":"x"}')),
        (None, "text/plain", TextResourceContents(uri="x:y", mime_type="text/plain", text="")),
        (Image(PIXEL), None, BlobResourceContents(uri="x:y", mime_type="image/png", blob=PIXEL64)),
    ],
)
def test_resources_become_contents(value: object, mime_type: str | None, contents: object) -> None:
    assert to_contents(value, "x:y", mime_type) == [contents]


def test_explicit_contents_stay_as_they_are() -> None:
    one = TextResourceContents(uri="a:b", text="c")
    assert to_contents(one, "x:y") == [one]
    assert to_contents([one, one], "x:y") == [one, one]
    ready = ReadResourceResult(contents=[one])
    assert to_read_result(ready, "x:y") is ready
    assert to_read_result(one, "x:y") == ready
