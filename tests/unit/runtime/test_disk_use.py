"""koalapy's use of disks: measured slowly on clusters, and here; and when it is reported as too much."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.kcm.shared_directory.disk_use import LONGEST, Counter
from koalapy_adapters.messages import files as files_messages
from koalapy_adapters.messages import kcm

from koalapy.api import openapi
from koalapy.api.koalad import disk_answer
from koalapy.model.errors import TransientError
from koalapy.model.units import Instant
from koalapy.runtime.disk import DiskUse

MIB = 1 << 20
FOUND = {"bytes": 3 * MIB, "attempts": 2, "staged_bytes": MIB, "whole": True}


def fill(path: Path, size: int) -> int:
    """A file of so many bytes; those that it has on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))
    return path.stat().st_blocks * 512


# ---- on a cluster


def test_a_kcm_counts_what_its_store_has_and_follows_no_link(tmp_path: Path) -> None:
    own = tmp_path / "abcde"
    fill(tmp_path / "elsewhere" / "large", 10 * MIB)
    staged = fill(own / "stage" / "digest", 300_000)
    files = fill(own / "kabcde000000001" / "work" / "deep" / "file", 200_000) + fill(own / "relay.here.json", 100)
    (own / "kabcde000000002").mkdir()
    (own / "kabcde000000002" / "link").symlink_to(tmp_path / "elsewhere")
    found = Counter(str(own)).count()
    assert (found["attempts"], found["whole"]) == (2, True)
    assert staged <= found["staged_bytes"] < staged + 100_000, "and its directory"
    assert staged + files <= found["bytes"] < staged + files + 200_000


def test_a_kcm_rests_four_times_as_long_as_it_counts_and_ends_in_time(tmp_path: Path) -> None:
    for number in range(2000):
        (tmp_path / "kabcde000000001" / str(number % 7)).mkdir(parents=True, exist_ok=True)
        (tmp_path / "kabcde000000001" / str(number % 7) / str(number)).touch()
    now, rests = [0.0], []

    def clock() -> float:
        now[0] += 0.5
        return now[0]

    def rest(seconds: float) -> None:
        rests.append(seconds)
        now[0] += seconds

    found = Counter(str(tmp_path), clock, rest).count()
    assert rests
    assert set(rests) == {2.0}
    assert not found["whole"] or now[0] < LONGEST
    now[0], rests[:] = 0.0, []
    slow = Counter(str(tmp_path), clock, lambda seconds: rest(10 * seconds)).count()
    assert (slow["whole"], slow["attempts"]) == (False, 1)
    assert now[0] < LONGEST + 25


# ---- koalad's side


def in_use(state: Path, *answers: Any, warn: int | None = None, clusters: Sequence[str] = ("alpha",)) -> DiskUse:
    """Over clusters that answer so, one after the other."""
    left = list(answers)

    def ask(cluster: str, request: Callable[[int], Any], timeout_s: float) -> Any:
        assert isinstance(request(5), files_messages.DiskUse)
        if isinstance(answer := left.pop(0), Exception):
            raise answer
        return kcm.Done(5, details=answer)

    return DiskUse(clusters, ask, state, lambda: Instant(7), warn)


def test_clusters_and_this_host_are_reported_by_what_takes_up_room(tmp_path: Path) -> None:
    wanted = {
        "store": fill(tmp_path / "koala.db", 50_000),
        "output": fill(tmp_path / "output" / "7" / "0.1.output", 200_000),
        "staged": fill(tmp_path / "staged" / "list", 9000),
        "log": fill(tmp_path / "koalad.log", 5000) + fill(tmp_path / "koalad.log.1", 5000),
    }
    alpha, here = in_use(tmp_path, FOUND).count()
    assert (alpha.size, alpha.directories, dict(alpha.parts)) == (3 * MIB, 2, {"attempts": 2 * MIB, "staged": MIB})
    assert (here.is_here, here.directories, dict(here.parts)) == (True, 1, wanted)
    assert here.size == sum(wanted.values())
    openapi.check(disk_answer([alpha, here]))


def test_a_directory_that_a_pilot_shares_with_its_cluster_counts_once(tmp_path: Path) -> None:
    """A lease has a directory of its own, on its lender's cluster."""
    counted = in_use(tmp_path, FOUND, FOUND, clusters=("alpha", "pilot~7", "lyon~3")).count()
    assert [(each.place, each.size) for each in counted[:2]] == [("alpha", 3 * MIB), ("lyon~3", 3 * MIB)]
    assert [each.is_here for each in counted] == [False, False, True]


def test_a_cluster_that_cannot_report_keeps_its_last_report(tmp_path: Path) -> None:
    lost = TransientError("not_connected", "alpha is not connected.", "Wait a moment.")
    disk = in_use(tmp_path, lost, FOUND, TimeoutError(), {**FOUND, "bytes": -1}, warn=2 * MIB)
    first, *_ = disk.count()
    assert (first.at, first.trouble) == (None, lost.reason)
    assert disk.warnings() == []
    assert disk.count()[0].trouble is None
    for code in ("no_answer", "garbled"):
        alpha, _ = disk.count()
        assert alpha.trouble is not None
        assert (alpha.trouble.code, alpha.size, alpha.at) == (code, 3 * MIB, Instant(7))
        openapi.check(disk_answer([alpha]))
        assert len(disk.warnings()) == 1


@pytest.mark.parametrize(("warn", "warned"), [(None, []), (4 * MIB, []), (3 * MIB, []), (2 * MIB, ["on alpha"])])
def test_a_place_with_more_than_the_limit_is_warned_of(tmp_path: Path, warn: int | None, warned: list[str]) -> None:
    disk = in_use(tmp_path, FOUND, warn=warn)
    assert disk.warnings() == [], "nothing was counted yet"
    disk.count()
    assert [each for each in warned if each in disk.warnings()[0]] == warned
    assert len(disk.warnings()) == len(warned)


def test_a_warning_states_how_much_there_is_and_where_to_look(tmp_path: Path) -> None:
    fill(tmp_path / "koala.db", 3 * MIB)
    disk = in_use(tmp_path, {**FOUND, "whole": False}, warn=MIB)
    disk.count()
    alpha, here = disk.warnings()
    assert alpha == (
        "koalapy has at least 3.0 MiB on alpha, more than `disk.warn` (1.0 MiB). "
        "`koala clusters --disk` shows what it is."
    )
    assert here.startswith("koalapy has 3.0 MiB in koalad's state directory, ")
