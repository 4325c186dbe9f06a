"""Metrics of `holdfast serve` to a collector: an exporter of OpenTelemetry, set up from the standard `OTEL_*` variables (`telemetry.py`).

`OTEL_METRIC_EXPORT_INTERVAL` and `OTEL_METRIC_EXPORT_TIMEOUT` are milliseconds: 60 s and 30 s without them.
"""

import os
from typing import TYPE_CHECKING, Final

from holdfast.cli.telemetry import exporter_name, service_name, without_sdk
from holdfast.errors import ConfigError
from holdfast.ports import SystemClock, SystemRandom

if TYPE_CHECKING:
    from holdfast.ops.metrics.otlp import Pusher

_INTERVAL: Final = ("OTEL_METRIC_EXPORT_INTERVAL", 60_000.0)
_TIMEOUT: Final = ("OTEL_METRIC_EXPORT_TIMEOUT", 30_000.0)
_SHORTEST: Final = 0.1


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

        from holdfast.cli.exporters import exporter_of  # noqa: PLC0415 - imported only by this command
        from holdfast.ops.metrics.otlp import Pusher  # noqa: PLC0415
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
