"""The options of `limpet serve` that say which components clients see, and under which names.

They are rows of the table in `options.py`, which has the theory. Their members are those of `ComponentTable`.
"""

from typing import Annotated, Any

from msgspec import Struct

from limpet.cli.rows import ONE_SERVER, OptionRow


def _names(verb: str, help_: str) -> OptionRow:
    return OptionRow(flag=verb, metavar="PATTERN", help=help_, fits=ONE_SERVER)


def _pairs(verb: str, help_: str) -> OptionRow:
    return OptionRow(flag=verb, metavar="OLD=NEW", help=help_, fits=ONE_SERVER)


_Names = tuple[str, ...] | None
_Pairs = dict[str, str] | None


class ShownComponentOptions(Struct, frozen=True, kw_only=True):
    """The options for the components that clients see. None: not given."""

    hide_tools: Annotated[
        _Names,
        _names("hide_tool", "Hide a tool; * in the name stands for any characters; may be repeated."),
    ] = None
    only_tools: Annotated[
        _Names, _names("only_tool", "Hide all tools except this one, or this pattern; may be repeated.")
    ] = None
    rename_tools: Annotated[
        _Pairs,
        _pairs(
            "rename_tool", "Give a tool another name for clients; each name may have one *; may be repeated."
        ),
    ] = None
    hide_resources: Annotated[
        _Names, _names("hide_resource", "Hide resources by their URI, and templates by their text.")
    ] = None
    only_resources: Annotated[
        _Names, _names("only_resource", "Hide all resources and templates except these.")
    ] = None
    rename_resources: Annotated[_Pairs, _pairs("rename_resource", "Give a resource another URI.")] = None
    hide_prompts: Annotated[_Names, _names("hide_prompt", "Hide a prompt.")] = None
    only_prompts: Annotated[_Names, _names("only_prompt", "Hide all prompts except this one.")] = None
    rename_prompts: Annotated[_Pairs, _pairs("rename_prompt", "Give a prompt another name.")] = None


def components_of(options: ShownComponentOptions) -> dict[str, Any]:
    """Return the rows that were given, by the members of `ComponentTable`."""
    given = {name: getattr(options, name) for name in ShownComponentOptions.__struct_fields__}
    return {name: value for name, value in given.items() if value}
