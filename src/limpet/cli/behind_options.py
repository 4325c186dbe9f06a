"""The options of `limpet serve` for what clients see of a server, and for a server behind.

They are rows of the table in `options.py`, which has the theory.
"""

from typing import Annotated, Any

from msgspec import Struct

from limpet.backs.proxy.options import Home, ProxyOptions
from limpet.backs.proxy.scopes import ScopeTable
from limpet.cli.rows import BEHIND, COMMAND, ONE_SERVER, URL, Count, OptionRow, Seconds

_Names = tuple[str, ...] | None
_Pairs = dict[str, str] | None


def _names(flag: str) -> OptionRow:
    return OptionRow("PATTERN", flag=flag, fits=ONE_SERVER)


def _pairs(flag: str) -> OptionRow:
    return OptionRow("OLD=NEW", flag=flag, fits=ONE_SERVER)


class ShownComponentOptions(Struct, frozen=True, kw_only=True):
    """The options for the components that clients see, with the names in `ComponentTable`. None: not given."""

    hide_tools: Annotated[
        _Names,
        "Hide a tool; * in the name stands for any characters; may be repeated.",
        _names("hide_tool"),
    ] = None
    only_tools: Annotated[
        _Names, "Hide all tools except this one, or this pattern; may be repeated.", _names("only_tool")
    ] = None
    rename_tools: Annotated[
        _Pairs,
        "Give a tool another name for clients; each name may have one *; may be repeated.",
        _pairs("rename_tool"),
    ] = None
    hide_resources: Annotated[
        _Names, "Hide resources by their URI, and templates by their text.", _names("hide_resource")
    ] = None
    only_resources: Annotated[
        _Names, "Hide all resources and templates except these.", _names("only_resource")
    ] = None
    rename_resources: Annotated[_Pairs, "Give a resource another URI.", _pairs("rename_resource")] = None
    hide_prompts: Annotated[_Names, "Hide a prompt.", _names("hide_prompt")] = None
    only_prompts: Annotated[_Names, "Hide all prompts except this one.", _names("only_prompt")] = None
    rename_prompts: Annotated[_Pairs, "Give a prompt another name.", _pairs("rename_prompt")] = None


