"""A node's private directory: it may have any name, its secrets are removed soon, and old ones are removed."""

import os
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.host import private_dir
from koalapy_adapters.host.spawn import spawn
from koalapy_adapters.wrapper.program.environment import DUMP, login_shell
from programs import need

SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "mksh", "fish", "tcsh", "csh")
WEEK_S = 7 * 86400
NAMES = [
    "plain",
    "a blank",
    "semi;touch ran;",
    "quo'te",
    'dou"ble',
    "li\nne",
    "$(touch ran)",
    "`touch ran`",
    "ex!clam",
    "st*r",
    "-n",
    "ä",
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_reads_its_setup_from_any_directory_and_leaves_no_file(
    tmp_path: Path, shell: str, name: str
) -> None:
    path = need(shell)
    (tmp_path / name).mkdir()
    home = tmp_path / "home"
    home.mkdir()
    file = tmp_path / name / "setup"
    reading, writing = os.pipe()
    sets = "setenv FROM_SETUP yes" if shell in ("csh", "tcsh") else "FROM_SETUP=yes; export FROM_SETUP"
    made = login_shell(path, [sets, "true"], str(file), f"/dev/fd/{DUMP}")
    file.write_text(made.script)
    with open(os.devnull, "rb") as null, open(tmp_path / "said", "w+b") as said:
        standard = [null.fileno(), said.fileno(), said.fileno()]
        variables = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
        pid = spawn(made.argv, variables, standard, str(home), more={DUMP: writing})
        os.close(writing)
        with open(reading, "rb") as stream:
            captured = stream.read().split(b"\0")
        assert os.waitpid(pid, 0)[1] == 0, said.seek(0) or said.read()
    assert b"FROM_SETUP=yes" in captured
    assert not file.exists()
    assert not (home / "ran").exists()


@pytest.mark.parametrize("name", ["a b", "x;touch ran;", "q'uote", "l\nine"])
def test_a_wrapper_works_where_tmpdir_has_a_strange_name(world: Any, tmp_path: Path, name: str) -> None:
    place = Path("/tmp", f"k{os.getpid()}{name}")  # a socket's path is short
    place.mkdir()
    try:
        relay, attempt = (
            world.relay(),
            world.attempt('$KOALA_RENDEZVOUS put a b; echo "$SET"', processors=1, setup=["export SET=up"]),
        )
        attempt.start(TMPDIR=str(place))
        relay.release(attempt)
        assert attempt.wait() == 0
        assert attempt.output(0) == "up\n"
        assert list(place.iterdir()) == []
    finally:
        shutil.rmtree(place)


def test_the_setup_file_is_removed_before_its_lines_run(
    world: Any, await_that: Callable[..., Any], tmp_path: Path
) -> None:
    """Thereby a wrapper that is killed while they run leaves no secret."""
    place = Path("/tmp", f"k{os.getpid()}s")
    place.mkdir()
    try:
        attempt = world.attempt("exit 0", processors=1, setup=[f"touch {tmp_path}/began", "sleep 600 # a secret"])
        attempt.start(TMPDIR=str(place))
        await_that((tmp_path / "began").exists)
        assert [path for path in place.rglob("*") if path.is_file()] == []
        attempt.end()
    finally:
        shutil.rmtree(place)


def left(place: Path, number: int, age_s: float = WEEK_S + 60) -> Path:
    """Make a private directory as a killed wrapper leaves it."""
    directory = place / f"koala-{number:016x}"
    directory.mkdir(parents=True)
    (directory / "setup").write_text("export SECRET=1")
    then = time.time() - age_s
    os.utime(directory, (then, then))
    return directory


def listen(directory: Path, keep: bool) -> socket.socket:
    """Make a socket in the directory. Its process has ended unless `keep`."""
    before = directory.stat()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(directory / "rendezvous"))
    listener.listen(1)
    if not keep:
        listener.close()
    os.utime(directory, (before.st_atime, before.st_mtime))
    return listener


def test_only_directories_of_killed_wrappers_are_removed_after_a_week(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_dir, "_swept_at", 0.0)
    place = Path("/tmp", f"k{os.getpid()}w")
    place.mkdir()
    try:
        own, dead, deaf, young, alive = (left(place, number) for number in range(5))
        listen(deaf, keep=False)
        os.utime(young)
        (place / "koala-other").mkdir()
        (place / f"koala-{99:016x}").symlink_to(tmp_path)
        with listen(alive, keep=True):
            private_dir.sweep(str(own), time.time() + 60)
        assert not dead.exists()
        assert not deaf.exists()
        assert {path.name for path in place.iterdir()} == {
            own.name, young.name, alive.name, "koala-other", f"koala-{99:016x}",
        }  # fmt: skip
        late = left(place, 5)
        private_dir.sweep(str(own), time.time() + 3600)
        assert late.exists()
        private_dir.sweep(str(own), time.time() + 3700)
        assert not late.exists()
    finally:
        shutil.rmtree(place)


def test_the_next_wrapper_on_a_node_removes_old_directories(world: Any) -> None:
    place = Path("/tmp", f"k{os.getpid()}n")
    abandoned = left(place, 1)
    try:
        relay, attempt = world.relay(), world.attempt("exit 0", processors=1)
        attempt.start(TMPDIR=str(place))
        relay.release(attempt)
        assert attempt.wait() == 0
        assert not abandoned.exists()
    finally:
        shutil.rmtree(place)
