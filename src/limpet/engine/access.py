"""Access: whether the token of a request has the scopes that its component needs. Checked before anything runs.

    front ──▶ submit / start / go_on / listen ──▶ Access.judge ──▶ claim, handler
                                                     │
                                                     ├── a scope is missing: InsufficientScope (HTTP 403), nothing ran
                                                     └── a hidden scope is missing: the component is unknown

The back has the rules (`ScopeRules`): which component a request names, and which scopes this component needs. A back
without scopes has no rules, and then nothing of this module runs.

A component needs the scopes of its server, also if it is unknown: the request may reach an author's middleware, or the
server behind. With these scopes, an unknown component goes to the back, which answers that it is unknown. A component
that is hidden from the caller takes the same way, so that neither the text nor the time of the answer shows that it
exists. Two answers do not come from the back, and must not show it either:

- A repeat of a POST reads the log of a call that runs or has ended. A request for a hidden component gets a different
  digest, so it is never the repeat of a call that was allowed (`named`).
- A retry of a parked call (2026-07-28) continues it. For a hidden component it finds no parked call.

A request is checked by its own token, also if it reads the answer to an earlier request. A repeat and a retry name
the component again. A GET that resumes a stream, a request for a task, and a call of the tool that collects results
name only the stream, the task or the ticket. So these names end with a *mark*: a short hash of the scopes that the call
needed. The server makes the names and compares them as a whole, so a client cannot change a mark. A mark that belongs
to no component of this process is refused.

A caller without a principal is the user of this machine, on stdio or in the same process, and has all scopes. An HTTP
endpoint with scopes and without a verifier does not start.
"""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from limpet.auth.scopes import NO_SCOPES, Needs, expanded
from limpet.engine.caller import Caller
from limpet.errors import InsufficientScope
from limpet.protocol.hand_over import read_ticket
from limpet.wire.jsonrpc import Request, RequestId

_SEPARATOR: Final = "~"
_MARK_BYTES: Final = 6
"""Eight characters: an event id has at most 128."""
_MOST_UNIONS: Final = 1_000
"""How many sums of scopes are tried for the mark of another process: all of them for nine different scopes."""


class ScopeRules(Protocol):
    """The rules of one back."""

    def needs(self, request: Request, caller: Caller, session: str) -> Needs:
        """Return the needs of a request; those of the server for an unknown component.

        `session` is its session's key, or empty.
        """

    def declared(self) -> Iterable[Needs]:
        """Return the needs of all components."""

    def basic(self, request: Request | None = None) -> frozenset[str]:
        """Return the scopes that all components need: a client asks for them when it signs in.

        With a request, those that an unknown component of the server that would answer it needs.
        """


