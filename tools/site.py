"""Build the searchable site of the documents into build/site: `python -m tools.site`.

docs/*.md is the source, and GitHub renders it as it is. Zensical makes the pages, from a staged copy in which

- the navigation has the sections of docs/index.md, so that a page which is linked there has its place;
- a link whose text is a file name (`[server.md](server.md)`) shows the title of the page;
- a fence has one word (`python no-run: …` becomes `python`), and a file name becomes the title of its block;
- a link to a file outside of docs leads to a page that shows the file.

The site needs no internet: no font, script or picture comes from another host, and the search works from a static server and from a
file.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
BUILD: Final = ROOT / "build"
SHIM: Final = Path(__file__).parent / "site_worker.js"
STYLE: Final = Path(__file__).parent / "site.css"
FOREIGN_SHIM: Final = "https://unpkg.com/iframe-worker/shim"
"""Zensical loads a worker for pages that are opened as files from this host; ours takes its place."""
PAGE: Final = re.compile(r"\]\(([\w/-]+\.md)\)")
"""A link to a page of docs, in docs/index.md."""
NAMED: Final = re.compile(r"\[[\w./-]+\.md\]\(([\w./-]+\.md)(#[\w-]+)?\)")
"""A link whose text is the name of a file."""
FENCE: Final = re.compile(r"^(```|````)([a-z]+) +([^`\n]+)$", re.MULTILINE)
LINK: Final = re.compile(r"(?<!!)\]\(((?:\.\./)+[^)#\s]+)\)")
CELL: Final = re.compile(r"<t([dh])[ >].*?</t\1>", re.DOTALL)
LANGUAGES: Final = {
    "py": "python", "toml": "toml", "yaml": "yaml", "json": "json", "conf": "nginx", "": "docker", "cfg": "text",
}  # fmt: skip

Nav = list[dict[str, Any]]


def title(page: Path) -> str:
    """Return the first heading of a page, without code marks."""
    found = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1].replace("`", "") if found else page.stem


def _entry(path: str) -> dict[str, Any]:
    return {title(DOCS / path): path}


def navigation() -> Nav:
    """Return a section for each section of docs/index.md, with the pages that it links, each page once.

    A folder with pages that the index does not link becomes a group with all its pages, at the place of the first one.
    """
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    seen: set[str] = set()
    made: Nav = [{"Overview": "index.md"}]
    for part in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        entries: Nav = []
        for path in (path for path in PAGE.findall(part) if path not in seen):
            group = _group(path, index)
            seen |= {path, *group}
            entries.append(
                {_capital(Path(path).parent.name): [_entry(one) for one in group]} if group else _entry(path)
            )
        made.append({part.split("\n", 1)[0]: entries})
    return made


def _group(path: str, index: str) -> list[str]:
    """Return all pages of a page's folder, the linked ones first, if the index does not link all of them."""
    folder = (DOCS / path).parent
    pages = sorted(page.relative_to(DOCS).as_posix() for page in folder.glob("*.md"))
    linked = [one for one in PAGE.findall(index) if one in pages]
    return [] if folder == DOCS or len(set(linked)) == len(pages) else list(dict.fromkeys([*linked, *pages]))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def staged(page: Path, pages: Path) -> str:
    """Return the text of a page for Zensical; files that it links are written to `pages`."""

    def opened(fence: re.Match[str]) -> str:
        ticks, language, rest = fence.groups()
        name = f' title="{rest}"' if re.fullmatch(r"[\w/-]+\.\w+", rest) else ""
        return f"{ticks}{language}{name}"

    def inside(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(page.parent / link[1]))
        if target.is_relative_to(DOCS):
            return link[0]
        shown = _shown(target, pages)
        return f"]({os.path.relpath(shown, pages / page.parent.relative_to(DOCS))})"

    def titled(link: re.Match[str]) -> str:
        return f"[{title(page.parent / link[1])}]({link[1]}{link[2] or ''})"

    text = FENCE.sub(opened, page.read_text(encoding="utf-8"))
    return LINK.sub(inside, NAMED.sub(titled, text))


