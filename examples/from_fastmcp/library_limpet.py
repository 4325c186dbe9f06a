"""The library of library_fastmcp.py on Limpet.

limpet serve examples/from_fastmcp/library_limpet.py:server
"""

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from pydantic import BaseModel, Field

from limpet import Context, Message, Server, ToolAnnotations, ToolError
from limpet.types import Completion

BOOKS = [
    ("Emma", "Austen", 2),
    ("Persuasion", "Austen", 1),
    ("Middlemarch", "Eliot", 1),
    ("Dracula", "Stoker", 0),
]
MOODS = ("calm", "cheerful", "dark")


@asynccontextmanager
async def lifespan(_server: Server) -> AsyncIterator[dict[str, sqlite3.Connection]]:
    db = sqlite3.connect(os.environ.get("LIBRARY", ":memory:"), check_same_thread=False)
    db.row_factory = sqlite3.Row
    db.execute(
        "CREATE TABLE IF NOT EXISTS books (id INTEGER PRIMARY KEY, title TEXT UNIQUE, author TEXT, copies INTEGER)"
    )
    db.executemany("INSERT OR IGNORE INTO books (title, author, copies) VALUES (?, ?, ?)", BOOKS)
    db.commit()
    try:
        yield {"db": db}
    finally:
        db.close()


server = Server(
    "library", version="1.2", instructions="Find and lend books.", lifespan=lifespan, state="principal"
)


class Book(BaseModel):
    id: int
    title: str
    author: str
    copies: Annotated[int, Field(description="Copies that can be lent now")]


class Found(BaseModel):
    books: list[Book]
    total: int


def database(ctx: Context) -> sqlite3.Connection:
    db: sqlite3.Connection = ctx.lifespan["db"]
    return db


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False), tags={"reading"})
async def search(
    text: Annotated[str, Field(description="A part of a title or an author")], ctx: Context, limit: int = 10
) -> Found:
    """Search the catalogue."""
    rows = database(ctx).execute(
        "SELECT * FROM books WHERE title LIKE ? OR author LIKE ? ORDER BY title", (f"%{text}%", f"%{text}%")
    )
    books = [Book(**dict(row)) for row in rows]
    await ctx.info(f"{len(books)} books match {text!r}")
    return Found(books=books[:limit], total=len(books))


@server.tool(title="Lend a book")
async def lend(book: int, ctx: Context) -> str:
    """Lend one copy of a book."""
    db = database(ctx)
    await ctx.report_progress(1, 2, "looking for a copy")
    changed = db.execute("UPDATE books SET copies = copies - 1 WHERE id = ? AND copies > 0", (book,))
    db.commit()
    if not changed.rowcount:
        raise ToolError(f"no copy of book {book} is here")
    await ctx.report_progress(2, 2, "stamped")
    await ctx.state.set("last", book)
    return f"lent book {book}"


@server.tool
async def give_back(book: int, ctx: Context) -> None:
    """Give one copy back."""
    db = database(ctx)
    db.execute("UPDATE books SET copies = copies + 1 WHERE id = ?", (book,))
    db.commit()


@server.tool
async def last_lent(ctx: Context) -> int | None:
    """Return the book that this client has lent last."""
    last: int | None = await ctx.state.get("last")
    return last


@server.tool
def count(ctx: Context) -> int:
    """Count the copies; a plain function."""
    total: int = database(ctx).execute("SELECT sum(copies) FROM books").fetchone()[0]
    return total


@server.resource("library://catalogue", mime_type="application/json", title="The catalogue")
async def catalogue(ctx: Context) -> list[dict[str, Any]]:
    """All books."""
    return [dict(row) for row in database(ctx).execute("SELECT id, title, author FROM books ORDER BY id")]


@server.resource("library://books/{book}", mime_type="text/plain")
async def card(book: int, ctx: Context) -> str:
    """The card of one book."""
    row = database(ctx).execute("SELECT * FROM books WHERE id = ?", (book,)).fetchone()
    return f"{row['title']} by {row['author']}" if row else "no such book"


@server.prompt(title="Recommend a book")
async def recommend(reader: str, mood: str = "calm") -> str:
    """Ask for a recommendation."""
    return f"Search the library and recommend a {mood} book to {reader}."


@server.prompt
async def review(title: str) -> list[Message]:
    """Write a review together."""
    return [Message(f"I have read {title}."), Message("How did you like it?", role="assistant")]


@server.completion(prompt="recommend", argument="mood")
async def moods(value: str) -> Completion:
    return Completion(values=[mood for mood in MOODS if mood.startswith(value)])


if __name__ == "__main__":
    server.run()