class Access:
    """The scopes of one back."""

    __slots__ = ("_declared", "_marks", "collect_tool", "implied", "own", "rules")

    def __init__(self, implied: Mapping[str, frozenset[str]] | None = None) -> None:
        self.own: Access = self
        """The same for requests with the server's own names, where clients know others (`backs/shown.py`)."""
        self.rules: ScopeRules | None = None
        """None while no component needs a scope."""
        self.implied: Mapping[str, frozenset[str]] = implied or {}
        """By scope: the narrower scopes that it stands for."""
        self.collect_tool: str = ""
        """The name of the tool that collects the results of calls that were handed over (`hand_over.py`); empty:
        none are."""
        self._marks: dict[str, frozenset[str]] = {}
        self._declared: frozenset[frozenset[str]] = frozenset()
        """The declared scopes whose marks are known."""

    def missing(self, scopes: frozenset[str], caller: Caller) -> frozenset[str]:
        """Return the scopes that a caller lacks."""
        if not scopes or caller.principal is None:
            return NO_SCOPES
        granted = caller.principal.scopes
        return scopes - (expanded(granted, self.implied) if self.implied else granted)

    def judge(self, request: Request, caller: Caller, session: str = "") -> Needs | None:
        """Return the needs of a request, which the caller's token meets.

        None if the component is hidden from the caller.

        Raises:
            InsufficientScope: a scope is missing.
        """
        rules = self.rules
        if rules is None:
            return Needs()
        needs = self._needs(rules, request, caller, session)
        if self.missing(needs.hidden, caller):
            self.demand(rules.basic(request), caller, request.id)
            return None
        self.demand(needs.scopes, caller, request.id)
        return needs

    def _needs(self, rules: ScopeRules, request: Request, caller: Caller, session: str) -> Needs:
        """Return the needs of a request. One that names a task or a ticket needs the scopes of its call.

        A mark that the caller may not know adds nothing: the task is unknown to this caller (`Tasks.check`), or a
        server behind has it.
        """
        if self.collects(request):
            arguments = request.params.get("arguments")
            ticket = read_ticket(arguments.get("ticket") if type(arguments) is dict else None)
            return Needs(self.marked(ticket or "", caller) or NO_SCOPES)
        needs = rules.needs(request, caller, session)
        task_id = request.params.get("taskId")
        return needs.plus(Needs(self.marked(task_id, caller) or NO_SCOPES)) if type(task_id) is str else needs

    def collects(self, request: Request) -> bool:
        """True if a request calls the tool that collects results: it waits for another call, and begins no work."""
        return (
            self.collect_tool != ""
            and request.method == "tools/call"
            and request.params.get("name") == self.collect_tool
        )

    def demand(self, scopes: frozenset[str], caller: Caller, request_id: RequestId | None = None) -> None:
        """Refuse a caller that lacks one of these scopes.

        Raises:
            InsufficientScope: it names these scopes, and those of the caller's scopes that this back knows: a client
                that asks for all of them loses none of its present scopes.
        """
        principal = caller.principal
        if principal is not None and self.missing(scopes, caller):
            kept = principal.scopes & self.known()
            raise InsufficientScope(tuple(sorted(scopes | kept)), request_id)

    def known(self) -> frozenset[str]:
        """Return every scope that is declared."""
        declared = self.rules.declared() if self.rules is not None else ()
        return frozenset(self.implied).union(*(needs.scopes for needs in declared))

    def shown(self) -> frozenset[str]:
        """Return the scopes that anyone may know: those of components that are not hidden without them."""
        declared = self.rules.declared() if self.rules is not None else ()
        return NO_SCOPES.union(*(needs.scopes - needs.hidden for needs in declared))

    def basic(self) -> frozenset[str]:
        """Return the scopes that all components need."""
        return self.rules.basic() if self.rules is not None else NO_SCOPES

    # Names that end with a mark of the scopes that their call needed

    def named(
        self, stream: str, digest: bytes, request: Request, caller: Caller, session: str
    ) -> tuple[str, bytes]:
        """Judge a request of a session; return the name of its stream, and its digest for repeats.

        Raises:
            InsufficientScope: a scope is missing.
        """
        needs = self.judge(request, caller, session)
        if needs is None:
            return stream, hashlib.sha256(b"hidden" + digest).digest()
        return stream + self.mark(needs.scopes), digest

    def mark(self, scopes: frozenset[str]) -> str:
        """Return the end of a name; empty if no scope was needed."""
        if not scopes:
            return ""
        digest = hashlib.sha256(" ".join(sorted(scopes)).encode()).digest()[:_MARK_BYTES]
        mark = urlsafe_b64encode(digest).decode()
        self._marks[mark] = scopes
        return _SEPARATOR + mark

    def marked(self, name: str, caller: Caller) -> frozenset[str] | None:
        """Return the scopes that a name was marked with; None if the caller may not know them.

        It may not know a mark that belongs to no component of this process, and a mark of a hidden scope that it lacks:
        a client can compute the mark of a scope that it guesses, and must not learn whether the scope exists.
        """
        _, separator, mark = name.partition(_SEPARATOR)
        if not separator:
            return NO_SCOPES
        if mark not in self._marks and self.rules is not None:
            self._learn_marks(frozenset(needs.scopes for needs in self.rules.declared()))
        scopes = self._marks.get(mark)
        lacking = self.missing(scopes, caller) if scopes is not None else NO_SCOPES
        return None if lacking and lacking - self.shown() else scopes

    def _learn_marks(self, declared: frozenset[frozenset[str]]) -> None:
        """Learn the marks of calls that other processes have made.

        The scopes of several rows and servers may have added up.
        """
        if declared == self._declared:
            return
        self._declared = declared
        found = list(declared)
        known = set(found)
        for one in found:  # It grows meanwhile: two together come before three.
            if len(found) >= _MOST_UNIONS:
                break
            more = {one | other for other in declared} - known
            known |= more
            found += more
        for scopes in found:
            self.mark(scopes)
