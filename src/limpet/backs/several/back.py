"""The `Back` contract over several backs. The package says which request goes where."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from limpet.backs.renaming import LISTED, renamed_params
from limpet.backs.several.access import joined_access
from limpet.backs.several.description import UNKNOWN, joined_instructions, merged_capabilities, page_of
from limpet.backs.several.lists import MergedLists, part_of
from limpet.backs.several.members import Member, begun, in_time
from limpet.backs.several.presence import JOINING_BYTES, Presence
from limpet.backs.several.routes import Routes, client_of
from limpet.backs.several.task_ids import marked, unmarked, with_own_id
from limpet.core.lifecycle import SessionInput
from limpet.core.names import AS_THEY_ARE, NameKind, Naming
from limpet.engine.access import Access
from limpet.engine.back import Outside
from limpet.engine.caller import Caller
from limpet.engine.exchange import Exchange
from limpet.engine.session import Session
from limpet.engine.sessionless_client import SessionlessClient
from limpet.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    InvalidParams,
    LimpetError,
    McpError,
    MethodNotFound,
    ResourceNotFound,
    UpstreamFailed,
    UpstreamUnavailable,
)
from limpet.ports import Observer
from limpet.protocol.methods import NOT_IN_SESSIONS, NOT_SESSIONLESS
from limpet.protocol.mirrored_headers import MirroredParameter
from limpet.protocol.sessionless import RequestMeta
from limpet.protocol.subscriptions import LIST_KINDS, Change, ComponentKind, Filter, Kind
from limpet.protocol.versions import SESSIONLESS
from limpet.stores.base import SessionRecord
from limpet.supervision import supervise
from limpet.wire.jsonrpc import Request, encode

_MISSING: Final = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS, RESOURCE_NOT_FOUND})
"""The errors of a server that does not have a resource."""
_INITIALIZE: Final = "initialize"
_LISTEN: Final = "subscriptions/listen"
_CHANGES: Final = tuple(map(Change, LIST_KINDS))
_LISTS_OF: Final[Mapping[NameKind, tuple[str, ...]]] = {
    kind: tuple(method for method, (_, listed, _) in LISTED.items() if listed == kind)
    for kind in ("tools", "prompts", "resources")
}


class SeveralBack:
    """Answers exchanges with several backs. The first of them describes the whole: functions of this process."""

    def __init__(
        self, own: Member, others: Sequence[Member], observer: Observer, naming: Naming = AS_THEY_ARE
    ) -> None:
        """Take the functions of this process, the servers behind, and the names for clients (`backs/shown.py`)."""
        self._naming = naming
        self._own = own
        self._others = tuple(others)
        self.members: tuple[Member, ...] = (own, *others)
        self._by_name = {member.name: member for member in others}
        self._observer = observer
        self._outside: Outside | None = None
        self._looking: asyncio.Task[None] | None = None
        self._routes = Routes(self.members, observer)
        self._lists = MergedLists(self.members, self._routes, self._list_changed, observer)
        self._presence = Presence(self._connected)
        self._described: dict[Member, dict[str, Any]] = {}
        """What each member said of itself last."""
        self.has_home: bool = any(member.back.has_home for member in self.members)
        self.access: Access = joined_access(self.members, self._may_answer)
        self._acts: Mapping[str, Callable[[Exchange], Awaitable[bytes]]] = {
            **dict.fromkeys(LISTED, self._list),
            "server/discover": self._discover,
            "logging/setLevel": self._set_level,
            "completion/complete": self._named,
            **dict.fromkeys(("tools/call", "prompts/get"), self._named),
            **dict.fromkeys(("resources/read", "resources/subscribe", "resources/unsubscribe"), self._named),
            **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), self._task),
        }

    async def start(self, outside: Outside) -> None:
        """Start every member.

        Raises:
            ConfigError: a member cannot work.
        """
        self._outside = outside
        self._routes.charge_for = outside.charge
        started: list[Member] = []
        try:
            for member in self.members:
                await member.back.start(outside)
                started.append(member)
        except BaseException:
            for member in reversed(started):
                await member.back.stop()
            raise
        self._looking = supervise(
            "look for sessions",
            lambda: self._presence.look_for_sessions(outside.confirm_home),
            self._observer,
        )

    async def stop(self) -> None:
        """Stop every member, the last one first."""
        if self._looking is not None:
            self._looking.cancel()
        self._lists.stop()
        await self._presence.stop()
        for member in reversed(self.members):
            await member.back.stop()

    @property
    def shares_anonymous(self) -> bool:
        """False if clients of other machines may call without a principal: they may be different people."""
        return self._lists.shares_anonymous

    @shares_anonymous.setter
    def shares_anonymous(self, value: bool) -> None:
        self._lists.shares_anonymous = value

    @property
    def server_info(self) -> Any:
        """Name and version of the whole."""
        return self._own.back.server_info

    # Descriptions

    async def initialize(self, record: SessionRecord, caller: Caller) -> dict[str, Any]:
        """Connect the session to every member that answers in time; describe all."""
        own = await _awaited(self._own.back.initialize(record, caller))
        tasks = begun(
            _INITIALIZE, self._others, lambda member: _awaited(member.back.initialize(record, caller))
        )
        answers = await in_time(_INITIALIZE, tasks)
        absent = {member: tasks[member] for member in self._others if member not in answers}
        self._join(record, caller, absent, is_stored=False)
        return self._whole(own, answers, answers.failed)

    def _whole(
        self,
        own: dict[str, Any],
        others: Mapping[Member, dict[str, Any]],
        failed: Mapping[Member, McpError],
    ) -> dict[str, Any]:
        """Return one description. A member that is missing has the description that it gave last."""
        self._described.update(others)
        described = {member: self._described.get(member, UNKNOWN) for member in self._others}
        pages = {member.title: page for member, error in failed.items() if (page := page_of(error))}
        instructions = joined_instructions(
            own.get("instructions"), {member.title: one for member, one in described.items()}, pages
        )
        whole = {**own, "capabilities": merged_capabilities((own, *described.values()))}
        return whole if instructions is None else {**whole, "instructions": instructions}

    async def _discover(self, exchange: Exchange) -> bytes:
        own: dict[str, Any] = msgspec.json.decode(await self._own.back.handle(exchange))
        tasks = self._asked(exchange)
        answers = await in_time(exchange.inner.method, tasks)
        for member, task in tasks.items():
            if member not in answers:
                task.cancel()
        found = {
            member: msgspec.json.decode(result, type=dict[str, Any]) for member, result in answers.items()
        }
        return encode(self._whole(own, found, answers.failed))

    # Requests

    async def handle(self, exchange: Exchange) -> bytes:
        """Let the members answer that a request is for.

        Raises:
            McpError: the error of the member, or ours if no member has the component.
        """
        method, session = exchange.inner.method, exchange.session
        is_sessionless = session.revision is SESSIONLESS
        if method in (NOT_SESSIONLESS if is_sessionless else NOT_IN_SESSIONS):
            raise MethodNotFound(method[:100])
        if self.has_home and session.record.key and session.record.key not in self._presence:
            # Its home was elsewhere: its connections are not here yet.
            self._join(session.record, exchange.caller, dict.fromkeys(self._others), is_stored=True)
        return await self._acts.get(method, self._own.back.handle)(exchange)

    async def _list(self, exchange: Exchange) -> bytes:
        return await self._lists.answer(exchange, self.server_info)

    async def _named(self, exchange: Exchange) -> bytes:
        """Let the member answer that has the component. Reads may be tried at several; calls may not."""
        components = _named(exchange.inner)
        if not components:
            return await self._own.back.handle(exchange)
        kind, name = components[0]
        members = await self._find(kind, name, exchange)
        if not members:
            raise _unknown(kind, name, exchange)
        if kind != "resources" or len(members) == 1:
            return await self._answered(members[0], exchange)
        return await self._first_found(members, exchange)

    async def _first_found(self, members: Sequence[Member], exchange: Exchange) -> bytes:
        """Ask the members in their order until one has the resource.

        One that is down or late does not keep the others from it.
        """
        method, params, now = exchange.inner.method, exchange.inner.params, asyncio.get_running_loop().time
        tasks: list[asyncio.Task[bytes]] = []
        try:
            for member in members:
                answer = member.begin(method, partial(self._answered, member, part_of(exchange, params)))
                tasks.append(answer)
                if not member.is_late(method, now()):
                    await asyncio.wait({answer}, timeout=member.patience)
                if answer.done() and _lacking(answer) is None:
                    return answer.result()
            while running := [answer for answer in tasks if not answer.done()]:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for answer in running:
                    if answer.done() and _lacking(answer) is None:
                        return answer.result()
            raise min(filter(None, map(_lacking, tasks)), key=lambda error: error.code in _MISSING)
        finally:
            for answer in tasks:
                answer.cancel()

    async def _answered(self, member: Member, exchange: Exchange) -> bytes:
        result = await member.back.handle(exchange)
        member.answered += 1
        is_marked = member is not self._own and exchange.session.revision is SESSIONLESS
        return marked(result, member.name) if is_marked else result

    async def _find(self, kind: NameKind, name: str, exchange: Exchange) -> list[Member]:
        """Return the members that may have a component; one alone if it is known that it has it."""
        members = self._routes.candidates(kind, name, exchange)
        if len(members) < 2:  # noqa: PLR2004
            return members
        client, lists = client_of(exchange), _LISTS_OF[kind]
        known = self._routes.known(lists, name, client)
        if known is None:
            for method in lists:
                await self._lists.read(method, exchange, self.server_info)
            known = self._routes.known(lists, name, client)
        return members if known is None else [known]

    async def _task(self, exchange: Exchange) -> bytes:
        params = exchange.inner.params
        found = unmarked(params.get("taskId"))
        member = None if found is None else self._by_name.get(found[0])
        if found is None or member is None:
            return await self._own.back.handle(exchange)
        part = part_of(exchange, with_own_id(params, found[1]))
        return marked(await member.back.handle(part), member.name)

    async def _set_level(self, exchange: Exchange) -> bytes:
        """Set the level of the session, and at every member that has one."""
        result = await self._own.back.handle(exchange)
        await in_time(exchange.inner.method, self._asked(exchange))
        return result

    def _asked(self, exchange: Exchange) -> dict[Member, asyncio.Task[bytes]]:
        """Send a request to every server behind."""
        request = exchange.inner
        return begun(
            request.method, self._others, lambda one: one.back.handle(part_of(exchange, request.params))
        )

    def _may_answer(self, request: Request) -> Sequence[Member]:
        """Return the members whose scopes a request needs."""
        if "taskId" in request.params:
            found = unmarked(request.params["taskId"])
            return ((self._by_name.get(found[0]) if found is not None else None) or self._own,)
        components = _named(request)
        if not components:
            return self.members
        members = [one for one in self._others if any(one.may_have(*named) for named in components)]
        hiding = [one for one in self._others if any(one.may_hide(*named) for named in components)]
        return (self._own, *(members or hiding))

    def member_of(self, method: str, name: str) -> str:
        """Return the name of the server behind that alone can have a tool or prompt that clients know by this name.

        Empty: it is not known.
        """
        kind: NameKind = "prompts" if method == "prompts/get" else "tools"
        own = self._naming.inner(kind, name) or name
        found = [member.name for member in self._others if member.may_have(kind, own)]
        return found[0] if len(found) == 1 else ""

    # Questions of the engine besides requests

    def mirrored(self, request: Request, meta: RequestMeta, caller: Caller) -> tuple[MirroredParameter, ...]:
        """Return the parameters that headers repeat, if a function of this process answers.

        Servers behind check theirs later.
        """
        return self._own.back.mirrored(request, meta, caller)

    def lists(self, key: str) -> list[Kind]:  # noqa: ARG002 - any member may come back
        """Return all lists."""
        return list(LIST_KINDS)

    async def honoured(self, client: SessionlessClient, wanted: Filter, caller: Caller) -> Filter:
        """Return the part of a listener's filter that members report: lists, and resources that a member honours."""
        tasks = begun(
            _LISTEN, self.members, lambda one: one.back.honoured(client, self._share(one, wanted), caller)
        )
        answers = await in_time(_LISTEN, tasks)
        resources = {uri for answer in answers.values() for uri in answer.names.get("resource", ())}
        kept: dict[Kind, tuple[str, ...]] = {
            kind: names for kind, names in wanted.names.items() if kind in LIST_KINDS
        }
        uris = [uri for uri in wanted.names.get("resource", ()) if uri in resources]
        own = answers[self._own].names.get("task", ()) if self._own in answers else ()
        return Filter(kept).only("resource", uris).only("task", own)

    def _share(self, member: Member, wanted: Filter) -> Filter:
        uris = wanted.names.get("resource", ())
        return wanted.only("resource", [uri for uri in uris if member.may_have("resources", uri)])

    async def notify(self, session: Session, method: str, params: dict[str, Any]) -> None:
        """Pass a client's notification to every member."""
        await self._all(lambda member: member.back.notify(session, method, params))

    # Lifecycle

    @property
    def hears_opened(self) -> bool:
        """Return True."""
        return True

    async def opened(self, session: Session) -> None:
        """Report it to every member."""
        self._presence.stored(session.record.key)
        await self._all(lambda member: member.back.opened(session))

    async def detached(self, session: Session) -> None:
        """Report it to every member."""
        await self._all(lambda member: member.back.detached(session))

    async def reattached(self, session: Session) -> None:
        """Report it to every member."""
        await self._all(lambda member: member.back.reattached(session))

    async def closed(self, session: Session, reason: SessionInput) -> None:
        """Report it to every member."""
        self._forget(session.record.key)
        await self._all(lambda member: member.back.closed(session, reason))

    async def dropped(self, record: SessionRecord) -> None:
        """Report it to every member."""
        self._forget(record.key)
        await self._all(lambda member: member.back.dropped(record))

    async def moved(self, record: SessionRecord) -> None:
        """Report it to every member.

        Raises:
            SessionGone: a member is strict: the session cannot continue.
        """
        for member in self.members:
            await member.back.moved(record)

    async def serve(self, record: SessionRecord, caller: Caller) -> None:
        """Connect a session that has moved here to its members, in the background."""
        if record.key not in self._presence:
            self._join(record, caller, dict.fromkeys(self._others), is_stored=True)

    def _join(
        self,
        record: SessionRecord,
        caller: Caller,
        absent: Mapping[Member, asyncio.Task[Any] | None],
        *,
        is_stored: bool,
    ) -> None:
        """Connect a session to members in the background, in the memory of its client."""
        outside = self._outside
        charge = None if outside is None else outside.charge(caller, JOINING_BYTES * len(absent))
        self._presence.begin(record, caller, absent, charge, is_stored=is_stored)

    async def left(self, key: str) -> None:
        """Report it to every member."""
        self._forget(key)
        await self._all(lambda member: member.back.left(key))

    def _forget(self, key: str) -> None:
        self._presence.end(key)
        self._lists.forget(key)
        self._routes.forget(key)

    async def _all(self, work: Callable[[Member], Awaitable[None]]) -> None:
        """Do something at every member. One that hangs does not delay the others."""
        await asyncio.gather(*(_quietly(work(member), member.patience) for member in self.members))

    # Changes

    def _connected(self, key: str) -> None:
        """Report to a session that it has another member: every list may have changed."""
        if self._outside is not None:
            for change in _CHANGES:
                self._outside.changed_for(key, change)

    def _list_changed(self, exchange: Exchange, kind: ComponentKind) -> None:
        """Report a list to one client."""
        if self._outside is None:
            return
        if exchange.session_key:
            self._outside.changed_for(exchange.session_key, Change(kind))
        else:
            self._outside.changed(Change(kind), exchange.caller.key)


