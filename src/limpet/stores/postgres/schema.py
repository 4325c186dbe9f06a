"""The statements of the store, and its schema in the database: made, versioned, checked.

All SQL is in the folder `sql`. A schema has the number of its format (`about.format`); a release refuses one of a later
format. The functions of a release have names of their own (`functions.sql`), so releases side by side do not replace
each other's. The store makes what is missing, in one transaction. A role that may not do this gets an error, and
`limpet store sql` prints the statements for one that may.
"""

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from limpet.stores.shared.commit import PLACES

FORMAT: Final = 1
"""Changes only if an older release would misread the data of a newer one."""
LEAST_VERSION: Final = 13
_SECTION: Final = "--## "
_NUMBERS: Final = ("hint", "state", "size", "kept", "running", "readers", "touched")


def _read(name: str) -> str:
    text = (files(__package__) / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    lines = text.splitlines()
    return "\n".join(
        line for line in lines if line.startswith(_SECTION) or not line.lstrip().startswith("--")
    )


@cache
def version() -> str:
    """Return the end of the names of this release's functions."""
    return sha256(_read("functions").encode()).hexdigest()[:8]


def _filled(text: str, schema: str) -> str:
    """Put names and numbers into statements."""
    text = text.replace("{schema}", f'"{schema}"').replace("{v}", version()).replace("{format}", str(FORMAT))
    for name in _NUMBERS:
        text = text.replace(f"{{{name}}}", str(PLACES[name] + 1))
    return text


@cache
def queries(schema: str) -> dict[str, str]:
    """Return the statements that the store sends, by name."""
    sections = _filled(_read("queries"), schema).split(_SECTION)[1:]
    pairs = (section.partition("\n") for section in sections)
    return {name.strip(): " ".join(text.split()) for name, _, text in pairs}


def tables(schema: str) -> str:
    """Return the statements that make the tables."""
    return _filled(_read("tables"), schema)


def functions(schema: str) -> str:
    """Return the statements that make the functions of this release."""
    return _filled(_read("functions"), schema)


def look(schema: str) -> str:
    """Return the query that tells what a schema has: the schema, its tables, and the functions of this release."""
    return (
        f"SELECT to_regnamespace('\"{schema}\"') IS NOT NULL, to_regclass('\"{schema}\".about') IS NOT NULL,"
        f" to_regproc('\"{schema}\".sweep_{version()}') IS NOT NULL"
    )


def format_of(schema: str) -> str:
    """Return the query for the format of a schema that has tables."""
    return f'SELECT format FROM "{schema}".about'  # noqa: S608 - a checked name


def script(schema: str, role: str = "") -> str:
    """Return all statements that make a schema, and the rights of a role that uses it and may create nothing."""
    grants = ""
    if role:
        name = '"' + role.replace('"', '""') + '"'
        grants = (
            f'\nGRANT USAGE ON SCHEMA "{schema}" TO {name};\n'
            f'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "{schema}" TO {name};\n'
        )
    return (
        f"-- Limpet, format {FORMAT}, functions {version()}. If the schema has tables of this format, leave out the first part.\n"
        f'BEGIN;\nCREATE SCHEMA IF NOT EXISTS "{schema}";\n\n-- 1. Tables\n{tables(schema)}\n\n'
        f"-- 2. Functions of this release\n{functions(schema)}\n{grants}COMMIT;\n"
    )
