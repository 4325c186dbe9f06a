"""The databases of a trial: started, taken away and brought back, and looked into."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

from tests.postgres_server import FAST, PostgresServer, make_standby, server_home
from tests.redis_server import RedisServer
from tools.ports import free_port

DURABLE: Final = ("--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")


class Database(Protocol):
    """What a trial needs of the database of its fleet."""

    url: str

    def restart(self) -> None:
        """Bring it back, after `stop`."""
        ...

    def stop(self) -> None:
        """End it as a power loss would."""
        ...

    def end(self) -> None:
        """End everything."""
        ...

    def of_session(self, key: str) -> dict[str, str]:
        """Return everything that it has of a session."""
        ...

    def left(self, sessions: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield what is left after all sessions have ended: a name, and why it must not be there; empty: it may."""
        ...


class Redis:
    """Redis that writes every command to its disk."""

    def __init__(self, home: Path) -> None:
        self.server: RedisServer = RedisServer(home / "redis", *DURABLE, port=free_port())
        self.url: str = self.server.url

    def restart(self) -> None:
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    def end(self) -> None:
        self.server.stop()

    def of_session(self, key: str) -> dict[str, str]:
        found: dict[str, str] = {}
        tell = self.server.tell
        for name in tell("KEYS", f"*{key}*").split():
            if tell("TYPE", name) == "hash":
                for field in tell("HKEYS", name).split():
                    found[f"{name} {field}"] = tell("HGET", name, field)
            else:
                found[name] = tell("DUMP", name)
        return found

    def left(self, sessions: Iterable[str]) -> Iterator[tuple[str, str]]:
        for name in self.server.tell("KEYS", "*").split():
            if self.server.tell("PTTL", name) == "-1":
                yield name, "would stay forever"
            elif any(session in name for session in sessions):
                yield name, "outlived its session"
            else:
                yield name, ""


class Postgres:
    """PostgreSQL; with a standby, which takes over when it is taken away. A commit is acknowledged when the standby has it."""

    SCHEMA: Final = "holdfast_chaos"

    def __init__(self, home: Path, *, has_standby: bool = False) -> None:
        home = server_home(home / "postgres")
        # A process that is killed loses nothing that it has given to the system.
        durable = (FAST[0], FAST[1], "synchronous_commit=on", "max_connections=100")
        self.server: PostgresServer = PostgresServer(home, *durable, data="primary")
        self.server.make()
        self.server.start()
        self.url: str = self.server.url
        self._standby: PostgresServer | None = None
        if has_standby:
            self._standby = make_standby(self.server, *durable)
            self.server.tell("ALTER SYSTEM SET synchronous_standby_names = '*'; SELECT pg_reload_conf()")
            hosts = f"127.0.0.1:{self.server.port},127.0.0.1:{self._standby.port}"
            self.url = f"postgres://holdfast@{hosts}/postgres"

    def restart(self) -> None:
        if self._standby is None:
            self.server.start()
        else:
            self.server = self._standby
            self.server.tell(
                "ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf(); SELECT pg_promote()"
            )

    def stop(self) -> None:
        self.server.stop()

    def end(self) -> None:
        self.server.stop()
        if self._standby is not None:
            self._standby.stop()

    def of_session(self, key: str) -> dict[str, str]:
        where = f"WHERE sid = (SELECT sid FROM {self.SCHEMA}.session WHERE key = '{key}')"
        found: dict[str, str] = {}
        for table, name in (("session", "key"), ("field", "name"), ("event", "stream || seq")):
            rows = self.server.tell(
                f"SELECT {name}, md5(t::text) FROM {self.SCHEMA}.{table} t {where}"
            ).splitlines()
            found |= {f"{table} {row.partition('|')[0]}": row.partition("|")[2] for row in rows}
        return found

    def left(self, sessions: Iterable[str]) -> Iterator[tuple[str, str]]:
        del sessions
        for table in (
            "session",
            "field",
            "event",
            "subscription",
            "work",
            "scope",
            "cell",
            "op",
            "kept",
            "task",
            "inbox",
            "closing",
        ):
            for _ in range(int(self.server.tell(f"SELECT count(*) FROM {self.SCHEMA}.{table}"))):
                yield table, "" if table in {"inbox", "event"} else "has a row that outlived its session"


KINDS: Final[dict[str, Callable[[Path], Database]]] = {
    "redis": Redis,
    "postgres": Postgres,
    "postgres-standby": lambda home: Postgres(home, has_standby=True),
}
