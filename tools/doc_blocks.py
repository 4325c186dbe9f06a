"""Write the Python blocks of each page into one module, for a type checker: `doc_blocks.py FOLDER`.

A page's blocks share one module, as in tests/docs/test_examples.py; each stands on the lines that it has in the page,
so that an error names them. A page whose blocks await at the top level becomes the body of a coroutine. A block whose fence
names a file (```python weather.py) becomes that file, in a folder of its page.
"""

import ast
import re
import sys
import textwrap
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FENCE: Final = re.compile(
    r"^```python(?! no-run: it needs fastmcp| [\w/-]+\.py$)[^\n`]*\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
"""A Python block of the page's module; not one for a package that is not installed here."""
FILE: Final = re.compile(r"^```python ([\w/-]+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def awaits(code: str) -> bool:
    """Tell whether a block awaits outside of any function."""
    try:
        compile(code, "block", "exec", dont_inherit=True)
    except SyntaxError:
        compile(code, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        return True
    return False


def module(page: str) -> str:
    """Return a page's blocks as one module, everything else as empty lines."""
    lines = [""] * (page.count("\n") + 1)
    blocks = list(FENCE.finditer(page))
    is_async = any(awaits(block[1]) for block in blocks)
    for block in blocks:
        first = page.count("\n", 0, block.start(1))
        code = textwrap.indent(block[1], "    ") if is_async else block[1]
        for place, line in enumerate(code.splitlines()):
            lines[first + place] = line
        if is_async and block is blocks[0]:
            # The fence's own line is free.
            lines[first - 1] = "async def page() -> None:"
    return "\n".join(lines) + "\n"


def main(folder: Path) -> None:
    """Write one module for each page that has Python."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/how-to/*.md")]):
        page = path.read_text(encoding="utf-8")
        name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "_").lower()
        for file_name, text in FILE.findall(page):
            file = folder / name / file_name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        if FENCE.search(page):
            (folder / f"{name}_md.py").write_text(module(page), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
