"""A real koalad whose clusters come, change and go while jobs run: by command, by a grid file read again, by SIGHUP."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import live
import pytest
import yaml

from koalapy.api import openapi

Document = dict[str, Any]
SHORT = {"batch": "local", "connect": "local:", "poll": "200ms", "max_age": "1m"}


@pytest.fixture
def one(place: Path) -> Iterator[Any]:
    """A grid of one cluster, with four processors, whose koalad runs."""
    koala = live.Koala(place, {"delft": SHORT | {"slots": 4, "shared": str(place / "delft")}}, queue_after="1h")
    assert koala("up").status == 0
    yield koala
    koala.stop()


def clusters(koala: Any) -> list[Document]:
    return list(koala("clusters", "--json").document["clusters"])


def names(koala: Any) -> list[str]:
    return [each["name"] for each in clusters(koala)]


def add(koala: Any, name: str, slots: int = 4, *more: str) -> Any:
    options = ("-o", f"slots={slots}", "-o", f"shared={koala.root / name}", "-o", "poll=200ms", "-o", "max_age=1m")
    return koala("cluster", "add", name, "--batch", "local", "--connect", "local:", *options, *more)


def rewrite(koala: Any, change: Callable[[Document], object]) -> None:
    grid = yaml.safe_load(koala.grid_file.read_text())
    change(grid)
    koala.write_grid(grid)


def running(koala: Any, job: int) -> None:
    koala.until(lambda: koala.job(job)["state"] == "running")


def pid_of(koala: Any) -> int:
    return int(koala("status", "--json").document["pid"])


# ---- by command


def test_a_waiting_job_starts_on_a_cluster_that_is_added_and_it_is_kept_over_a_restart(one: Any) -> None:
    one.submit(live.sh("sleep 60", 3))
    job = one.submit(live.sh("true", 3))
    one.until(lambda: "idle" in one("explain", job).out)
    assert one.job(job)["state"] == "waiting"
    answer = add(one, "vu")
    assert (answer.status, answer.out.splitlines()[0]) == (0, "vu is added; `koala cluster remove vu` removes it.")
    assert one.end(job)["state"] == "done"
    assert "vu was added by command" in one("clusters").out
    one("down")
    assert one("up").status == 0
    assert names(one) == ["delft", "vu"]
    again = one.submit(live.sh("true", 1, cluster="vu"))
    assert one.end(again)["state"] == "done"
    removed = one("cluster", "remove", "vu", "--json").document
    openapi.check(removed)
    assert (removed["state"], removed["added_by_command"]) == ("removed", True)
    one("down")
    assert one("up").status == 0
    assert names(one) == ["delft"]


def test_what_cannot_be_added_is_refused_with_the_key(one: Any) -> None:
    add(one, "delft").refused(2, "The grid has a cluster delft already")
    add(one, "DELFT").refused(2, "capitals")
    add(one, "a b").refused(2, "a b")
    add(one, "vu", 4, "-o", "qeue=x").refused(2, "qeue")
    add(one, "vu", 4, "-o", "parallel_environment=x").refused(2, "parallel_environment")
    add(one, "vu", 4, "-o", "poll=never").refused(2, "poll")
    one("cluster", "add", "vu", "--batch", "condor", "--connect", "local:").refused(2, "condor")
    place = one.root / "delft"
    one("cluster", "add", "vu", "--batch", "local", "--connect", "local:", "-o", f"shared={place}").refused(2, "delft")
    one("cluster", "remove", "vu").refused(2, "The cluster vu is not in the grid")
    one("cluster", "remove", "delft").refused(2, "delft is the only cluster of the grid")
    assert names(one) == ["delft"]


def test_a_cluster_that_does_not_answer_is_added_and_shown_with_the_reason(one: Any) -> None:
    answer = one("cluster", "add", "far", "--batch", "slurm", "--connect", "command:false")
    assert answer.status == 0
    assert "far is not connected: " in answer.out
    found = {each["name"]: each for each in clusters(one)}
    assert found["far"]["reason"]
    assert one("cluster", "remove", "far").status == 0


def test_a_cluster_with_a_running_job_leaves_only_when_it_is_drained(one: Any) -> None:
    add(one, "vu")
    job = one.submit(live.sh(f"until test -e {one.root}/go; do sleep 0.1; done", 1, cluster="vu"))
    running(one, job)
    one("cluster", "remove", "vu").refused(2, f"job {job} there", "--drain")
    waits = one.start("cluster", "remove", "vu", "--drain")
    one.until(lambda: {each["name"]: each["draining"] for each in clusters(one)}["vu"])
    elsewhere = one.submit(live.sh("true", 4))
    assert one.end(elsewhere)["components"][0]["cluster"] == "delft"
    waits.send_signal(signal.SIGINT)
    _, words = waits.communicate(timeout=60)
    assert b"vu is still being drained" in words
    assert b"koala cluster resume vu" in words
    stays = one.submit(live.sh("true", 1, cluster="vu"))
    one.until(lambda: "being drained" in one("explain", stays).out)
    one("down")
    assert one("up").status == 0  # the draining is kept
    one.until(lambda: "being drained" in one("explain", stays).out)
    one("cluster", "remove", "vu").refused(2, f"job {stays} that can run nowhere else")
    assert one("cluster", "resume", "vu").status == 0
    assert one.end(stays)["state"] == "done"
    ends = one.start("cluster", "remove", "vu", "--drain")
    (one.root / "go").touch()
    said, _ = ends.communicate(timeout=120)
    assert ends.returncode == 0
    assert said.decode().splitlines()[-1] == "vu is removed."
    assert one.job(job)["state"] == "done"
    assert names(one) == ["delft"]


def test_by_force_a_job_there_is_lost_and_runs_elsewhere_if_its_user_wants_that(one: Any) -> None:
    add(one, "vu", 8)
    one.until(lambda: len([each for each in clusters(one) if each["idle"]]) == 2)
    job = one.submit(live.sh("sleep 30", 2), retry_on=["lost"])
    running(one, job)
    assert one.job(job)["components"][0]["cluster"] == "vu"
    answer = one("cluster", "remove", "vu", "--force")
    assert answer.out.startswith("vu is removed, and what was there is given up: job"), answer
    one.until(lambda: one.job(job)["components"][0]["cluster"] == "delft")
    running(one, job)
    assert "its cluster has left the grid" in one("show", job).out
    one("cancel", job)
    assert one.end(job)["state"] == "cancelled"


# ---- the grid file


def test_a_reload_shows_and_does_what_has_changed_while_jobs_run(one: Any) -> None:
    job = one.submit(live.sh(f"until test -e {one.root}/go; do sleep 0.1; done", 1))
    running(one, job)
    waits = one.submit(live.sh("true", 4))
    pid = pid_of(one)

    def change(grid: Document) -> None:
        grid["clusters"]["vu"] = SHORT | {"slots": 8, "shared": str(one.root / "vu")}
        grid["clusters"]["delft"] |= {"poll": "300ms", "slots": 5}
        grid["scheduling"] = {"placement": "best-fit"}
        grid["retries"] = {"submission": 1}
        grid["maintenance"] = [{"task": "vacuum", "cron": "0 0 * * *"}]

    rewrite(one, change)
    assert "has changed since this koalad read it" in one("status").out
    checked = one("reload", "--check")
    assert checked.status == 0
    assert checked.out.splitlines() == [
        "vu is added",
        "clusters.delft.poll: 0.2s → 0.3s",
        "clusters.delft.slots: 4 → 5",
        "scheduling.placement: worst-fit → best-fit",
        "retries.submission: 3 → 1",
        "maintenance: none → task=vacuum cron=0 0 * * *",
        "Nothing was changed yet: this was a check.",
    ]
    assert names(one) == ["delft"]
    document = one("reload", "--json").document
    openapi.check(document)
    assert (document["done"], document["added"], document["refused"]) == (True, ["vu"], [])
    assert one.end(waits)["state"] == "done"
    one.until(lambda: {each["name"]: each for each in clusters(one)}["delft"]["total"] == 5)
    assert [each["task"] for each in one("maintenance", "list", "--json").document["tasks"]] == ["vacuum"]
    assert one("reload").out == f"{one.grid_file} changes nothing\n"
    assert "has changed" not in one("status").out
    (one.root / "go").touch()
    assert one.end(job)["state"] == "done"
    assert pid_of(one) == pid
    kinds = [each["kind"] for each in one("show", job, "--json").document["events"]]
    assert "attempt_found" not in kinds  # koalad has known it all the time
    assert "attempt_unknown" in kinds  # until the new session with its cluster, whose poll has changed


def test_a_reload_that_would_lose_a_job_is_refused_as_a_whole(one: Any) -> None:
    job = one.submit(live.sh("sleep 60", 1))
    running(one, job)
    place = one.root / "elsewhere"

    def renamed(grid: Document) -> None:
        grid["clusters"]["leiden"] = grid["clusters"].pop("delft")
        grid["retries"] = {"submission": 1}

    def moved(grid: Document) -> None:
        grid["clusters"]["delft"]["shared"] = str(place)

    def of_another_system(grid: Document) -> None:
        grid["clusters"]["delft"] = {"batch": "slurm", "connect": "local:"}

    for change in (renamed, moved, of_another_system):
        before = one.grid_file.read_text()
        rewrite(one, change)
        one("reload").refused(2, "delft cannot leave the grid", f"job {job} there", "Nothing was changed")
        checked = one("reload", "--check")
        assert (checked.status, checked.out.splitlines()[-1]) == (1, "This would be refused.")
        one.grid_file.write_text(before)
    assert one("reload").out == f"{one.grid_file} changes nothing\n"
    assert (names(one), one.job(job)["state"]) == (["delft"], "running")
    free = one.submit(live.sh("true", 1))
    assert one.end(free)["state"] == "done"  # it is not drained


def test_a_mistake_in_the_file_changes_nothing(one: Any) -> None:
    for text, words in (
        ("grid: live\nclusters: [", "grid.yaml:2:11: "),
        ("grid: live\nclusters:\n  delft: {batch: local, connect: 'local:', slot: 4}\n", "clusters.delft.slot"),
        ("grid: other\nclusters:\n  delft: {batch: local, connect: 'local:'}\n", "koala down"),
        ("grid: live\nstore: sqlite\nscheduling: {placement: no-such}\nclusters: {}\n", "no-such"),
    ):
        one.grid_file.write_text(text)
        answer = one("reload", "--grid", "live")
        assert (answer.status, answer.out) == (2, "")
        assert words in answer.err
    assert names_of(one) == ["delft"]


def names_of(koala: Any) -> list[str]:
    """By the grid's name, since its file names nothing."""
    return [each["name"] for each in koala("clusters", "--json", "--grid", "live").document["clusters"]]


