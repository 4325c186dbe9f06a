"""The standard `OTEL_*` variables of a signal: whether traces or metrics are sent, with which exporter, under which name.

A signal is on if `OTEL_<SIGNAL>_EXPORTER` names an exporter, or if `OTEL_EXPORTER_OTLP_ENDPOINT` or
`OTEL_EXPORTER_OTLP_<SIGNAL>_ENDPOINT` names a collector. The SDK and the exporter are packages that the operator installs; they
read the other variables themselves.
"""

import os
from typing import Literal

from holdfast.errors import ConfigError

Signal = Literal["TRACES", "METRICS"]


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
    return {} if is_named else {"service.name": "holdfast"}


def without_sdk(signal: Signal) -> ConfigError:
    """Return the error of a process that has no SDK."""
    return ConfigError(
        f"the OTEL_* variables ask for {signal.lower()}: pip install opentelemetry-sdk, or set OTEL_{signal}_EXPORTER=none"
    )
