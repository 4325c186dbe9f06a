"""A list in pages: each page is requested when it is needed."""

from collections.abc import AsyncIterator
from typing import Any, Final, Generic, Protocol, TypeVar

from limpet.client.base import Requester
from limpet.client.results import typed
from limpet.errors import BadAnswer
from limpet.wire.jsonrpc import encode

_MESSAGES: Final = 4
"""All pages of a list may be as long as so many messages."""


class Page(Protocol):
    """One page of a list."""

    @property
    def next_cursor(self) -> str | None:
        """The cursor of the next page; None: this is the last one."""


P = TypeVar("P", bound=Page)


class Pages(Generic[P]):
    """The pages of one list, in order."""

    def __init__(self, client: Requester, method: str, shape: type[P], *, fresh: bool = False) -> None:
        self._client = client
        self._method = method
        self._shape = shape
        self._fresh = fresh

    async def __aiter__(self) -> AsyncIterator[P]:
        """Yield the pages.

        Raises:
            BadAnswer: there are more than `limits.pages`, they are too long together, or a cursor came twice.
        """
        seen: set[str] = set()
        limits, size = self._client._limits, 0
        params: dict[str, Any] = {}
        while True:
            result = await self._client.request(self._method, params, fresh=self._fresh)
            size += len(encode(result))
            page = typed(result, self._shape, self._method)
            yield page
            cursor = page.next_cursor
            if cursor is None:
                return
            if cursor in seen or len(seen) >= limits.pages or size > _MESSAGES * limits.message:
                raise BadAnswer(f"{self._method} repeats a cursor, or has too many or too long pages")
            seen.add(cursor)
            params = {"cursor": cursor}
