"""`Process`: a program that speaks MCP on its standard input and output, served by Holdfast."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Unpack

from holdfast.backs.environment import Environment, Value
from holdfast.backs.process import ProcessTarget
from holdfast.errors import ConfigError
from holdfast.server.proxy import Proxy, ProxyArguments
from holdfast.server.running.namespaces import distinct_namespace
from holdfast.transports.child import ChildLimits
from holdfast.upstream.settings import ClientLimits, ClientTimes

START_SECONDS: Final = 60.0
"""How long a child may take from its start to its first answer: `npx -y` and `uvx` may first download a package."""
CHILDREN: Final = 64
"""How many children one process starts by default."""


class Process(Proxy):
    """A program that speaks MCP on its standard input and output, served by Holdfast. Each session has its own child."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, Value] | None = None,
        cwd: str | Path | None = None,
        children: int = CHILDREN,
        child_limits: ChildLimits | None = None,
        shared: bool = False,
        shared_between: Sequence[str] = (),
        protocol_version: str = "auto",
        **arguments: Unpack[ProxyArguments],
    ) -> None:
        """Describe the program. Nothing is started before the first client.

        command              the program and its arguments
        env                  variables in addition to the few that every child inherits; never `HOLDFAST_*`. A value is text,
                             or comes from the client: `FromHeader("X-Api-Key")`, `FromClaim("sub")`
        cwd                  the directory to run in
        children             how many children may run; the next client is refused as busy
        child_limits         the memory, processor time and open files of each of them (Linux)
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
