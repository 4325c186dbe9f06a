"""Which member has a component, by the name that a client uses.

Most names tell it: with different prefixes only one member can have the name. Where several can, their lists decide,
and the first of them wins. Lists depend on the client and change, so this is known for each client and learned from the
lists that it reads. A name that is in no list (a URI of a template) may belong to any of them.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final

from limpet.backs.several.members import Member
from limpet.core.ledger import Charge
from limpet.core.names import NAME_KINDS, NameKind
from limpet.core.remembered import remembered
from limpet.engine.caller import Caller
from limpet.engine.exchange import Exchange
from limpet.ports import Observer

CLIENTS: Final = 1_000
"""How many clients' owners of ambiguous names are kept. Those of another client are read again."""
NAMES: Final = 10_000
"""How many ambiguous names of one client are kept."""
SHORT: Final = 256
"""The longest name whose members are remembered: looking takes a time that grows with their number."""
NAME_BYTES: Final = 192
"""The memory of one of them besides its text (`python -m tests.attacks.costs`: about 145)."""
WARNINGS: Final = 1_000
"""How many clashes are reported, each of them once."""

ChargeFor = Callable[[Caller, int], Charge | None]
"""Takes memory for something that is kept for a caller; None: there is no room."""


class _Owners(dict[tuple[str, str], Member]):
    """By list and name: the member that has the component."""

    __slots__ = ("_size", "charge")

    def __init__(self) -> None:
        super().__init__()
        self.charge: Charge | None = None
        self._size = 0

    def learn(self, listed: str, name: str, member: Member) -> None:
        """Remember who has a component, unless there are too many."""
        if (listed, name) not in self:
            if len(self) >= NAMES:
                return
            self._count(NAME_BYTES + len(name))
        self[listed, name] = member

    def forget(self, listed: str) -> None:
        """Forget the names of a list."""
        for key in [key for key in self if key[0] == listed]:
            del self[key]
            self._count(-NAME_BYTES - len(key[1]))

    def _count(self, more: int) -> None:
        """Charge the names without a question: with other names, the list would show a component twice.

        Their client pays with its next request.
        """
        self._size += more
        if self.charge is not None:
            self.charge.set(self._size)


def client_of(exchange: Exchange) -> str:
    """Return the key of a client: of its session, or of its principal."""
    return exchange.session_key or exchange.caller.key


class Routes:
    """The way from a name to a member."""

    def __init__(self, members: Sequence[Member], observer: Observer) -> None:
        self._members = members
        self._ranks = {member: rank for rank, member in enumerate(members)}
        self._observer = observer
        remember = remembered(CLIENTS, SHORT)
        self._by_name = {kind: remember(partial(self._that_may_have, kind)) for kind in NAME_KINDS}
        self.charge_for: ChargeFor | None = None
        """Set when the back starts."""
        self._clients: OrderedDict[str, _Owners] = OrderedDict()
        self._warned: set[tuple[str, str, str]] = set()

    def candidates(self, kind: NameKind, name: str, exchange: Exchange | None = None) -> list[Member]:
        """Return the members that can have a component of this name, in their order; one alone if it certainly has it.

        Of a name that is hidden everywhere, it is the first member that could have it: its answer is as for an unknown
        name.
        """
        found: list[Member] = []
        for member in self._by_name[kind](name):
            if member.has is not None and exchange is not None:
                if not member.has(kind, name, exchange):
                    continue
                if not found:
                    return [member]
            found.append(member)
        hiding = (one for one in self._members if one.has is None and one.may_hide(kind, name))
        return found or list(islice(hiding, 1))

    def _that_may_have(self, kind: NameKind, name: str) -> list[Member]:
        """Return the members that could have a component of this name: the names of a member do not change."""
        return [member for member in self._members if member.may_have(kind, name)]

    def known(self, lists: Iterable[str], name: str, client: str) -> Member | None:
        """Return the member that has a component, as far as lists that the client has read say it."""
        owners = self._clients.get(client)
        if owners is None:
            return None
        self._clients.move_to_end(client)
        return next((owner for one in lists if (owner := owners.get((one, name))) is not None), None)

    def begin(self, listed: str, client: str) -> None:
        """Forget the owners of a list: the client reads it from the start."""
        if (owners := self._clients.get(client)) is not None:
            owners.forget(listed)

    def claim(
        self,
        listed: str,
        kind: NameKind,
        name: str,
        member: Member,
        client: str,
        caller: Caller | None = None,
    ) -> bool:
        """Learn that a member lists a component; False if an earlier member has this name.

        The memory is charged to the caller.
        """
        if len(self.candidates(kind, name)) == 1:
            return True
        owners = self._clients.setdefault(client, _Owners())
        self._clients.move_to_end(client)
        if owners.charge is None and caller is not None and self.charge_for is not None:
            owners.charge = self.charge_for(caller, 0)
        owner = owners.get((listed, name))
        if owner is not None and owner is not member:
            first, second = sorted((owner, member), key=self._ranks.__getitem__)
            self._warn(kind, name, first, second)
            member_wins = first is member
        else:
            member_wins = True
        if member_wins:
            owners.learn(listed, name, member)
        if len(self._clients) > CLIENTS:
            self._clients.popitem(last=False)
        return member_wins

    def forget(self, client: str) -> None:
        """Forget a client."""
        self._clients.pop(client, None)

    def _warn(self, kind: NameKind, name: str, first: Member, second: Member) -> None:
        clash = (name, first.name, second.name)
        if clash not in self._warned and len(self._warned) < WARNINGS:
            self._warned.add(clash)
            self._observer.note(
                "component.clash", **{kind.removesuffix("s"): name[:200]}, used=first.name, hidden=second.name
            )
