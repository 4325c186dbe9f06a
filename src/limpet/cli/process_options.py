"""The options of `limpet serve` for the whole process. They are rows of the table of `options.py`."""

from typing import Annotated, Final

from msgspec import Struct

from limpet.cli.rows import Count, Number, OptionRow, Seconds
from limpet.ops.log_lines import LogFormat

DEFAULT_ADDRESS: Final = "127.0.0.1:8000"


class ProcessOptions(Struct, frozen=True, kw_only=True):
    """The options of the process, which all its servers share. None: not given."""

    http: Annotated[
        str | None,
        OptionRow(
            metavar="HOST:PORT",
            help="Serve Streamable HTTP at this address, or at unix:PATH. Without it, sockets of systemd are used if there are any.",
            default=DEFAULT_ADDRESS,
        ),
    ] = None
    fd: Annotated[
        Number | None,
        OptionRow(
            metavar="NUMBER",
            help="Serve on this descriptor, a listening socket that another program has opened.",
        ),
    ] = None
    tls_cert: Annotated[
        str | None,
        OptionRow(metavar="PATH", help="Serve HTTPS with this certificate and its chain, a PEM file."),
    ] = None
    tls_key: Annotated[
        str | None,
        OptionRow(
            metavar="PATH",
            help="The key of the certificate, a PEM file without a passphrase. Default: in the certificate's file.",
        ),
    ] = None
    workers: Annotated[
        Count | None,
        OptionRow(
            metavar="NUMBER",
            help="How many processes serve. Without --store they share a temporary SQLite file.",
            default="1",
        ),
    ] = None
    start_limit: Annotated[
        Seconds | None,
        OptionRow(
            metavar="SECONDS",
            help="How long a worker may take to start; one that takes longer is ended, and the others serve on.",
            default="60",
        ),
    ] = None
    reload: Annotated[
        bool | None,
        OptionRow(
            help="Serve by new code when a source file changes, for development. Sessions survive: without --store they are in a "
            "temporary SQLite file.",
        ),
    ] = None
    admin: Annotated[
        str | None,
        OptionRow(
            metavar="HOST:PORT",
            help="Serve metrics, the state of all processes and the dashboard at this address, or at unix:PATH. Default: off.",
        ),
    ] = None
    admin_token_file: Annotated[
        str | None,
        OptionRow(
            metavar="PATH",
            help="A file with the token of operators, the same for all replicas. Or put it into LIMPET_ADMIN_TOKEN. Without one, "
            "a new token is printed on a terminal.",
        ),
    ] = None
    admin_hosts: Annotated[
        tuple[str, ...] | None,
        OptionRow(
            flag="admin_host",
            metavar="NAME",
            help="A Host header that the admin address accepts besides those of this machine; may be repeated.",
        ),
    ] = None
    log_level: Annotated[
        str | None,
        OptionRow(
            metavar="LEVEL",
            help="debug, info, warning, error or critical, for all loggers.",
            default="info for Limpet, warning for others",
        ),
    ] = None
    traceback: Annotated[
        bool | None, OptionRow(help="Show every frame of an error, also those of Limpet.")
    ] = None
    log_format: Annotated[
        LogFormat | None,
        OptionRow(help="human, json, or auto: human on a terminal and JSON lines elsewhere.", default="auto"),
    ] = None
