"""The names of a call, and of the tool or prompt that it names, for the log and the dashboard."""

from hashlib import sha256

from limpet.engine.exchange import Exchange
from limpet.engine.failure_log import NAMED
from limpet.protocol.quirks import SHOWN_NAME
from limpet.wire.jsonrpc import Request


def call_name(exchange: Exchange) -> str:
    """Return a short name without a meaning for clients and other processes.

    A call without a session gets its key late, so its address in memory and the time of its start are used instead.
    """
    own = exchange.key if exchange.session_key else f"{id(exchange)} {exchange.began}"
    return sha256(own.encode()).hexdigest()[:12]


def component_name(request: Request) -> str:
    """Return the name of the tool or prompt of a request, cut to a bounded length; empty for other methods."""
    name = request.params.get("name") if request.method in NAMED else ""
    return name[:SHOWN_NAME] if type(name) is str else ""


def subject(request: Request) -> dict[str, str]:
    """Return the first fact of a log line about a request: its tool, its prompt, or its method."""
    named = NAMED.get(request.method)
    return {"method": request.method[:SHOWN_NAME]} if named is None else {named: component_name(request)}
