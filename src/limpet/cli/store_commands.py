"""`limpet store sql`: the statements that make the schema of a PostgreSQL store, for a role that may run them."""

from typing import Annotated, Final

import typer

from limpet.cli.commands import Group, PlainCommand
from limpet.stores.postgres.schema import script
from limpet.stores.postgres_address import parse

app: Final = typer.Typer(cls=Group, rich_markup_mode="rich", help="Prepare a store.", no_args_is_help=True)

Url = Annotated[
    str,
    typer.Argument(
        metavar="[URL]",
        help="The URL of the store, for its schema=. Nothing is connected.",
        show_default=False,
        envvar="LIMPET_STORE",
        show_envvar=False,
    ),
]
Namespace = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="The namespace: for `limpet serve`, the name of the server.", show_default=True
    ),
]
Role = Annotated[
    str, typer.Option(metavar="NAME", help="Grant this role what a server needs.", show_default=False)
]


@app.callback()
def store() -> None:
    """Prepare a store."""


@app.command("sql", cls=PlainCommand)
def sql(url: Url = "postgres://", namespace: Namespace = "default", role: Role = "") -> None:
    """Print the statements that make the schema of a PostgreSQL store.

    A role that may create schemas needs none of this: the store makes its schema by itself.

    [bold]limpet store sql --namespace orders --role app[/bold]
    """
    print(script(parse(url, namespace).schema, role), end="")
