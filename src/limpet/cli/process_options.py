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
        "Serve Streamable HTTP at this address, or at unix:PATH. Without it, sockets of systemd are used if there are any.",
        OptionRow("HOST:PORT", default=DEFAULT_ADDRESS),
    ] = None
    fd: Annotated[
        Number | None,
        "Serve on this descriptor, a listening socket that another program has opened.",
        OptionRow("NUMBER"),
    ] = None
    tls_cert: Annotated[
        str | None, "Serve HTTPS with this certificate and its chain, a PEM file.", OptionRow("PATH")
    ] = None
    tls_key: Annotated[
        str | None,
        "The key of the certificate, a PEM file without a passphrase. Default: in the certificate's file.",
        OptionRow("PATH"),
    ] = None
    workers: Annotated[
        Count | None,
        "How many processes serve. Without --store they share a temporary SQLite file.",
        OptionRow("NUMBER", default="1"),
    ] = None
    start_limit: Annotated[
        Seconds | None,
        "How long a worker may take to start; one that takes longer is ended, and the others serve on.",
        OptionRow("SECONDS", default="60"),
    ] = None
    reload: Annotated[
        bool | None,
        "Serve by new code when a source file changes, for development. Sessions survive: without --store they are in a "
        "temporary SQLite file.",
    ] = None
    admin: Annotated[
        str | None,
        "Serve metrics, the state of all processes and the dashboard at this address, or at unix:PATH. Default: off.",
        OptionRow("HOST:PORT"),
    ] = None
    admin_token_file: Annotated[
        str | None,
        "A file with the token of operators, the same for all replicas. Or put it into LIMPET_ADMIN_TOKEN. Without one, a "
        "new token is printed on a terminal.",
        OptionRow("PATH"),
    ] = None
    admin_hosts: Annotated[
        tuple[str, ...] | None,
        "A Host header that the admin address accepts besides those of this machine; may be repeated.",
        OptionRow("NAME", flag="admin_host"),
    ] = None
    log_level: Annotated[
        str | None,
        "debug, info, warning, error or critical, for all loggers.",
        OptionRow("LEVEL", default="info for Limpet, warning for others"),
    ] = None
    traceback: Annotated[bool | None, "Show every frame of an error, also those of Limpet."] = None
    log_format: Annotated[
        LogFormat | None,
        "human, json, or auto: human on a terminal and JSON lines elsewhere.",
        OptionRow(default="auto"),
    ] = None