def _shown(target: Path, pages: Path) -> Path:
    """Write a page that shows a file, or the names in a directory; return its path."""
    name = target.relative_to(ROOT).as_posix()
    made = pages / "files" / f"{name}.md"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text("\n".join(_lines(target, name, made, pages)), encoding="utf-8")
    return made


def _lines(target: Path, name: str, made: Path, pages: Path) -> Iterator[str]:
    yield from (f"# {name}", "")
    if target.is_dir():
        for item in sorted(target.iterdir()):
            if item.is_file():
                yield f"- [{item.name}]({os.path.relpath(_shown(item, pages), made.parent)})"
        return
    yield f"````{LANGUAGES.get(target.suffix.removeprefix('.'), 'text')}"
    yield target.read_text(encoding="utf-8").rstrip("\n")
    yield "````"


def configuration() -> dict[str, Any]:
    """Return the settings of Zensical."""
    slugs = {"object": "pymdownx.slugs.slugify", "kwds": {"case": "lower"}}
    return {
        "project": {
            "site_name": "Limpet",
            "site_description": "An MCP runtime for Python whose sessions hold.",
            "docs_dir": "pages",
            "site_dir": "site",
            "use_directory_urls": False,
            "nav": navigation(),
            "extra_css": [STYLE.name],
            "theme": {
                "language": "en",
                "font": False,
                "features": [
                    "content.code.copy",
                    "navigation.footer",
                    "navigation.top",
                    "search.highlight",
                    "toc.follow",
                ],
                "palette": [
                    {
                        "media": f"(prefers-color-scheme: {colour})",
                        "scheme": scheme,
                        "toggle": {"icon": f"lucide/{icon}", "name": f"Use {other} colours"},
                    }
                    for colour, scheme, icon, other in (
                        ("light", "default", "sun", "dark"),
                        ("dark", "slate", "moon", "light"),
                    )
                ],
            },
            "plugins": {"search": {}, "offline": {}},
            "markdown_extensions": {
                "tables": {},
                "toc": {"permalink": True, "slugify": slugs},
                "pymdownx": {"highlight": {}, "superfences": {}, "inlinehilite": {}, "magiclink": {}},
            },
        }
    }


def build(work: Path) -> Path:
    """Build the site in this directory; return the directory of its pages.

    Raises:
        RuntimeError: Zensical has warnings, such as a link without a target.
    """
    pages = work / "pages"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(DOCS, pages)
    for page in DOCS.rglob("*.md"):
        (pages / page.relative_to(DOCS)).write_text(staged(page, pages), encoding="utf-8")
    shutil.copy(STYLE, pages)
    shutil.copy(SHIM, pages)
    settings = work / "zensical.toml"
    settings.write_text(_toml(configuration()), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(settings)],
        cwd=work,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    said = done.stdout + done.stderr
    if done.returncode or "Warning" in said:
        raise RuntimeError(f"the site has faults:\n{said}")
    for page in (work / "site").rglob("*.html"):
        up = "../" * (len(page.relative_to(work / "site").parts) - 1)
        text = page.read_text(encoding="utf-8").replace(FOREIGN_SHIM, f"{up}{SHIM.name}")
        page.write_text(CELL.sub(_breakable, text), encoding="utf-8")
    return work / "site"


def _breakable(cell: re.Match[str]) -> str:
    """Let long names in a table break after their underscores, and nowhere else."""
    return re.sub(r"<code>[^<]*_[^<]*</code>", lambda code: code[0].replace("_", "_<wbr>"), cell[0])


def _toml(settings: dict[str, Any]) -> str:
    """Write settings as TOML: a JSON object is a TOML value if `=` stands for `:`."""
    return "\n".join(
        f"[{table}]\n" + "\n".join(f"{key} = {_value(value)}" for key, value in members.items()) + "\n"
        for table, members in settings.items()
    )


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return json.dumps(value)


def main() -> None:
    """Build the site, and leave it in build/site."""
    made = build(BUILD / "site-work")
    target = BUILD / "site"
    shutil.rmtree(target, ignore_errors=True)
    shutil.move(made, target)
    shutil.rmtree(BUILD / "site-work")
    print(f"the site is in {target.relative_to(ROOT)}: open {(target / 'index.html').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
