"""The databases of a trial: started, taken away and brought back, and looked into."""

import contextlib
import sqlite3
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

from tests.postgres_server import FAST, PostgresServer, make_standby, server_home
from tests.redis_server import RedisServer
from tests.support import wait_until
from tools.ports import free_port

DURABLE: Final = ("--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")

LINGERING: Final = 30_000
"""Milliseconds for which the ends of calls can be read after their session was closed."""


class Database(Protocol):
    """What a trial needs of the database of its fleet."""

    ports: tuple[int, ...]
    """Where it is, or may be."""

    def url_at(self, *ports: int) -> str:
        """Return its URL at these ports."""
        ...

    def restart(self) -> None:
        """Bring it back, after `stop`."""
        ...

    def stop(self) -> None:
        """End it as a power loss would."""
        ...

    def end(self) -> None:
        """End everything."""
        ...

    def pid(self) -> int:
        """Return its process."""
        ...

    def fill(self) -> None:
        """Let it refuse writes for lack of room."""
        ...

    def empty(self) -> None:
        """Let it have room again."""
        ...

    def of_session(self, key: str) -> dict[str, str]:
        """Return everything that it has of a session."""
        ...

    def size(self) -> int:
        """Return how many keys or rows it has."""
        ...

    def left(self, sessions: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield what is left after all sessions have ended: a name, and why it must not be there; empty: it may."""
        ...


class Redis:
    """Redis that writes every command to its disk."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.server: RedisServer = RedisServer(home / "redis", *DURABLE, port=free_port())
        self.ports: tuple[int, ...] = (self.server.port,)

    def url_at(self, *ports: int) -> str:
        return f"redis://127.0.0.1:{ports[0]}"

    def pid(self) -> int:
        return self.server.pid

    def fill(self) -> None:
        self.server.tell("CONFIG", "SET", "maxmemory", "1")

    def empty(self) -> None:
        self.server.tell("CONFIG", "SET", "maxmemory", "0")

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

    def size(self) -> int:
        return int(self.server.tell("DBSIZE").split()[-1])

    def left(self, sessions: Iterable[str]) -> Iterator[tuple[str, str]]:
        for name in self.server.tell("KEYS", "*").split():
            if self.server.tell("PTTL", name) == "-1":
                yield name, "would stay forever"
            elif (
                any(session in name for session in sessions)
                and int(self.server.tell("PTTL", name)) > LINGERING
            ):
                yield name, "outlived its session"
            else:
                yield name, ""


class FailingRedis(Redis):
    """Redis with a standby that takes over without the writes of the last second. One address leads to the server in charge, as with Sentinel."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._generation = 0
        self._standby = self._new_standby()

    def _new_standby(self) -> RedisServer:
        self._generation += 1
        follow = ("--replicaof", "127.0.0.1", str(self.server.port), "--repl-diskless-sync-delay", "0")
        standby = RedisServer(self._home / f"standby{self._generation}", *DURABLE, *follow, port=free_port())
        wait_until(lambda: "master_link_status:up" in standby.tell("INFO", "replication"))
        return standby

    def part(self) -> None:
        """Let nothing more reach the standby: what is written from now on will be lost."""
        self._standby.tell("REPLICAOF", "NO", "ONE")

    def fail_over(self) -> tuple[int, int]:
        """Lose the server in charge; return the port of the new one and that of the old one."""
        old = self.server
        old.stop()
        self.server = self._standby
        self.ports = (self.server.port,)
        return self.server.port, old.port

    def follow(self) -> None:
        """Give the server in charge a new standby."""
        self._standby = self._new_standby()

    def end(self) -> None:
        super().end()
        self._standby.stop()


class Sqlite:
    """A SQLite file on a small disk of its own, if one can be mounted."""

    SIZE: Final = 512 * 1024 * 1024

    def __init__(self, home: Path) -> None:
        self._home = home / "disk"
        self._home.mkdir()
        self._is_mounted = (
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={self.SIZE}", "limpet-chaos", str(self._home)],
                check=False,
                capture_output=True,
            ).returncode
            == 0
        )
        self.ports: tuple[int, ...] = ()

    def url_at(self, *ports: int) -> str:
        del ports
        return f"sqlite:///{self._home}/chaos.db"

    def pid(self) -> int:
        raise NotImplementedError("a file has no process")

    def restart(self) -> None:
        """It was never away."""

    def stop(self) -> None:
        """A file cannot be stopped."""

    def fill(self) -> None:
        assert self._is_mounted, "without the right to mount a disk no disk can be filled"
        with contextlib.suppress(OSError), (self._home / "ballast").open("wb", buffering=0) as ballast:
            while True:
                ballast.write(b"\0" * 4096)

    def empty(self) -> None:
        (self._home / "ballast").unlink()

    def end(self) -> None:
        if self._is_mounted:
            subprocess.run(["umount", "-l", str(self._home)], check=False)

    @property
    def _file(self) -> Path:
        """The file of the namespace."""
        return self._home / "chaos.chaos.db"

    def of_session(self, key: str) -> dict[str, str]:
        with contextlib.closing(sqlite3.connect(self._file)) as file:
            sid = file.execute("SELECT sid FROM session WHERE key = ?", (key,)).fetchone()
            found: dict[str, str] = {}
            for table in self._tables(file):
                columns = [row[1] for row in file.execute(f"PRAGMA table_info({table})")]
                if sid is not None and "sid" in columns:
                    rows = file.execute(f"SELECT * FROM {table} WHERE sid = ?", sid).fetchall()
                    found[table] = repr(sorted(map(repr, rows)))
            return found

    def size(self) -> int:
        with contextlib.closing(sqlite3.connect(self._file)) as file:
            names = self._tables(file)
            return sum(file.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names)

    def _tables(self, file: sqlite3.Connection) -> list[str]:
        return [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]

    def left(self, sessions: Iterable[str]) -> Iterator[tuple[str, str]]:
        with contextlib.closing(sqlite3.connect(self._file)) as file:
            for table in self._tables(file):
                columns = [row[1] for row in file.execute(f"PRAGMA table_info({table})")]
                if "sid" in columns and table not in PASSING:
                    rows = file.execute(f"SELECT s.key FROM {table} t LEFT JOIN session s USING (sid)")
                    yield from _left_rows(table, (key or "" for (key,) in rows), sessions)


OUTLIVED: Final = "has a row that outlived its session"
PASSING: Final = {"inbox", "event", "lingering"}
"""Tables whose rows expire by themselves."""


def _left_rows(table: str, keys: Iterable[str], sessions: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the rows of a table by the keys of their sessions. Sessions that only keep answers for idempotency keys live on for minutes."""
    known = tuple(sessions)
    for key in keys:
        yield table, "" if key and not key.startswith(known) else OUTLIVED


class Postgres:
    """PostgreSQL; with a standby, which takes over when it is taken away. A commit is acknowledged when the standby has it."""

    SCHEMA: Final = "limpet_chaos"

    def __init__(self, home: Path, *, has_standby: bool = False) -> None:
        home = server_home(home / "postgres")
        # A process that is killed loses nothing that it has given to the system.
        durable = (FAST[0], FAST[1], "synchronous_commit=on", "max_connections=100")
        self.server: PostgresServer = PostgresServer(home, *durable, data="primary")
        self.server.make()
        self.server.start()
        self.ports: tuple[int, ...] = (self.server.port,)
        self._standby: PostgresServer | None = None
        if has_standby:
            self._standby = make_standby(self.server, *durable)
            self.server.tell("ALTER SYSTEM SET synchronous_standby_names = '*'; SELECT pg_reload_conf()")
            self.ports += (self._standby.port,)

    def url_at(self, *ports: int) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"postgres://limpet@{hosts}/postgres"

    def pid(self) -> int:
        return self.server.pid

    def fill(self) -> None:
        raise NotImplementedError("a full disk ends PostgreSQL")

    def empty(self) -> None:
        """It was never full."""

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

    def size(self) -> int:
        names = ("session", "field", "event", "subscription", "work", "task", "op", "closing")
        return sum(int(self.server.tell(f"SELECT count(*) FROM {self.SCHEMA}.{name}")) for name in names)

    def left(self, sessions: Iterable[str]) -> Iterator[tuple[str, str]]:
        for table in ("session", "field", "subscription", "work"):
            found = self.server.tell(
                f"SELECT coalesce(s.key, '') || ';' FROM {self.SCHEMA}.{table} t LEFT JOIN {self.SCHEMA}.session s USING (sid)"
            )
            yield from _left_rows(table, (row.rstrip(";") for row in found.split()), sessions)
        for table in ("area", "cell", "op"):
            for _ in range(int(self.server.tell(f"SELECT count(*) FROM {self.SCHEMA}.{table}"))):
                yield table, OUTLIVED
        known = [session.encode() for session in sessions]
        for row in self.server.tell(
            f"SELECT encode(opened, 'hex') || ';' FROM {self.SCHEMA}.closing"
        ).split():
            record = bytes.fromhex(row.rstrip(";"))
            # A session that only kept answers for idempotency keys may be closing now: some are, at any time.
            is_passing = record and not any(session in record for session in known)
            yield "closing", "" if is_passing else OUTLIVED


KINDS: Final[dict[str, Callable[[Path], Database]]] = {
    "redis": Redis,
    "redis-failover": FailingRedis,
    "sqlite": Sqlite,
    "postgres": Postgres,
    "postgres-standby": lambda home: Postgres(home, has_standby=True),
}
