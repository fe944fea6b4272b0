"""What `make docs` changes in the pages, which are written for GitHub, before MkDocs builds them (mkdocs.yml names us).

The functions that begin with `on_` are MkDocs' hooks. The others need no MkDocs, and the tests use them.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
START = "index.md"
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_CODE_SPAN = re.compile(r"`[^`\n]+`")
_FENCE = re.compile(r"^\s*```")


def lines_of(text: str) -> Iterator[tuple[str, str]]:
    """Each line, and the line that has opened its block of code (both fences belong to it); empty outside of one."""
    opened = ""
    for line in text.split("\n"):
        fence = bool(_FENCE.match(line))
        last = fence and opened
        opened = opened or (line if fence else "")
        yield line, opened
        if last:
            opened = ""


def links(text: str) -> list[str]:
    """The targets of a page's links and pictures to files of the repository, as they are written."""
    prose = "\n".join(line for line, code in lines_of(text) if not code)
    return [target for _, _, target in _LINK.findall(_CODE_SPAN.sub("`…`", prose)) if "://" not in target]


def for_site(text: str, page: str) -> str:
    """A page of docs/ (`page`: its path in there) as Python-Markdown reads it; links out of docs/ become plain text."""
    out: list[str] = []
    item = 0
    for line, code in lines_of(text):
        if re.match(r"\d+\. ", line) and not code:
            if "" in out[item:] and out[-1].startswith(" "):
                out.append("")  # an item that follows another's blocks begins a block of its own
            item = len(out)
        if line.startswith("   ") and (not code or code.startswith(" ")):
            line = f" {line}"  # GitHub nests below "1." at three spaces, Python-Markdown at four
        out.append(line if code else _line(line, page))
    return "\n".join(out)


def _line(line: str, page: str) -> str:
    if line.lstrip().startswith("|"):
        # GitHub wants a bar in a cell's code escaped, and does not show the backslash.
        line = _CODE_SPAN.sub(lambda code: code[0].replace("\\|", "|"), line)
    return _LINK.sub(lambda link: _link(link, page), line)


def _link(link: re.Match[str], page: str) -> str:
    mark, label, target = link.groups()
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target.partition("#")[0]))
    if "://" in target or not path.startswith(".."):
        return f"{mark}[{label}]({target}{START})" if target.endswith("/") and "://" not in target else link[0]
    return label


def sections() -> dict[str, list[tuple[str, str]]]:
    """The headings of docs/index.md, each with the titles and paths of its pages in docs/, once each."""
    found: dict[str, list[tuple[str, str]]] = {}
    heading, seen = "", set()
    for line in (DOCS / START).read_text("utf-8").splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif entry := re.match(r"- \[([^\]]+)\]\(([^)#]+)\)", line):
            title, path = entry.groups()
            path = f"{path}{START}" if path.endswith("/") else path
            if not path.startswith("..") and path not in seen:
                seen.add(path)
                found.setdefault(heading, []).append((title, path))
    return found


def folder_page(folder: str) -> str:
    """The page of a folder that has none in the repository, where GitHub lists its files."""
    pages = sorted((DOCS / folder).glob("*.md"))
    titles = [page.read_text("utf-8").partition("\n")[0].removeprefix("# ") for page in pages]
    entries = [f"- [{title}]({page.name})" for title, page in zip(titles, pages, strict=True)]
    return "\n".join([f"# {folder_title(folder)}", "", *entries, ""])


def folder_title(folder: str) -> str:
    """What docs/index.md calls a folder."""
    return next(title for pages in sections().values() for title, path in pages if path == f"{folder}/{START}")


def folders() -> list[str]:
    """The folders that docs/index.md links as a whole."""
    return [posixpath.dirname(path) for pages in sections().values() for _, path in pages if path.endswith(f"/{START}")]


def on_config(config: Any) -> Any:
    config.nav = [{"Start": START}, *({heading: [{t: p} for t, p in pages]} for heading, pages in sections().items())]
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File  # installed for `make docs` alone

    for folder in folders():
        files.append(File.generated(config, f"{folder}/{START}", content=folder_page(folder)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return for_site(markdown, page.file.src_uri)
