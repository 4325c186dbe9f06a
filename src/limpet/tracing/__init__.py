"""Traces with OpenTelemetry. Nothing here imports OpenTelemetry: a process that does not use it does not pay for it.

Tracing is on if the application has set a tracer provider (`opentelemetry.trace.set_tracer_provider`). Then servers and
clients of this process make spans and pass their context on. `limpet serve` sets a provider itself if the `OTEL_*`
variables name an exporter (`cli/telemetry.py`). `observer.py` makes the spans; it imports OpenTelemetry, and is
imported when tracing is on.
"""

import sys
from typing import Any

from limpet.ports import Observer


def provider() -> Any:
    """Return the tracer provider that the application has set; None: tracing is off."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None or not hasattr(api, "get_tracer_provider"):
        return None
    found = api.get_tracer_provider()
    return None if isinstance(found, api.ProxyTracerProvider | api.NoOpTracerProvider) else found


def is_on() -> bool:
    """True if spans are made."""
    return provider() is not None


def traced(observer: Observer, server: str = "") -> Observer:
    """Return an observer that also makes spans; the same one if tracing is off.

    `server`: the name of the server in them.
    """
    if not is_on():
        return observer
    from limpet.tracing.observer import TracedObserver  # noqa: PLC0415 - only a traced process imports OpenTelemetry

    return TracedObserver(observer, server)
