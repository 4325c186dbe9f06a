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
        "The name of the server in the log, the metrics, spans and the dashboard.",
        OptionRow("NAME", fits=ONE_SERVER, default="its name in the file, or its own"),
    ] = None
    path: Annotated[
        str | None, "The path of the MCP endpoint.", OptionRow("/PATH", fits=ONE_SERVER, default=DEFAULT_PATH)
    ] = None
    limits: Annotated[
        dict[str, Any] | None,
        "A limit, such as running=32; may be repeated. The names and defaults are in docs/limits.md.",
        OptionRow(
            "NAME=NUMBER",
            flag="limit",
            settings=Limits,
            members={
                "memory": OptionRow(
                    "SIZE",
                    help="The memory of the server, such as 512M or 2G: of all workers, without programs behind. docs/limits.md says what "
                    "happens when it is used up.",
                    default="three quarters of the container's memory, or a quarter of the machine's",
                    read=size_of,
                ),
                "store_bytes": OptionRow(
                    "SIZE",
                    help="What the store keeps for clients, such as 512M or 2G: streams, tasks and state of all replicas.",
                    default="512M",
                    read=size_of,
                ),
            },
        ),
    ] = None
    times: Annotated[
        dict[str, Any] | None,
        "A time, such as idle=600 or retry=0.5,3; may be repeated. The names and defaults are in docs/limits.md.",
        OptionRow(
            "NAME=SECONDS",
            flag="time",
            settings=Times,
            members={
                "grace": OptionRow(
                    "SECONDS",
                    help="How long a session lives after its last connection broke.",
                    default="the idle time, 1800",
                ),
                "drain": OptionRow(
                    "SECONDS",
                    help="How long running calls have to finish when the server stops.",
                    default="30",
                ),
                "drain_notice": OptionRow(
                    "SECONDS",
                    help="The time before the drain in which the server still serves but reports not ready, so that load balancers stop sending.",
                    default="0",
                ),
            },
        ),
    ] = None
    rates: Annotated[
        dict[str, Any] | None,
        "How often clients may call: principal=100/s, tools.TOOL=10/m, refusals=600/m; may be repeated.",
        OptionRow("NAME=RATE", flag="rate", settings=RateLimits, members={}),
    ] = None
    eras: Annotated[
        Eras | None,
        "The protocols that are served: sessions (2025-03-26 to 2025-11-25), sessionless (2026-07-28), or both.",
        OptionRow(default="both"),
    ] = None
    eras_by_client: Annotated[dict[str, Eras] | None, OptionRow(members={})] = None
    quirks: Annotated[dict[str, Quirks] | None, OptionRow(members={})] = None
    state: Annotated[
        StateOf | None,
        "The owner of the state that tools keep: the session, the principal, or the conversation (--affinity).",
        OptionRow(default="session"),
    ] = None
    affinity: Annotated[
        str | None,
        "Where a request of 2026-07-28 names its conversation: header:NAME, meta:KEY or argument:NAME. A conversation has "
        "its own connection or process behind.",
        OptionRow("PLACE"),
    ] = None
    duplicates: Annotated[
        Duplicates | None,
        "What happens to a request whose id is in flight. reject: it is refused; isolate: both run.",
        OptionRow(default="reject"),
    ] = None
    response: Annotated[
        ResponseMode | None,
        "How requests are answered: json, sse (a stream), or adaptive (json if the answer comes soon).",
        OptionRow(default="adaptive"),
    ] = None
    in_order: Annotated[bool | None, "Run the calls of a session one at a time."] = None
    mask_errors: Annotated[
        bool | None, "Send clients a correlation id instead of the text of an exception."
    ] = None
    stateless: Annotated[bool | None, "Keep nothing between requests."] = None
    hand_over: Annotated[
        str | float | None,
        "Answer a call that still runs after this time, and keep its result for the client: docs/how-to/slow-calls.md. "
        "auto: by the client's name.",
        OptionRow("SECONDS|auto", read=time_or_word),
    ] = None
    hand_over_tools: Annotated[dict[str, str | float] | None, OptionRow(members={})] = None
    collect_tool: Annotated[
        str | None, "The name of the tool that collects such results.", OptionRow("NAME", default="collect")
    ] = None
    store: Annotated[
        str | None,
        "The store for sessions: memory:, sqlite:///path, redis://host, rediss://, valkey://, redis+cluster://, "
        "redis+sentinel://, postgres://host/database. Put a URL with a password into LIMPET_STORE: other users of the "
        "machine can read arguments.",
        OptionRow("URL"),
    ] = None
    namespace: Annotated[
        str | None,
        "Separates servers that share a store. Default: the server's name; for a URL or a program, its name and a hash of the whole.",
        OptionRow("NAME", fits=ONE_SERVER),
    ] = None
    allowed_hosts: Annotated[
        tuple[str, ...] | None,
        "A Host header that is accepted; may be repeated.",
        OptionRow("HOST", flag="allow_host"),
    ] = None
    allowed_origins: Annotated[
        tuple[str, ...] | None,
        "A browser origin that is accepted; may be repeated.",
        OptionRow("ORIGIN", flag="allow_origin"),
    ] = None
    public_url: Annotated[
        str | None,
        "The URL of the endpoint as clients know it. Its host is accepted, and tokens must be for it.",
        OptionRow("URL", fits=ONE_SERVER),
    ] = None
    scopes_supported: Annotated[
        tuple[str, ...] | None,
        "A scope that the metadata of the endpoint lists, instead of all that components need; may be repeated.",
        OptionRow("SCOPE", flag="scope_supported", fits=ONE_SERVER),
    ] = None
    server_card: Annotated[
        bool | None,
        "Publish name, version, --public-url and protocol versions as a Server Card (SEP-2127), and a catalogue of all servers.",
    ] = None
    allow_anonymous: Annotated[bool | None, "Serve other machines without authentication."] = None
    trusted_proxies: Annotated[
        tuple[str, ...] | None,
        "The address or network of a proxy in front, which says the address of its client in X-Forwarded-For; may be "
        "repeated. Without it, an anonymous server refuses requests that name another client.",
        OptionRow("NETWORK"),
    ] = None
    verifier: Annotated[
        str | None,
        "The function that checks the tokens of clients: path/to/file.py:name or package.module:name.",
        OptionRow("FILE:NAME"),
    ] = None

    oidc_issuer: Annotated[
        str | None,
        "The authorization server whose JWTs are accepted: its exact issuer. Its keys are found by its metadata.",
        OptionRow("URL"),
    ] = None
    oidc_audience: Annotated[
        tuple[str, ...] | None,
        "The URL of this server in tokens; may be repeated.",
        OptionRow("URL", default="--public-url"),
    ] = None
    introspection_url: Annotated[
        str | None,
        "The endpoint that is asked about each token (RFC 7662), instead of JWTs.",
        OptionRow("URL"),
    ] = None
    introspection_id: Annotated[str | None, "The id of this server at that endpoint.", OptionRow("ID")] = None
    introspection_key: Annotated[
        str | None,
        "A file with its secret there. Or put it into LIMPET_INTROSPECTION_SECRET.",
        OptionRow("PATH"),
    ] = None
    forward_key_file: Annotated[
        str | None,
        "A file with the key for clients' credentials that go from one process to another: 32 random bytes as base64. Or "
        "put the key into LIMPET_FORWARD_KEY.",
        OptionRow("PATH"),
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
