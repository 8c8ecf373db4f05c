"""One file of more than 4 GiB to a cluster and back: all of its bytes, and never many of them in anybody's memory."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import live
import pytest

SIZE = (4 << 30) + 12_345
MARKS = {0: b"first", (4 << 30) - 3: b"across", SIZE - 4: b"last"}  # all else are zeros
MEMORY = 200 << 10  # KiB that nobody of koalapy's may ever have held
PATIENCE_S = 600


@pytest.fixture
def koala(tmp_path: Path) -> Iterator[Any]:
    running = live.Koala(tmp_path, {"here": live.embedded(tmp_path)["leiden"]}, claim={"timeout": "10m"})
    assert running("up").status == 0
    yield running
    running.stop()


def most_kib(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def marks(path: Path) -> dict[int, bytes]:
    with path.open("rb") as file:
        return {at: os.pread(file.fileno(), len(words), at) for at, words in MARKS.items()}


@pytest.mark.slow
@pytest.mark.timeout(900, func_only=True)
def test_a_file_beyond_four_gigabytes_goes_and_comes_in_little_memory(koala: Any) -> None:
    with (koala.work / "large").open("wb") as file:
        file.truncate(SIZE)
        for at, words in MARKS.items():
            os.pwrite(file.fileno(), words, at)
    job = koala.submit(live.sh("mv large back; stat -c %s back"), stage_in=["large"], stage_out=["back"])
    with koala.client() as grid:
        ended = grid.wait([job], PATIENCE_S)[0]
        said = b"".join(grid.output(job))
    assert ended["state"] == "done", ended["reason"]
    assert int(said) == (koala.work / "back").stat().st_size == SIZE
    assert marks(koala.work / "back") == MARKS
    assert {process: kib for process in koala.processes() if (kib := most_kib(process)) > MEMORY} == {}
