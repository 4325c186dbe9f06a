"""A server whose calls are all handed over, with output schemas of several kinds. Run it on stdio."""

import asyncio

from pydantic import BaseModel

from holdfast import Server

server = Server("slow", hand_over=0.2)


class Branch(BaseModel):
    """A tree: its schema refers to itself."""

    name: str
    branches: list["Branch"] = []


async def _handed_over() -> None:
    """Work until this call was handed over."""
    hand_over = server.engine.hand_over
    before = hand_over.count
    while hand_over.count == before:
        await asyncio.sleep(0.01)


@server.tool
async def tree() -> Branch:
    """Return a structure."""
    await _handed_over()
    return Branch(name="root", branches=[Branch(name="leaf")])


@server.tool
async def word() -> str:
    """Return a plain value, which is wrapped."""
    await _handed_over()
    return "done"


if __name__ == "__main__":
    server.run()
