"""The pages for people: their links lead somewhere, what they name exists, and their sentences are short."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from koalapy.model.attempt import OwnerKind
from koalapy.model.facts import Fact

ROOT = Path(__file__).parents[3]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
LONGEST_SENTENCE = 25  # words; a colon or a semicolon ends a sentence too
PLACES = ("koalapy", "adapters", "tests", "configs", "containers", "docs")
ROOMS = [
    room.relative_to(ROOT)
    for package in (ROOT / "koalapy", ROOT / "adapters" / "koalapy_adapters")
    for room in sorted(package.iterdir())
    if (room / "__init__.py").exists()
]


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """The line and text of each paragraph, item of a list and cell of a table. Code blocks are left out."""
    begun, lines, fenced = 0, list[str](), False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.startswith("```"):
            fenced = not fenced
        code = fenced or line.startswith("```") or (line.startswith("    ") and not lines)
        begins = re.match(r"\s*(([-*]|\d+\.) |\|)|#", line)
        if lines and (code or begins or not line.strip()):
            yield begun, " ".join(lines)
            lines = []
        if code or not line.strip():
            continue
        if line.lstrip().startswith("|"):
            yield from ((number, cell.strip()) for cell in re.split(r"(?<!\\)\|", line))
            continue
        begun = begun if lines else number
        lines.append(re.sub(r"^\s*([-*]|\d+\.|#+) ", "", line).strip())


def long_sentences(text: str) -> Iterator[tuple[int, int, str]]:
    """Line, number of words and text of each sentence that is too long. Code in backticks counts as one word."""
    for line, paragraph in paragraphs(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "code", paragraph))
        for sentence in re.split(r"(?<=[.!?:;])[\"')*]*\s+", plain):
            words = [each for each in sentence.split() if re.search(r"\w", each)]
            if len(words) > LONGEST_SENTENCE:
                yield line, len(words), sentence


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.strip().lower()).replace(" ", "-") for each in headings}


def broken_links(page: Path) -> Iterator[str]:
    """Links of a page to files or headings that do not exist."""
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text()):
        if target.startswith(("http:", "https:")):
            continue
        found = page.parent / target if target else page
        if not found.exists() or (anchor and anchor not in anchors(found.read_text())):
            yield f"{target}#{anchor}" if anchor else target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert not list(broken_links(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_sentences_of_a_page_are_short(page: Path) -> None:
    found = [f"{page.name}:{line}: {count} words: {text}" for line, count, text in long_sentences(page.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(rf"`((?:{'|'.join(PLACES)})/[\w./-]*)`", page.read_text())
    assert not [each for each in named if not (ROOT / each).exists() and not (ROOT / "adapters" / each).exists()]


def test_every_page_is_in_the_index_once_with_its_readers() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    rows = re.findall(r"^\| (\[.*\]\(.*\)) \| (.*) \|$", index, re.MULTILINE)
    linked = [Path(link).name for pages, _ in rows for link in re.findall(r"\]\((.*?)\)", pages)]
    assert sorted(linked) == sorted({page.name for page in PAGES} - {"README.md", "index.md"})
    assert re.findall(r"^## (.*)$", index, re.MULTILINE) == [
        "Start",
        "How to",
        "Reference",
        "Explanation",
        "The project",
    ]


def test_the_readme_fits_on_a_screen_and_leads_to_the_index() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 60
    links = re.findall(r"\]\((.*?)\)", readme)
    assert links == ["docs/tutorial.md", "docs/index.md", "CONTRIBUTING.md"]
    for command in re.findall(r"^    \$ ((?:\./|tests/)\S+)", readme, re.MULTILINE):
        assert (ROOT / command).is_file(), command


def glossary(term: str) -> str:
    (entry,) = re.findall(rf"^- \*\*{term}\*\*: (.*)$", (ROOT / "GLOSSARY.md").read_text(), re.MULTILINE)
    return str(entry)


def test_the_glossary_has_the_owners_and_facts_of_the_code() -> None:
    owners = glossary("owner").partition(" for which")[0].removeprefix("the ").split(" or ")
    assert owners == [str(each) for each in OwnerKind]
    facts = re.sub(r" \(.*?\)", "", glossary("fact").partition(" for an owner: ")[2].rstrip("."))
    named = ["".join(word.capitalize() for word in each.replace("its ", "").split()) for each in facts.split(", ")]
    assert named == [each.__name__ for each in get_args(Fact)]


def test_every_bench_is_in_the_table_of_benches() -> None:
    table = (ROOT / "docs" / "benches.md").read_text().partition("\n## ")[0]
    named = set(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE))
    benches = {path.stem.replace("_", "-") for path in (ROOT / "tests" / "bench").glob("[!_]*.py")}
    assert named == benches


@pytest.mark.parametrize("room", ROOMS, ids=str)
def test_every_room_is_in_the_code_map(room: Path) -> None:
    code_map = (ROOT / "ARCHITECTURE.md").read_text().split("## Code map")[1].split("\n## ")[0]
    assert re.search(rf"`({room}|{room.name})/`", code_map)


def test_every_file_that_the_architecture_names_exists() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"`([\w./]+(?:/|\.py))`", page))
    assert len(named) > 60
    there = {f"/{path.relative_to(ROOT)}" for top in PLACES for path in (ROOT / top, *(ROOT / top).rglob("*"))}
    assert not [each for each in named if not any(path.endswith(f"/{each.rstrip('/')}") for path in there)]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("one " * 26, 1),
        ("Short.\n\n- " + "one " * 20 + "\n  " + "two " * 6, 3),
        ("| " + "one " * 26 + "| two |", 1),
        ("1. Short.\n2. " + "one " * 26, 2),
    ],
    ids=["paragraph", "item", "cell", "numbered"],
)
def test_a_long_sentence_is_found(text: str, line: int) -> None:
    assert [each[0] for each in long_sentences(text)] == [line]


@pytest.mark.parametrize(
    "text",
    [
        "one " * 20 + ". " + "two " * 20,
        "Code:\n\n    " + "one " * 30,
        "```\n" + "one " * 30 + "\n```\n",
        "`" + "one " * 30 + "`",
        "| " + "one " * 20 + "| " + "two " * 20 + "|",
    ],
    ids=["sentences", "block", "fence", "code", "cells"],
)
def test_short_sentences_and_code_are_let_pass(text: str) -> None:
    assert not list(long_sentences(text))
