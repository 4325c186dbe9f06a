"""The options of `limpet serve`: one table for the command line, for `LIMPET_*` and for `limpet.toml`.

A member of `Options` (for one server; its base in `behind_options.py` has those for a server behind) or of
`ProcessOptions` (for the whole process, `process_options.py`) is a row of the table: its name is the key in the file,
its type says which values are allowed, and its `OptionRow` (`rows.py`) says the rest. `limpet.cli.parameters` makes
the parameters of the command line from these rows. To add an option, add one member here and use it.

None means that an option was not given. So values from several places can be laid over each other: the command line
over the environment over the file (`laid_over`), and an option that is still None has the default.
"""

from typing import Annotated, Any, Final

from msgspec.structs import replace

from limpet.cli.behind_options import BehindOptions
from limpet.cli.rows import ONE_SERVER, Name, OptionRow
from limpet.cli.sizes import size_of, time_or_word
from limpet.config import (
    LOOPBACK_HOSTS,
    Duplicates,
    Eras,
    HttpSettings,
    Limits,
    Quirks,
    RateLimits,
    ResponseMode,
    Settings,
    StateOf,
    Times,
)

DEFAULT_PATH: Final = "/mcp"


class Options(BehindOptions, frozen=True, kw_only=True):
    """The options of one server. None: not given, so its own setting or the default counts."""

    name: Annotated[
        Name | None,
        OptionRow(
            metavar="NAME",
            help="The name of the server in the log, the metrics, spans and the dashboard.",
            fits=ONE_SERVER,
            default="its name in the file, or its own",
        ),
    ] = None
    path: Annotated[
        str | None,
        OptionRow(
            metavar="/PATH", help="The path of the MCP endpoint.", fits=ONE_SERVER, default=DEFAULT_PATH
        ),
    ] = None
    limits: Annotated[
        dict[str, Any] | None,
        OptionRow(
            flag="limit",
            metavar="NAME=NUMBER",
            help="A limit, such as running=32; may be repeated. The names and defaults are in docs/limits.md.",
            settings=Limits,
            members={
                "memory": OptionRow(
                    metavar="SIZE",
                    help="The memory of the server, such as 512M or 2G: of all workers, without programs behind. docs/limits.md says what "
                    "happens when it is used up.",
                    default="three quarters of the container's memory, or a quarter of the machine's",
                    read=size_of,
                ),
                "store_bytes": OptionRow(
                    metavar="SIZE",
                    help="What the store keeps for clients, such as 512M or 2G: streams, tasks and state of all replicas.",
                    default="512M",
                    read=size_of,
                ),
            },
        ),
    ] = None
    times: Annotated[
        dict[str, Any] | None,
        OptionRow(
            flag="time",
            metavar="NAME=SECONDS",
            help="A time, such as idle=600 or retry=0.5,3; may be repeated. The names and defaults are in docs/limits.md.",
            settings=Times,
            members={
                "grace": OptionRow(
                    metavar="SECONDS",
                    help="How long a session lives after its last connection broke.",
                    default="the idle time, 1800",
                ),
                "drain": OptionRow(
                    metavar="SECONDS",
                    help="How long running calls have to finish when the server stops.",
                    default="30",
                ),
                "drain_notice": OptionRow(
                    metavar="SECONDS",
                    help="The time before the drain in which the server still serves but reports not ready, so that load "
                    "balancers stop sending.",
                    default="0",
                ),
            },
        ),
    ] = None
    rates: Annotated[
        dict[str, Any] | None,
        OptionRow(
            flag="rate",
            metavar="NAME=RATE",
            help="How often clients may call: principal=100/s, tools.TOOL=10/m, refusals=600/m; may be repeated.",
            settings=RateLimits,
            members={},
        ),
    ] = None
    eras: Annotated[
        Eras | None,
        OptionRow(
            help="The protocols that are served: sessions (2025-03-26 to 2025-11-25), sessionless (2026-07-28), or both.",
            default="both",
        ),
    ] = None
    eras_by_client: Annotated[dict[str, Eras] | None, OptionRow(members={})] = None
    quirks: Annotated[dict[str, Quirks] | None, OptionRow(members={})] = None
    state: Annotated[
        StateOf | None,
        OptionRow(
            help="The owner of the state that tools keep: the session, the principal, or the conversation (--affinity).",
            default="session",
        ),
    ] = None
    affinity: Annotated[
        str | None,
        OptionRow(
            metavar="PLACE",
            help="Where a request of 2026-07-28 names its conversation: header:NAME, meta:KEY or argument:NAME. A conversation has"
            " its own connection or process behind.",
        ),
    ] = None
    duplicates: Annotated[
        Duplicates | None,
        OptionRow(
            help="What happens to a request whose id is in flight. reject: it is refused; isolate: both run.",
            default="reject",
        ),
    ] = None
    response: Annotated[
        ResponseMode | None,
        OptionRow(
            help="How requests are answered: json, sse (a stream), or adaptive (json if the answer comes soon).",
            default="adaptive",
        ),
    ] = None
    in_order: Annotated[bool | None, OptionRow(help="Run the calls of a session one at a time.")] = None
    mask_errors: Annotated[
        bool | None, OptionRow(help="Send clients a correlation id instead of the text of an exception.")
    ] = None
    check_results: Annotated[
        bool | None,
        OptionRow(
            help="Fail a call whose tool returns a value that is not of its declared type.",
            default="on; with --reload always",
        ),
    ] = None
    stateless: Annotated[bool | None, OptionRow(help="Keep nothing between requests.")] = None
    hand_over: Annotated[
        str | float | None,
        OptionRow(
            metavar="SECONDS|auto",
            help="Answer a call that still runs after this time, and keep its result for the client: docs/how-to/slow-calls.md. "
            "auto: by the client's name.",
            read=time_or_word,
        ),
    ] = None
    hand_over_tools: Annotated[dict[str, str | float] | None, OptionRow(members={})] = None
    collect_tool: Annotated[
        str | None,
        OptionRow(metavar="NAME", help="The name of the tool that collects such results.", default="collect"),
    ] = None
    store: Annotated[
        str | None,
        OptionRow(
            metavar="URL",
            help="The store for sessions: memory:, sqlite:///path, redis://host, rediss://, valkey://, redis+cluster://, "
            "redis+sentinel://, postgres://host/database. Put a URL with a password into LIMPET_STORE: other users of the machine can read arguments.",
        ),
    ] = None
    namespace: Annotated[
        str | None,
        OptionRow(
            metavar="NAME",
            help="Separates servers that share a store. Default: the server's name; for a URL or a program, its name and a hash of the whole.",
            fits=ONE_SERVER,
        ),
    ] = None
    allowed_hosts: Annotated[
        tuple[str, ...] | None,
        OptionRow(flag="allow_host", metavar="HOST", help="A Host header that is accepted; may be repeated."),
    ] = None
    allowed_origins: Annotated[
        tuple[str, ...] | None,
        OptionRow(
            flag="allow_origin", metavar="ORIGIN", help="A browser origin that is accepted; may be repeated."
        ),
    ] = None
    public_url: Annotated[
        str | None,
        OptionRow(
            metavar="URL",
            help="The URL of the endpoint as clients know it. Its host is accepted, and tokens must be for it.",
            fits=ONE_SERVER,
        ),
    ] = None
    scopes_supported: Annotated[
        tuple[str, ...] | None,
        OptionRow(
            flag="scope_supported",
            metavar="SCOPE",
            help="A scope that the metadata of the endpoint lists, instead of all that components need; may be repeated.",
            fits=ONE_SERVER,
        ),
    ] = None
    server_card: Annotated[
        bool | None,
        OptionRow(
            help="Publish name, version, --public-url and protocol versions as a Server Card (SEP-2127), and a catalogue of all servers.",
        ),
    ] = None
    allow_anonymous: Annotated[
        bool | None, OptionRow(help="Serve other machines without authentication.")
    ] = None
    trusted_proxies: Annotated[
        tuple[str, ...] | None,
        OptionRow(
            metavar="NETWORK",
            help="The address or network of a proxy in front, which says the address of its client in X-Forwarded-For; may be "
            "repeated. Without it, an anonymous server refuses requests that name another client.",
        ),
    ] = None
    verifier: Annotated[
        str | None,
        OptionRow(
            metavar="FILE:NAME",
            help="The function that checks the tokens of clients: path/to/file.py:name or package.module:name.",
        ),
    ] = None

    oidc_issuer: Annotated[
        str | None,
        OptionRow(
            metavar="URL",
            help="The authorization server whose JWTs are accepted: its exact issuer. Its keys are found by its metadata.",
        ),
    ] = None
    oidc_audience: Annotated[
        tuple[str, ...] | None,
        OptionRow(
            metavar="URL",
            help="The URL of this server in tokens; may be repeated.",
            default="--public-url",
        ),
    ] = None
    introspection_url: Annotated[
        str | None,
        OptionRow(
            metavar="URL", help="The endpoint that is asked about each token (RFC 7662), instead of JWTs."
        ),
    ] = None
    introspection_id: Annotated[
        str | None, OptionRow(metavar="ID", help="The id of this server at that endpoint.")
    ] = None
    introspection_key: Annotated[
        str | None,
        OptionRow(
            metavar="PATH",
            help="A file with its secret there. Or put it into LIMPET_INTROSPECTION_SECRET.",
        ),
    ] = None
    forward_key_file: Annotated[
        str | None,
        OptionRow(
            metavar="PATH",
            help="A file with the key for clients' credentials that go from one process to another: 32 random bytes as "
            "base64. Or put the key into LIMPET_FORWARD_KEY.",
        ),
    ] = None

    def over(self, settings: Settings) -> Settings:
        """Return the server's settings, replaced by the options that were given.

        Raises:
            ConfigError: a value is invalid.
        """
        said = {name: getattr(self, name) for name in Settings.__struct_fields__}
        for table in ("limits", "times", "rates"):
            said[table] = replace(getattr(settings, table), **_ranges(said[table] or {}))
        return replace(settings, **{name: value for name, value in said.items() if value is not None})

    def http(self) -> HttpSettings:
        """Return the settings of the HTTP front."""
        path = self.path or DEFAULT_PATH
        return HttpSettings(
            path=path if path.startswith("/") else f"/{path}",
            response=self.response or "adaptive",
            allowed_hosts=(*LOOPBACK_HOSTS, *self.allowed_hosts) if self.allowed_hosts else LOOPBACK_HOSTS,
            allowed_origins=self.allowed_origins or (),
            public_url=self.public_url or "",
            scopes_supported=self.scopes_supported or (),
            allow_anonymous=True if self.allow_anonymous else None,
            trusted_proxies=self.trusted_proxies or (),
        )


def _ranges(times: dict[str, Any]) -> dict[str, Any]:
    """Return times whose ranges are tuples: on their way to a worker they become lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in times.items()}
