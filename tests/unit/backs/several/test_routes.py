"""Which member of several has a component."""

from typing import cast

from limpet.backs.several.members import Member
from limpet.backs.several.routes import SHORT, Routes
from limpet.core.names import NameKind, Names
from limpet.engine.back import Back
from limpet.ports import SilentObserver


class Counted(Names):
    """Names with a prefix, which count how often they are asked."""

    asked = 0

    def inner(self, kind: NameKind, name: str) -> str | None:
        Counted.asked += 1
        return super().inner(kind, name)


def test_the_members_of_a_short_name_are_looked_for_once() -> None:
    members = [Member(f"m{n}", cast("Back", None), SilentObserver(), Counted(f"m{n}")) for n in range(100)]
    routes = Routes(members, SilentObserver())
    for _ in range(2):
        assert routes.candidates("tools", "m7_echo") == [members[7]]
        assert Counted.asked == 100
    assert routes.candidates("prompts", "m8_echo") == [members[8]]
    for times in (3, 4):
        assert routes.candidates("tools", f"m7_{'x' * SHORT}") == [members[7]]
        assert Counted.asked == 100 * times
