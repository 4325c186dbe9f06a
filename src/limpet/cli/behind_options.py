"""The options of `limpet serve` for a server behind: a URL, a program, or an object of another framework.

They are rows of the table in `options.py`, which has the theory.
"""

from typing import Annotated, Any

from limpet.backs.proxy.options import Home, ProxyOptions
from limpet.backs.proxy.scopes import ScopeTable
from limpet.cli.component_options import ShownComponentOptions
from limpet.cli.rows import BEHIND, COMMAND, ONE_SERVER, URL, Count, OptionRow, Seconds


class BehindOptions(ShownComponentOptions, frozen=True, kw_only=True):
    """The options for the server behind. None: not given, so its own setting or the default counts."""

    proxy: Annotated[
        dict[str, Any] | None,
        OptionRow(
            flag="proxy_limit",
            metavar="NAME=NUMBER",
            help="A limit for the server behind, such as call_seconds=60; may be repeated. The names are in docs/in-front.md.",
            settings=ProxyOptions,
            members={},
            taken=("concurrency", "strict", "home", "shared", "shared_between"),
            fits=ONE_SERVER,
        ),
    ] = None
    oidc_scopes: Annotated[
        tuple[str, ...] | None,
        OptionRow(
            metavar="SCOPE",
            help="A scope that a token needs for every tool, resource and prompt of the server behind, or of a server that is made of others; may be repeated.",
            fits=BEHIND,
        ),
    ] = None
    scopes: Annotated[dict[str, Any] | None, OptionRow(settings=ScopeTable, members={}, fits=ONE_SERVER)] = (
        None
    )

    concurrency: Annotated[
        Count | None,
        OptionRow(
            metavar="NUMBER",
            help="How many calls of one session the server behind gets at once; 1 for one that cannot run several.",
            fits=ONE_SERVER,
        ),
    ] = None
    strict: Annotated[
        bool | None,
        OptionRow(
            help="Close a session when the server behind loses its own, or its process ends.",
            fits=ONE_SERVER,
        ),
    ] = None
    home: Annotated[
        Home | None,
        OptionRow(
            help="any: the server behind keeps nothing between two calls, so every process may answer every call.",
            fits=ONE_SERVER,
            default="session",
        ),
    ] = None
    upstream_version: Annotated[
        str | None,
        OptionRow(
            metavar="VERSION",
            help="The protocol version for the server behind: auto, sessions, sessionless, or one revision.",
            fits=BEHIND,
            default="auto",
        ),
    ] = None
    probe: Annotated[
        bool | None,
        OptionRow(
            help="Connect to the server behind once at the start. A program of the command line that does not answer ends the start.",
            fits=BEHIND,
            default="on",
        ),
    ] = None
    headers: Annotated[
        dict[str, str] | None,
        OptionRow(
            flag="header",
            metavar="NAME=VALUE",
            help="A header for the server behind a URL; may be repeated.",
            fits=(URL,),
        ),
    ] = None
    token_file: Annotated[
        str | None,
        OptionRow(
            metavar="PATH",
            help="A file with the bearer token for the server behind a URL. Or put it into LIMPET_UPSTREAM_TOKEN.",
            fits=(URL,),
        ),
    ] = None
    token_env: Annotated[
        str | None, OptionRow(metavar="NAME", help="The environment variable with that token.", fits=(URL,))
    ] = None
    oauth: Annotated[
        bool | None,
        OptionRow(
            help="Sign in to the server behind a URL with OAuth, in the browser of this machine.", fits=(URL,)
        ),
    ] = None
    oauth_callback: Annotated[
        str | None,
        OptionRow(
            metavar="URL",
            help="Let each user sign in to the server behind with OAuth; browsers return to this public URL of ours.",
            fits=(URL,),
        ),
    ] = None
    oauth_tokens: Annotated[
        str | None,
        OptionRow(
            metavar="PATH",
            help="A directory for the tokens of these users. Default: they are kept in the store, sealed.",
            fits=(URL,),
        ),
    ] = None
    oauth_client_id: Annotated[
        str | None,
        OptionRow(
            metavar="ID",
            help="The id of Limpet at the authorization server, if it was registered there by hand.",
            fits=(URL,),
        ),
    ] = None
    oauth_secret_file: Annotated[
        str | None,
        OptionRow(
            metavar="PATH",
            help="A file with the secret of that client. Or put it into LIMPET_OAUTH_SECRET.",
            fits=(URL,),
        ),
    ] = None
    oauth_issuer: Annotated[
        str | None,
        OptionRow(
            metavar="URL",
            help="The authorization server of that client. It alone gets the secret.",
            fits=(URL,),
        ),
    ] = None
    oauth_redirect: Annotated[
        str | None,
        OptionRow(
            metavar="URL", help="The redirect URI of that client on this machine, for --oauth.", fits=(URL,)
        ),
    ] = None
    pass_token: Annotated[
        bool | None,
        OptionRow(help="Send the client's own bearer token to the server behind a URL.", fits=(URL,)),
    ] = None
    pass_headers: Annotated[
        tuple[str, ...] | None,
        OptionRow(
            flag="pass_header",
            metavar="NAME",
            help="A header of the client that is sent to the server behind a URL; may be repeated.",
            fits=(URL,),
        ),
    ] = None
    env: Annotated[
        dict[str, str] | None,
        OptionRow(
            metavar="NAME=VALUE",
            help="A variable for the command after --; may be repeated. header:X and claim:Y as values come from the client.",
            fits=(COMMAND,),
        ),
    ] = None
    cwd: Annotated[
        str | None,
        OptionRow(metavar="PATH", help="The directory in which the command runs.", fits=(COMMAND,)),
    ] = None
    start_timeout: Annotated[
        Seconds | None,
        OptionRow(
            metavar="SECONDS",
            help="How long the command may take from its start to its first answer, each time it starts.",
            fits=(COMMAND,),
            default="60",
        ),
    ] = None
    children: Annotated[
        Count | None,
        OptionRow(
            metavar="NUMBER", help="How many processes of the command may run.", fits=(COMMAND,), default="64"
        ),
    ] = None
    child_idle: Annotated[
        Seconds | None,
        OptionRow(
            metavar="SECONDS",
            help="Stop the process of a session that was not used for so long, and start another one for its next call.",
            fits=(COMMAND,),
            default="it runs as long as its session",
        ),
    ] = None
    child_memory: Annotated[
        str | None,
        OptionRow(
            metavar="SIZE",
            help="The memory of each process of the command, such as 512M. Linux.",
            fits=(COMMAND,),
        ),
    ] = None
    child_cpu: Annotated[
        Count | None,
        OptionRow(
            metavar="SECONDS",
            help="The processor time of each process of the command in its whole life; then it ends. Linux.",
            fits=(COMMAND,),
        ),
    ] = None
    child_files: Annotated[
        Count | None,
        OptionRow(
            metavar="NUMBER",
            help="The open files and sockets of each process of the command. Linux.",
            fits=(COMMAND,),
        ),
    ] = None
    shared: Annotated[
        bool | None,
        OptionRow(
            help="The sessions of one principal share a process, which may not ask them.", fits=(COMMAND,)
        ),
    ] = None
    shared_between: Annotated[
        tuple[str, ...] | None,
        OptionRow(
            metavar="SUBJECT",
            help="A principal that shares its process with the others named so; needs --shared; may be repeated.",
            fits=(COMMAND,),
        ),
    ] = None
