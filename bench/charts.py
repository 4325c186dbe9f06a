"""Charts as SVG, written by hand: bars, and lines over a growing number. Readable on a light and on a dark page."""

import math
from collections.abc import Callable
from html import escape
from typing import Final

WIDTH: Final = 720
_STYLE: Final = """<style>
text{font:13px system-ui,sans-serif;fill:#24292f}
.title{font-weight:600;font-size:15px}
.soft{fill:#57606a}
.axis{stroke:#d0d7de;stroke-width:1}
.own{fill:#0969da;stroke:#0969da}
.limit{fill:#8250df;stroke:#8250df}
.other{fill:#8c959f;stroke:#8c959f}
.second{fill:#bf8700;stroke:#bf8700}
.third{fill:#1a7f37;stroke:#1a7f37}
line.own,line.limit,line.other,line.second,line.third,polyline{fill:none;stroke-width:2}
@media(prefers-color-scheme:dark){
text{fill:#e6edf3}.soft{fill:#9da7b3}.axis{stroke:#484f58}
.own{fill:#58a6ff;stroke:#58a6ff}.limit{fill:#bc8cff;stroke:#bc8cff}.other{fill:#8b949e;stroke:#8b949e}
.second{fill:#d29922;stroke:#d29922}.third{fill:#3fb950;stroke:#3fb950}polyline{fill:none}}
</style>"""

Series = dict[str, list[tuple[float, float]]]
"""By label: points of a line."""


def _document(title: str, subtitle: str, height: float, parts: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'aria-label="{escape(title)}">'
    )
    titles = [_text(0, 16, title, "title"), _text(0, 36, subtitle, "soft")]
    return "\n".join([head, _STYLE, *titles, *parts, "</svg>"]) + "\n"


def _text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(content)}</text>'


def _kind(label: str, place: int) -> str:
    if "Limpet" in label:
        return "own"
    return "limit" if "bare" in label else ("other", "second", "third")[place % 3]


def bars(title: str, subtitle: str, values: dict[str, float], shown: Callable[[float], str]) -> str:
    """Return horizontal bars, one for each label, each with its value."""
    left, right, step, top = 190, 90, 28, 52
    scale = (WIDTH - left - right) / max(values.values())
    parts = []
    for place, (label, value) in enumerate(values.items()):
        y = top + place * step
        width = max(value * scale, 1)
        kind = _kind(label, 0)
        parts += [
            _text(left - 8, y + 15, label, anchor="end"),
            f'<rect x="{left}" y="{y}" width="{width:.1f}" height="20" rx="2" class="{kind}" stroke="none"/>',
            _text(left + width + 6, y + 15, shown(value)),
        ]
    return _document(title, subtitle, top + len(values) * step + 4, parts)


def lines(title: str, subtitle: str, series: Series, shown: Callable[[float], str]) -> str:
    """Return lines over a growing number; both axes are logarithmic."""
    left, right, top, height = 78, 170, 56, 260
    xs = [x for line in series.values() for x, _ in line]
    ys = [y for line in series.values() for _, y in line]
    low, high = 10 ** math.floor(math.log10(min(ys))), 10 ** math.ceil(math.log10(max(ys) * 1.01))

    def across(x: float) -> float:
        return left + (WIDTH - left - right) * _part(x, min(xs), max(xs))

    def down(y: float) -> float:
        return top + height * (1 - _part(y, low, high))

    parts = []
    tick = low
    while tick <= high:
        y = down(tick)
        parts += [f'<line x1="{left}" y1="{y:.1f}" x2="{WIDTH - right}" y2="{y:.1f}" class="axis"/>']
        parts += [_text(left - 8, y + 4, shown(tick), "soft", "end")]
        tick *= 10
    parts += [_text(across(x), top + height + 20, f"{x:,.0f}", "soft", "middle") for x in sorted(set(xs))]
    places = _apart([down(line[-1][1]) for line in series.values()])
    for number, (label, line) in enumerate(series.items()):
        points = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in line)
        parts.append(f'<polyline points="{points}" class="{_kind(label, number)}" style="fill:none"/>')
        parts += [
            f'<circle cx="{across(x):.1f}" cy="{down(y):.1f}" r="3" class="{_kind(label, number)}"/>'
            for x, y in line
        ]
        parts.append(_text(WIDTH - right + 12, places[number] + 4, f"{label} {shown(line[-1][1])}"))
    return _document(title, subtitle, top + height + 32, parts)


def panels(title: str, subtitle: str, series_of: dict[str, Series]) -> str:
    """Return lines over time, one picture below the other; each has an axis of its own, from 0 to its largest value."""
    left, right, height, step, top = 78, 110, 80, 118, 62
    parts: list[str] = []
    for place, (name, series) in enumerate(series_of.items()):
        base = top + place * step + height
        last = max(x for line in series.values() for x, _ in line) or 1.0
        most = max(y for line in series.values() for _, y in line) or 1.0

        def across(x: float, last: float = last) -> float:
            return left + (WIDTH - left - right) * x / last

        def down(y: float, most: float = most, base: float = base) -> float:
            return base - height * y / most

        parts.append(_text(0, base - height - 8, name, "title"))
        for y in (0.0, most):
            parts.append(
                f'<line x1="{left}" y1="{down(y):.1f}" x2="{WIDTH - right}" y2="{down(y):.1f}" class="axis"/>'
            )
            parts.append(_text(left - 8, down(y) + 4, f"{y:,.0f}", "soft", "end"))
        parts += [_text(across(x), base + 18, f"{x:,.0f}", "soft", "middle") for x in (0.0, last)]
        places = _apart([down(line[-1][1]) for line in series.values()])
        for number, (label, line) in enumerate(series.items()):
            points = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in line)
            parts.append(f'<polyline points="{points}" class="{_kind(label, number)}" style="fill:none"/>')
            parts.append(_text(WIDTH - right + 8, places[number] + 4, label, "soft"))
    return _document(title, subtitle, top + len(series_of) * step + 8, parts)


def _part(value: float, low: float, high: float) -> float:
    """Return where a value lies between two others, logarithmically."""
    return math.log(value / low) / math.log(high / low) if high > low else 0.5


def _apart(places: list[float], gap: float = 17) -> list[float]:
    """Return the heights of labels, moved so far that none covers another one."""
    moved = list(places)
    last = -math.inf
    for place in sorted(range(len(places)), key=lambda number: places[number]):
        moved[place] = last = max(places[place], last + gap)
    return moved
