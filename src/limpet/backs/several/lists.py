"""Lists of all members for one client (`pages.py` has the form of a merged page).

Each member gets the request of the client, with its own cursor. A member that fails is left out: the list has the
components of the others. A member that is late is left out too, but its request goes on. When its page arrives, it is
kept for this client, who receives `list_changed` and asks again: that request takes the kept page. So a member that
needs longer for each list than we wait is seen as well, and no client asks in circles.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from limpet.backs.renaming import LISTED
from limpet.backs.several.members import Member, in_time
from limpet.backs.several.pages import PartPage, merged, read_cursor, read_page
from limpet.backs.several.routes import Routes, client_of
from limpet.config import MIB
from limpet.core.names import NameKind
from limpet.engine.exchange import Exchange
from limpet.errors import METHOD_NOT_FOUND, InvalidCursor, InvalidParams
from limpet.ports import Observer
from limpet.protocol.sessionless import SERVER_KEY
from limpet.protocol.subscriptions import LISTS, ComponentKind
from limpet.protocol.versions import SESSIONLESS
from limpet.wire.jsonrpc import Request

KEPT: Final = 256
"""How many pages of late members are awaited or kept."""
KEPT_BYTES: Final = 16 * MIB
"""The bytes of all pages that are kept. The oldest ones are dropped first: their clients are not notified, and their
members stay left out."""
MOST_PAGES: Final = 100
"""How many pages are read to find the member that has a component."""

_Key = tuple[str, Member, str, str]
"""A client, a member, a list and a cursor."""


def part_of(exchange: Exchange, params: dict[str, Any], method: str = "") -> Exchange:
    """Return an exchange for the part of a request that one member answers."""
    request = Request(exchange.request.id, method or exchange.inner.method, params)
    return Exchange(
        exchange.key,
        exchange.session,
        request,
        request,
        exchange.caller,
        exchange.writer,
        exchange.store,
        exchange.state,
        exchange.given,
    )


class MergedLists:
    """The lists of all members as one."""

    def __init__(
        self,
        members: Sequence[Member],
        routes: Routes,
        changed: Callable[[Exchange, ComponentKind], None],
        observer: Observer,
    ) -> None:
        """`changed` reports to the client of an exchange that a list has changed."""
        self.shares_anonymous: bool = True
        """False if anonymous clients may be different people: then no page is kept for them."""
        self._members = {member.key: member for member in members}
        self._routes = routes
        self._changed = changed
        self._observer = observer
        self._late: OrderedDict[_Key, asyncio.Task[bytes]] = OrderedDict()

    async def answer(self, exchange: Exchange, server: Any) -> bytes:
        """Return a page of the merged list. `server` is our own name, for clients of 2026-07-28.

        Raises:
            InvalidParams: the cursor is invalid.
        """
        request = exchange.inner
        cursors = read_cursor(request.params.get("cursor"))
        (_, kind, _), client = LISTED[request.method], client_of(exchange)
        if cursors is None:
            self._routes.begin(request.method, client)
        wanted = dict.fromkeys(self._members, "") if cursors is None else cursors
        tasks = {
            member: self._task(exchange, member, wanted[key])
            for key, member in self._members.items()
            if key in wanted
        }
        answers = await in_time(request.method, tasks)
        self._keep(exchange, wanted, tasks)
        pages = {
            member.key: page
            for member, result in answers.items()
            if (page := self._page(member, request.method, result)) is not None
        }
        lacking = [error for error in answers.failed.values() if error.code != METHOD_NOT_FOUND]
        if cursors is not None and not pages and lacking:
            # The only member of this page refuses its own cursor.
            raise InvalidCursor if isinstance(lacking[0], InvalidParams) else lacking[0]

        def is_shown(key: str, item: str) -> bool:
            return self._routes.claim(request.method, kind, item, self._members[key], client, exchange.caller)

        is_whole = len(pages) + len(answers.failed) - len(lacking) == len(tasks)
        own = {"_meta": {SERVER_KEY: server}} if exchange.session.revision is SESSIONLESS else {}
        put_off = {key: wanted[key] for key in self._put_off(kind, pages, exchange)}
        return merged(request.method, pages, is_shown, own, put_off=put_off, is_whole=is_whole)

    def _put_off(self, kind: NameKind, pages: Mapping[str, PartPage], exchange: Exchange) -> set[str]:
        """Return the members whose page must wait.

        An earlier member that has more pages could have one of its names.
        """
        waiting, unfinished = set[str](), list[Member]()
        for key, page in pages.items():
            if any(one.could_have(kind, item, exchange) for one in unfinished for item in page.items):
                waiting.add(key)
            if key in waiting or page.cursor is not None:
                unfinished.append(self._members[key])
        return waiting

    def forget(self, client: str) -> None:
        """Drop the pages of a client."""
        for key in [key for key in self._late if key[0] == client]:
            self._late.pop(key).cancel()

    def stop(self) -> None:
        """Drop all pages."""
        for task in self._late.values():
            task.cancel()
        self._late.clear()

    async def read(self, method: str, exchange: Exchange, server: Any) -> None:
        """Read a list for ourselves, so that the routes know the names that this client sees."""
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            params = {} if cursor is None else {"cursor": cursor}
            if (meta := exchange.inner.params.get("_meta")) is not None:
                params["_meta"] = meta
            page = read_page(method, await self.answer(part_of(exchange, params, method), server))
            cursor = page.cursor
            if cursor is None:
                return

    def _task(self, exchange: Exchange, member: Member, cursor: str) -> asyncio.Task[bytes]:
        key = client_of(exchange), member, exchange.inner.method, cursor
        kept = self._late.pop(key, None)
        if kept is not None:
            return kept
        params = {name: value for name, value in exchange.inner.params.items() if name != "cursor"}
        if cursor:
            params["cursor"] = cursor
        return member.begin(exchange.inner.method, partial(member.back.handle, part_of(exchange, params)))

    def _keep(
        self, exchange: Exchange, wanted: dict[str, str], tasks: dict[Member, asyncio.Task[bytes]]
    ) -> None:
        """Keep the requests of late members, if their client can be recognised."""
        client, method = client_of(exchange), exchange.inner.method
        for member, task in tasks.items():
            if task.done():
                continue
            if not (client or self.shares_anonymous):
                task.cancel()
                continue
            key = client, member, method, wanted[member.key]
            self._late[key] = task
            task.add_done_callback(partial(self._arrived, key, exchange))
        while len(self._late) > KEPT:
            self._late.popitem(last=False)[1].cancel()

    def _arrived(self, key: _Key, exchange: Exchange, task: asyncio.Task[bytes]) -> None:
        if self._late.get(key) is not task:
            return  # Another request has taken it, or the client is gone.
        if task.cancelled() or task.exception() is not None:
            del self._late[key]
            return
        self._drop_oldest()
        if key in self._late:
            self._changed(exchange, LISTS[exchange.inner.method])

    def _drop_oldest(self) -> None:
        kept = {
            key: len(task.result())
            for key, task in self._late.items()
            if task.done() and not task.cancelled() and task.exception() is None
        }
        total = sum(kept.values())
        for key, size in kept.items():
            if total <= KEPT_BYTES:
                return
            total -= size
            del self._late[key]

    def _page(self, member: Member, method: str, result: bytes) -> PartPage | None:
        try:
            return read_page(method, result)
        except (msgspec.MsgspecError, TypeError) as error:
            self._observer.note("upstream.unreadable_list", server=member.name, error=error)
            return None
