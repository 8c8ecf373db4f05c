"""Paths of a program that puts links everywhere, and exchanges directories while its files are read: none leads out."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters import errors
from koalapy_adapters.confined import Confined, LeadsOutError
from koalapy_adapters.kcm.shared_directory.output import FileList, FileRange, ManyFiles, OneFile, size_of
from koalapy_adapters.trees import Budget, expand

SECRET = b"s" * 714  # known by its content and by its size

Operation = Callable[[Path, str], str]


def read(source: Any) -> str:
    """Read a stream to its end; a refusal is its text."""
    try:
        source.open()
        return b"".join(iter(lambda: source.read(1 << 16, True), b"")).decode()
    except errors.RequestError as error:
        return error.code
    finally:
        getattr(source, "close", lambda: None)()


OPERATIONS: dict[str, Operation] = {
    "list a name": lambda attempt, path: read(FileList(str(attempt), [path])),
    "list by pattern": lambda attempt, path: read(FileList(str(attempt), [f"{path}*", f"{path}/*", f"{path}/**"])),
    "list all": lambda attempt, path: read(FileList(str(attempt), ["."])),
    "list at any depth": lambda attempt, path: read(FileList(str(attempt), ["**", "**/*", "*/*/*"])),
    "stat": lambda attempt, path: str(size_of(str(attempt), path)),
    "fetch": lambda attempt, path: read(OneFile(str(attempt), path, 0)),
    "fetch many": lambda attempt, path: read(ManyFiles(str(attempt), [path])),
    "fetch of a slot": lambda attempt, path: read(FileRange(str(attempt), path, 0, 1 << 16)),
    "stage": lambda attempt, path: str(list(expand(str(attempt / "work"), path, [str(attempt / "work")]))),
}  # fmt: skip


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    """An attempt's directory; beside it a home with a secret file, which has a name and a size of its own."""
    for place in ("home/keys/deep", "attempt/work/a/b", "attempt/output"):
        (tmp_path / place).mkdir(parents=True)
    for place in ("home/secret", "home/keys/secret", "home/keys/deep/secret"):
        (tmp_path / place).write_bytes(SECRET)
    for place in ("work/own", "work/a/own", "work/a/b/own"):
        (tmp_path / "attempt" / place).write_text("my own")
    return tmp_path / "attempt"


_SHOWN = re.compile(r"""sss|(^|\W)714(\W|$)|(secret|keys|deep)['"], (kind=)?['"](file|directory)""")


def betrays(answer: str) -> bool:
    """Return whether the answer shows the content or size of the secret, or takes something outside for a file."""
    return _SHOWN.search(answer) is not None


def out(attempt: Path, below: str, way: str) -> str:
    """Return the target of a link in `below` that leads to the home."""
    home = str(attempt.parent / "home")
    return home if way == "absolute" else os.path.relpath(home, attempt / "work" / below)


LINKS: dict[str, tuple[tuple[str, str], tuple[str, ...]]] = {  # where the link is, and the paths that are asked for
    "first": (("", "h"), ("h/secret", "h/keys", "h/keys/secret", "h/keys/deep/secret")),
    "middle": (("a", "h"), ("a/h/secret", "a/h/keys/deep/secret", "a/h/keys")),
    "behind a link inside": (("a/b", "h"), ("to/h/secret", "to/h/keys/secret")),
    "last": (("a/b", "secret"), ("a/b/secret", "to/secret")),
}


@pytest.mark.parametrize("way", ["relative", "absolute", "by a link to the root of the working directory"])
@pytest.mark.parametrize("where", LINKS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_link_shows_what_is_outside(attempt: Path, operation: str, where: str, way: str) -> None:
    (below, name), paths = LINKS[where]
    work = attempt / "work"
    target = out(attempt, below, "relative" if way == "relative" else "absolute")
    if way.startswith("by"):
        os.symlink(work, work / "all")
        target = f"{work}/all/../../home"
    os.symlink(f"{target}/secret" if where == "last" else target, work / below / name)
    os.symlink("a/b", work / "to")
    shutil.copytree(work, attempt / "output", symlinks=True, dirs_exist_ok=True)
    for path in paths:
        assert not betrays(OPERATIONS[operation](attempt, path)), path


@pytest.mark.parametrize("operation", OPERATIONS)
def test_nothing_shows_whether_a_file_is_outside(attempt: Path, operation: str) -> None:
    """The answers about a link to a file of the lender are those about a link to no file."""
    for name, target in {"there": "secret", "none": "absent"}.items():
        os.symlink(attempt.parent / "home" / target, attempt / "work" / name)
    shutil.copytree(attempt / "work", attempt / "output", symlinks=True, dirs_exist_ok=True)
    there, none = (OPERATIONS[operation](attempt, name) for name in ("there", "none"))
    assert there.replace("there", "none").replace("secret", "absent") == none or "list" in operation


class Exchange:
    """Puts a link in place of a directory before the `at`th call of the system, and after it the directory again."""

    def __init__(self, directory: Path, target: str, at: int) -> None:
        self._directory, self._target, self._at = directory, target, at
        self._kept = directory.with_name("kept")
        self.calls = 0

    def call(self, real: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls == self._at:
            REAL["rename"](self._directory, self._kept)
            REAL["symlink"](self._target, self._directory)
        return real(*arguments, **options)


CALLS = ("stat", "lstat", "open", "readlink", "listdir", "access", "scandir")
REAL = {name: getattr(os, name) for name in (*CALLS, "rename", "symlink")}


@pytest.fixture
def exchanged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Exchange], None]]:
    def install(exchange: Exchange) -> None:
        for name in CALLS:
            real = REAL[name]

            def call(*arguments: Any, real: Callable[..., Any] = real, **options: Any) -> Any:
                return exchange.call(real, *arguments, **options)

            monkeypatch.setattr(os, name, call)

    yield install
    monkeypatch.undo()


