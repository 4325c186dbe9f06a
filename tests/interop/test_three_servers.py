"""Three FastMCP servers of examples/from_fastmcp: by FastMCP, unchanged behind `limpet serve`, and ported.

One script talks to each. Behind Limpet a client sees what it sees at FastMCP, to the last member. A port may differ only in
the points that docs/from-fastmcp.md lists, and replaces only names that are rows of its tables.
"""

import ast
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from limpet import Client
from limpet.types import CreateMessageParams, ElicitFormParams
from tests.http.serving import wait_until_connected
from tests.interop.behind import environment, limpet, peer
from tests.interop.peers import ROOT, serving
from tests.interop.test_from_fastmcp import PAGE
from tests.support import BOUND, async_test
from tools.ports import free_port

EXAMPLES: Final = ROOT / "examples" / "from_fastmcp"
PORTED: Final = ("library", "travel")
Step = tuple[Any, ...]
SCRIPTS: Final[dict[str, tuple[Step, ...]]] = {
    "library": (
        ("call_tool", "search", {"text": "aus"}),
        ("call_tool", "search", {"text": "e", "limit": 1}),
        ("call_tool", "lend", {"book": 1}),
        ("call_tool", "count", {}),
        ("call_tool", "last_lent", {}),
        ("call_tool", "give_back", {"book": 1}),
        ("call_tool", "count", {}),
        ("call_tool", "lend", {"book": 4}),
        ("read_resource", "library://catalogue"),
        ("read_resource", "library://books/2"),
        ("get_prompt", "recommend", {"reader": "Ada"}),
        ("get_prompt", "review", {"title": "Emma"}),
        ("complete", {"type": "ref/prompt", "name": "recommend"}, "mood", "c"),
    ),
    "travel": (
        ("call_tool", "book", {"city": "Cairo"}),
        ("call_tool", "book", {"city": "Bergen"}),
        ("call_tool", "book", {"city": "Rome"}),
        ("call_tool", "advertise", {"city": "Quito"}),
        ("call_tool", "folders", {}),
        ("call_tool", "staff_prices", {}),
        ("call_tool", "weather_forecast", {"city": "Cairo"}),
        ("call_tool", "weather_forecast", {"city": "Rome"}),
        ("read_resource", "climate://weather/Cairo"),
        ("get_prompt", "weather_pack", {"city": "Cairo"}),
    ),
    "gateway": (
        ("call_tool", "find_parcel", {"parcel": 1}),
        ("call_tool", "find_parcel", {"parcel": 9}),
        ("call_tool", "send", {"parcel": 2, "to": "Quito"}),
        ("call_tool", "stamps_postage", {"grams": 30}),
        ("read_resource", "resource://depots"),
        ("get_prompt", "stamps_address", {"name": "Ada"}),
    ),
}
PROOF: Final = {
    "library": "lent book 1",
    "travel": "Ada flies to Cairo with 2 bags for 1440 euros",
    "gateway": "no such parcel",
}
"""A text of the results: the script did what it should."""
FORMS: Final[dict[str, dict[str, object] | None]] = {
    "Which class?": {"value": "business"},
    "Who travels?": {"name": "Ada", "bags": 2},
    "Book for 1440 euros?": {"value": True},
    "Book for 360 euros?": None,
}
"""The user's answers; None: declined."""


class Seen(NamedTuple):
    """Everything that a client received from a server."""

    lists: dict[str, list[dict[str, Any]]]
    results: list[Any]
    asked: list[Any]
    progress: list[tuple[float, ...]]
    logs: list[Any]


async def interviewed(name: str, target: Any, version: str) -> Seen:
    """Run the script of a server."""
    seen = Seen({}, [], [], [], [])

    def user(form: ElicitFormParams) -> dict[str, object] | None:
        seen.asked.append(
            [form.message, form.requested_schema["properties"], form.requested_schema["required"]]
        )
        return FORMS[form.message]

    def model(wanted: CreateMessageParams) -> str:
        seen.asked.append(msgspec.to_builtins(wanted))
        return "Lovely."

    answers: dict[str, Any] = {"elicitation": user, "sampling": model, "roots": ["file:///projects/x"]}
    async with Client(
        target,
        protocol_version=version,
        raise_on_error=False,
        timeout=BOUND,
        on_log=seen.logs.append,
        **answers,
    ) as client:
        for kind in ("list_tools", "list_resources", "list_resource_templates", "list_prompts"):
            seen.lists[kind] = msgspec.to_builtins(await getattr(client, kind)())
        for method, *rest in SCRIPTS[name]:
            if method == "call_tool":
                done = await client.call_tool(*rest, progress=lambda *event: seen.progress.append(event))
                seen.results.append(
                    [done.is_error, msgspec.to_builtins(done.content), done.structured_content]
                )
            else:
                seen.results.append(msgspec.to_builtins(await getattr(client, method)(*rest)))
    return seen


