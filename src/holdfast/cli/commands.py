"""A command whose last words, after `--`, are a program."""

from typing import Any, Final

from typer.core import TyperCommand

from holdfast.errors import ConfigError

COMMAND: Final = "holdfast.command"
"""Where the words after `--` are kept, in the `meta` of the context."""


class WithCommand(TyperCommand):
    """Takes everything after `--` as the command of the server behind, its options included."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own, command = args, list[str]()
        if "--" in args:
            at = args.index("--")
            own, command = args[:at], args[at + 1 :]
            if not command:
                raise ConfigError("-- needs a command after it, such as -- npx -y some-server")
        ctx.meta[COMMAND] = tuple(command)
        return super().parse_args(ctx, own)