class BehindOptions(ShownComponentOptions, frozen=True, kw_only=True):
    """The options for the server behind. None: not given, so its own setting or the default counts."""

    proxy: Annotated[
        dict[str, Any] | None,
        "A limit for the server behind, such as call_seconds=60; may be repeated. The names are in docs/in-front.md.",
        OptionRow(
            "NAME=NUMBER",
            flag="proxy_limit",
            settings=ProxyOptions,
            members={},
            taken=("concurrency", "strict", "home", "shared", "shared_between"),
            fits=ONE_SERVER,
        ),
    ] = None
    oidc_scopes: Annotated[
        tuple[str, ...] | None,
        "A scope that a token needs for every tool, resource and prompt of the server behind, or of a server that is made "
        "of others; may be repeated.",
        OptionRow("SCOPE", fits=BEHIND),
    ] = None
    scopes: Annotated[dict[str, Any] | None, OptionRow(settings=ScopeTable, members={}, fits=ONE_SERVER)] = (
        None
    )

    concurrency: Annotated[
        Count | None,
        "How many calls of one session the server behind gets at once; 1 for one that cannot run several.",
        OptionRow("NUMBER", fits=ONE_SERVER),
    ] = None
    strict: Annotated[
        bool | None,
        "Close a session when the server behind loses its own, or its process ends.",
        OptionRow(fits=ONE_SERVER),
    ] = None
    home: Annotated[
        Home | None,
        "any: the server behind keeps nothing between two calls, so every process may answer every call.",
        OptionRow(fits=ONE_SERVER, default="session"),
    ] = None
    upstream_version: Annotated[
        str | None,
        "The protocol version for the server behind: auto, sessions, sessionless, or one revision.",
        OptionRow("VERSION", fits=BEHIND, default="auto"),
    ] = None
    probe: Annotated[
        bool | None,
        "Connect to the server behind once at the start. A program of the command line that does not answer ends the start.",
        OptionRow(fits=BEHIND, default="on"),
    ] = None
    headers: Annotated[
        dict[str, str] | None,
        "A header for the server behind a URL; may be repeated.",
        OptionRow("NAME=VALUE", flag="header", fits=(URL,)),
    ] = None
    token_file: Annotated[
        str | None,
        "A file with the bearer token for the server behind a URL. Or put it into LIMPET_UPSTREAM_TOKEN.",
        OptionRow("PATH", fits=(URL,)),
    ] = None
    token_env: Annotated[
        str | None, "The environment variable with that token.", OptionRow("NAME", fits=(URL,))
    ] = None
    oauth: Annotated[
        bool | None,
        "Sign in to the server behind a URL with OAuth, in the browser of this machine.",
        OptionRow(fits=(URL,)),
    ] = None
    oauth_callback: Annotated[
        str | None,
        "Let each user sign in to the server behind with OAuth; browsers return to this public URL of ours.",
        OptionRow("URL", fits=(URL,)),
    ] = None
    oauth_client_id: Annotated[
        str | None,
        "The id of Limpet at the authorization server, if it was registered there by hand.",
        OptionRow("ID", fits=(URL,)),
    ] = None
    oauth_secret_file: Annotated[
        str | None,
        "A file with the secret of that client. Or put it into LIMPET_OAUTH_SECRET.",
        OptionRow("PATH", fits=(URL,)),
    ] = None
    oauth_issuer: Annotated[
        str | None,
        "The authorization server of that client. It alone gets the secret.",
        OptionRow("URL", fits=(URL,)),
    ] = None
    oauth_redirect: Annotated[
        str | None,
        "The redirect URI of that client on this machine, for --oauth.",
        OptionRow("URL", fits=(URL,)),
    ] = None
    pass_token: Annotated[
        bool | None, "Send the client's own bearer token to the server behind a URL.", OptionRow(fits=(URL,))
    ] = None
    pass_headers: Annotated[
        tuple[str, ...] | None,
        "A header of the client that is sent to the server behind a URL; may be repeated.",
        OptionRow("NAME", flag="pass_header", fits=(URL,)),
    ] = None
    env: Annotated[
        dict[str, str] | None,
        "A variable for the command after --; may be repeated. header:X and claim:Y as values come from the client.",
        OptionRow("NAME=VALUE", fits=(COMMAND,)),
    ] = None
    cwd: Annotated[
        str | None, "The directory in which the command runs.", OptionRow("PATH", fits=(COMMAND,))
    ] = None
    start_timeout: Annotated[
        Seconds | None,
        "How long the command may take from its start to its first answer, each time it starts.",
        OptionRow("SECONDS", fits=(COMMAND,), default="60"),
    ] = None
    children: Annotated[
        Count | None,
        "How many processes of the command may run.",
        OptionRow("NUMBER", fits=(COMMAND,), default="64"),
    ] = None
    child_idle: Annotated[
        Seconds | None,
        "Stop the process of a session that was not used for so long, and start another one for its next call.",
        OptionRow("SECONDS", fits=(COMMAND,), default="it runs as long as its session"),
    ] = None
    child_memory: Annotated[
        str | None,
        "The memory of each process of the command, such as 512M. Linux.",
        OptionRow("SIZE", fits=(COMMAND,)),
    ] = None
    child_cpu: Annotated[
        Count | None,
        "The processor time of each process of the command in its whole life; then it ends. Linux.",
        OptionRow("SECONDS", fits=(COMMAND,)),
    ] = None
    child_files: Annotated[
        Count | None,
        "The open files and sockets of each process of the command. Linux.",
        OptionRow("NUMBER", fits=(COMMAND,)),
    ] = None
    shared: Annotated[
        bool | None,
        "The sessions of one principal share a process, which may not ask them.",
        OptionRow(fits=(COMMAND,)),
    ] = None
    shared_between: Annotated[
        tuple[str, ...] | None,
        "A principal that shares its process with the others named so; needs --shared; may be repeated.",
        OptionRow("SUBJECT", fits=(COMMAND,)),
    ] = None
