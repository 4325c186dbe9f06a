"""Functions whose annotations are strings, some of names that exist only for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

from limpet.server.functions.registered_function import RegisteredFunction

if TYPE_CHECKING:
    from decimal import Decimal

    from limpet.server.functions.signature import ContextBase as Context


class Place(BaseModel):
    name: str


async def forecast(place: Place, ctx: Context, days: int = 3) -> Place:
    return place


def unknown(amount: Decimal) -> None: ...


def local() -> RegisteredFunction:
    class Item(BaseModel):
        name: str

    def take(item: Item) -> None: ...

    return RegisteredFunction(take)
