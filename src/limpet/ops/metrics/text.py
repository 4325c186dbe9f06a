"""The text format of Prometheus, version 0.0.4.

The samples of a metric are together, after its HELP and TYPE. A label without a value is left out, which means the same
to Prometheus. A label value is quoted, with backslash, quote and line feed escaped; so no value can look like another
line.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from limpet.ops.figures import BOUNDS
from limpet.ops.metrics.families import FAMILIES, Family
from limpet.ops.metrics.samples import Sample

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_BOUNDS: Final = (*(f"{bound:g}" for bound in BOUNDS), "+Inf")


def prometheus_text(samples: Iterable[Sample]) -> bytes:
    """Return merged samples as text."""
    by_family: dict[str, list[Sample]] = {}
    for sample in samples:
        by_family.setdefault(sample.family, []).append(sample)
    lines: list[str] = []
    for name, family in FAMILIES.items():
        if name in by_family:
            lines += (f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}")
            for sample in by_family[name]:
                lines += _lines(family, sample)
    return "\n".join([*lines, ""]).encode(errors="replace")


def _lines(family: Family, sample: Sample) -> Iterator[str]:
    pairs = [
        f'{name}="{value.translate(_ESCAPES)}"'
        for name, value in zip(family.labels, sample.labels, strict=True)
        if value
    ]
    if family.kind != "histogram":
        yield f"{family.name}{_braces(pairs)} {_number(sample.value)}"
        return
    total = 0
    for bound, total in zip(_BOUNDS, accumulate(sample.counts), strict=False):
        labels = _braces([*pairs, f'le="{bound}"'])
        yield f"{family.name}_bucket{labels} {total}"
    yield f"{family.name}_sum{_braces(pairs)} {_number(sample.value)}"
    yield f"{family.name}_count{_braces(pairs)} {total}"


def _braces(pairs: Sequence[str]) -> str:
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
