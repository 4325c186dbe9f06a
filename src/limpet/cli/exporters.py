"""The exporters of OpenTelemetry that are installed.

Only a process that uses one imports this: the import takes long.
"""

import os
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from limpet.cli.telemetry import Signal
from limpet.errors import ConfigError

_OTLP: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}


def exporter_of(name: str, signal: Signal) -> EntryPoint:
    """Return the exporter of a name. `otlp` is the one for the protocol that is set, or the one that is installed."""
    protocols = (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((os.environ[variable] for variable in protocols if os.environ.get(variable)), "")
    wanted = [name]
    if name == "otlp":
        wanted = [_OTLP[protocol]] if protocol in _OTLP else list(_OTLP.values())
    for one in wanted:
        for found in entry_points(group=f"opentelemetry_{signal.lower()}_exporter", name=one):
            return found
    hint = "opentelemetry-exporter-otlp-proto-http or -grpc" if name == "otlp" else "its package"
    raise ConfigError(
        f"the exporter {name!r} of OpenTelemetry is not installed: install {hint}, or change OTEL_{signal}_EXPORTER"
    )