def test_sighup_does_the_same_and_the_log_has_it(one: Any) -> None:
    rewrite(one, lambda grid: grid["clusters"].update(vu=SHORT | {"slots": 8, "shared": str(one.root / "vu")}))
    os.kill(pid_of(one), signal.SIGHUP)
    one.until(lambda: names(one) == ["delft", "vu"])
    text = one.grid_file.read_text()
    one.grid_file.write_text("clusters: [")
    log = one.root / "state" / "koala" / "live" / "koalad.log"
    os.kill(int(one("status", "--json", "--grid", "live").document["pid"]), signal.SIGHUP)
    one.until(lambda: "grid_file_refused" in log.read_text())
    one.grid_file.write_text(text)
    assert "grid_file_read_again" in log.read_text()


def test_a_cluster_whose_attempts_are_known_comes_back_only_to_the_same_place(one: Any) -> None:
    """It leaves the grid file while koalad is down, so that nobody could refuse that."""
    rewrite(one, lambda grid: grid["clusters"].update(vu=SHORT | {"slots": 4, "shared": str(one.root / "vu")}))
    assert one("reload").status == 0
    job = one.submit(live.sh(f"until test -e {one.root}/go; do sleep 0.1; done", 1, cluster="vu"))
    running(one, job)
    one("down")
    rewrite(one, lambda grid: grid["clusters"].pop("vu"))
    assert one("up").status == 0
    place = f"shared={one.root / 'elsewhere'}"
    moved = one("cluster", "add", "vu", "--batch", "local", "--connect", "local:", "-o", place)
    moved.refused(2, "The store knows a cluster vu at another place", str(one.root / "vu"), f"job {job}")
    assert names(one) == ["delft"]
    assert add(one, "vu").status == 0
    (one.root / "go").touch()
    assert one.end(job)["state"] == "done"


