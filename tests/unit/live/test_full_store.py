"""A koalad whose disk is full: it reports that, takes nothing new, loses nothing, and goes on when there is room."""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Document = dict[str, Any]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")


class Disk:
    """A file system of 8 MiB that holds the state directory, its log too."""

    def __init__(self, place: Path) -> None:
        self._place, self._ballast = place, place / "ballast"

    def fill(self) -> None:
        """To the last byte. What somebody else frees meanwhile is taken too."""
        with self._ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


@pytest.fixture
def disk(fresh: Any) -> Iterator[Disk]:
    """Under the koalad that is to be started."""
    state = fresh.root / "state"
    state.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", state], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this root may not mount")
    made = Disk(state)
    yield made
    made.free()
    try:
        fresh.stop()
    finally:
        subprocess.run(["umount", "--lazy", state], check=True)


def exhaust(koala: Any, disk: Disk, file: Path) -> Any:
    """Submit until there is no room even in the pages that the store has already; the first refusal."""
    for _ in range(2000):
        disk.fill()
        answer = koala("submit", file)
        if answer.status:
            return answer
    raise AssertionError("the store never fills up")


def large(shell: Callable[..., Document]) -> Document:
    """A component for which the store must grow."""
    return shell("true", 4, cluster="delft", environment={"LARGE": "x" * 100_000, "LARGER": "x" * 100_000})


def test_a_full_disk_is_reported_and_survived(fresh: Any, disk: Disk, shell: Callable[..., Document]) -> None:
    fresh("up")
    fresh.known()
    gate = fresh.work / "gate"
    running = fresh.submit(shell(f"while [ ! -e {gate} ]; do sleep 0.1; done; echo over", cluster="leiden"))
    fresh.until(lambda: fresh.job(running)["state"] == "running")
    file = fresh.write("large.yaml", {"components": [large(shell), large(shell)]})
    answer = exhaust(fresh, disk, file)
    assert answer.status == 1
    assert answer.out == ""
    assert "There was no room to write to" in answer.err
    if "not recorded yet" in answer.err:  # it was handed over as the store began to fail
        assert "unless koalad is stopped before" in answer.err

    fresh.until(lambda: fresh("status", "--json").document["state"] == "store_failing")
    document = fresh("status", "--json").document
    assert document["troubles"][0].startswith("Nothing new is taken up: There was no room to write to ")
    assert "Free disk space or quota there." in document["troubles"][0]
    assert "Nothing new is taken up: There was no room" in fresh("status").out
    assert fresh("clusters").status == 0
    assert fresh("explain", running).status == 0
    before = fresh.ids()
    fresh("submit", file).refused(1, "Nothing new can be recorded: There was no room", "Free disk space")
    fresh("cancel", running).refused(1, "Nothing new can be recorded", "Free disk space")
    fresh("run", "-n", 1, "--", "true").refused(125, "Nothing new can be recorded", "Free disk space")
    assert fresh.ids() == before

    gate.touch()  # it ends meanwhile, and that cannot be recorded yet
    disk.free()
    fresh.until(lambda: fresh("status", "--json").document["state"] == "ready")
    assert fresh("status", "--json").document["troubles"] == []
    assert fresh.end(running)["state"] == "done"
    assert fresh("logs", running).out == "over\n"
    assert fresh.end(fresh.submit(shell("true")))["state"] == "done"
    assert set(before) <= set(fresh.ids())
    fresh.clear()


def test_a_koalad_that_cannot_write_still_ends(fresh: Any, disk: Disk, shell: Callable[..., Document]) -> None:
    fresh("up")
    fresh.known()
    exhaust(fresh, disk, fresh.write("large.yaml", {"components": [large(shell), large(shell)]}))
    fresh.until(lambda: fresh("status", "--json").document["state"] == "store_failing")
    accepted = fresh.ids()
    answer = fresh("down")
    assert answer.status == 0, answer
    assert "not recorded yet are dropped" in answer.err
    answer = fresh("up")
    assert answer.status == 1, answer
    assert "room" in answer.err or "No space left" in answer.err
    disk.free()
    assert fresh("up").status == 0
    assert fresh.ids() == accepted
    fresh.clear()


def test_a_log_that_is_full_costs_nothing_but_lines(fresh: Any, shell: Callable[..., Document]) -> None:
    state = fresh.root / "state" / "koala" / "live"
    state.mkdir(parents=True)
    (state / "koalad.log").symlink_to("/dev/full")
    assert fresh("up").status == 0
    assert fresh.end(fresh.submit(shell("echo well")))["state"] == "done"
    assert fresh("down").status == 0
