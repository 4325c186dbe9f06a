"""Write the table of options into docs/configuration.md, from `limpet.cli.options`."""

from pathlib import Path
from typing import Final

from limpet.cli.options import Options
from limpet.cli.process_options import ProcessOptions
from limpet.cli.rows import ALL, COMMAND, OBJECT, URL, OptionEntry, entries

PAGE: Final = Path(__file__).parents[1] / "docs" / "configuration.md"
BEGIN: Final = "<!-- The table is made by `make docs`. -->\n"
END: Final = "<!-- End of the table. -->\n"
_HEAD: Final = "| option | in `limpet.toml` | variable | for | meaning |\n|---|---|---|---|---|\n"
_SHORT: Final = {URL: "a URL", COMMAND: "a program", OBJECT: "an object"}


def table() -> str:
    """Return the table."""
    process = [_row(entry, "the process") for entry in entries(ProcessOptions)]
    return _HEAD + "".join([*process, *(_row(entry, _fits(entry)) for entry in entries(Options))])


def _fits(entry: OptionEntry) -> str:
    if entry.row.fits == ALL:
        return "every server"
    return ", ".join(_SHORT[kind] for kind in entry.row.fits)


def _row(entry: OptionEntry, fits: str) -> str:
    variable = f"`{entry.variable}`" if entry.variable else ""
    form = entry.form.replace("|", "\\|")
    return f"| `{f'{entry.flag} {form}'.strip()}` | `{entry.key}` | {variable} | {fits} | {entry.meaning} |\n"


def written(page: str) -> str:
    """Return the page with the present table."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{begin}\n{table()}\n{end}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
