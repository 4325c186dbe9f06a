"""`Process`: a program that speaks MCP on its standard input and output, served by Limpet: one child per upstream.

A child gets a minimal environment (`transports/child.py`), never a variable of ours, and the variables of
`backs/environment.py`.

A child that ends soon after its start is started again only after a pause, and the pauses grow: a program that fails
at once must not keep the machine busy. A child that has worked for STEADY_SECONDS is started again at once.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Unpack

from limpet.backs.environment import Environment, Value
from limpet.backs.proxy.target import Target, UpstreamClient
from limpet.errors import ConfigError
from limpet.ports import Ports
from limpet.server.proxy import Proxy, ProxyArguments
from limpet.server.running.namespaces import distinct_namespace
from limpet.transports.child import ChildLimits, ChildOptions
from limpet.upstream.backoff import Backoff
from limpet.upstream.connectors import ChildConnector, Connector
from limpet.upstream.link import Receiver, UpstreamLink
from limpet.upstream.settings import ClientLimits, ClientTimes

STEADY_SECONDS: Final = 10.0
"""A child that has lived this long did not fail at its start."""


class ProcessTarget(Target):
    """A command and its environment."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Environment,
        cwd: str | Path | None,
        child_limits: ChildLimits | None = None,
        version: str,
        limits: ClientLimits,
        times: ClientTimes,
    ) -> None:
        self.command: tuple[str, ...] = tuple(command)
        super().__init__(Path(self.command[0]).name, version=version, limits=limits, times=times)
        self.needs_credentials: bool = env.needs_client
        self._env = env
        self._cwd = cwd
        self._child_limits = child_limits

    def key(self, client: UpstreamClient) -> bytes:
        return self._env.key(client.caller)

    def connector(self, client: UpstreamClient) -> Connector:
        """Return a connector that starts the program, with the variables of this client."""
        observer = self.ports.observer
        options = ChildOptions(
            env=self._env.of(client.caller),
            cwd=self._cwd,
            limits=self._child_limits,
            message_bytes=self.limits.message,
            quotes_stderr=not self.masks_errors,
            on_stderr=lambda line: observer.note("upstream.stderr", program=self.name, line=line),
        )
        return PausingConnector(self.command, options, self.times, self.ports)


class PausingConnector(ChildConnector):
    """Starts the child of one upstream, and pauses before a start that follows a failed one."""

    def __init__(
        self, command: Sequence[str], options: ChildOptions, times: ClientTimes, ports: Ports
    ) -> None:
        self._clock, random, observer = ports
        super().__init__(command, options, times=times, observer=observer)
        self.remembered_as: str = "\0".join(command)
        self._backoff = Backoff(random, times.backoff)
        self._started_at: float | None = None

    async def connect(self, receiver: Receiver) -> UpstreamLink:
        if self._started_at is not None:
            if self._clock.now() - self._started_at < STEADY_SECONDS:
                await asyncio.sleep(self._backoff.pause())
            else:
                self._backoff.worked()
        self._started_at = self._clock.now()
        return await super().connect(receiver)


START_SECONDS: Final = 60.0
"""How long a child may take from its start to its first answer: `npx -y` and `uvx` may first download a package."""
CHILDREN: Final = 64
"""How many children one process starts by default."""


class Process(Proxy):
    """A program that speaks MCP on its standard input and output, served by Limpet.

    Each session has its own child.
    """

    def __init__(  # noqa: PLR0913 - everything has a default
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, Value] | None = None,
        cwd: str | Path | None = None,
        children: int = CHILDREN,
        child_limits: ChildLimits | None = None,
        child_idle: float | None = None,
        shared: bool = False,
        shared_between: Sequence[str] = (),
        protocol_version: str = "auto",
        **arguments: Unpack[ProxyArguments],
    ) -> None:
        """Describe the program. Nothing is started before the first client.

        command              the program and its arguments
        env                  variables in addition to the few that every child inherits; never `LIMPET_*`. A value is
                             text, or comes from the client: `FromHeader("X-Api-Key")`, `FromClaim("sub")`
        cwd                  the directory to run in
        children             how many children may run; the next client is refused as busy
        child_limits         the memory, processor time and open files of each of them (Linux)
        child_idle           after how many seconds without a call the child of a session is stopped, with all that it
                             keeps; the next call starts another one. By default it runs as long as its session
        shared               the sessions of one principal share a child, which may not ask them anything
        shared_between       the subjects of the principals that share one child with each other
        protocol_version     auto, sessions, sessionless, or one revision and no other, for the program

        The other arguments are those of `ProxyArguments`.

        Raises:
            ConfigError: the command or an option is invalid.
        """
        words = [command] if isinstance(command, str) else list(command)
        if not words or not words[0]:
            raise ConfigError('a process needs a command: Process(["npx", "-y", "some-server"])')
        target = ProcessTarget(
            words,
            env=Environment(env or {}),
            cwd=cwd,
            child_limits=_checked(child_limits),
            version=protocol_version,
            limits=arguments.get("limits", ClientLimits()),
            times=arguments.get("times", ClientTimes(connect=START_SECONDS)),
        )
        arguments["namespace"] = arguments.get("namespace") or distinct_namespace(
            target.name, "\0".join(words)
        )
        super().__init__(
            target,
            arguments,
            upstreams=children,
            session_idle=child_idle,
            shared=shared or None,
            shared_between=tuple(shared_between) or None,
        )
        self.command: tuple[str, ...] = target.command

    @property
    def summary(self) -> str:
        """The program, without its arguments: they may hold a secret."""
        return f"in front of the program {self.command[0]}"


def _checked(limits: ChildLimits | None) -> ChildLimits | None:
    if limits is not None and sys.platform != "linux":
        raise ConfigError("limits for child processes need Linux")
    return limits
