"""A terminal's screen, for the recordings: it takes the output of a program and keeps rows of styled characters.

It knows the control sequences that rich, typer and bash use here. Another one is an error, so a picture is never wrong in silence.
"""

import re
from typing import Final, NamedTuple

_PARTS: Final = re.compile(
    r"\x1b\[(?P<params>[?\d;]*)(?P<command>[A-Za-z])|\x1b\](?P<title>[^\x07]*)\x07|(?P<control>[\r\n\b\x07])|(?P<text>[^\x1b\r\n\b\x07]+)"
)
_COLOURS: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


class Style(NamedTuple):
    """How a character looks."""

    colour: str = ""
    """A name; empty: the usual colour."""
    bold: bool = False
    dim: bool = False
    italic: bool = False


class Cell(NamedTuple):
    """One character of the screen."""

    text: str = " "
    style: Style = Style()


Row = tuple[Cell, ...]


class Screen:
    """A screen of a fixed size."""

    def __init__(self, columns: int, rows: int) -> None:
        self._columns = columns
        self._rows: list[list[Cell]] = [[] for _ in range(rows)]
        self._row = self._column = 0
        self._style = Style()

    def rows(self) -> tuple[Row, ...]:
        """Return the text of the screen, without spaces at the ends of rows."""
        return tuple(_stripped(row) for row in self._rows)

    def feed(self, output: str) -> None:
        """Show an output that does not end within a control sequence.

        Raises:
            ValueError: it has an unknown control sequence.
        """
        at = 0
        while at < len(output):
            part = _PARTS.match(output, at)
            if part is None:
                raise ValueError(f"an unknown control sequence: {output[at : at + 12]!r}")
            at = part.end()
            if part["text"]:
                for character in part["text"]:
                    self._put(character)
            elif part["control"]:
                self._control(part["control"])
            elif part["command"]:
                self._command(part["command"], part["params"])

    def _put(self, character: str) -> None:
        if self._column == self._columns:
            self._column = 0
            self._line_feed()
        row = self._rows[self._row]
        row += [Cell()] * (self._column + 1 - len(row))
        row[self._column] = Cell(character, self._style)
        self._column += 1

    def _control(self, character: str) -> None:
        if character == "\n":
            self._line_feed()
        elif character == "\r":
            self._column = 0
        elif character == "\b":
            self._column = max(0, self._column - 1)

    def _line_feed(self) -> None:
        if self._row + 1 < len(self._rows):
            self._row += 1
        else:
            self._rows = [*self._rows[1:], []]

    def _command(self, command: str, params: str) -> None:
        number = int(params) if params.isdigit() else 1
        match command:
            case "m":
                self._style = _styled(self._style, [int(one or 0) for one in params.split(";")])
            case "A":
                self._row = max(0, self._row - number)
            case "K" if params == "2":
                self._rows[self._row].clear()
            case "K" if params in {"", "0"}:
                del self._rows[self._row][self._column :]
            case "h" | "l" if params in {"?25", "?2004"}:
                # The cursor is not drawn; pasted text does not occur.
                pass
            case _:
                raise ValueError(f"an unknown control sequence: CSI {params}{command}")


def _stripped(row: list[Cell]) -> Row:
    length = len(row)
    while length and row[length - 1].text == " ":
        length -= 1
    return tuple(row[:length])


def _styled(style: Style, codes: list[int]) -> Style:
    for code in codes:
        if code == 0:
            style = Style()
        elif code == 1:
            style = style._replace(bold=True)
        elif code == 2:  # noqa: PLR2004 - the code of the terminal
            style = style._replace(dim=True)
        elif code == 3:  # noqa: PLR2004 - the code of the terminal
            style = style._replace(italic=True)
        elif 30 <= code <= 37 or 90 <= code <= 97:  # noqa: PLR2004 - the codes of the terminal
            style = style._replace(colour=_COLOURS[code % 10])
        elif code == 39:  # noqa: PLR2004 - the code of the terminal
            style = style._replace(colour="")
        else:
            raise ValueError(f"an unknown style: {code}")
    return style
