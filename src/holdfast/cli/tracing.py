"""Traces of `holdfast serve`: the SDK of OpenTelemetry, set up from the standard `OTEL_*` variables (`telemetry.py`).

Sampler, batches, resource and the exporter's own settings are read by the SDK itself. A provider that `opentelemetry-instrument`
has set stays.
"""

from holdfast import tracing
from holdfast.cli.telemetry import exporter_name, service_name, without_sdk


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

        from holdfast.cli.exporters import exporter_of  # noqa: PLC0415 - imported only by this command
    except ImportError:
        raise without_sdk("TRACES") from None
    provider = TracerProvider(resource=Resource.create(service_name()))
    provider.add_span_processor(BatchSpanProcessor(exporter_of(name, "TRACES").load()()))
    trace.set_tracer_provider(provider)
