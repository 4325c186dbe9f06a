"""Outages of the store: a call that must succeed is made again until the store is available."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from holdfast.errors import StoreUnavailable

T = TypeVar("T")
RETRY_SECONDS: Final = 0.5
"""How long to wait before an unavailable store is tried again."""


async def retried(call: Callable[[], Awaitable[T]]) -> T:
    """Make a call to the store, also if the store is unavailable for long. The call must be safe to repeat."""
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(RETRY_SECONDS)
