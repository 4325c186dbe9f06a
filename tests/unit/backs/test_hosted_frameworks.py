"""Objects of other frameworks are recognised by their class, without their packages."""

import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from limpet.backs.hosted import frameworks
from limpet.backs.hosted.frameworks import core_of, framework_of
from limpet.cli.target import load
from limpet.errors import ConfigError

CORE = SimpleNamespace(name="core")


def fake(name: str, **members: Any) -> Any:
    """Return an object whose class has the module and the name of a framework's class."""
    module, _, short = name.rpartition(".")
    return type(short, (), {"__module__": module, **members})()


def installed(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    def version(package: str) -> str:
        if package not in versions:
            raise PackageNotFoundError(package)
        return versions[package]

    monkeypatch.setattr(frameworks, "version", version)


@pytest.mark.parametrize(
    ("name", "member", "versions"),
    [
        ("mcp.server.fastmcp.server.FastMCP", "_mcp_server", {"mcp": "1.30.0"}),
        ("mcp.server.mcpserver.server.MCPServer", "_lowlevel_server", {"mcp": "2.3.0"}),
        ("fastmcp.server.server.FastMCP", "_mcp_server", {"fastmcp": "4.1.2", "mcp": "2.3.0"}),
    ],
)
def test_the_low_level_server_of_each_framework_is_found_also_in_a_subclass(
    monkeypatch: pytest.MonkeyPatch, name: str, member: str, versions: dict[str, str]
) -> None:
    installed(monkeypatch, **versions)
    found = fake(name, **{member: CORE})
    assert core_of(found) is CORE
    assert core_of(type("Mine", (type(found),), {})()) is CORE


@pytest.mark.parametrize("version", ["1.30.0", "2.3.0"])
def test_a_low_level_server_is_its_own_core(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    installed(monkeypatch, mcp=version)
    found = fake("mcp.server.lowlevel.server.Server")
    assert core_of(found) is found


@pytest.mark.parametrize("version", ["2.14.0", "3.0.0"])
def test_fastmcp_2_and_3_are_refused_with_the_command_that_works(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    installed(monkeypatch, fastmcp=version, mcp="1.30.0")
    with pytest.raises(
        ConfigError, match=r"of fastmcp [23] cannot be hosted.*limpet serve -- python my/app\.py"
    ):
        core_of(fake("fastmcp.server.server.FastMCP", _mcp_server=CORE), place="my/app.py")


def test_a_package_of_unknown_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    with pytest.raises(ConfigError, match="cannot be hosted"):
        core_of(fake("mcp.server.lowlevel.server.Server"))


def test_a_package_that_is_installed_under_another_name_says_its_version_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed(monkeypatch)
    monkeypatch.setitem(sys.modules, "fastmcp", cast("ModuleType", SimpleNamespace(__version__="4.1.2")))
    assert core_of(fake("fastmcp.server.server.FastMCP", _mcp_server=CORE)) is CORE


def test_an_object_of_no_framework_is_refused_with_the_supported_ones() -> None:
    assert framework_of(object()) is None
    with pytest.raises(ConfigError, match=r"builtins\.object cannot be hosted; supported are: FastMCP"):
        core_of(object())


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"auth": object()}, "its own sign-in"),
        ({"settings": SimpleNamespace(auth=object())}, "its own sign-in"),
        ({"_token_verifier": object()}, "its own sign-in"),
        ({"_auth_server_provider": object()}, "its own sign-in"),
        ({"_custom_starlette_routes": [SimpleNamespace(path="/a")]}, r"HTTP routes \(/a\)"),
        ({"_get_additional_http_routes": lambda _self: [SimpleNamespace(path="/b")]}, r"HTTP routes \(/b\)"),
    ],
)
def test_every_form_of_sign_in_and_of_routes_is_named_and_refused(
    monkeypatch: pytest.MonkeyPatch, members: dict[str, Any], named: str
) -> None:
    installed(monkeypatch, mcp="1.30.0")
    found = fake("mcp.server.fastmcp.server.FastMCP", _mcp_server=CORE, **members)
    with pytest.raises(ConfigError, match=named):
        core_of(found)


def test_a_file_without_the_named_object_says_which_objects_it_has(tmp_path: Path) -> None:
    app = tmp_path / "hosted_hint.py"
    app.write_text("class Server: ...\nServer.__module__ = 'mcp.server.lowlevel.server'\nlow = Server()\n")
    with pytest.raises(ConfigError, match=r"has no object 'server'; it has: .*hosted_hint\.py:low"):
        load(str(app))
