"""The pages: a reader reaches each of them, every link leads somewhere, and lines are short enough to read a diff."""

import posixpath
import re
from functools import cache
from pathlib import Path

import pytest

from stacks.settings import REPOSITORY
from tools import docs_site
from tools.licences import LOCKS, pinned

DOCS = REPOSITORY / "docs"
STARTS = ("README.md", "docs/index.md")
PAGES = sorted(str(page.relative_to(REPOSITORY)) for page in DOCS.rglob("*.md"))
EXAMPLES = sorted(str(page.relative_to(REPOSITORY)) for page in (REPOSITORY / "examples").rglob("*.md"))
GENERATED = "docs/reference/"  # nobody edits these
WRITTEN = [page for page in PAGES if not page.startswith(GENERATED)]
PROSE = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *WRITTEN, *EXAMPLES]
LINE = 120
README_LINES = 100
_UNBREAKABLE = re.compile(r"`[^`\n]+`|!?\[[^\]]*\]\([^()\s]+\)")


def text_of(page: str) -> str:
    return (REPOSITORY / page).read_text("utf-8")


def targets(page: str) -> list[tuple[str, str]]:
    """Each link of a page to the repository: the path from its root, and the anchor."""
    found = [target.partition("#") for target in docs_site.links(text_of(page))]
    return [
        (posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page, anchor)
        for path, _, anchor in found
    ]


@cache
def anchors(page: str) -> set[str]:
    """As GitHub makes them of a page's headings, and those that are set by hand."""
    found: dict[str, int] = {}
    for line, code in docs_site.lines_of(text_of(page)):
        if not code and (heading := re.match(r"#+ (.+)", line)):
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            anchor = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
            found[anchor] = found.get(anchor, -1) + 1
    ids = set(re.findall(r'<a id="([^"]+)">', text_of(page)))
    return ids | {f"{each}-{number}" if number else each for each, last in found.items() for number in range(last + 1)}


def reached(starts: tuple[str, ...]) -> set[str]:
    """The pages that one comes to by links. A link to a folder leads to all its pages: GitHub lists them."""
    seen: set[str] = set()
    ahead = list(starts)
    while ahead:
        path = ahead.pop()
        if (REPOSITORY / path).is_dir():
            ahead += [page for page in PAGES if posixpath.dirname(page) == path and page not in seen]
        elif path.endswith(".md") and path not in seen:
            seen.add(path)
            ahead += [target for target, _ in targets(path)]
    return seen


def long_lines(text: str) -> list[str]:
    """Lines of prose that are too long and have a place to break. Tables, code, headings and lone links have none."""
    found = []
    for line, code in docs_site.lines_of(text):
        if code or line.lstrip().startswith("|") or line.startswith("#") or len(line) <= LINE:
            continue
        if " " in _UNBREAKABLE.sub("x", re.sub(r"^\s*(- |\d+\. )?", "", line)).strip():
            found.append(line)
    return found


def test_no_page_is_an_orphan() -> None:
    assert sorted(set(PAGES) - reached(STARTS)) == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *PAGES])
def test_every_link_leads_to_a_file_and_to_a_heading_of_it(page: str) -> None:
    lost = [path for path, _ in targets(page) if not (REPOSITORY / path).exists()]
    headless = [
        f"{path}#{anchor}"
        for path, anchor in targets(page)
        if anchor and path.endswith(".md") and path not in lost and anchor not in anchors(path)
    ]

    assert lost + headless == []


@pytest.mark.parametrize("page", PROSE)
def test_lines_of_prose_are_short(page: str) -> None:
    assert long_lines(text_of(page)) == []


def test_what_may_be_long_is_what_cannot_be_broken() -> None:
    words = "word " * 30
    link = f"- [{words}](page.md)"

    assert long_lines(f"{words}\n\n| {words} |\n\n# {words}\n\n```\n{words}\n```\n{link}\n") == [words]


def test_the_readme_is_two_screens() -> None:
    assert len(text_of("README.md").splitlines()) <= README_LINES


def test_the_sites_navigation_is_the_index_and_has_every_page_but_those_of_its_folders() -> None:
    index = text_of("docs/index.md")
    navigation = [path for pages in docs_site.sections().values() for _, path in pages]
    made = {f"{folder}/index.md" for folder in docs_site.folders()}
    listed = {str(page.relative_to(DOCS)) for folder in docs_site.folders() for page in (DOCS / folder).glob("*.md")}

    assert list(docs_site.sections()) == re.findall(r"^## (.+)$", index, re.MULTILINE)
    assert len(navigation) == len(set(navigation))
    assert set(navigation) - made | listed | {"index.md"} == {str(Path(page).relative_to("docs")) for page in PAGES}


def test_a_folders_page_lists_its_pages_by_their_titles() -> None:
    page = docs_site.folder_page("runbooks")

    assert page.startswith("# Runbooks\n")
    assert "- [BUDGET_FULL: no slot of the disruption budget became free](budget-full.md)" in page
    assert page.count("\n- ") == len(list((DOCS / "runbooks").glob("*.md")))


@pytest.mark.parametrize(
    ("written", "built"),
    [
        ("See [how](../CONTRIBUTING.md#style).", "See how."),
        (
            "[a page](jobs.md#try), [a host](https://example.com/)",
            "[a page](jobs.md#try), [a host](https://example.com/)",
        ),
        ("[runbooks](runbooks/)", "[runbooks](runbooks/index.md)"),
        ("| `a \\| b` | c |", "| `a | b` | c |"),
        ("1. one\n\n   | a |\n   | - |\n2. two", "1. one\n\n    | a |\n    | - |\n\n2. two"),
        ("1. one\n   goes on\n2. two", "1. one\n    goes on\n2. two"),
        ("```\n[x](../y) \\|\n   z\n```", "```\n[x](../y) \\|\n   z\n```"),
    ],
)
def test_what_is_written_for_github_is_built_for_the_site(written: str, built: str) -> None:
    assert docs_site.for_site(written, "page.md") == built


def test_only_the_docs_site_has_its_packages() -> None:
    locks = {use: set(pinned(lock)) for use, lock in LOCKS.items()}
    site = locks.pop("for the docs site")

    assert {"mkdocs", "mkdocs-material", "pymdown-extensions"} <= site - set().union(*locks.values())
