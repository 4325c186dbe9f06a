"""Calls of tools, the same for a client with a session and one without."""

from typing import Any


class ToolCalls:
    """Adds calls of tools to a client."""

    async def request(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Send a request and return its result; the client does it."""
        raise NotImplementedError

    async def call(self, tool: str, /, **arguments: object) -> Any:
        """Call a tool and return its result."""
        return await self.request("tools/call", {"name": tool, "arguments": arguments})

    async def text(self, tool: str, /, **arguments: object) -> str:
        """Call a tool that must succeed with one text; return it."""
        result = await self.call(tool, **arguments)
        assert not result.get("isError"), result
        return _one_text(result)

    async def failure(self, tool: str, /, **arguments: object) -> str:
        """Call a tool that must fail with one text; return it."""
        result = await self.call(tool, **arguments)
        assert result.get("isError") is True, result
        return _one_text(result)


def _one_text(result: dict[str, Any]) -> str:
    (block,) = result["content"]
    text: str = block["text"]
    return text
