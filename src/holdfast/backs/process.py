"""A program that speaks MCP on its standard input and output, as the target of a proxy back: one child per upstream.

A child gets a minimal environment (`transports/child.py`), never a variable of ours, and the variables of `environment.py`.

A child that ends soon after its start is started again only after a pause, and the pauses grow: a program that fails
at once must not keep the machine busy. A child that has worked for STEADY_SECONDS is started again at once.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast.backs.environment import Environment
from holdfast.backs.proxy.target import Target, UpstreamClient
from holdfast.ports import Ports
from holdfast.transports.child import ChildLimits, ChildOptions
from holdfast.upstream.backoff import Backoff
from holdfast.upstream.connectors import ChildConnector, Connector
from holdfast.upstream.link import Receiver, UpstreamLink
from holdfast.upstream.settings import ClientLimits, ClientTimes

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
        """Return a hash of the variables that come from the client."""
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
        """Start the program."""
        if self._started_at is not None:
            if self._clock.now() - self._started_at < STEADY_SECONDS:
                await asyncio.sleep(self._backoff.pause())
            else:
                self._backoff.worked()
        self._started_at = self._clock.now()
        return await super().connect(receiver)
