"""Read the sentences with MUST, SHOULD and their like out of the pages of the specification.

The pages are Markdown. A *requirement* is one sentence with a key word of BCP 14 in capital letters, one row of a
table with such a word, or, where a sentence with such a word ends with a colon before a list, this sentence
together with one item of the list. Its *hash* is made of its words alone: markup, the targets of links and line
breaks do not count, so that the same sentence has the same hash on the page of every revision.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

KEY_WORD: Final = re.compile(r"\b(MUST|SHALL|REQUIRED|SHOULD|RECOMMENDED)\b")
STRONG: Final = re.compile(r"\b(MUST|SHALL|REQUIRED)\b")
_NOT_PROSE: Final = re.compile(
    r"\A---\n.*?\n---\n|<!--.*?-->|\{/\*.*?\*/\}|^[ \t>]*(?P<fence>```+|~~~+).*?^[ \t>]*(?P=fence)[ \t]*$",
    re.DOTALL | re.MULTILINE,
)
_ITEM: Final = re.compile(r"^(\s*)(?:[-*+]|\d+[.)])\s+(.*)$")
_TAG_LINE: Final = re.compile(r"^\s*</?[A-Za-z][^>]*>\s*$")
_LINK_TARGET: Final = re.compile(r"^\s*\[[^\]]+\]:\s")
_END: Final = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!vs\.)[)*_\"]*\s+(?=[\[(`*_\"<A-Z0-9])")


class Sentence(NamedTuple):
    """One requirement of a page: the heading it stands below, its words, and whether it is a MUST or a SHOULD."""

    section: str
    words: str

    @property
    def hash(self) -> str:
        """Return twelve hexadecimal digits for the words, without regard to case and to the last mark."""
        return hashlib.sha256(self.words.casefold().rstrip(" .:;,").encode()).hexdigest()[:12]

    @property
    def level(self) -> str:
        """Return the strongest level that the words ask for."""
        return "MUST" if STRONG.search(self.words) else "SHOULD"


class _Block(NamedTuple):
    """A paragraph (indent −1), an item of a list, or a row of a table (whole)."""

    section: str
    text: str
    indent: int
    whole: bool = False


def requirements(page: str) -> Iterator[Sentence]:
    """Yield the requirements of a page in their order."""
    blocks = list(_blocks(_NOT_PROSE.sub("\n\n", page)))
    leads = _leads(blocks)
    completed = {lead for lead, item in leads.values() if KEY_WORD.search(lead) and not KEY_WORD.search(item)}
    for number, block in enumerate(blocks):
        for index, words in enumerate(_sentences(block)):
            lead = leads[number][0] if index == 0 and number in leads else ""
            if KEY_WORD.match(words) and lead:
                yield Sentence(block.section, f"{lead} {words}")
            elif KEY_WORD.search(words) and words not in completed:
                yield Sentence(block.section, words)
            elif lead in completed:
                yield Sentence(block.section, f"{lead} {words}")


def _leads(blocks: list[_Block]) -> dict[int, tuple[str, str]]:
    """Return, for each item of a list after a colon, the sentence with the colon and the item's own first sentence."""
    found: dict[int, tuple[str, str]] = {}
    for number, block in enumerate(blocks):
        lead = _sentences(block)[-1]
        if lead.endswith(":") and not block.whole:
            items = _items_below(blocks, number)
            found |= {item: (lead, _sentences(blocks[item])[0]) for item in items}
    return found


def plain(text: str) -> str:
    """Return the words of a piece of Markdown: no markup, no targets of links, single spaces."""
    text = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])?", r"\1", text)
    text = re.sub(r"</?[A-Za-z][^>]*>", " ", text)
    text = re.sub(r"[*`\\]|(?<!\w)_|_(?!\w)", "", text)
    return re.sub(r"\s+", " ", text).strip()


def _sentences(block: _Block) -> list[str]:
    if block.whole:
        return [plain(block.text)]
    parts = [plain(part) for part in _END.split(re.sub(r"\s+", " ", block.text).strip())]
    return [part for part in parts if part] or [""]


def _items_below(blocks: list[_Block], lead: int) -> list[int]:
    """Return the items of the list that follows a block, without the lists inside it."""
    found: list[int] = []
    for number in range(lead + 1, len(blocks)):
        block = blocks[number]
        if block.indent <= blocks[lead].indent or block.whole:
            break
        if block.indent == blocks[lead + 1].indent:
            found.append(number)
    return found


def _blocks(text: str) -> Iterator[_Block]:
    section = ""
    lines: list[str] = []
    indent = -1
    for raw in [*text.splitlines(), ""]:
        line = re.sub(r"^\s*>\s?", "", raw)
        heading = re.match(r"^#+\s+(.*)$", line)
        item = _ITEM.match(line)
        row = line.lstrip().startswith("|")
        ends = not line.strip() or heading or item or row or _TAG_LINE.match(line) or _LINK_TARGET.match(line)
        if ends and lines:
            yield _Block(section, "\n".join(lines), indent)
            lines = []
        if heading:
            section, indent = plain(heading[1]), -1
        elif row:
            yield _Block(section, line.strip().strip("|"), -1, whole=True)
        elif item:
            indent, lines = len(item[1]), [item[2]]
        elif line.strip() and not ends:
            if not lines:  # a paragraph; one inside an item is deeper than the item
                indent = len(line) - len(line.lstrip()) or -1
            lines.append(line.strip())
