"""One file of more than 4 GiB to a cluster and back: all of its bytes, and never many of them in anybody's memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import large
import live
import pytest

# At whatever pace a busy machine moves and copies 4 GiB: neither bound is what is tested.
PATIENCE_S = 3000
CLAIM = {"timeout": "1h"}  # within which the job's own copy is made


@pytest.fixture
def koala(place: Path) -> Iterator[Any]:
    running = live.Koala(place, {"here": live.embedded(place)["leiden"]}, claim=CLAIM)
    assert running("up").status == 0
    yield running
    running.stop()


@pytest.mark.slow
@pytest.mark.timeout(3600, func_only=True)
def test_a_file_beyond_four_gigabytes_goes_and_comes_in_little_memory(koala: Any) -> None:
    large.make(koala.work / "large")
    job = koala.submit(live.sh("mv large back; stat -c %s back"), stage_in=["large"], stage_out=["back"])
    with koala.client() as grid:
        ended = grid.wait([job], PATIENCE_S)[0]
        said = b"".join(grid.output(job))
    assert ended["state"] == "done", ended["reason"]
    assert int(said) == (koala.work / "back").stat().st_size == large.SIZE
    assert large.marks(koala.work / "back") == large.MARKS
    held = {process: large.most_kib(process) for process in koala.processes()}
    assert {process: kib for process, kib in held.items() if kib > large.MEMORY} == {}
