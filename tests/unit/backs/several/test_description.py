"""The descriptions of several servers as one."""

from limpet.backs.several.description import UNKNOWN, joined_instructions, merged_capabilities


def test_a_capability_of_one_member_is_one_of_the_whole() -> None:
    one = {"capabilities": {"tools": {}, "extensions": {"a": {"x": 1}}}}
    two = {
        "capabilities": {"resources": {"subscribe": True}, "extensions": {"a": {"x": 2}, "b": {}}, "odd": 5}
    }
    assert merged_capabilities((one, two, {"capabilities": 3}, {})) == {
        "tools": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "extensions": {"a": {"x": 1}, "b": {}},
        "odd": 5,
    }


def test_a_member_that_has_not_answered_may_have_everything() -> None:
    merged = merged_capabilities(({"capabilities": {"logging": {}}}, UNKNOWN))
    assert merged.keys() == {"tools", "prompts", "resources", "logging", "completions"}
    assert merged["resources"] == {"subscribe": True, "listChanged": True}


def test_instructions_are_joined_under_the_names_of_the_members() -> None:
    others = {
        "files (names: files_…)": {"instructions": " Read first. "},
        "quiet": {},
        "empty": {"instructions": " "},
    }
    assert (
        joined_instructions("Be careful.", others, {})
        == "Be careful.\n\n## files (names: files_…)\n\nRead first."
    )
    assert joined_instructions(None, {"quiet": {}}, {}) is None


def test_the_instructions_say_where_the_user_must_sign_in() -> None:
    told = joined_instructions(
        None, {"files": {"instructions": "Read first."}, "web": {}}, {"web": "https://a/b"}
    )
    assert told is not None
    assert told.startswith("## files\n\nRead first.\n\n## web\n\nIts tools, ")
    assert told.endswith(" at https://a/b")
