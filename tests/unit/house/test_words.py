"""Names use the standard terms of the field: some private words, which once were in names, do not come back.

GLOSSARY.md has the terms. A word is a part of a name: `_is_over` and `LeaseOver` both have `over`.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = (ROOT / "koalapy", ROOT / "adapters" / "koalapy_adapters")
PRIVATE = {
    "around": "host, outer",
    "attendance": "presence",
    "heal": "end_faults",
    "healed": "end_faults",
    "hood": "neighbours",
    "landing": "loader",
    "lies": "byzantine, false",
    "probation": "trial",
    "strike": "failure",
    "surroundings": "environment, outer job",
    "uplink": "link",
    "upkeep": "step",
    "walls": "sandbox",
    "wish": "request, demand",
    "wishes": "requests, demand",
}
ALONE = dict.fromkeys(("LOOK_S", "_LOOK_S", "LOOK_EVERY", "_LOOK"), "POLL_S, POLL_EVERY") | {
    "over": "ended, final",
    "_over": "ended, final",
    "is_over": "has_ended, is_final",
    "_is_over": "has_ended",
}
"""Whole names: `over` and `out` are ordinary parts of others, such as `hand_over` and `time_out`."""


def parts(name: str) -> list[str]:
    """The words of a name in snake case or camel case, in lower case."""
    return [each.lower() for each in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each module-wide definition, class, function, parameter, field and attribute that is set."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def faults_of(source: str) -> list[str]:
    """The names of a module that have a private word, each with its line and the term to use."""
    found = []
    for line, name in names(ast.parse(source)):
        if name.startswith("test_"):
            continue
        term = ALONE.get(name) or next((PRIVATE[each] for each in parts(name) if each in PRIVATE), None)
        if term is not None:
            found.append(f"{line}: `{name}`: use {term}")
    return found


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_names_have_no_private_words(package: Path) -> None:
    found = []
    for path in sorted(package.rglob("*.py")):
        relative = path.relative_to(ROOT)
        found += [f"{relative}:{fault}" for fault in faults_of(path.read_text(encoding="utf-8"))]
        found += [f"{relative}: use {PRIVATE[each]}" for each in parts(path.stem) if each in PRIVATE]
    assert not found, f"{len(found)} names\n" + "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "over = 1",
        "class SweepWish: ...",
        "def f(walls): ...",
        "self._around = 1",
        "def is_over(): ...",
        "class A:\n    hood: int = 0",
    ],
)
def test_a_private_word_is_found(source: str) -> None:
    assert len(faults_of(source)) == 1


@pytest.mark.parametrize("source", ["hand_over = 1", "class Wishart: ...", "neighbourhood = 1"])
def test_other_words_are_not(source: str) -> None:
    assert faults_of(source) == []
