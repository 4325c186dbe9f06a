"""Plain words: phrases of the old dialect do not come back, and each thing has one name.

Comments, docstrings, messages and names of tests are read, and the documents; code is not. A phrase that is listed here
reads like a riddle: the sentence beside it says how to put it.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("src", "tests", "examples", "bench", "tools")
SELF: Final = {Path(__file__).name, "glossary.md"}
"""These files list the phrases."""

RIDDLES: Final = {
    r"(?<!there )\b(?:is|are) none\b": "say 'invalid', 'not a …' or 'absent'",
    r"\b(?:is|are|be|was|were|been) told\b": "say who receives what: 'the client receives …'",
    r"\bwhoever\b": "name who it is: the client, the caller, the task",
    r"\bnobody\b": "name what is missing: 'no task waits', 'no client is connected'",
    r"\bsomebody\b": "name who it is",
    r"\beverybody\b": "name who they are",
    r"\bmend(?:s|ed|ing)?\b": "say 'fix'",
    r"\bleads? (?:back )?to it\b": "say 'reference cycle'",
    r"\bcan(?:not)? be meant\b": "say 'valid' or 'invalid'",
    r"\bwhose (?:word|turn) it is to\b": "say what happens next",
    r"\bin (?:the|its) words of\b": "say 'in the form of'",
    r"\bwho reads\b": "name the reader: the client, the replica, the connection",
    r"\banybody\b": "name who it is",
    r"\bof two who\b": "say 'if two replicas do it at once, one …'",
    r"\bas their names say\b": "say when each of them is raised",
    r"\bwho (?:waits|takes|comes|goes|sends|reads) (?:nothing|none|no more)\b": "name who it is",
    r"\b(?:whatever|whichever)\b": "say 'any' or 'every', or name the thing",
    r"\b(?:has|had) had\b": "say 'has received', 'had' or 'took'",
    r"\bin vain\b": "say 'without success'",
    r"\bfor good\b": "say 'and does not return', 'for ever'",
    r"\bas (?:ever|said)\b": "say what happens",
    r"\b(?:is|are) meant\b": "name the thing",
    r"\bfor ever\b": "say 'forever'",
    r"\bstore (?:that )?(?:is|was|stays|stayed) away\b": "say 'unavailable'",
    r"\bhowever (?:long|often|many|much|large)\b": "say 'even if …', or name the limit",
    r"\ball the same\b": "say 'nevertheless', or leave it out",
    r"\btakes? note\b": "say 'record'",
    r"\banew\b": "say 'again'",
    r"\bhonest(?:ly)? (?:error|end)\b": "name the error: 'outcome unknown'",
    r"\breturns? what\b": "name the value: 'Return the messages that …'",
    r"\b(?:do|does) what\b": "name the action",
    r"\bof what (?:is|was|has|had)\b": "name the thing",
    r"\bwhat came of\b": "say 'the result of'",
    r"\bthose who\b": "name who they are",
    r"\blets? go of\b": "say 'release'",
    r"\bof (?:many|several|two) (?:who|that) try\b": "say 'if several replicas try, one succeeds'",
    r"\b(?:what|work|tasks|calls|asks|readers|turns) (?:of )?the dead\b(?! (?:replica|owner|home))": "say 'of dead replicas'",
    r"\ba command imports what\b": "say 'imported only by this command'",
}


def _literals(phrase: str) -> tuple[str, ...]:
    """Return texts of which a text with the phrase has at least one: to search for them is fast."""
    groups = re.compile(r"\((?:\?(?:<?[!=]|:))?([^()]*)\)\??")
    outside = re.findall(r"[a-z ]{3,}", re.sub(r"[a-z]\?", "|", groups.sub("|", phrase.replace(r"\b", "|"))))
    return (max(outside, key=len),) if outside else tuple(groups.search(phrase)[1].split("|"))  # type: ignore[index]


_LITERALS: Final = {phrase: _literals(phrase) for phrase in RIDDLES}


_PYTHON_PROSE: Final = re.compile(
    r"""(?P<text>
        \#[^\n]*
      | [A-Za-z]{0,2}(?:"{3}(?:[^\\]|\\.)*?"{3} | '{3}(?:[^\\]|\\.)*?'{3} | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*')
    ) | \bdef\ (?P<function>\w+)""",
    re.DOTALL | re.VERBOSE,
)
"""Comments, strings and names of functions. It finds the strings that `tokenize` finds, five times faster."""


def prose_of(path: Path) -> Iterator[str]:
    """Return the prose of a file: its comments, strings and function names, or the text of a page."""
    text = path.read_text()
    if path.suffix == ".md":
        yield re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    elif path.suffix == ".lua":
        yield "\n".join(re.findall(r"--\s*(.*)", text))
    else:
        for found in _PYTHON_PROSE.finditer(text):
            yield found["text"] or found["function"].replace("_", " ")


@cache
def corpus() -> dict[Path, str]:
    """Return the prose of every file, with line ends as spaces."""
    code = (
        path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".lua"}
    )
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    return {
        path: re.sub(r"\s*\n\s*(?:#\s*|--\s*)?", " ", "\n".join(prose_of(path)))
        for path in (*code, *pages)
        if path.name not in SELF and may_have_riddles(path.read_text())
    }


def may_have_riddles(text: str) -> bool:
    """Return False if no phrase can be in the prose of a file: most files need not be parsed then."""
    words = re.sub(r"[\s_#-]+", " ", text)
    lower = words.lower()
    return any(
        any(literal in lower for literal in _LITERALS[phrase]) and re.search(phrase, words, flags_of(phrase))
        for phrase in RIDDLES
    )


def flags_of(phrase: str) -> re.RegexFlag:
    """Return the flags of a phrase. None is a value of Python: that word is read as it is written."""
    return re.NOFLAG if "none" in phrase else re.IGNORECASE


def found(pattern: str) -> list[str]:
    """Return where a phrase stands, with the words around it."""
    return [
        f"{path.relative_to(ROOT)}: …{text[max(0, hit.start() - 40) : hit.end() + 40]}…"
        for path, text in corpus().items()
        for hit in re.finditer(pattern, text, flags_of(pattern))
    ]


@pytest.mark.parametrize("phrase", RIDDLES)
def test_a_riddle_does_not_come_back(phrase: str) -> None:
    assert not (hits := found(phrase)), f"{RIDDLES[phrase]}\n" + "\n".join(hits)


@pytest.mark.parametrize("phrase", RIDDLES)
@settings(max_examples=10)
@given(data=st.data())
def test_every_text_with_a_riddle_has_one_of_its_literals(phrase: str, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(phrase))
    assert any(literal in text for literal in _LITERALS[phrase])


def test_code_is_not_read_and_prose_is(tmp_path: Path) -> None:
    file = tmp_path / "sample.py"
    file.write_text('def nobody_waits() -> None:\n    """Doc."""\n    nobody = None  # a comment\n')
    assert list(prose_of(file)) == ["nobody waits", '"""Doc."""', "# a comment"]
    page = file.with_suffix(".md")
    page.write_text("before\n```python\nnobody()\n```\nafter\n")
    assert "nobody" not in "".join(prose_of(page))
