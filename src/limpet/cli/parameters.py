"""The table of options as parameters of typer, for the help and the completion of `serve`."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Final

import typer
from msgspec import Struct

from limpet.cli.option_values import readable
from limpet.cli.rows import entries

_PANELS: Final = {
    "Where it listens": ("http", "fd", "tls_cert", "tls_key", "path", "public_url", "trusted_proxies", "server_card"),
    "Who may call": (
        "verifier", "oidc_issuer", "oidc_audience", "oidc_scopes", "introspection_url", "introspection_id",
        "introspection_key", "allow_anonymous", "allow_host", "allow_origin", "scope_supported", "forward_key_file",
    ),
    "Processes and sessions": (
        "workers", "start_limit", "reload", "store", "namespace", "grace", "drain", "drain_notice", "stateless", "state", "affinity",
        "eras",
    ),
    "Calls and limits": (
        "memory", "store_bytes", "limit", "time", "rate", "duplicates", "response", "in_order", "mask_errors",
        "hand_over", "collect_tool",
    ),
    "What clients see": (
        "hide_tool", "only_tool", "rename_tool", "hide_resource", "only_resource", "rename_resource", "hide_prompt", "only_prompt",
        "rename_prompt",
    ),
    "Operate": ("name", "admin", "admin_token_file", "admin_host", "log_level", "log_format", "traceback"),
}  # fmt: skip
"""The groups of `--help`, and the options of each."""
_USUAL: Final = frozenset({
    "http", "tls_cert", "tls_key", "public_url", "verifier", "allow_anonymous", "allow_host", "workers", "reload", "store", "limit",
    "time", "admin", "log_level", "traceback", "header", "token_env", "env",
})  # fmt: skip
"""The options that `--help` shows, with --stdio and --only; `--help-all` shows all."""
_BEHIND_PANEL: Final = "The server behind: a URL, a program, or an object of another framework"
_PANEL_OF: Final = {name: panel for panel, names in _PANELS.items() for name in names}


def within(least: float, most: float | None = None) -> Callable[[float | None], float | None]:
    """Return a check of a number. typer's own check shows `[x>=1]` in the help, and x is not explained there."""
    form = f"{least:g} or more" if most is None else f"{least:g} to {most:g}"

    def check(value: float | None) -> float | None:
        if value is not None and not (value >= least and (most is None or value <= most)):
            raise typer.BadParameter(f"give {form}, not {value:g}")
        return value

    return check


def completes(words: Iterable[str]) -> Callable[[str], list[str]]:
    """Return the shell completion of an option that takes one of some words."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def parameters(kind: type[Struct]) -> Iterator[inspect.Parameter]:
    """Yield a parameter for each option of a structure, as typer reads them from a signature."""
    for entry in entries(kind):
        annotation, _ = readable(entry.type)
        option: Any = typer.Option(
            f"{entry.flag}/--no-{entry.flag.removeprefix('--')}" if annotation is bool else entry.flag,
            help=entry.meaning,
            metavar=entry.form,
            show_default=False,
            hidden=entry.parameter not in _USUAL,
            rich_help_panel=_PANEL_OF.get(entry.parameter, _BEHIND_PANEL),
        )
        yield inspect.Parameter(
            entry.parameter,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[annotation | None, option],
        )
