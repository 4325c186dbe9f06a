"""Names of components: prefixes, new names, and the way back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.backs.components import ComponentTable
from limpet.core.names import AS_THEY_ARE, NAME_KINDS, NameKind, Names, NamesOfNames
from limpet.errors import ConfigError
from limpet.server.catalog.uri_templates import Template

PREFIXED = Names("files")


@pytest.mark.parametrize(
    ("kind", "inner", "outer"),
    [
        ("tools", "read", "files_read"),
        ("prompts", "read", "files_read"),
        ("resources", "note://a/b", "note://files/a/b"),
        ("resources", "file:///a", "file://files//a"),
        ("resources", "file:///{path}", "file://files//{path}"),
        ("resources", "urn:a", "urn:files/a"),
        ("resources", "{+any}", "files/{+any}"),
        ("resources", "", "files/"),
    ],
)
def test_a_prefix_is_added_and_removed(kind: NameKind, inner: str, outer: str) -> None:
    assert PREFIXED.outer(kind, inner) == outer
    assert PREFIXED.inner(kind, outer) == inner
    assert PREFIXED.inner(kind, inner) is None
    assert AS_THEY_ARE.outer(kind, inner) == AS_THEY_ARE.inner(kind, inner) == inner


def test_programs_may_write_the_host_of_a_uri_in_small_letters() -> None:
    assert Names("Files").inner("resources", "file://files//a") == "file:///a"
    assert Names("Files").inner("tools", "files_read") is None


def test_names_of_names_are_made_in_order() -> None:
    table = ComponentTable(hide_tools=["secret"], rename_tools={"read": "open"}).naming()
    both = NamesOfNames(table, PREFIXED)
    assert both.outer("tools", "read") == "files_open"
    assert both.inner("tools", "files_open") == "read"
    assert both.outer("tools", "secret") is both.inner("tools", "files_secret") is None
    assert both.inner("tools", "open") is None
    assert both.renames_uris
    assert not NamesOfNames(table, AS_THEY_ARE).renames_uris


@pytest.mark.parametrize("prefix", ["_a", "a/b", "a b", "a:", "-", "ä", "a" * 65])
def test_a_prefix_that_cannot_be_part_of_a_name_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match=f"the prefix '{prefix[:64]}' is invalid"):
        Names(prefix)


texts = st.text(alphabet="abF_:/{}+.?*", max_size=12)
names = st.sampled_from(["", "a", "F", "a_b"]).map(Names)


@given(names, st.sampled_from(NAME_KINDS), texts)
def test_each_name_leads_back_to_its_component(named: Names, kind: NameKind, text: str) -> None:
    outer = named.outer(kind, text)
    assert outer is None or named.inner(kind, outer) == text
    inner = named.inner(kind, text)
    if inner is not None:
        back = named.outer(kind, inner)
        assert back is not None
        assert back.lower() == text.lower()


@given(
    st.sampled_from(["note://a/{x}", "file:///{+x}", "urn:{x}", "note://{x}/b"]), st.text("abc", min_size=1)
)
def test_a_uri_of_the_outer_template_is_the_outer_name_of_a_uri(template: str, value: str) -> None:
    outer = PREFIXED.outer("resources", template)
    assert outer is not None
    made = Template(outer).expand(x=value)
    assert PREFIXED.inner("resources", made) == Template(template).expand(x=value)


def test_names_of_names_rename_uris_if_one_of_both_does_and_pass_over_a_foreign_prefix() -> None:
    both = NamesOfNames(PREFIXED, Names("all"))
    assert both.renames_uris
    assert not NamesOfNames(AS_THEY_ARE, AS_THEY_ARE).renames_uris
    assert (both.outer("tools", "read"), both.unhidden("tools", "all_files_read")) == (
        "all_files_read",
        "read",
    )
    assert [both.unhidden("tools", name) for name in ("files_read", "all_read")] == [None, None]
    assert PREFIXED.unhidden("tools", "files_read") == "read"
