"""Traces of `holdfast serve`: the SDK of OpenTelemetry, set up from the standard `OTEL_*` variables.

Tracing is on if `OTEL_TRACES_EXPORTER` names an exporter, or if `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` names
a collector. The SDK and the exporter are packages that the operator installs. Sampler, batches, resource and the exporter's own settings are
read by the SDK itself. A provider that `opentelemetry-instrument` has set stays.
"""

import os
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from holdfast import tracing
from holdfast.errors import ConfigError

_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OTLP: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}


def begin_tracing() -> None:
    """Set a tracer provider, if the variables ask for traces.

    Raises:
        ConfigError: the SDK or the exporter is not installed.
    """
    name = _exporter()
    if not name or tracing.is_on():
        return
    try:
        from opentelemetry import trace  # noqa: PLC0415 - only a traced process imports OpenTelemetry
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        raise ConfigError(
            "the OTEL_* variables ask for traces: install holdfast[tracing] and opentelemetry-sdk, or set "
            f"{_EXPORTER}=none"
        ) from None
    named = (
        "service.name" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "") or "OTEL_SERVICE_NAME" in os.environ
    )
    provider = TracerProvider(resource=Resource.create({} if named else {"service.name": "holdfast"}))
    provider.add_span_processor(BatchSpanProcessor(_found(name).load()()))
    trace.set_tracer_provider(provider)


def _exporter() -> str:
    """Return the name of the exporter that the variables ask for; empty: no traces."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return ""
    name = os.environ.get(_EXPORTER, "").strip()
    if not name and any(os.environ.get(variable) for variable in _ENDPOINTS):
        name = "otlp"
    return "" if name == "none" else name


def _found(name: str) -> EntryPoint:
    """Return the exporter of a name. `otlp` is the one for the protocol that is set, or the one that is installed."""
    protocol = next((os.environ[variable] for variable in _PROTOCOLS if os.environ.get(variable)), "")
    wanted = [name]
    if name == "otlp":
        wanted = [_OTLP[protocol]] if protocol in _OTLP else list(_OTLP.values())
    for one in wanted:
        for found in entry_points(group="opentelemetry_traces_exporter", name=one):
            return found
    hint = "opentelemetry-exporter-otlp-proto-http or -grpc" if name == "otlp" else "its package"
    raise ConfigError(
        f"the exporter {name!r} of OpenTelemetry is not installed: install {hint}, or change {_EXPORTER}"
    )