class Servers(NamedTuple):
    """The URL of each server, by FastMCP itself and behind `limpet serve`."""

    bare: Callable[[str], str]
    served: Callable[[str], str]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Start all servers by FastMCP in one process, and by Limpet in another."""
    directory = tmp_path_factory.mktemp("three")
    tables = [f'[servers.{name}]\nobject = "{EXAMPLES / f"{name}_fastmcp.py"}:mcp"\n' for name in SCRIPTS]
    (directory / "limpet.toml").write_text("\n".join(tables))
    port = free_port()
    variables = {**os.environ, **environment(), "LIBRARY": str(directory / "bare.db")}
    words = [peer("fastmcp"), str(ROOT / "tests" / "interop" / "hosted" / "three.py"), str(port)]
    with contextlib.ExitStack() as stack:
        bare = subprocess.Popen(words, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(bare.wait)
        stack.callback(bare.kill)
        served = stack.enter_context(
            serving(
                directory,
                {**environment(), "LIBRARY": str(directory / "served.db")},
                str(directory / "limpet.toml"),
                command=limpet("fastmcp", "serve", "--log-level", "warning"),
            )
        )
        wait_until_connected(port, bare)
        yield Servers(
            lambda name: f"http://127.0.0.1:{port}/{name}/mcp",
            lambda name: f"http://127.0.0.1:{served}/{name}/mcp",
        )


@pytest.mark.parametrize("name", SCRIPTS)
@async_test
async def test_behind_limpet_a_client_sees_the_same_as_at_fastmcp(name: str, servers: Servers) -> None:
    bare = await interviewed(name, servers.bare(name), "sessions")
    assert PROOF[name] in str(bare.results)
    assert await interviewed(name, servers.served(name), "sessions") == bare
    newer = await interviewed(name, servers.served(name), "sessionless")
    # FastMCP itself cannot ask a client of 2026-07-28. Such a client receives logs only if it requests them.
    assert without_server_info(newer.results) == bare.results
    assert newer[:1] + newer[2:4] == bare[:1] + bare[2:4]


@pytest.mark.parametrize("version", ["sessions", "sessionless"])
@pytest.mark.parametrize("name", PORTED)
@async_test
async def test_the_port_answers_as_fastmcp_does(
    name: str, version: str, servers: Servers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ported = import_module(f"examples.from_fastmcp.{name}_limpet")
    monkeypatch.setenv("LIBRARY", str(tmp_path / "port.db"))
    bare = plain(await interviewed(name, servers.bare(name), "sessions"))
    port = plain(await interviewed(name, ported.server, version))
    assert without_server_info(port.results) == bare.results
    assert port[:1] + port[2:4] == bare[:1] + bare[2:4]
    assert port.logs == bare.logs


def without_server_info(results: list[Any]) -> list[Any]:
    """Remove the name of the server, which 2026-07-28 puts into each result."""
    return [
        {key: value for key, value in result.items() if key != "_meta"}
        if isinstance(result, dict)
        else result
        for result in results
    ]


def plain(seen: Seen) -> Seen:
    """Remove the differences between FastMCP and Limpet that the page lists."""
    lists = {
        kind: sorted((_described(item) for item in items), key=lambda item: str(item["name"]))
        for kind, items in seen.lists.items()
    }
    logs = [
        log | {"data": log["data"]["msg"] if isinstance(log["data"], dict) else log["data"]}
        for log in seen.logs
    ]
    return seen._replace(lists=lists, logs=logs, results=[_compact(result) for result in seen.results])


def _described(item: dict[str, Any]) -> dict[str, Any]:
    kept = {
        key: value
        for key, value in item.items()
        if key not in {"_meta", "title", "inputSchema", "outputSchema"}
    }
    for kind in ("inputSchema", "outputSchema"):
        if kind in item:
            kept[kind] = [item[kind].get("properties", {}).keys(), item[kind].get("required", [])]
    return {"mimeType": "text/plain", **kept}


def _compact(result: Any) -> Any:
    """Read the JSON of resources, which FastMCP writes with spaces, and add the default type."""
    if not isinstance(result, list) or not isinstance(result[0], dict):
        return result
    return [
        {"mimeType": "text/plain", **content}
        | (
            {"text": msgspec.json.decode(content["text"])}
            if content.get("mimeType") == "application/json"
            else {}
        )
        for content in result
    ]


def names_of(path: Path) -> set[str]:
    """Return the names that a file takes from its packages: imports, attributes and keyword arguments."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] not in sys.stdlib_module_names:
                found |= {alias.name for alias in node.names}
            case ast.Attribute(attr=name):
                found.add(name)
            case ast.keyword(arg=str(name)):
                found.add(name)
            case _:
                pass
    return found


@pytest.mark.parametrize("name", PORTED)
def test_a_port_replaces_only_names_of_the_tables(name: str) -> None:
    rows = re.findall(r"^\| (.*`.*) \| (.*) \|$", PAGE, re.MULTILINE)
    there = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", " ".join(left for left, _ in rows)))))
    here = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", " ".join(right for _, right in rows)))))
    before, after = names_of(EXAMPLES / f"{name}_fastmcp.py"), names_of(EXAMPLES / f"{name}_limpet.py")
    assert before - after - there == set(), "a name without a row"
    assert after - before - here - there == set(), "a name that no row gives"
