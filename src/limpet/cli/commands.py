"""How typer reads the words: a program after `--`, and the words of other projects with ours in the error."""

import re
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

from limpet.errors import ConfigError

COMMAND: Final = "limpet.command"
"""Where the words after `--` are kept, in the `meta` of the context."""

_TARGET: Final = re.compile(r"://|\.(?:py|toml|json)(?::|$)")
"""In a word that is a target, and not a command."""
_THEIR_COMMANDS: Final = {
    "run": "limpet serve TARGET",
    "dev": "limpet serve TARGET --reload",
    "list": "limpet inspect TARGET",
    "version": "limpet --version",
}
"""Commands of `fastmcp` and `mcp`, and ours."""


def _shown(parameters: list[Any]) -> list[Any]:
    """Show no types of Python: a switch takes no value, and an argument has the text of its usage."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
        elif parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda **_: ""
    return parameters


class Group(TyperGroup):
    """A group of commands whose help can be read by people who do not know Python."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _shown(super().get_params(ctx))


class Commands(Group):
    """The commands. A command of another project is an error that names ours."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if ours := _THEIR_COMMANDS.get(args[0]):
            raise ConfigError(f"there is no command {args[0]!r}; use {ours}")
        if _TARGET.search(args[0]):
            raise ConfigError(
                f"the command is missing; use limpet serve {args[0]}, or inspect instead of serve"
            )
        return super().resolve_command(ctx, args)


class PlainCommand(TyperCommand):
    """A command whose help can be read by people who do not know Python.

    Its arguments have the text of their usage as metavar.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        return _shown(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [one.metavar for one in self.get_params(ctx) if one.param_type_name == "argument"]
        return ["[OPTIONS]", *arguments]


class WithCommand(PlainCommand):
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