def test_a_cluster_comes_back_with_another_batch_system_only_once_nothing_is_left_there(one: Any) -> None:
    """Ids of batch jobs mean other jobs to another system: a pending cancel would end one of these."""
    with_vu = SHORT | {"slots": 4, "shared": str(one.root / "vu")}
    rewrite(one, lambda grid: grid["clusters"].update(vu=with_vu))
    assert one("reload").status == 0
    job = one.submit(live.sh("sleep 300", 1, cluster="vu"))
    running(one, job)
    one("down")
    other = {"batch": "slurm", "connect": "local:"}
    rewrite(one, lambda grid: grid["clusters"].update(vu=other))
    words = "The grid file has vu with `batch: slurm`. It had `batch: local`, with "
    one("up").refused(2, f"{words}job {job} there.", "Write `batch: local` again", "another name")
    rewrite(one, lambda grid: grid["clusters"].pop("vu"))
    assert one("up").status == 0
    assert one("cancel", job, "--force").status == 0
    assert one.end(job)["state"] == "cancelled"
    known = "The store knows a cluster vu at another place (batch: local"
    one("cluster", "add", "vu", "--batch", "slurm", "--connect", "local:").refused(2, known, "with 1 pending cancel")
    rewrite(one, lambda grid: grid["clusters"].update(vu=other))
    one("reload").refused(2, known, "with 1 pending cancel")
    one("down")
    one("up").refused(2, f"{words}1 pending cancel.")
    rewrite(one, lambda grid: grid["clusters"].update(vu=with_vu))
    assert one("up").status == 0
    one.until(lambda: not one("status", "--json").document["pending_cancels"])
    rewrite(one, lambda grid: grid["clusters"].update(vu=other))
    assert one("reload").status == 0
    assert names(one) == ["delft", "vu"]


