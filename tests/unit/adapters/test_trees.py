"""Files by pattern: what is found, what is refused, and what a cluster may send."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koalapy_adapters.trees import DIRECTORY, FILE, REFUSED, expand, is_inside, matches, native, portable

NAMES = st.one_of(
    st.sampled_from(["a", "b", ".hidden", "data.csv", "new\nline", "*", "[x]", "-rf", " ", "é", "\udcff\udc80"]),
    st.text(st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=5).filter(
        lambda name: name not in (".", "..")
    ),
)
TREES = st.recursive(st.binary(max_size=20), lambda inner: st.dictionaries(NAMES, inner, max_size=4), max_leaves=12)


def grow(root: Path, tree: object) -> None:
    if isinstance(tree, bytes):
        root.write_bytes(tree)
        return
    assert isinstance(tree, dict)
    root.mkdir()
    for name, inner in tree.items():
        grow(root / name, inner)


def paths(root: Path, pattern: str) -> list[str]:
    return sorted({found.path for found in expand(str(root), pattern) if found.kind != REFUSED})


def refused(root: Path, pattern: str) -> dict[str, str]:
    return {found.path: found.why for found in expand(str(root), pattern) if found.kind == REFUSED}


@settings(max_examples=40, deadline=None)
@given(tree=st.dictionaries(NAMES, TREES, max_size=4))
def test_a_directory_is_all_that_is_in_it_and_a_directory_comes_first(tree: dict[str, object]) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place, "root")
        grow(root, {"tree": tree})
        found = list(expand(str(root), "tree"))
        there = {portable(str(path.relative_to(root))) for path in root.rglob("*")}
        assert {each.path for each in found} == there
        assert len(found) == len(there)
        seen: set[str] = set()
        for each in found:
            above = each.path.rpartition("/")[0]
            assert not above or above in seen
            seen.add(each.path)
            assert (each.kind == DIRECTORY) == (root / native(each.path)).is_dir()
            assert is_inside(each.path)
            assert matches("tree", each.path)


PATTERNS = ["*", "**", "a", "a/*", "**/a", "**/*.csv", "*/b/**", "?", "[ab]", "**/.hidden", "*/*", "./a//b", "**/**/b"]


@settings(max_examples=40, deadline=None)
@given(tree=st.dictionaries(NAMES, TREES, max_size=4), pattern=st.sampled_from(PATTERNS))
def test_all_that_a_pattern_names_matches_it(tree: dict[str, object], pattern: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place, "root")
        grow(root, tree)
        for found in expand(str(root), pattern):
            assert matches(pattern, found.path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    for name in ("data/a.csv", "data/b.csv", "data/c.txt", "data/deep/d.csv", "data/.secret/e.csv", ".top.csv", "f[1]"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(name)
    (made / "empty").mkdir()
    return made


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("data/*.csv", ["data/a.csv", "data/b.csv"]),
        ("**/*.csv", ["data/a.csv", "data/b.csv", "data/deep/d.csv"]),
        ("data/?.[!c]*", ["data/c.txt"]),
        ("data/deep", ["data/deep", "data/deep/d.csv"]),
        ("data/d*", ["data/deep", "data/deep/d.csv"]),
        ("empty", ["empty"]),
        ("empty/", ["empty"]),
        ("empty/*", []),
        (".*", [".top.csv"]),
        ("f[1]", ["f[1]"]),
        ("none", []),
        ("none/*", []),
        ("data/a.csv/*", []),
        ("**/.secret/*", ["data/.secret/e.csv"]),
        ("[", []),
    ],
)
def test_patterns(root: Path, pattern: str, expected: list[str]) -> None:
    assert paths(root, pattern) == expected


@pytest.mark.parametrize(
    ("pattern", "path"),
    [("data/*.csv", "data/x/y.csv"), ("data/*.csv", "other/a.csv"), ("data", "data2/x"), ("**/*.csv", "a.txt"),
     ("*", ".ssh/authorized_keys"), ("**", ".bashrc"), ("a/**/b", "a/.x/b"), ("result.npy", "results.npy")],
)  # fmt: skip
def test_what_a_pattern_does_not_name(pattern: str, path: str) -> None:
    assert not matches(pattern, path)


def test_links_are_followed_inside_and_refused_outside(root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    (root / "links").mkdir()
    links = {"file": "../data/a.csv", "folder": "../data/deep", "out": str(tmp_path / "outside")}
    for name, target in links.items():
        os.symlink(target, root / "links" / name)
    os.symlink("nowhere", root / "links" / "dangling")
    os.symlink("..", root / "links" / "loop")
    assert paths(root, "links") == ["links", "links/file", "links/folder", "links/folder/d.csv"]
    why = refused(root, "links")
    assert set(why) == {"links/out", "links/dangling", "links/loop"}
    assert str(tmp_path / "outside") in why["links/out"]
    kinds = {found.path: found.kind for found in expand(str(root), "links/out", [str(tmp_path)])}
    assert kinds == {"links/out": FILE}, "where a link may lead is the caller's to say"


def test_what_is_neither_file_nor_directory_is_refused(root: Path) -> None:
    os.mkfifo(root / "data" / "pipe")
    assert refused(root, "data") == {"data/pipe": "is neither a plain file nor a directory"}


def test_a_tree_may_be_deep(tmp_path: Path) -> None:
    """Deeper than Python's recursion goes."""
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        for _ in range(1500):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(here)
    found = len(list(expand(str(tmp_path), "d")))
    subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)  # what cleans up after pytest goes by recursion
    assert found == 1500
