"""Files to real clusters and back over real SSH: what does not fit, what is cut, what comes in thousands."""

import filecmp
import hashlib
import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import large
import live
import pytest
import yaml

sh = live.sh
MB = 1_000_000
LONG_S = 1200
Document = dict[str, Any]


@pytest.fixture
def koala(testgrid: Any, tmp_path: Path) -> Iterator[Any]:
    """A koalad of its own over the test grid."""
    with over(testgrid, tmp_path, "20s") as running:
        yield running


@pytest.fixture
def patient(testgrid: Any, tmp_path: Path) -> Iterator[Any]:
    """The same; a claim has the time that its cluster needs to copy gigabytes."""
    with over(testgrid, tmp_path, "10m") as running:
        yield running


@contextmanager
def over(testgrid: Any, directory: Path, claim: str) -> Iterator[Any]:
    clusters = yaml.safe_load(Path(testgrid.grid_file).read_text())["clusters"]
    running = live.Koala(directory / "live", clusters, claim={"timeout": claim}, barrier={"timeout": "60s"})
    assert running("up").status == 0
    with running.client() as grid:
        running.until(lambda: all(each["idle"] for each in grid.clusters()))
    yield running
    running.stop()


def grow(directory: Path, seed: int, size: int = 40) -> None:
    """A tree of `size` files of all sizes, with odd names, an empty directory, a link inside, and modes."""
    dice = random.Random(seed)
    for number in range(size):
        folder = directory / f"d{number % 5}" / ("é deep" if number % 3 else "a\nb")
        folder.mkdir(parents=True, exist_ok=True)
        name = os.fsdecode(b"\xff%d" % number) if number % 7 == 0 else f"f {number} ' \" *.dat"
        (folder / name).write_bytes(dice.randbytes(dice.choice((0, 1, 5_000, 70_000, 300_000))))
        (folder / name).chmod(dice.choice((0o600, 0o640, 0o755)))
    (directory / "empty").mkdir()
    (directory / "empty").chmod(0o750)
    (directory / "link").symlink_to("d0")


def contents(directory: Path) -> dict[bytes, Any]:
    """Of every path its mode, and its bytes' hash."""
    found: dict[bytes, Any] = {}
    for place, folders, files in os.walk(os.fsencode(directory), followlinks=True):
        for name in [*folders, *files]:
            path = os.path.join(place, name)
            data = None if os.path.isdir(path) else hashlib.sha256(Path(os.fsdecode(path)).read_bytes()).hexdigest()
            found[os.path.relpath(path, os.fsencode(directory))] = (os.stat(path).st_mode & 0o777, data)
    return found