def test_a_cluster_whose_addition_cannot_be_kept_is_not_added(one: Any) -> None:
    obstacle = one.root / "state" / "koala" / "live" / "clusters.json.new"
    obstacle.mkdir()
    add(one, "vu").refused(1, "clusters.json cannot be written", "Nothing was changed")
    one("cluster", "remove", "delft").refused(2, "delft is the only cluster of the grid")
    assert names(one) == ["delft"]
    obstacle.rmdir()
    assert add(one, "vu").status == 0
    assert names(one) == ["delft", "vu"]


# ---- killed in the middle


@pytest.mark.parametrize("after_s", [0.0, pytest.param(0.1, marks=pytest.mark.slow)])
def test_a_koalad_killed_during_a_change_has_all_of_it_or_nothing(one: Any, after_s: float) -> None:
    job = one.submit(live.sh(f"until test -e {one.root}/go; do sleep 0.1; done", 1))
    running(one, job)
    adds = one.start("cluster", "add", "vu", "--batch", "local", "--connect", "local:", "-o", f"shared={one.root}/vu")
    rewrite(one, lambda grid: grid["clusters"].update(leiden=SHORT | {"slots": 8, "shared": str(one.root / "leiden")}))
    pid = pid_of(one)
    reload = one.start("reload")
    time.sleep(0.5 + after_s)
    os.kill(pid, signal.SIGKILL)
    for each in (adds, reload):
        each.communicate(timeout=60)
    assert one("up").status == 0
    assert set(names(one)) >= {"delft", "leiden"}
    (one.root / "go").touch()
    assert one.end(job)["state"] == "done"
    removes = one.start("cluster", "remove", "leiden")
    os.kill(pid_of(one), signal.SIGKILL)
    removes.communicate(timeout=60)
    assert one("up").status == 0
    again = one.submit(live.sh("true", 8))
    assert one.end(again)["state"] == "done"
