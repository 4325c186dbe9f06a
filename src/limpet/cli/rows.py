"""A row of the table of options: the facts of one option of `limpet serve`, and its three names."""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct
from msgspec.structs import replace

Kind = Literal["a URL", "a command", "a server object of Python", "a file with several servers"]
URL: Final[Kind] = "a URL"
COMMAND: Final[Kind] = "a command"
OBJECT: Final[Kind] = "a server object of Python"
FILE: Final[Kind] = "a file with several servers"
ALL: Final[tuple[Kind, ...]] = (URL, COMMAND, OBJECT, FILE)
"""For every target. With a file, such an option counts for every server of the file."""
ONE_SERVER: Final[tuple[Kind, ...]] = (URL, COMMAND, OBJECT)
BEHIND: Final[tuple[Kind, ...]] = (URL, COMMAND)

Count = Annotated[int, Meta(ge=1)]
Number = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


class OptionRow(Struct, frozen=True):
    """The facts of an option besides its type and its help, which is a text in its annotation."""

    metavar: str | None = None
    """The form of its value; not needed for a switch and for a choice of words. PATH: a path, which in a file begins
    at the directory of that file."""
    help: str = ""
    fits: tuple[Kind, ...] = ALL
    """The targets that it is for."""
    flag: str = ""
    """Its name on the command line, if that is not the member's own: an option that may be repeated is named in the
    singular."""
    default: str | None = None
    """The default, as `--help` shows it."""
    read: Callable[[Any], Any] | None = None
    """For an option, or a key of a table, that is a text on the command line and another value in a file: returns
    its value."""
    settings: Any = None
    """For a table of settings: their structure, which checks them."""
    members: dict[str, "OptionRow"] | None = None
    """For a table: those of its keys that are options of the command line by themselves. If the table has a flag, the
    flag sets the other keys; without one they are only in a file."""
    taken: tuple[str, ...] = ()
    """For such a flag: keys of the structure that are other members of the options."""


class OptionEntry(Struct, frozen=True):
    """One option of the table."""

    place: tuple[str, ...]
    """Its key in the file; the second part is a key in a table of settings."""
    type: Any
    row: OptionRow

    @property
    def key(self) -> str:
        """Its key in the file."""
        return ".".join(self.place)

    @property
    def parameter(self) -> str:
        """Its name on the command line, with underscores."""
        return self.row.flag or self.place[-1]

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return f"--{self.parameter.replace('_', '-')}"

    @property
    def form(self) -> str:
        """The form of its value; empty for a switch."""
        words = next((get_args(one) for one in get_args(self.type) if get_origin(one) is Literal), ())
        return self.row.metavar or "|".join(words)

    @property
    def meaning(self) -> str:
        """Its help, with the default."""
        return self.row.help + (f" Default: {self.row.default}." if self.row.default else "")

    @property
    def is_table(self) -> bool:
        """True if it sets keys of a table of settings."""
        return self.row.settings is not None

    @property
    def variable(self) -> str | None:
        """Its environment variable; None for an option of one server of several."""
        return f"LIMPET_{self.parameter.upper()}" if FILE in self.row.fits else None

    def of(self, options: Struct) -> Any:
        """Return its value; None if it was not given."""
        value = getattr(options, self.place[0])
        return value if value is None or len(self.place) == 1 else value.get(self.place[1])


def entries(kind: type[Struct]) -> Iterator[OptionEntry]:
    """Yield the options of a structure, in the order in which they are declared: its own, then those of its base."""
    hints = get_type_hints(kind, include_extras=True)
    for name, annotation in {name: hints[name] for name in (*kind.__annotations__, *hints)}.items():
        row = _row(annotation)
        if row.members is None or row.flag:
            yield OptionEntry((name,), annotation.__origin__, row)
        for member, inner in (row.members or {}).items():
            yield OptionEntry((name, member), Seconds | None if inner.read is None else str | None, inner)


def rows(kind: type[Struct]) -> dict[str, OptionRow]:
    """Return the row of each member."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: _row(annotation) for name, annotation in hints.items()}


def _row(annotation: Any) -> OptionRow:
    row = next((one for one in annotation.__metadata__ if isinstance(one, OptionRow)), OptionRow())
    return replace(row, help="".join(one for one in annotation.__metadata__ if isinstance(one, str)))
