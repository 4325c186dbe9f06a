"""How a proxy back behaves. Each limit has its reason."""

from typing import Literal, get_args

from msgspec import Struct

from limpet.config import MIB
from limpet.errors import ConfigError

Home = Literal["session", "any"]


class ProxyOptions(Struct, frozen=True, kw_only=True):
    """The options that `Remote`, `Process` and `Hosted` share."""

    concurrency: int | None = None
    """How many calls of one upstream run at once; 1 serialises them, for a server that loses parallel calls. None:
    no limit."""
    queued: int = 256
    """How many calls may wait for that; the next ones are refused as busy."""
    call_seconds: float = 300.0
    """How long the server may be silent during a call. Progress starts the time again; waiting for the client does
    not count."""
    strict: bool = False
    """Close the session if the server loses its own, instead of opening another one there."""
    home: Home = "session"
    """session: each session has its own upstream, in one process. any: the server keeps nothing between calls;
    every process has its own upstreams, and the sessions of one principal share them."""
    shared: bool = False
    """All clients of one principal share an upstream, and the server may not ask them. Anonymous clients of other
    machines
    do not share: they may be different people."""
    shared_between: tuple[str, ...] = ()
    """The principals, by their subject, that share one upstream: the only ones that do. They must have the same
    issuer."""
    upstreams: int = 1_000
    """How many upstreams one process may have; the next client is refused as busy. As many again may be ending."""
    idle_seconds: float = 600.0
    """How long an upstream that belongs to no session may be unused."""
    session_idle: float | None = None
    """How long the upstream of a session may be unused; then it ends, with all that the server keeps in it, and the
    next call opens another one. A session that is subscribed to a resource keeps its upstream. None: as long as the
    session."""
    notifications: int = 256
    """How many messages of one call, or outside of calls, may wait for a slow client; changes of lists and resources
    do not count, because none is dropped. Then a URL or a hosted object waits; from a program, progress keeps only
    the newest value, and the client reads how many other messages were dropped."""
    notification_bytes: int = MIB
    """The bytes of these messages. One message that is longer waits alone."""
    all_notification_bytes: int = 64 * MIB
    """The bytes of all messages of all calls that wait in this process."""

    included_seconds: float = 5.0
    """Of one of several servers at one address: how long a list, or the start of a session, waits for it. Its
    components are missing then, and the client is notified when they are there."""
    list_bytes: int = MIB
    """How many bytes of the server's lists one upstream keeps in memory. The oldest pages are removed first."""

    def __post_init__(self) -> None:
        if self.concurrency is not None and self.concurrency < 1:
            raise ConfigError(f"concurrency is a number of at least 1, or None; not {self.concurrency}")
        if self.home not in get_args(Home):
            raise ConfigError(f"home is one of {', '.join(get_args(Home))}; not {self.home!r}")
        if self.session_idle is not None and not self.session_idle > 0:
            raise ConfigError(
                f"session_idle is a number of seconds above 0, or None; not {self.session_idle}"
            )
        if self.session_idle is not None and self.strict:
            raise ConfigError(
                "session_idle does not fit strict, which closes a session whose server has lost its own"
            )
        if self.shared_between and not self.shared:
            raise ConfigError(
                "shared_between names the principals that share, so it needs shared=True (--shared)"
            )
        if self.shared and self.home == "any":
            raise ConfigError(
                'shared does not fit home="any", where all sessions of a principal share anyway'
            )
        if self.strict and self.home == "any":
            raise ConfigError(
                'strict does not fit home="any": no session has its own connection that could be lost'
            )
