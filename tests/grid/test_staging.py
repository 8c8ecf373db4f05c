"""Files to real clusters and back over real SSH: what does not fit, what is cut, what comes in thousands."""

import contextlib
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
from cable import Cable, Way

sh = live.sh
MB = 1_000_000
Document = dict[str, Any]


@pytest.fixture
def koala(testgrid: Any, tmp_path: Path) -> Iterator[Any]:
    """A koalad of its own over the test grid."""
    with over(clusters_of(testgrid), tmp_path, "20s") as running:
        yield running


def clusters_of(testgrid: Any) -> Document:
    return dict(yaml.safe_load(Path(testgrid.grid_file).read_text())["clusters"])


@contextmanager
def over(clusters: Document, directory: Path, claim: str) -> Iterator[Any]:
    running = live.Koala(directory / "live", clusters, claim={"timeout": claim}, barrier={"timeout": "60s"})
    try:
        assert running("up").status == 0
        with running.client() as grid:
            running.until(lambda: all(each["idle"] for each in grid.clusters()))
        yield running
    finally:
        running.stop()


@contextmanager
def over_a_cable(testgrid: Any, directory: Path, up: Way, down: Way) -> Iterator[Any]:
    """Over alpha alone, to which these are the ways. A claim has the time that it takes to copy gigabytes."""
    alpha = clusters_of(testgrid)["alpha"]
    user, _, address = alpha["connect"].removeprefix("ssh://").partition("@")
    known_hosts = directory / "known_hosts"
    known_hosts.write_text(Path(alpha["known_hosts"]).read_text().replace(f"{address} ", "127.0.0.1 "))
    with contextlib.closing(Cable((address, 22), up, down)) as cable:
        way = {"connect": f"ssh://{user}@127.0.0.1:{cable.port}", "known_hosts": str(known_hosts)}
        with over({"alpha": alpha | way}, directory, "10m") as running:
            yield running


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
    """Return the mode of every path, and the hash of its bytes."""
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


def test_what_does_not_fit_is_reported_before_anything_runs(koala: Any) -> None:
    fill(koala.work / "large", 200 * MB)
    job = koala.end(koala.submit(sh("touch ran", cluster="beta"), stage_in=["large"]))
    assert (job["state"], job["reason_code"]) == ("failed", "does_not_fit")
    assert "beta" in job["reason"]
    assert "200 MB" in job["reason"]
    assert job["components"][0]["batch_id"] is None


