"""Prompts: list them, get their messages, complete their arguments and those of resource templates."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from limpet.client.base import Requester
from limpet.client.paging import Pages
from limpet.client.results import typed
from limpet.protocol.listing import Prompt
from limpet.protocol.params import PromptReference, ResourceReference
from limpet.protocol.results import CompleteResult, Completion, GetPromptResult, ListPromptsResult


class Prompts(Requester):
    """A client's prompts."""

    async def list_prompts(self, *, fresh: bool = False) -> list[Prompt]:
        """Return every prompt, over all pages."""
        return [prompt async for prompt in self.prompts(fresh=fresh)]

    async def prompts(self, *, fresh: bool = False) -> AsyncIterator[Prompt]:
        """Yield every prompt, requesting the next page when it is needed."""
        async for page in Pages(self, "prompts/list", ListPromptsResult, fresh=fresh):
            for prompt in page.prompts:
                yield prompt

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> GetPromptResult:
        """Return a prompt's messages."""
        params: dict[str, Any] = {"name": name}
        if arguments:
            params["arguments"] = dict(arguments)
        return typed(
            await self.request("prompts/get", params, timeout=timeout), GetPromptResult, "prompts/get"
        )

    async def complete(
        self,
        ref: PromptReference | ResourceReference,
        argument: str,
        value: str = "",
        *,
        known: Mapping[str, str] | None = None,
    ) -> Completion:
        """Return completions for the beginning of an argument; `known` are the arguments that are given already."""
        params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
        if known:
            params["context"] = {"arguments": dict(known)}
        result = await self.request("completion/complete", params)
        return typed(result, CompleteResult, "completion/complete").completion
