"""The capabilities and the name of a server, as clients of both eras receive them."""

from functools import cache
from typing import Any

from limpet.protocol.idempotency import declared
from limpet.protocol.tasks import EXTENSION
from limpet.protocol.types import ServerCapabilities
from limpet.server.authoring.registration import Registration


def describe(server: Registration) -> dict[str, Any]:
    """Return capabilities, server info and instructions for an initialize result.

    A capability is declared if the server has a component of its kind now.
    """
    capabilities = _capabilities(
        tools=bool(server.tools.entries),
        resources=bool(server.resources.entries or server.templates.entries),
        prompts=bool(server.prompts.entries),
        completions=bool(server.declared.completers()),
    )
    described: dict[str, Any] = {"capabilities": capabilities, "serverInfo": server.info}
    return described if server.instructions is None else {**described, "instructions": server.instructions}


def sessionless_capabilities(server: Registration) -> dict[str, Any]:
    """Return the capabilities of 2026-07-28: with idempotency keys, and with tasks if a tool can run as one."""
    capabilities: dict[str, Any] = describe(server)["capabilities"]
    return declared({**capabilities, **EXTENSION} if has_tasks(server) else capabilities)


def has_tasks(server: Registration) -> bool:
    """Return True if a tool can become a task, by its own declaration or by a hand-over."""
    if server.is_built and server.engine.hand_over.is_on:
        return True
    return any(entry.task is not None for entry in server.tools.entries.values())


@cache
def _capabilities(*, tools: bool, resources: bool, prompts: bool, completions: bool) -> dict[str, Any]:
    """Return the capabilities of these kinds of components: one object for all sessions, do not change it."""
    listed: dict[str, Any] = {"listChanged": True}
    return ServerCapabilities(
        tools=listed if tools else None,
        resources={"subscribe": True, **listed} if resources else None,
        prompts=listed if prompts else None,
        completions={} if completions else None,
        logging={},
    ).to_wire()
