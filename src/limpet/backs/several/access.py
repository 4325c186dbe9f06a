"""The scopes that requests to several servers need: those of the member that answers."""

from collections.abc import Callable, Iterable, Sequence

from limpet.auth.scopes import NO_NEEDS, NO_SCOPES, Needs
from limpet.backs.several.members import Member
from limpet.engine.access import Access, ScopeRules
from limpet.engine.caller import Caller
from limpet.wire.jsonrpc import Request

Answering = Callable[[Request], Sequence[Member]]
"""Returns the members that may answer a request."""


class SeveralRules:
    """The rules of all members: see `limpet.engine.access`."""

    def __init__(self, members: Sequence[Member], answering: Answering) -> None:
        """Take the members. The first one has the functions of this process, and the scopes of the whole."""
        self._members = members
        self._rules = {member: rules for member in members if (rules := member.back.access.rules) is not None}
        self._answering = answering

    def needs(self, request: Request, caller: Caller, session: str) -> Needs:
        """Return the needs of a request. If several members may answer it, it needs the scopes of all of them."""
        answering = self._answering(request)
        found = NO_NEEDS if self._members[0] in answering else Needs(self._basic_of(self._members[0]))
        for member in answering:
            if (rules := self._rules.get(member)) is not None:
                found = found.plus(rules.needs(request, caller, session))
        return found

    def declared(self) -> Iterable[Needs]:
        """Return the needs of all components: the scopes of the whole are needed beside those of its parts."""
        whole = Needs(self._basic_of(self._members[0]))
        for rules in self._rules.values():
            yield from (whole.plus(needs) for needs in rules.declared())

    def basic(self, request: Request | None = None) -> frozenset[str]:
        """Return the scopes that the components of all members need.

        With a request, those of the members that may answer it.
        """
        whole, *parts = self._members
        if request is not None:
            return self._basic_of(whole).union(*map(self._basic_of, self._answering(request)))
        first, *others = map(self._basic_of, parts)
        return self._basic_of(whole) | first.intersection(*others)

    def _basic_of(self, member: Member) -> frozenset[str]:
        rules = self._rules.get(member)
        return NO_SCOPES if rules is None else rules.basic()


def joined_access(members: Sequence[Member], answering: Answering) -> Access:
    """Return the access for all members. It has no rules if no member has some."""
    implied: dict[str, frozenset[str]] = {}
    for member in members:
        for scope, narrower in member.back.access.implied.items():
            implied[scope] = implied.get(scope, NO_SCOPES) | narrower
    access = Access(implied)
    rules: ScopeRules = SeveralRules(members, answering)
    if any(member.back.access.rules is not None for member in members):
        access.rules = rules
    return access
