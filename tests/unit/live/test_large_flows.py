"""A flow of very many jobs in one request to a real koalad: bounded in processor time and memory, shown in parts."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import large
import live
import pytest

Document = dict[str, Any]
WIDTH = 50
# Bounds many times as large as what is needed, which tests/bench/run flows and docs/flows.md have. What would grow with
# the square of the jobs exceeds them, also on a slow machine.
JOB_MS = {"submit": 4, "fail": 4, "cancel": 4, "show": 1, "jobs": 1, "tree": 1}
JOB_KIB = 60
CLIENT_KIB = 100 << 10


def cpu_s(pid: int) -> float:
    """The processor time that a process has used so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture(autouse=True)
def idle(koala: Any) -> Iterator[None]:
    """Each test begins on an idle grid and leaves no job."""
    koala.known()
    yield
    with koala.client() as grid:
        left = [job["id"] for job in grid.jobs() if job["flow"] and job["finished_at"] is None]
        for each in left:
            grid.cancel(each)
        grid.wait(left, live.PATIENCE_S)


@pytest.fixture
def took(koala: Any) -> Iterator[Callable[..., Any]]:
    """Bounds the processor time of koalad for what is done inside, for each of so many jobs."""
    pid = int(koala("status", "--json").document["pid"])
    found: dict[str, float] = {}

    @contextmanager
    def spent(what: str, count: int) -> Iterator[None]:
        before = cpu_s(pid), time.monotonic()
        yield
        found[what] = 1000 * (cpu_s(pid) - before[0]) / count
        print(f"{what}: {found[what]:.2f} ms a job, {time.monotonic() - before[1]:.1f} s, {large.most_kib(pid)} KiB")

    yield spent
    assert {what: ms for what, ms in found.items() if ms > JOB_MS[what]} == {}


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_flow_of_very_many_jobs_is_submitted_shown_and_cancelled(
    koala: Any, shell: Callable[..., Document], took: Callable[..., Any], count: int
) -> None:
    """The first job runs until it is cancelled. All others wait for it, in levels, each for three of the one before."""
    pid = int(koala("status", "--json").document["pid"])
    held = large.most_kib(pid)
    jobs: list[Document] = [{"name": "first", "components": [shell("sleep 600")]}]
    for number in range(1, count):
        level = (number - 1) // WIDTH
        after = (
            [f"j{(level - 1) * WIDTH + 1 + (7 * number + more) % WIDTH}" for more in range(3)] if level else ["first"]
        )
        jobs.append({"name": f"j{number}", "components": [shell("true")], "after": after})
    document = {"name": "many", "jobs": jobs}
    with koala.client() as grid:
        with took("submit", count):
            whole = grid.submit(document)
        koala.until(lambda: grid.jobs(ids=[whole + 1])[0]["state"] == "running")
        with took("jobs", count):
            listed = koala("jobs")
        (line,) = [line for line in listed.out.splitlines() if line.split()[:1] == [str(whole)]]
        assert f"0/{count} done" in line
        assert len(listed.out.splitlines()) < 10
        with took("show", count):
            shown = koala("show", whole)
        assert len(shown.out.splitlines()) < 230
        assert len(shown.out) < 200 * 200
        assert f"and {count - 200:,} more; `koala show {whole} --skip 200` goes on" in shown.out
        assert f"{count - 1:,} blocked, 1 running" in shown.out
        with took("tree", count):
            part = grid.tree(whole, count - 300, 1_000)
        assert len(part["jobs"]) == 300
        assert large.most_kib(pid) - held < count * JOB_KIB + CLIENT_KIB
        with took("cancel", count):
            assert koala("cancel", whole).status == 0
            (ended,) = grid.wait([whole], 120)
        assert (ended["state"], ended["flow"]["cancelled"]) == ("cancelled", count)
        assert {job["state"] for job in grid.flow(whole)} == {"cancelled"}
        assert koala("jobs", "--flow", whole, "--json").document["jobs"][-1]["state"] == "cancelled"


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_flow_of_very_many_jobs_is_submitted_from_a_file(koala: Any, took: Callable[..., Any], count: int) -> None:
    """It fails at its first job, and all others at once, with the chain of reasons."""
    lines = ["name: many", "jobs:", "- {name: j0, components: [{processors: 1, executable: /bin/false}]}"]
    lines += [
        f"- {{name: j{number}, after: [j{number - 1}], components: [{{processors: 1, executable: /bin/true}}]}}"
        for number in range(1, count)
    ]
    file = koala.write("many.yaml", "\n".join(lines) + "\n")
    with took("submit", count):
        answer = koala("submit", file, "--json")
    assert answer.status == 0, answer
    whole = answer.document["id"]
    with took("fail", count):
        ended = koala.end(whole)
    assert (ended["state"], ended["flow"]) == ("failed", {"jobs": count, "done": 0, "failed": count, "cancelled": 0})
    with koala.client() as grid:
        (last,) = grid.jobs(ids=[whole + count])
    assert last["reason_code"] == "prerequisite_failed"
    assert f"which waited for {count - 9} others and job {whole + 1} (j0), which failed" in (last["reason"] or "")
