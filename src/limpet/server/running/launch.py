"""The parts that a server needs only when it runs: engine, back, fronts, store.

They take most of the time that an import of Limpet would take. So `Server` and `Served` import this module on first
use, and `from limpet import Server` stays quick (`tools/import_time.py`).
"""

from limpet.backs.shown import shown_back
from limpet.engine.engine import Engine
from limpet.fronts.http.asgi_host.mount import Mount
from limpet.fronts.http.front import HttpFront
from limpet.fronts.http.serve import run_http
from limpet.fronts.stdio import run_stdio
from limpet.ops.log import LogObserver
from limpet.ops.tracebacks import trimmed
from limpet.server.running.cards import card_routes
from limpet.server.running.native_back import NativeBack
from limpet.server.running.route_applications import applications
from limpet.server.running.store_choice import store_for
from limpet.transports.loops import check_http_system

__all__ = [
    "Engine",
    "HttpFront",
    "LogObserver",
    "Mount",
    "NativeBack",
    "applications",
    "card_routes",
    "check_http_system",
    "run_http",
    "run_stdio",
    "shown_back",
    "store_for",
    "trimmed",
]