@pytest.mark.parametrize("which", ["a", "a/b"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_directory_that_becomes_a_link_meanwhile_shows_nothing(
    attempt: Path, operation: str, which: str, exchanged: Callable[[Exchange], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exchange is tried before every call of the system that the operation makes."""
    home = attempt.parent / "home"
    (home / "b").mkdir()
    for place in ("own", "b/own"):
        (home / place).write_bytes(SECRET)
    shutil.copytree(attempt / "work", attempt / "output", dirs_exist_ok=True)
    at, done = 1, False
    while not done:
        copy = attempt.with_name(f"copy{at}")
        shutil.copytree(attempt, copy)
        exchange = Exchange(copy / ("output" if "slot" in operation else "work") / which, str(home), at)
        exchanged(exchange)
        try:
            answer = OPERATIONS[operation](copy, "a/b/own")
        except OSError as error:
            answer = str(error.strerror)
        monkeypatch.undo()
        done = exchange.calls < at
        assert not betrays(answer), f"call {at}: {answer}"
        at += 1
    assert at > 4, "the calls were seen"


def test_a_directory_that_is_moved_while_its_link_is_followed_lets_nobody_climb_out(
    attempt: Path, exchanged: Callable[[Exchange], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`..` is counted by the directories themselves, and not by the names by which they were reached."""
    for at in range(1, 60):
        copy = attempt.with_name(f"copy{at}")
        shutil.copytree(attempt, copy)
        work = copy / "work"
        (work / "a/b/c").mkdir()
        os.symlink("../../../../home/secret", work / "a/b/c/climbing")
        moved = Exchange(work / "a/b/c", "nowhere", at)
        monkeypatch.setattr(moved, "_kept", work / "c")
        exchanged(moved)
        answer = OPERATIONS["fetch"](copy, "a/b/c/climbing") + OPERATIONS["stat"](copy, "a/b/c/climbing")
        monkeypatch.undo()
        assert not betrays(answer), at


def test_links_inside_lead_where_the_kernel_takes_them(attempt: Path) -> None:
    work = attempt / "work"
    links = {
        "up": "a/../own", "abs": f"{work}/a/own", "a/b/far": "../../own", "dir": "a/b", "chain": "dir/far",
        "a/b/self": "../b/own", "here": ".", "twice": "dir/../own",
    }  # fmt: skip
    for name, target in links.items():
        os.symlink(target, work / name)
    for name in (*links, "dir/own", "dir/far", "here/here/a/own"):
        path = work / name
        if path.is_file():
            assert size_of(str(attempt), name) == 6
            assert read(OneFile(str(attempt), name, 0)) == "my own"
    with Confined(str(work)) as files:
        assert files.look("twice").place.real == str(work / "a"), "`..` is the directory above where the link leads"
        os.symlink("loop", work / "loop")
        with pytest.raises(OSError, match="Too many levels"):
            files.look("loop")
        with pytest.raises(LeadsOutError):
            files.look("../work/own")


def test_a_walk_keeps_few_directories_open_and_closes_all(tmp_path: Path) -> None:
    place = tmp_path
    for _ in range(100):
        place = place / "d"
        place.mkdir()
    os.symlink("d/d", tmp_path / "link")
    before = os.listdir("/proc/self/fd")
    most = 0
    for _ in expand(str(tmp_path), "**"):
        most = max(most, len(os.listdir("/proc/self/fd")))
    assert most - len(before) < 50
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("pattern", ["a", "*", "**", "a/b/*", "**/none"])
def test_a_walk_ends_with_an_error_where_there_is_too_much(attempt: Path, pattern: str) -> None:
    for number in range(20):
        (attempt / "work/a/b" / str(number)).touch()
    with pytest.raises(errors.RequestError, match="More than 15 entries would have to be looked at"):
        list(expand(str(attempt / "work"), pattern, budget=Budget(15)))


def test_all_patterns_of_a_list_share_one_bound(attempt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("koalapy_adapters.kcm.shared_directory.output.Budget", lambda: Budget(30))
    assert "own" in read(FileList(str(attempt), ["**/own"]))
    assert read(FileList(str(attempt), ["**/own"] * 20)) == "too_many_entries"
