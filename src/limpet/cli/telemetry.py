"""Traces and metrics of `limpet serve` to a collector, set up from the standard `OTEL_*` variables.

A signal is on if `OTEL_<SIGNAL>_EXPORTER` names an exporter, or if `OTEL_EXPORTER_OTLP_ENDPOINT` or
`OTEL_EXPORTER_OTLP_<SIGNAL>_ENDPOINT` names a collector. The SDK and the exporter are packages that the operator
installs; they read the other variables themselves: sampler, batches, resource. A tracer provider that
`opentelemetry-instrument` has set stays. `OTEL_METRIC_EXPORT_INTERVAL` and `OTEL_METRIC_EXPORT_TIMEOUT` are
milliseconds: 60 s and 30 s without them.
"""

import os
from typing import TYPE_CHECKING, Final, Literal

from limpet import tracing
from limpet.errors import ConfigError
from limpet.ports import SystemClock, SystemRandom

if TYPE_CHECKING:
    from limpet.ops.metrics.otlp import Pusher

Signal = Literal["TRACES", "METRICS"]
_INTERVAL: Final = ("OTEL_METRIC_EXPORT_INTERVAL", 60_000.0)
_TIMEOUT: Final = ("OTEL_METRIC_EXPORT_TIMEOUT", 30_000.0)
_SHORTEST: Final = 0.1


def exporter_name(signal: Signal) -> str:
    """Return the name of the exporter that the variables ask for; empty: the signal is off."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return ""
    name = os.environ.get(f"OTEL_{signal}_EXPORTER", "").strip()
    endpoints = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    if not name and any(os.environ.get(variable) for variable in endpoints):
        name = "otlp"
    return "" if name == "none" else name


def service_name() -> dict[str, str]:
    """Return the attributes that name this service, unless the variables name it."""
    attributes = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    is_named = "service.name" in attributes or "OTEL_SERVICE_NAME" in os.environ
    return {} if is_named else {"service.name": "limpet"}


def without_sdk(signal: Signal) -> ConfigError:
    """Return the error of a process that has no SDK."""
    return ConfigError(
        f"the OTEL_* variables ask for {signal.lower()}: pip install opentelemetry-sdk, or set OTEL_{signal}_EXPORTER=none"
    )


def begin_tracing() -> None:
    """Set a tracer provider, if the variables ask for traces.

    Raises:
        ConfigError: the SDK or the exporter is not installed.
    """
    name = exporter_name("TRACES")
    if not name or tracing.is_on():
        return
    try:
        from opentelemetry import trace  # noqa: PLC0415 - only a traced process imports OpenTelemetry
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        from limpet.cli.exporters import exporter_of  # noqa: PLC0415 - imported only by this command
    except ImportError:
        raise without_sdk("TRACES") from None
    provider = TracerProvider(resource=Resource.create(service_name()))
    provider.add_span_processor(BatchSpanProcessor(exporter_of(name, "TRACES").load()()))
    trace.set_tracer_provider(provider)


def pusher() -> "Pusher | None":
    """Return the pusher of the metrics of this process; None: the variables do not ask for it.

    Raises:
        ConfigError: the SDK or the exporter is not installed, or a variable is not a number.
    """
    name = exporter_name("METRICS")
    if not name:
        return None
    if name == "prometheus":
        raise ConfigError(
            "OTEL_METRICS_EXPORTER=prometheus: use --admin HOST:PORT, whose /metrics is for Prometheus"
        )
    try:
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - only a process that pushes imports OpenTelemetry

        from limpet.cli.exporters import exporter_of  # noqa: PLC0415 - imported only by this command
        from limpet.ops.metrics.otlp import Pusher  # noqa: PLC0415
    except ImportError:
        raise without_sdk("METRICS") from None
    given = "service.instance.id" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    instance = {} if given else {"service.instance.id": SystemRandom().token(8)}
    return Pusher(
        exporter_of(name, "METRICS").load()(),
        Resource.create({**service_name(), **instance}),
        seconds=_seconds(*_INTERVAL),
        timeout=_seconds(*_TIMEOUT),
        clock=SystemClock(),
    )


def _seconds(variable: str, otherwise: float) -> float:
    text = os.environ.get(variable, "").strip()
    try:
        return max(_SHORTEST, float(text) / 1_000) if text else otherwise / 1_000
    except ValueError:
        raise ConfigError(f"{variable} is a number of milliseconds, not {text!r}") from None
