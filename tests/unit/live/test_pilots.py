"""`koala pilots`: an allocation of an embedded cluster that is a cluster itself."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import live
import pytest
import yaml
from koalapy_adapters.kcm.shared_directory.pushed_files import compiled_path, write_compiled

from koalapy.api import openapi

Document = dict[str, Any]
SHORT = {"batch": "local", "connect": "local:", "poll": "200ms", "max_age": "1m"}


@pytest.fixture(scope="module")
def grid() -> Iterator[Any]:
    """A grid of two clusters, with four processors each, whose koalad runs."""
    with tempfile.TemporaryDirectory(prefix="kl", dir="/tmp") as root:
        place = Path(root)
        clusters = {name: SHORT | {"slots": 4, "shared": str(place / name)} for name in ("delft", "leiden")}
        koala = live.Koala(place, clusters, queue_after="1h")
        assert koala("up").status == 0
        koala.until(lambda: all(each["idle"] == 4 for each in koala("clusters", "--json").document["clusters"]))
        yield koala
        koala.stop()


def opened(koala: Any, *terms: str) -> str:
    answer = koala("pilots", "open", "delft", "-n", "3", "--walltime", "30m", *terms, "--json")
    assert answer.status == 0, answer
    pilot = answer.document["pilot"]
    assert (pilot["state"], pilot["on"], pilot["processors"]) == ("bound", "delft", 3)
    return str(pilot["name"])


def listed(koala: Any) -> list[Document]:
    return list(koala("pilots", "--json").document["pilots"])


def cluster_names(koala: Any) -> list[str]:
    return [each["name"] for each in koala("clusters", "--json").document["clusters"]]


def sh(script: str, cluster: str, processors: int = 1, **fields: Any) -> Document:
    return live.sh(script, processors, cluster=cluster, walltime="1m", **fields)


def test_jobs_run_there_also_with_components_elsewhere_and_over_a_killed_koalad(grid: Any) -> None:
    pilot = opened(grid)
    grid.until(lambda: cluster_names(grid) == ["delft", "leiden", pilot])
    assert {grid.end(job)["state"] for job in [grid.submit(sh("exit 0", pilot)) for _ in range(3)]} == {"done"}
    both = grid.end(grid.submit(sh("exit 0", pilot, 2), sh("exit 0", "leiden", 2)))
    assert [each["cluster"] for each in both["components"]] == [pilot, "leiden"]

    job = grid.submit(sh("echo written; echo kept > kept; sleep 6", pilot))
    grid.until(lambda: grid.job(job)["state"] == "running")
    grid("pilots", "close", pilot).refused(2, f"because of job {job} there", "--drain")
    grid("cluster", "remove", pilot).refused(2, "koala pilots close")
    pid = grid("status", "--json").document["pid"]
    os.kill(pid, signal.SIGKILL)
    grid.until(lambda: not Path(f"/proc/{pid}").exists())
    assert grid("up").status == 0
    assert [each["name"] for each in listed(grid)] == [pilot]
    assert grid("reload").status == 0
    assert pilot in cluster_names(grid)

    assert grid("pilots", "close", pilot, "--drain").status == 0
    assert grid.job(job)["state"] == "done"
    assert listed(grid) == []
    grid.until(lambda: cluster_names(grid) == ["delft", "leiden"])
    assert grid("logs", str(job)).out == "written\n"
    assert grid("logs", "--follow", str(job)).out == "written\n"
    assert grid("fetch", str(job), "kept", "--to", str(grid.root / "fetched")).status == 0
    assert (grid.root / "fetched" / "kept").read_text() == "kept\n"
    (ended,) = [each for each in grid("pilots", "--all", "--json").document["pilots"] if each["name"] == pilot]
    assert (ended["state"], ended["ended_at"] is None, ended["hosts"] != []) == ("ended", False, True)
    assert "holds processors" in grid("show", pilot.removeprefix("pilot~")).out
    pruned = grid("maintenance", "run", "prune-output", "--set", "keep=0s")
    assert pruned.status == 0, pruned
    assert not list((grid.root / "delft").rglob("kept"))
    refused = grid("submit", grid.write("late.yaml", {"components": [sh("exit 0", pilot)]}))
    refused.refused(2, pilot)
    grid.until(lambda: not [each for each in grid.processes() if b"/allocations/" in cmdline(each)])


def test_a_job_has_what_is_left_of_the_pilot_that_it_names_and_fails_if_it_needs_more(grid: Any) -> None:
    """A pilot of 10 min has at most 4 for a program, beside the barrier and a minute."""
    name = grid("pilots", "open", "delft", "-n", "3", "--walltime", "10m", "--json").document["pilot"]["name"]
    grid.until(lambda: limit_of(grid, name))
    component = {"processors": 1, "executable": "sh", "arguments": ["-c", "exit 0"], "cluster": name}
    found = grid.end(grid.submit(component))
    assert found["state"] == "done"
    assert 60 < found["components"][0]["walltime_s"] < 240
    long = grid.submit(component | {"walltime": "1h"})
    assert grid.end(long)["state"] == "failed"
    reason = grid("explain", long, "--json").document["reason"]
    assert reason["code"] == "walltime_limit"
    assert "asks for a walltime of 1h, and the longest that fits is" in reason["message"]
    assert grid("pilots", "close", name, "--drain").status == 0


def limit_of(grid: Any, cluster: str) -> float:
    """The longest walltime of the cluster in seconds; 0 before it is measured."""
    found = {each["name"]: each for each in grid("clusters", "--json").document["clusters"]}
    return found[cluster]["walltime_limit_s"] or 0 if cluster in found else 0


def test_what_a_job_used_there_is_the_pilots_used_part_and_adds_nothing_to_the_total(grid: Any) -> None:
    used = grid("usage", "--json").document["total"]
    pilot = opened(grid)
    job = grid.submit(sh("sleep 1", pilot, 2))
    assert grid.end(job)["state"] == "done"
    assert grid("pilots", "close", pilot).status == 0
    document = grid("usage", "--by", "job", "--json").document
    openapi.check(document)
    rows = {row["job"]: row for row in document["rows"]}
    there, its = rows[int(job)], rows[int(pilot.removeprefix("pilot~"))]
    assert there["total"] == there["used"] == its["on_pilots"] == 0
    assert 2 <= there["on_pilots"] == its["used"] < its["total"]
    assert document["total"]["total"] == pytest.approx(used["total"] + its["total"])
    assert {row["cluster"] for row in grid("usage", "--by", "cluster", "--json").document["rows"]} == {
        "delft",
        "leiden",
    }
    shown = grid("usage", "--by", "job").out
    assert "ON PILOTS" in shown.splitlines()[0]
    assert "processor seconds" in shown


def test_wrappers_are_forks_also_once_the_pushed_file_is_compiled(grid: Any) -> None:
    """A wrapper that is a new interpreter takes ten times as long."""
    (pushed,) = (each for each in (grid.root / "delft" / "bin").glob("*.pyz") if each.name.count(".") == 1)
    compiled = compiled_path(str(pushed))
    assert compiled is not None
    write_compiled(str(pushed), compiled)
    pilot = opened(grid)
    job = grid.submit(sh("tr '\\0' ' ' < /proc/$PPID/cmdline; cat ../script", pilot))
    assert grid.end(job)["state"] == "done"
    parent, _, script = grid("logs", str(job)).out.partition("#!")
    assert f"{Path(compiled).name} wrapper" in script
    assert " allocation-node " in parent
    assert grid("pilots", "close", pilot).status == 0


def cmdline(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_shared_one_takes_any_job_and_what_is_there_runs_elsewhere_after_a_forced_close(grid: Any) -> None:
    pilot = opened(grid, "--shared")
    with grid.client() as client:
        client.drain_cluster("delft")
        client.drain_cluster("leiden")
        job = grid.submit(
            live.sh(f"test -e {grid.root}/again && exit 0; touch {grid.root}/again; sleep 50", walltime="1m")
        )
        grid.until(lambda: grid.job(job)["state"] == "running")
        assert grid.job(job)["components"][0]["cluster"] == pilot
        client.resume_cluster("leiden")
    assert grid("pilots", "close", pilot, "--force").status == 0
    assert grid.end(job)["state"] == "done"
    assert grid.job(job)["components"][0]["cluster"] == "leiden"
    grid("cluster", "resume", "delft")


def test_one_whose_wrapper_alone_is_killed_takes_nothing_with_it_for_good(grid: Any) -> None:
    pilot = opened(grid, "--shared")
    with grid.client() as client:
        client.drain_cluster("delft")
        client.drain_cluster("leiden")
        again = grid.root / "wrapper-again"
        job = grid.submit(live.sh(f"test -e {again} && exit 0; touch {again}; sleep 50", walltime="1m"))
        grid.until(lambda: grid.job(job)["state"] == "running")
        client.resume_cluster("leiden")
    wrappers = [each for each in grid.processes() if cmdline(each).split(b"\0")[4:5] == [b"wrapper"]]
    (parent,) = [each for each in wrappers if parent_of(each) not in wrappers]
    os.kill(parent, signal.SIGKILL)
    assert grid.end(job)["state"] == "done"
    assert grid.job(job)["components"][0]["cluster"] == "leiden"
    grid.until(lambda: not listed(grid))
    (ended,) = [each for each in grid("pilots", "--all", "--json").document["pilots"] if each["name"] == pilot]
    assert (ended["state"], bool(ended["reason"])) == ("failed", True)
    grid.until(lambda: not [each for each in grid.processes() if b"/allocations/" in cmdline(each)])
    grid("cluster", "resume", "delft")


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


# What `python` of a pilot's node does with the arguments -E -s -S -c CODE PROGRAM.
OLD_PYTHON = 'exec python3 -E -s -S -c "import sys; sys.version_info = (3, 5, 2); $5" "$6"'


@pytest.mark.parametrize(
    ("instead", "words"),
    [("exec /nowhere/python3", "{} has no {}"), (OLD_PYTHON, "{1} on {0} is Python 3.5.2, which is too old.")],
    ids=["none", "too old"],
)
def test_one_whose_nodes_have_another_python_reports_it_and_can_be_closed(grid: Any, instead: str, words: str) -> None:
    before = yaml.safe_load(grid.grid_file.read_text())
    python = grid.root / "python"
    only_here = f'[ -z "$KOALA_ALLOCATION_ENDS" ] || {instead}'
    python.write_text(f'#!/bin/sh\n{only_here}\nexec python3 "$@"\n')
    python.chmod(0o755)
    other = SHORT | {"slots": 2, "shared": str(grid.root / "other"), "python": str(python)}
    grid.write_grid(before | {"clusters": before["clusters"] | {"other": other}})
    assert grid("reload").status == 0
    assert grid("pilots", "open", "other", "-n", "2", "--no-wait").status == 0
    (pilot,) = grid.until(lambda: [each for each in listed(grid) if str(python) in (each["reason"] or "")])
    assert (pilot["state"], words.format(pilot["name"], python) in pilot["reason"]) == ("bound", True)
    assert pilot["reason"] in grid("pilots").out
    job = grid.submit(sh("exit 0", pilot["name"]))
    assert grid("pilots", "close", pilot["name"], "--drain").status == 0
    assert grid.end(job)["state"] == "failed"
    grid.write_grid(before)
    assert grid("reload").status == 0


def test_the_same_key_gives_the_same_pilot(grid: Any) -> None:
    name = opened(grid, "--key", "once")
    assert opened(grid, "--key", "once") == name
    assert [each["name"] for each in listed(grid)] == [name]
    assert grid("pilots", "close", name).status == 0


def test_one_that_is_idle_ends_by_itself(grid: Any) -> None:
    pilot = opened(grid, "--idle", "4s")
    grid.until(lambda: not listed(grid))
    job = grid.job(int(pilot.removeprefix("pilot~")))
    assert "Nothing ran on it" in job["reason"]


def test_those_of_the_grid_file_are_kept_until_it_wants_none(grid: Any) -> None:
    before = yaml.safe_load(grid.grid_file.read_text())
    grid.write_grid(before | {"pilots": {"leiden": {"size": 2, "least": 1, "idle": "1s"}}})
    assert grid("reload").status == 0
    (pilot,) = grid.until(lambda: [each for each in listed(grid) if each["state"] == "bound"])
    assert (pilot["on"], pilot["shared"], pilot["processors"]) == ("leiden", True, 2)
    with grid.client() as client:
        client.drain_cluster("delft")
        job = grid.submit(live.sh("exit 0", 3, walltime="1m"), live.sh("exit 0", 1, walltime="1m"))
        client.resume_cluster("delft")
    assert grid.end(job)["state"] == "done"
    assert [each["name"] for each in listed(grid)] == [pilot["name"]]
    grid.write_grid(before)
    assert grid("reload").status == 0
    grid.until(lambda: not listed(grid))


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        (("leiden", "-n", "5"), ("leiden has 4 processors in all", "5 are needed")),
        (("nowhere", "-n", "1"), ("nowhere",)),
        (("delft", "-n", "3", "--nodes", "2"), ("3 processors", "2 nodes")),
        (("delft", "-n", "1", "--walltime", "soon"), ("'soon'", "10m")),
        (("delft", "-n", "1", "--walltime", "5s"), ("30s at least",)),
        (("delft", "-n", "1", "--walltime", "5m"), ("too short for any job", "6m")),
        (("delft",), ("-n",)),
    ],
    ids=["too large", "no such cluster", "nodes", "no duration", "too short", "no job fits", "no size"],
)
def test_one_that_cannot_be_is_refused(grid: Any, terms: tuple[str, ...], words: tuple[str, ...]) -> None:
    answer = grid("pilots", "open", *terms)
    assert answer.status == 2
    for word in words:
        assert word in answer.err, answer
    assert not listed(grid)


def test_a_name_of_none_is_refused(grid: Any) -> None:
    grid("pilots", "close", "pilot~99").refused(2, "There is no pilot pilot~99", "koala pilots")
