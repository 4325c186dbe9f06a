"""Traces of `holdfast serve`: the SDK of OpenTelemetry, set up from the standard `OTEL_*` variables.

Tracing is on if `OTEL_TRACES_EXPORTER` names an exporter, or if `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` names
a collector. The SDK and the exporter are packages that the operator installs. Sampler, batches, resource and the exporter's own settings are
read by the SDK itself. A provider that `opentelemetry-instrument` has set stays.
"""

import os
from typing import Final

from holdfast import tracing
from holdfast.errors import ConfigError

_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


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

        from holdfast.cli.exporters import exporter_of  # noqa: PLC0415 - imported only by this command
    except ImportError:
        raise ConfigError(
            f"the OTEL_* variables ask for traces: pip install opentelemetry-sdk, or set {_EXPORTER}=none"
        ) from None
    named = (
        "service.name" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "") or "OTEL_SERVICE_NAME" in os.environ
    )
    provider = TracerProvider(resource=Resource.create({} if named else {"service.name": "holdfast"}))
    provider.add_span_processor(BatchSpanProcessor(exporter_of(name).load()()))
    trace.set_tracer_provider(provider)


def _exporter() -> str:
    """Return the name of the exporter that the variables ask for; empty: no traces."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return ""
    name = os.environ.get(_EXPORTER, "").strip()
    if not name and any(os.environ.get(variable) for variable in _ENDPOINTS):
        name = "otlp"
    return "" if name == "none" else name
