"""Two middlewares that many servers need: a log of requests and durations, and a limit for results."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any, Final

from msgspec.structs import replace
from typing_extensions import override

from limpet.errors import ConfigError
from limpet.protocol.types import CallToolResult, Result, TextContent
from limpet.server.authoring.middleware import CallNext, Hooks, MiddlewareRequest
from limpet.server.functions.client_errors import failed
from limpet.wire.jsonrpc import encode

_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The member of the params that names the component."""
_SMALLEST: Final = 400
"""The smallest limit: the note needs room."""
_CUT: Final = "\n[cut: the result has {size:,} bytes, and the limit is {most:,}]"


class RequestLog(Hooks):
    """Logs one line for each request when it has ended: method, name, outcome and milliseconds.

    A record has the same facts as attributes (`mcp_method`, `mcp_name`, `mcp_client`, `mcp_outcome`,
    `mcp_milliseconds`), so that a JSON formatter can use them. Arguments and results are not logged. `limpet serve`
    logs such a line for each call by itself: use this in an application that logs by its own rules.
    """

    def __init__(self, logger: logging.Logger | str = "limpet.requests", level: int = logging.INFO) -> None:
        """Log to this logger, at this level. A request that failed is logged at level WARNING, if that is higher."""
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self._level = level

    @override
    async def on_request(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        """Pass the request on, and log its end."""
        clock = request.ctx.server.engine.clock
        began = clock.now()
        outcome = "cancelled"
        try:
            result = await call_next(request)
            outcome = "failed" if isinstance(result, CallToolResult) and result.is_error else "ok"
        except Exception as error:
            outcome = type(error).__name__
            raise
        else:
            return result
        finally:
            self._log(request, outcome, (clock.now() - began) * 1000)

    def _log(self, request: MiddlewareRequest, outcome: str, milliseconds: float) -> None:
        level = self._level if outcome == "ok" else max(self._level, logging.WARNING)
        if not self._logger.isEnabledFor(level):
            return
        name = _shown(request.params.get(_NAMED.get(request.method, "")))
        facts = {
            "mcp_method": request.method,
            "mcp_name": name,
            "mcp_client": _shown(request.ctx.session.client_info.name),
            "mcp_outcome": outcome,
            "mcp_milliseconds": round(milliseconds, 3),
        }
        self._logger.log(
            level, "%s %s: %s in %.1f ms", request.method, name or "-", outcome, milliseconds, extra=facts
        )


class ResponseLimit(Hooks):
    """Limits the size of tool results, which would otherwise fill the context of a model.

    The texts of a larger result are cut, and a note at the end says so. A result that cannot be cut, because it has
    structured content or media, becomes a failed result that names its size and the limit.
    """

    def __init__(self, max_bytes: int = 1_000_000, *, tools: Collection[str] | None = None) -> None:
        """Limit the results of these tools; None: of all tools.

        Raises:
            ConfigError: the limit is smaller than 400 bytes, which the note needs.
        """
        if max_bytes < _SMALLEST:
            raise ConfigError(f"ResponseLimit: max_bytes must be at least {_SMALLEST}, not {max_bytes}")
        self._most = max_bytes
        self._tools = None if tools is None else frozenset(tools)

    @override
    async def on_call_tool(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        """Pass the call on, and cut its result."""
        result = await call_next(request)
        is_limited = self._tools is None or request.params.get("name") in self._tools
        if not isinstance(result, CallToolResult) or not is_limited:
            return result
        size = len(encode(result))
        return result if size <= self._most else self._cut(result, size)

    def _cut(self, result: CallToolResult, size: int) -> CallToolResult:
        if not _is_text(result):
            return failed(
                f"The result has {size:,} bytes, and the limit is {self._most:,}: request a smaller part"
            )
        note = _CUT.format(size=size, most=self._most)
        fits, too_long = 0, sum(len(block.text) for block in result.content if isinstance(block, TextContent))
        while fits + 1 < too_long:
            middle = (fits + too_long) // 2
            if len(encode(_shortened(result, middle, note))) <= self._most:
                fits = middle
            else:
                too_long = middle
        return _shortened(result, fits, note)


def _is_text(result: CallToolResult) -> bool:
    """Return True if a result has only texts, and structured content at most with the same text."""
    if not all(isinstance(block, TextContent) for block in result.content):
        return False
    structured = result.structured_content
    return structured is None or (structured.keys() == {"result"} and isinstance(structured["result"], str))


def _shortened(result: CallToolResult, characters: int, note: str) -> CallToolResult:
    """Return the result with this many characters of its texts, and the note."""
    kept: list[Any] = []
    left = characters
    for block in result.content:
        if left > 0 and isinstance(block, TextContent):
            kept.append(replace(block, text=block.text[:left]))
            left -= len(block.text)
    structured = result.structured_content
    if structured is not None:
        structured = {"result": structured["result"][:characters] + note}
    return replace(result, content=[*kept, TextContent(text=note)], structured_content=structured)


def _shown(name: object) -> str:
    """Return a name that a client chose in a form that is safe in a log."""
    return ascii(name)[1:-1][:128] if isinstance(name, str) else ""
