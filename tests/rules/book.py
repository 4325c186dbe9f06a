"""All rules of a session as tests: through the commands of a store, without I/O.

They run where a rule is applied to a document itself (memory), and where it is applied to a draft and committed (dicts). What a
backend does by itself is tested on each store: `limpet.testing.StoreContract`.
"""

from tests.rules.asks import AskRules
from tests.rules.bounds import BoundRules
from tests.rules.claims import ClaimRules
from tests.rules.closing import ClosingRules
from tests.rules.fleets import FleetRules, ProbeRules
from tests.rules.homes import HomeRules
from tests.rules.life import LifeRules
from tests.rules.overview import OverviewRules
from tests.rules.sessions import SessionRules
from tests.rules.settling import SettleRules
from tests.rules.streams import StreamRules
from tests.rules.turns import FleetTurnRules, TurnRules
from tests.rules.withdrawn import WithdrawnRules


class RuleBook(
    SessionRules, ClosingRules, ClaimRules, SettleRules, StreamRules, TurnRules, LifeRules, AskRules, BoundRules, OverviewRules, WithdrawnRules, ProbeRules,
):  # fmt: skip
    """The rules for one replica."""


class SharedRuleBook(HomeRules, FleetTurnRules, FleetRules):
    """The rules for several replicas."""
