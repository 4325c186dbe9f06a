"""The spans that a test causes: a tracer provider of OpenTelemetry's SDK that keeps them in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-01"


class Spans:
    """The spans that have ended, in this order."""

    def __init__(self, provider: TracerProvider) -> None:
        self.provider = provider
        self._exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def all(self) -> list[ReadableSpan]:
        """Return all of them."""
        return list(self._exporter.get_finished_spans())

    def named(self, name: str, kind: str = "") -> list[ReadableSpan]:
        """Return those of this name, and of this kind if one is given."""
        return [span for span in self.all() if span.name == name and kind in ("", span.kind.name)]

    def one(self, name: str, kind: str = "") -> ReadableSpan:
        """Return the only one of this name."""
        (span,) = self.named(name, kind)
        return span

    def clear(self) -> None:
        """Forget them."""
        self._exporter.clear()


@contextmanager
def traced() -> Iterator[Spans]:
    """Turn tracing on, as an application does that sets a tracer provider. OpenTelemetry lets it be set only once."""
    provider = TracerProvider()
    with patch("opentelemetry.trace._TRACER_PROVIDER", provider):
        yield Spans(provider)


def span_id(span: ReadableSpan) -> int:
    """Return the id of a span."""
    assert span.context is not None
    return int(span.context.span_id)


def trace_of(span: ReadableSpan) -> str:
    """Return the id of a span's trace."""
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def is_below(child: ReadableSpan, parent: ReadableSpan) -> bool:
    """True if one span is the child of another."""
    return child.parent is not None and child.parent.span_id == span_id(parent)


def linked(span: ReadableSpan) -> list[int]:
    """Return the ids of the spans that a span links to."""
    return [link.context.span_id for link in span.links]
