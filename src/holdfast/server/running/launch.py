"""The parts that a server needs only when it runs: engine, back, fronts, store.

They take most of the time that an import of Holdfast would take. So `Server` and `Served` import this module on first
use, and `from holdfast import Server` stays quick (`tools/import_time.py`).
"""

from holdfast.backs.shown import shown_back
from holdfast.engine.engine import Engine
from holdfast.fronts.http.asgi_host.mount import Mount
from holdfast.fronts.http.front import HttpFront
from holdfast.fronts.http.serve import run_http
from holdfast.fronts.stdio import run_stdio
from holdfast.ops.log import LogObserver
from holdfast.ops.tracebacks import trimmed
from holdfast.server.running.cards import card_routes
from holdfast.server.running.native_back import NativeBack
from holdfast.server.running.route_applications import applications
from holdfast.server.running.store_choice import store_for
from holdfast.transports.loops import check_http_system

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
