"""A person's view of a koalad that was killed: by `koala status`, by its log, and in the story of each job."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import live
import yaml

from koalapy.cli import times
from koalapy.client.daemon import wait_for_end

Document = dict[str, Any]


def kill(koala: Any) -> None:
    """-9, so that nothing is sent to anybody."""
    os.kill(koala("status", "--json").document["pid"], signal.SIGKILL)
    koala.until(lambda: koala("status").status == 3)


def waits_for(gate: Path) -> str:
    return f"echo begun; while [ ! -e {gate} ]; do sleep 0.1; done; echo over"


def recovery(koala: Any) -> Document:
    return dict(koala("status", "--json").document["recovery"])


def kinds(koala: Any) -> list[str]:
    return [line["kind"] for line in recovery(koala)["lines"]]


def test_a_koalad_that_begins_has_nothing_to_recover(small: Any) -> None:
    small("up")
    assert kinds(small) == ["nothing_recovered"]
    assert "recovered" not in small("status").out
    assert "  Nothing was under way when koalad started.\n" in small("status", "--recovery").out


def test_a_killed_koalad_reports_what_it_found_again(fresh: Any, shell: Callable[..., Document]) -> None:
    gate, end = fresh.work / "gate", fresh.work / "end"
    fresh("up")
    fresh.known()
    running = fresh.submit(shell(waits_for(gate), cluster="amsterdam"), shell(waits_for(gate), cluster="delft"))
    ending = fresh.submit(shell(f"{waits_for(end)}; exit 3", cluster="leiden"))
    fresh.until(lambda: {fresh.job(job)["state"] for job in (running, ending)} == {"running"})
    waiting = fresh.submit(shell("true", 4, cluster="delft"), when_busy="wait")
    kill(fresh)
    end.touch()
    fresh.until(lambda: list((fresh.root / "leiden").glob("*/*/record.json")))
    fresh("up")
    fresh.until(lambda: recovery(fresh)["attempts_unreported"] == 0)
    found = recovery(fresh)
    assert found["jobs"] == {"blocked": 0, "waiting": 1, "held": 0, "claiming": 0, "running": 2, "stopping": 0}
    assert found["attempts"] == 3
    texts = [line["text"] for line in found["lines"]]
    assert texts[0] == "Jobs that were not final: 1 waiting, 2 running."
    by_attempt = {line["attempt"]: line for line in found["lines"] if line["attempt"]}
    assert by_attempt[f"{running}.0.1"]["kind"] == by_attempt[f"{running}.1.1"]["kind"] == "attempt_found"
    assert by_attempt[f"{running}.1.1"]["cluster"] == "delft"
    assert by_attempt[f"{ending}.0.1"]["text"].endswith("had ended meanwhile with exit status 3.")
    shown = fresh("status").out
    assert "recovered since its start, " in shown
    assert all(f"  {text}\n" in shown for text in texts)
    log = (fresh.root / "state" / "koala" / "live" / "koalad.log").read_text().splitlines()
    logged = [line["text"] for line in map(json.loads, log) if line["event"] == "recovered"]
    begun = logged.index(texts[0])
    assert logged[begun : begun + len(texts)] == texts
    gate.touch()
    assert fresh.end(running)["state"] == fresh.end(waiting)["state"] == "done"
    assert fresh.end(ending)["state"] == "failed"


def held_back(gate: Path) -> Document:
    """Not at its barrier before the gate is open."""
    return {"setup": [f"while [ ! -e {gate} ]; do sleep 0.1; done"]}


def at_barrier(koala: Any, job: int) -> bool:
    return any(each["state"] == "at_barrier" for each in koala.job(job)["components"])


def runs(koala: Any, job: int) -> bool:
    """All of it, as koalad has learned."""
    return all(each["state"] == "running" for each in koala.job(job)["components"])


def story(koala: Any, job: int) -> list[str]:
    """As a person sees it."""
    lines = koala("show", job).out.splitlines()
    return [line.split("  ", 1)[1] for line in lines if line.startswith("20")]


def test_a_barrier_that_outlived_koalad_is_released_and_reported(fresh: Any, shell: Callable[..., Document]) -> None:
    gate = fresh.work / "gate"
    fresh("up")
    fresh.known()
    job = fresh.submit(shell("echo here", cluster="amsterdam"), shell("echo there", cluster="delft", **held_back(gate)))
    fresh.until(lambda: at_barrier(fresh, job))
    kill(fresh)
    fresh("up")
    fresh.until(lambda: recovery(fresh)["attempts_unreported"] == 0)
    gate.touch()
    assert fresh.end(job)["state"] == "done"
    found = recovery(fresh)
    assert found["jobs_at_barrier"] == 1
    assert found["lines"][0]["text"].startswith("Jobs that were not final: 1 claiming (1 job with components at a")
    released = [line["text"] for line in found["lines"] if line["kind"] == "job_released"]
    assert released == [f"Job {job}, which was at its barrier, was released."]
    reported = story(fresh, job)
    for text in (
        f"Attempt {job}.0.1 on amsterdam is in the batch system, as job ",
        f"Attempt {job}.0.1 on amsterdam has its processors: its batch job has started.",
        f"Attempt {job}.0.1 on amsterdam is at its barrier, and waits for the others (at its barrier ",
        "was found again when koalad reconnected",
        "All its components are at their barriers and are released, with 2 processes.",
        f"Attempt {job}.1.1 on delft ",
        "It is done.",
    ):
        assert any(text in line for line in reported), (text, reported)
    assert [line for line in reported if "_" in line.replace(str(fresh.root), "")] == []


def test_a_barrier_that_runs_out_after_the_restart_is_reported_as_given_back(
    fresh: Any, shell: Callable[..., Document]
) -> None:
    grid = yaml.safe_load(fresh.grid_file.read_text())
    fresh.write_grid({**grid, "barrier": {"timeout": "6s"}, "retries": {"submission": 1}})
    fresh("up")
    fresh.known()
    pid = fresh("status", "--json").document["pid"]
    job = fresh.submit(
        shell("true", cluster="amsterdam"), shell("true", cluster="delft", **held_back(fresh.work / "never"))
    )
    fresh.until(lambda: at_barrier(fresh, job))
    os.kill(pid, signal.SIGKILL)  # at once: the barrier's time runs
    assert wait_for_end(pid, live.PATIENCE_S)
    fresh("up")
    assert fresh.end(job)["state"] == "failed"
    (line,) = [line for line in recovery(fresh)["lines"] if line["kind"] == "job_given_back"]
    assert line["text"].startswith(f"Job {job}, which was at its barrier, was given back: After 6s")
    assert line["job"] == job
    reported = story(fresh, job)
    assert any(each.startswith("Its claim failed, and is given back; this counts as a sub") for each in reported)
    # Where the barrier runs out before the cluster is in reach again, its cancel is pending first.
    gone = [
        f"Attempt {job}.0.1 on amsterdam {how}" for how in ("left nothing in the batch system", "was cancelled at last")
    ]
    fresh.until(lambda: any(each.startswith(tuple(gone)) for each in story(fresh, job)))


def test_every_attempt_and_every_retry_is_in_the_story(fresh: Any, shell: Callable[..., Document]) -> None:
    """A program that is killed in its first try, over which koalad is killed too, and cancelled in its second."""
    first, gate = fresh.work / "first", fresh.work / "gate"
    fresh("up")
    fresh.known()
    script = f"[ -e {first} ] && exec sleep 1000; touch {first}; while [ ! -e {gate} ]; do sleep 0.1; done; kill -9 $$"
    job = fresh.submit(shell(script, cluster="delft"))
    fresh.until(lambda: runs(fresh, job) and first.exists())
    kill(fresh)
    gate.touch()
    fresh.until(lambda: list((fresh.root / "delft").glob("*/*/record.json")))
    fresh("up")
    fresh.until(lambda: [each["attempt"] for each in fresh.job(job)["components"]] == [2])
    fresh.until(lambda: runs(fresh, job))
    fresh("cancel", job)
    assert fresh.end(job)["state"] == "cancelled"
    reported = story(fresh, job)
    wanted = [
        "Submitted by ",
        "Claimed: component 0 on delft.",
        f"Attempt {job}.0.1 on delft is in the batch system, as job ",
        f"Attempt {job}.0.1 on delft runs (",
        f"Attempt {job}.0.1 on delft (batch job ",
        f"Attempt {job}.0.1 on delft (batch job ",
        "It did not complete, and its attempts are cancelled; this counts as a completion failure: delft: ",
        f"Attempt {job}.0.1 on delft left nothing in the batch system.",
        "It waits in the queue again, after 0 submission failures and 1 completion failure: delft: ",
        "Claimed: component 0 on delft.",
        f"Attempt {job}.0.2 on delft is in the batch system, as job ",
        f"Attempt {job}.0.2 on delft runs (",
        "Its user cancelled it.",
        "It is cancelled, with its remaining attempts",
        f"Attempt {job}.0.2 on delft left nothing in the batch system.",
        "It is cancelled: ",
    ]
    left = iter(reported)
    for text in wanted:
        assert any(line.startswith(text) for line in left), (text, reported)
    (ended,) = [
        line for line in reported if ".0.1 on delft (batch job " in line and " ended, with exit status " in line
    ]
    assert all(word in ended for word in ("released ", "started ", "ended "))
    (found,) = [line for line in reported if "had ended before koalad" in line]
    assert found.endswith(" had ended before koalad reconnected, by its wrapper.")
    events = fresh("show", job, "--json").document["events"]
    assert [times.in_text(event["text"], at=event["at"]) for event in events] == reported
    of_attempts = [event for event in events if event["kind"].startswith("component_")]
    assert all({"component", "attempt", "cluster"} <= set(event) for event in of_attempts)
    (event,) = [event for event in events if event["kind"] == "attempt_ended" and event["attempt"] == 1]
    assert event["started_at"] <= event["ended_at"]
    assert event["exit_status"] == 137


def test_what_could_not_be_ended_before_is_cleaned_up_and_reported(fresh: Any, shell: Callable[..., Document]) -> None:
    """Cancelled while their cluster was out of reach: one waits for it, the other's user did not."""
    grid = yaml.safe_load(fresh.grid_file.read_text())
    delft = grid["clusters"]["delft"]
    fresh("up")
    fresh.known()
    patient, forced = (fresh.submit(shell("sleep 1000", cluster="delft")) for _ in range(2))
    fresh.until(lambda: all(fresh.job(job)["state"] == "running" for job in (patient, forced)))
    kill(fresh)
    fresh.write_grid({**grid, "clusters": {**grid["clusters"], "delft": {**delft, "connect": "command:false"}}})
    fresh("up")
    assert fresh("cancel", patient).status == 0
    assert fresh("cancel", "--force", forced).status == 0
    assert fresh.end(forced)["state"] == "cancelled"
    assert fresh.job(patient)["state"] == "stopping"
    assert f"pending cancel: batch job {fresh.job(forced)['components'][0]['batch_id']}" in fresh("status").out
    kill(fresh)
    fresh.write_grid(grid)
    fresh("up")
    assert fresh.end(patient)["state"] == "cancelled"
    fresh.until(lambda: not fresh("status", "--json").document["pending_cancels"])
    found = recovery(fresh)
    assert (found["jobs"]["stopping"], found["pending_cancels"]) == (1, 1)
    lines = {(line["kind"], line["attempt"]): line["text"] for line in found["lines"]}
    assert lines["attempt_cancelled", f"{patient}.0.1"].endswith("on delft was cleaned up: nothing of it is left.")
    assert lines["cancel_completed", f"{forced}.0.1"].endswith("was cancelled at last: nothing of it is left.")
    assert any("Outbox: " in text and "cancel" in text for text in lines.values())
    reported = story(fresh, forced)
    assert any(
        line.startswith(f"Attempt {forced}.0.1 on delft cannot be ended while delft is out") for line in reported
    )
    assert f"Attempt {forced}.0.1 on delft was cancelled at last: nothing of it is left." in reported