def test_a_cut_connection_costs_what_was_on_the_wire(testgrid: Any, tmp_path: Path) -> None:
    """In both directions: cut in the middle of 120 MB, it goes on where it was."""
    size = 120 * MB
    ways = Way(breaks_at=size // 2), Way(breaks_at=size // 2)
    with over_a_cable(testgrid, tmp_path, *ways) as koala:
        fill(koala.work / "large", size)
        there_and_back(koala, ways, "cp large back", size)
        assert filecmp.cmp(koala.work / "large", koala.work / "back", shallow=False)
        assert not list(koala.work.glob(".koala-*"))


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_file_beyond_four_gigabytes_is_cut_both_ways_and_held_by_nobody(testgrid: Any, tmp_path: Path) -> None:
    """Its room on the cluster is that of the staged file and of the attempt's copy, here that of what comes back."""
    enough = 4 * large.SIZE
    if min(shutil.disk_usage(tmp_path).free, free_bytes(testgrid, "alpha")) < enough:
        pytest.skip(f"it takes {enough / 1e9:.0f} GB of free disk")
    ways = Way(breaks_at=large.SIZE // 2), Way(breaks_at=large.SIZE // 2)
    with over_a_cable(testgrid, tmp_path, *ways) as koala:
        large.make(koala.work / "large")
        there_and_back(koala, ways, "mv large back", large.SIZE)
        assert (koala.work / "back").stat().st_size == large.SIZE
        assert large.marks(koala.work / "back") == large.MARKS
        held = [*map(large.most_kib, koala.processes()), *most_kib_there(testgrid, "alpha")]
    print(f"memory held at most: {max(held) >> 10} MB")
    assert max(held) <= large.MEMORY


def there_and_back(koala: Any, ways: tuple[Way, Way], script: str, size: int) -> None:
    """Return the bytes each way: in the end the file once, and those on the wire at the cut."""
    job = koala.submit(sh(script, cluster="alpha"), stage_in=["large"], stage_out=["back"], retry_on=[])
    with koala.client() as grid:
        found = grid.wait([job], 200 + size / (4 * MB))[0]
    assert (found["state"], found["submission_failures"]) == ("done", 0), found["reason"]
    for way in ways:
        print(f"carried {way.carried / MB:.0f} MB")
        assert way.has_broken
        assert size <= way.carried < 1.1 * size, "it went on, and did not begin anew"


def free_bytes(testgrid: Any, host: str) -> int:
    """Where its users have their homes."""
    return int(testgrid.containers.check(host, ["df", "-B1", "--output=avail", "/home"]).split()[-1])


def most_kib_there(testgrid: Any, host: str) -> list[int]:
    """Return the most memory, in KiB, of each of koalapy's processes on the head node so far."""
    look = (
        "for pid in $(pgrep -u koala -f '[.]pyz'); do sed -n 's/^VmHWM:\\s*//p' /proc/$pid/status 2>/dev/null; done; :"
    )
    found = [int(line.split()[0]) for line in testgrid.shell(host, look).splitlines()]
    assert found, "there is a KCM"
    return found


def transfer(koala: Any, job: int, direction: str) -> Document | None:
    found = koala.job(job)["transfers"]
    return next((each for each in found if each["direction"] == direction and each["phase"] != "reading"), None)


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


def test_a_flood_of_output_delays_no_cancel(testgrid: Any, tmp_path: Path) -> None:
    """Over a way that it fills for minutes."""
    with over_a_cable(testgrid, tmp_path, Way(None), Way(None, pace=5 * MB)) as koala:
        cancel_under_a_flood(koala)


def cancel_under_a_flood(koala: Any) -> None:
    sleeper = koala.submit(sh("echo up; sleep 600", cluster="alpha", walltime="15m"))
    koala.until(lambda: koala.job(sleeper)["components"][0]["state"] == "running")
    flood = koala.submit(sh("truncate -s 3G flood", cluster="alpha"), stage_out=["flood"])
    koala.until(lambda: any(each["bytes_moved"] for each in koala.job(flood)["transfers"]))
    with koala.client() as grid:
        began = time.monotonic()
        grid.cancel(sleeper)
        assert grid.wait([sleeper], live.PATIENCE_S)[0]["state"] == "cancelled"
        took = time.monotonic() - began
        assert grid.jobs(ids=[flood])[0]["state"] == "running", "the flood is still coming"
        grid.cancel(flood)
        assert grid.wait([flood], live.PATIENCE_S)[0]["state"] == "cancelled"
    print(f"cancelled under a flood in {took:.2f} s")


def test_a_failed_stage_out_is_fetched_again(koala: Any) -> None:
    job = koala.end(koala.submit(sh("echo kept > kept", cluster="gamma"), stage_out=["kept", "never"]))
    assert (job["state"], job["reason_code"]) == ("failed", "no_output_file")
    (koala.work / "kept").unlink()
    answer = koala("fetch", job["id"], "kept", "--to", "again")
    assert answer.status == 0, answer
    assert (koala.work / "again" / "kept").read_text() == "kept\n"


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
        ended = grid.wait(jobs, live.PATIENCE_S)
    assert {job["state"] for job in ended} == {"done"}, [job["reason"] for job in ended]
    stage = testgrid.containers.check("alpha", ["sh", "-c", "ls ~koala/.koala/*/stage | wc -l"]).strip()
    assert stage == "1"


def submit(koala: Any) -> int:
    with koala.client() as grid:
        job = {"name": "t", "components": [sh("test -s shared", cluster="alpha")], "stage_in": ["shared"]}
        return int(grid.submit(job, directory=koala.work))