def fill(path: Path, size: int) -> None:
    with path.open("wb") as file:
        block = random.Random(size).randbytes(MB)
        for number in range(size // MB):
            file.write(number.to_bytes(8, "big") + block[8:])


@pytest.mark.timeout(240, func_only=True)
def test_a_tree_goes_to_every_cluster_and_comes_back_as_it_was(koala: Any) -> None:
    (koala.work / "tree").mkdir()
    grow(koala.work / "tree", seed=1)
    components = [sh("cp -r tree back", cluster=cluster) for cluster in ("alpha", "beta", "gamma")]
    job = koala.end(koala.submit(*components, stage_in=["tree"], stage_out=[{"path": "back/", "to": "from/{cluster}"}]))
    assert job["state"] == "done", job["reason"]
    sent = contents(koala.work / "tree")
    assert len(sent) > 50
    for cluster in ("alpha", "beta", "gamma"):
        assert contents(koala.work / "from" / cluster / "back") == sent
    answer = koala("show", job["id"], "--json")
    versions = {event["version"] for event in answer.document["events"] if event["kind"] == "files_staged"}
    assert len(versions) == 1, "all components have one version"


@pytest.mark.timeout(120, func_only=True)
def test_what_does_not_fit_is_said_before_anything_runs(koala: Any) -> None:
    fill(koala.work / "large", 200 * MB)
    job = koala.end(koala.submit(sh("touch ran", cluster="beta"), stage_in=["large"]))
    assert (job["state"], job["reason_code"]) == ("failed", "does_not_fit")
    assert "beta" in job["reason"]
    assert "200 MB" in job["reason"]
    assert job["components"][0]["batch_id"] is None


@pytest.mark.timeout(240, func_only=True)
def test_a_cut_connection_costs_what_was_on_the_wire(koala: Any, testgrid: Any) -> None:
    """In both directions: 300 MB, cut in the middle, go on where they were."""
    fill(koala.work / "large", 300 * MB)
    job = koala.submit(
        sh("cp large back; sha256sum large", cluster="alpha"), stage_in=["large"], stage_out=["back"], retry_on=[]
    )
    for direction in ("in", "out"):
        moved = cut_in_the_middle(koala, testgrid, job, direction)
        again = first_after(koala, job, direction)
        print(f"{direction}: cut at {moved / MB:.0f} MB, went on at {again / MB:.0f} MB")
        assert again > moved - 20 * MB, "it went on, and did not begin anew"
    found = koala.end(job)
    assert found["state"] == "done", found["reason"]
    assert found["submission_failures"] == 0
    assert filecmp.cmp(koala.work / "large", koala.work / "back", shallow=False)
    assert not list(koala.work.glob(".koala-*"))


@pytest.mark.slow
@pytest.mark.timeout(2400, func_only=True)
def test_a_file_beyond_four_gigabytes_is_cut_both_ways_and_held_by_nobody(patient: Any, testgrid: Any) -> None:
    """Its room on the cluster is that of the staged file and of the attempt's copy, here that of what comes back."""
    enough = 4 * large.SIZE
    if min(shutil.disk_usage(patient.work).free, free_bytes(testgrid, "alpha")) < enough:
        pytest.skip(f"it takes {enough / 1e9:.0f} GB of free disk")
    large.make(patient.work / "large")
    job = patient.submit(sh("mv large back", cluster="alpha"), stage_in=["large"], stage_out=["back"], retry_on=[])
    for direction in ("in", "out"):
        moved = cut_in_the_middle(patient, testgrid, job, direction, LONG_S)
        again = first_after(patient, job, direction, LONG_S)
        print(f"{direction}: cut at {moved / MB:.0f} MB, went on at {again / MB:.0f} MB")
        assert again > moved - 60 * MB, "it went on, and did not begin anew"
    with patient.client() as grid:
        found = grid.wait([job], LONG_S)[0]
    assert (found["state"], found["submission_failures"]) == ("done", 0), found["reason"]
    assert (patient.work / "back").stat().st_size == large.SIZE
    assert large.marks(patient.work / "back") == large.MARKS
    held = [*map(large.most_kib, patient.processes()), *most_kib_there(testgrid, "alpha")]
    print(f"memory held at most: {max(held) >> 10} MB")
    assert max(held) <= large.MEMORY


def free_bytes(testgrid: Any, host: str) -> int:
    """Where its users have their homes."""
    return int(testgrid.containers.check(host, ["df", "-B1", "--output=avail", "/home"]).split()[-1])


def most_kib_there(testgrid: Any, host: str) -> list[int]:
    """What each of koalapy's processes on the head node has held so far."""
    look = (
        "for pid in $(pgrep -u koala -f '[.]pyz'); do sed -n 's/^VmHWM:\\s*//p' /proc/$pid/status 2>/dev/null; done; :"
    )
    found = [int(line.split()[0]) for line in testgrid.shell(host, look).splitlines()]
    assert found, "there is a KCM"
    return found


def transfer(koala: Any, job: int, direction: str) -> Document | None:
    found = koala.job(job)["transfers"]
    return next((each for each in found if each["direction"] == direction and each["phase"] != "reading"), None)


def cut_in_the_middle(koala: Any, testgrid: Any, job: int, direction: str, patience_s: float = live.PATIENCE_S) -> int:
    def middle() -> int:
        found = transfer(koala, job, direction)
        return found["bytes_moved"] if found and found["bytes_moved"] > 0.2 * found["bytes"] else 0

    moved = koala.until(middle, patience_s)
    testgrid.containers.kill_process("alpha", "sshd", user="koala")
    return int(moved)


def first_after(koala: Any, job: int, direction: str, patience_s: float = live.PATIENCE_S) -> int:
    """Where it went on: what is there as the transfer begins again."""
    koala.until(lambda: any(each["name"] == "alpha" and each["connection"] != "up" for each in clusters(koala)))
    return int(koala.until(lambda: (transfer(koala, job, direction) or {}).get("bytes_moved"), patience_s))


def clusters(koala: Any) -> list[Document]:
    with koala.client() as grid:
        return list(grid.clusters())


@pytest.mark.timeout(240, func_only=True)
def test_ten_thousand_small_files_go_and_come(koala: Any) -> None:
    (koala.work / "many").mkdir()
    for number in range(10_000):
        (koala.work / "many" / f"{number}.txt").write_text(f"{number}\n")
    began = time.monotonic()
    job = koala.end(
        koala.submit(sh("ls many | wc -l; mkdir out; cp many/* out", cluster="alpha"), stage_in=["many/*.txt"],
                     stage_out=["out"])
    )  # fmt: skip
    assert job["state"] == "done", job["reason"]
    print(f"10,000 files there and back in {time.monotonic() - began:.1f} s")
    assert contents(koala.work / "many") == contents(koala.work / "out")


@pytest.mark.timeout(240, func_only=True)
def test_a_flood_of_output_delays_no_cancel(koala: Any) -> None:
    sleeper = koala.submit(sh("echo up; sleep 600", cluster="alpha"))
    koala.until(lambda: koala.job(sleeper)["components"][0]["state"] == "running")
    flood = koala.submit(sh("truncate -s 3G flood", cluster="alpha"), stage_out=["flood"])
    koala.until(lambda: (transfer(koala, flood, "out") or {}).get("bytes_moved"))
    with koala.client() as grid:
        began = time.monotonic()
        grid.cancel(sleeper)
        assert grid.wait([sleeper], 60)[0]["state"] == "cancelled"
        took = time.monotonic() - began
        assert grid.jobs(ids=[flood])[0]["state"] == "running", "the flood is still coming"
        grid.cancel(flood)
        assert grid.wait([flood], 60)[0]["state"] == "cancelled"
    print(f"cancelled under a flood in {took:.2f} s")


@pytest.mark.timeout(180, func_only=True)
def test_a_failed_stage_out_is_fetched_again(koala: Any) -> None:
    job = koala.end(koala.submit(sh("echo kept > kept", cluster="gamma"), stage_out=["kept", "never"]))
    assert (job["state"], job["reason_code"]) == ("failed", "no_output_file")
    (koala.work / "kept").unlink()
    answer = koala("fetch", job["id"], "kept", "--to", "again")
    assert answer.status == 0, answer
    assert (koala.work / "again" / "kept").read_text() == "kept\n"


@pytest.mark.timeout(180, func_only=True)
def test_a_thousand_needs_of_one_file_send_it_once(koala: Any, testgrid: Any) -> None:
    """A hundred jobs here, of 20 MB: the stage has one file, and little more than its bytes went over."""
    fill(koala.work / "shared", 20 * MB)
    jobs: list[int] = []
    submitters = [threading.Thread(target=lambda: jobs.append(submit(koala))) for _ in range(20)]
    for thread in submitters:
        thread.start()
    for thread in submitters:
        thread.join()
    with koala.client() as grid:
        ended = grid.wait(jobs, 120)
    assert {job["state"] for job in ended} == {"done"}, [job["reason"] for job in ended]
    stage = testgrid.containers.check("alpha", ["sh", "-c", "ls ~koala/.koala/*/stage | wc -l"]).strip()
    assert stage == "1"


def submit(koala: Any) -> int:
    with koala.client() as grid:
        job = {"name": "t", "components": [sh("test -s shared", cluster="alpha")], "stage_in": ["shared"]}
        return int(grid.submit(job, directory=koala.work))
