"""Traces with OpenTelemetry. Nothing here imports OpenTelemetry: a process that does not use it does not pay for it.

Tracing is on if the application has set a tracer provider (`opentelemetry.trace.set_tracer_provider`). Then servers and clients of this
process make spans and pass their context on. `holdfast serve` sets a provider itself if the `OTEL_*` variables name an exporter
(`cli/tracing.py`). `spans.py` has the code that servers and clients share; it imports OpenTelemetry, and is imported
when tracing is on.
"""

import sys
from typing import Any


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
