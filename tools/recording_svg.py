"""An animated SVG of a recording: the rows of the screen as text, one picture below another, and a window that moves over them.

Where nothing moves (a printed page, a reader who does not want motion), the last picture shows. A row that occurs again is
written once. Lines of tables are drawn as lines, so that they meet with every font.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from tools.terminal import Cell, Row, Style

WIDTH: Final = 8.4
HEIGHT: Final = 18
SIZE: Final = 14
EDGE: Final = 14
TOP: Final = 34
GAP: Final = 12
POSTER: Final = 2
"""For how many seconds the last picture is shown before the first."""
LAST_SECONDS: Final = 8.0
"""How long the last picture stays before the recording begins again."""
COLOURS: Final = {
    "": "#d0d7de", "black": "#6e7681", "red": "#ff7b72", "green": "#56d364", "yellow": "#e3b341",
    "blue": "#79c0ff", "magenta": "#d2a8ff", "cyan": "#39c5cf", "white": "#f0f6fc",
}  # fmt: skip
FONTS: Final = "ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"
LINES: Final = {
    "─": "0101", "━": "0202", "│": "1010", "┃": "2020", "┏": "0220", "┓": "0022", "┗": "2200", "┛": "2002",
    "┳": "0222", "┻": "2202", "┡": "2210", "┩": "2012", "╇": "2212", "┌": "0110", "┐": "0011", "└": "1100",
    "┘": "1001", "├": "1110", "┤": "1011", "┬": "0111", "┴": "1101", "┼": "1111", "╭": "0110", "╮": "0011",
    "╰": "1100", "╯": "1001", "╸": "0002", "╺": "0200",
}  # fmt: skip
"""The arms of a character up, right, down and left: absent, thin or thick."""


class Picture(NamedTuple):
    """What the screen shows from a time on, in seconds."""

    begins: float
    rows: tuple[Row, ...]


class Window(NamedTuple):
    """One terminal of a recording."""

    title: str
    pictures: Sequence[Picture]


def svg(windows: Sequence[Window], columns: int, title: str) -> str:
    """Return a recording as an SVG document, with its windows one below another."""
    length = max(window.pictures[-1].begins for window in windows) + LAST_SECONDS
    known: dict[Row, str] = {}
    drawn: list[str] = []
    moves: list[str] = []
    below = 0
    width = round(columns * WIDTH) + 2 * EDGE
    for number, window in enumerate(windows):
        count = max(_filled(picture.rows) for picture in window.pictures)
        drawn += _window(window, number, count, width, below, known)
        moves.append(_moves(window.pictures, number, count, length))
        below += count * HEIGHT + TOP + EDGE + GAP
    rows = "\n".join(f'<g id="{name}">{_drawn(row)}</g>' for row, name in known.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {below - GAP}" width="{width}" '
        f'role="img" aria-label="{escape(title)}">\n<style>{_style(moves)}</style>\n'
        f"<defs>\n{rows}\n</defs>\n" + "\n".join(drawn) + "\n</svg>\n"
    )


def _window(
    window: Window, number: int, count: int, width: int, below: int, known: dict[Row, str]
) -> list[str]:
    """Return a window and the strip of its pictures."""
    strip: list[str] = []
    for at, picture in enumerate(window.pictures):
        for place, row in enumerate(picture.rows[:count]):
            if row:
                name = known.setdefault(row, f"r{len(known)}")
                strip.append(f'<use href="#{name}" y="{(at * count + place) * HEIGHT}"/>')
    last = (len(window.pictures) - 1) * count * HEIGHT
    inside = f'width="{width - 2 * EDGE}" height="{count * HEIGHT}"'
    return [
        f'<rect x=".5" y="{below + 0.5}" width="{width - 1}" height="{count * HEIGHT + TOP + EDGE - 1}" rx="8"/>',
        *(f'<circle cx="{EDGE + 6 + 18 * at}" cy="{below + 17}" r="5"/>' for at in range(3)),
        f'<text x="{width / 2:g}" y="{below + 21}" class="title">{escape(window.title)}</text>',
        f'<svg x="{EDGE}" y="{below + TOP}" {inside}>',
        f'<g class="s{number}" transform="translate(0 {-last})">',
        *strip,
        "</g></svg>",
    ]


def _moves(pictures: Sequence[Picture], number: int, count: int, length: float) -> str:
    """Return the animation of a window: at each time the strip moves to the picture of that time.

    Until it begins, the last picture is shown: a viewer without animations, and a preview, show the result.
    """
    steps = "".join(
        f"{100 * picture.begins / length:.2f}%{{transform:translateY({-at * count * HEIGHT}px)}}"
        for at, picture in enumerate(pictures)
    )
    return f".s{number}{{animation:m{number} {length:.2f}s step-end {POSTER}s infinite}}@keyframes m{number}{{{steps}}}"


def _style(moves: Sequence[str]) -> str:
    return (
        f"text{{font:{SIZE}px {FONTS};white-space:pre;fill:{COLOURS['']}}}"
        "rect{fill:#0d1117;stroke:#30363d}circle{fill:#484f58}.title{fill:#8b949e;text-anchor:middle;font-size:12px}.b{font-weight:700}.d{opacity:.6}.i{font-style:italic}"
        + "".join(
            f".{name}{{fill:{colour}}}path.{name}{{stroke:{colour}}}"
            for name, colour in COLOURS.items()
            if name
        )
        + f"path{{stroke:{COLOURS['']};fill:none!important}}"
        f"@media (prefers-reduced-motion:no-preference){{{''.join(moves)}}}"
    )


def _filled(rows: tuple[Row, ...]) -> int:
    return max((number for number, row in enumerate(rows, 1) if row), default=0)


def _drawn(row: Row) -> str:
    """Return a row as text and lines. The text of one style is one element, as long as it must be with every font."""
    made: list[str] = []
    at = 0
    for (style, is_line), run in groupby(row, key=_kind):
        cells = list(run)
        text = "".join(cell.text for cell in cells)
        if is_line:
            made += [_lines(text, at, style)]
        elif text.strip():
            begin = at + len(text) - len(text.lstrip())
            text = text.strip()
            made.append(
                f'<text x="{_number(begin * WIDTH)}" y="{SIZE - 1}" textLength="{_number(len(text) * WIDTH)}" '
                f'lengthAdjust="spacingAndGlyphs"{_class(style)}>{escape(text)}</text>'
            )
        at += len(cells)
    return "".join(made)


def _kind(cell: Cell) -> tuple[Style, bool]:
    return cell.style, cell.text in LINES


def _lines(text: str, at: int, style: Style) -> str:
    """Return the lines of a run of table characters. Equal horizontal neighbours become one line."""
    paths: dict[str, list[str]] = {"1": [], "2": []}
    middle = HEIGHT / 2
    for character, run in groupby(text):
        many = len(list(run))
        up, right, down, left = tuple(LINES[character])
        centre = (at + 0.5) * WIDTH
        if left == right != "0":
            paths[left].append(f"M{_number(at * WIDTH)} {middle:g}h{_number(many * WIDTH)}")
        else:
            for one, shift in ((left, -WIDTH / 2), (right, WIDTH / 2)):
                if one != "0":
                    paths[one].append(f"M{_number(centre)} {middle:g}h{_number(shift)}")
        for one, shift in ((up, -middle), (down, middle)):
            if one != "0":
                paths[one].append(f"M{_number(centre)} {middle:g}v{shift:g}")
        at += many
    return "".join(
        f'<path d="{"".join(path)}" stroke-width="{weight}"{_class(style)}/>'
        for weight, path in paths.items()
        if path
    )


def _class(style: Style) -> str:
    names = [style.colour, "b" * style.bold, "d" * style.dim, "i" * style.italic]
    return f' class="{" ".join(filter(None, names))}"' if any(names) else ""


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
