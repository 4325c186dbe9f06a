"""Samples of metrics as plain data: one process makes them, another can decode and add them.

A label value may be a text that a client chose. `clean` makes it short and printable before samples are added: two
names that are equal after that are one sample, because Prometheus refuses a whole answer that has a sample twice.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from limpet.ops.figures import Durations
from limpet.ops.metrics.families import FAMILIES, Family

LABEL_SIZE: Final = 128
"""Characters of a label value."""


class Sample(Struct, frozen=True, array_like=True):
    """One number of a counter or gauge, or one histogram."""

    family: str
    labels: tuple[str, ...]
    """The values, in the order of the family's labels."""
    value: float
    """The number; of a histogram the sum."""
    counts: tuple[int, ...] = ()
    """Of a histogram: how many values fell into each range of `BOUNDS`, and above them."""


def number(family: Family, value: float, *labels: str) -> Sample:
    """Return a sample of a counter or gauge."""
    return Sample(family.name, tuple(map(clean, labels)), value)


def histogram(family: Family, durations: Durations, *labels: str) -> Sample:
    """Return a sample of a histogram."""
    return Sample(family.name, tuple(map(clean, labels)), durations.seconds, tuple(durations.counts))


def clean(text: str) -> str:
    """Return a label value without characters that are not printable, cut to `LABEL_SIZE`."""
    text = text[:LABEL_SIZE]
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)


def merged(parts: Iterable[Sequence[Sample]]) -> list[Sample]:
    """Return the samples of several processes as those of one.

    A metric that this release does not know is left out: a worker of another release may send one.
    """
    found: dict[tuple[str, tuple[str, ...]], Sample] = {}
    for part in parts:
        for sample in part:
            family = FAMILIES.get(sample.family)
            if family is None or len(family.labels) != len(sample.labels):
                continue
            key = sample.family, sample.labels
            before = found.get(key)
            found[key] = sample if before is None else _added(family, before, sample)
    return list(found.values())


def _added(family: Family, one: Sample, two: Sample) -> Sample:
    if family.merge == "max":
        return max(one, two, key=lambda sample: sample.value)
    counts = tuple(map(sum, zip(one.counts, two.counts, strict=False)))
    return Sample(one.family, one.labels, one.value + two.value, counts)