def _lacking(answer: asyncio.Task[bytes]) -> McpError | None:
    """Return the error of a member that does not have a resource, or is down; None: another end."""
    error = None if answer.cancelled() else answer.exception()
    if not isinstance(error, McpError):
        return None
    is_lacking = error.code in _MISSING or isinstance(error, UpstreamUnavailable | UpstreamFailed)
    return error if is_lacking else None


async def _quietly(work: Awaitable[None], seconds: float) -> None:
    """Do something for a short time. A server behind that is down is reported by its own back."""
    with contextlib.suppress(LimpetError, TimeoutError):
        async with asyncio.timeout(seconds):
            await work


def _named(request: Request) -> list[tuple[NameKind, str]]:
    """Return the components that a request names."""
    found: list[tuple[NameKind, str]] = []

    def note(kind: NameKind, name: str) -> str:
        found.append((kind, name))
        return name

    renamed_params(request.method, request.params, note)
    return found


async def _awaited(described: dict[str, Any] | Awaitable[dict[str, Any]]) -> dict[str, Any]:
    return described if isinstance(described, dict) else await described


def _unknown(kind: NameKind, name: str, exchange: Exchange) -> McpError:
    """Return the error for a name that no member can have."""
    if kind == "resources":
        error = ResourceNotFound(name[:200])
        if exchange.session.revision is SESSIONLESS or exchange.request.method == "completion/complete":
            return InvalidParams(error.message, error.data)
        return error
    return InvalidParams(f"Unknown {kind.removesuffix('s')}: {name[:128]}")
