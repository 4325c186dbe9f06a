"""The health of each server behind one address, as operators see it."""

from typing import Final

import pytest

from limpet import Server
from limpet.backs.components import ComponentTable
from limpet.errors import McpError
from limpet.ops.figures import Figures
from limpet.ops.fleet import FleetView
from limpet.ops.metrics.reading import samples_of
from limpet.ops.operated import Operated
from limpet.ops.ring import Ring
from limpet.ops.served_process import Part as OperatedPart
from tests.backs.several.parts import Part, client_of, made_of, server_of
from tests.support import virtual_test_within

parts_test = virtual_test_within(600)
DOWN: Final = "the part is down"


@parts_test
async def test_operators_see_each_part_by_its_name() -> None:
    ring = Ring()
    operated = Operated(ring=ring, figures=Figures())
    own = Server("all")
    own.components = ComponentTable(rename_tools={"a_say": "speak"})
    own.operate(operated)
    parts = {name: Part(server_of(name, "say")) for name in ("a", "b", "c")}
    parts["b"].place.gate.is_down = True
    parts["c"].place.gate.open.clear()
    async with made_of(parts, own) as server:
        fleet = FleetView([OperatedPart("all", "1", "memory", server.engine, operated)], ring)
        async with client_of(server, "sessions") as client:
            assert (await client.call_tool("speak")).text == "a.say"
            with pytest.raises(McpError):
                await client.request("tools/call", {"name": "b_say"})
            assert operated.watch is not None
            operated.watch.look(1e9)
            views = {view.server: view for view in (await fleet.state("", 0)).upstreams}
            assert list(views) == ["all/a", "all/b", "all/c"]
            assert [view.state for view in views.values()] == ["connected", "failing", "starting"]
            assert views["all/a"].recent.calls == 1, "also under the name that the whole has given it"
            assert views["all/a"].worked is not None
            assert views["all/a"].failed is None
            assert views["all/b"].failed is not None
            assert DOWN in views["all/b"].reason
            shown = {
                (sample.family, *sample.labels): sample
                for sample in await samples_of([("all", server.engine, operated)])
            }
            failures = shown["limpet_upstream_unreachable_total", "all/b"]
            assert failures.value >= 1
            assert shown["limpet_upstream_last_success_timestamp_seconds", "all/a"].value > 0
            assert shown["limpet_upstream_last_success_timestamp_seconds", "all/b"].value == 0
            assert ("limpet_upstream_last_success_timestamp_seconds", "all") not in shown
    failed = [event for event in ring.after(0) if event.event == "upstream.unreachable"]
    assert {event.facts["server"] for event in failed} == {"all/b"}
