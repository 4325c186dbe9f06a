"""Docstrings: the description of a function, and of its parameters."""

import pytest

from limpet.server.functions.docstrings import parse

CASES = [
    (None, "", {}),
    ("Do it.", "Do it.", {}),
    ("Do it.\n\n    Args:\n        a: First.\n", "Do it.", {"a": "First."}),
    ("Do it.\n\nArgs:\n", "Do it.\n\nArgs:", {}),
    ("Do it.\n\nArgs: none at all", "Do it.\n\nArgs: none at all", {}),
    ("Do it.\n\nArgs:\n    just prose\n\nThen more.", "Do it.\n\nThen more.", {}),
    (
        "Do it.\n\nArgs:\n    a: One,\n\n        and a paragraph.\n    **more: Rest.\n\nNote: x.",
        "Do it.\n\nNote: x.",
        {"a": "One, and a paragraph.", "more": "Rest."},
    ),
    (
        "Do it.\n\nParameters\n----------\na, b : int\n    Both.\n*args\n    Rest.\n",
        "Do it.",
        {"a": "Both.", "b": "Both.", "args": "Rest."},
    ),
    ("Do it.\n\nParameters\nare fun.", "Do it.\n\nParameters\nare fun.", {}),
    ("Do it.\n\n:param a:\n:param str b: Second.\n:returns: x", "Do it.\n\n:returns: x", {"b": "Second."}),
]


@pytest.mark.parametrize(("text", "description", "parameters"), CASES)
def test_a_docstring_is_split(text: str | None, description: str, parameters: dict[str, str]) -> None:
    assert parse(text) == (description, parameters)
