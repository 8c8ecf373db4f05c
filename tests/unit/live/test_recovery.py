"""What a person sees of a koalad that was killed: by `koala status`, by its log, and in the story of each job."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

Document = dict[str, Any]


def kill(koala: Any) -> None:
    """-9, so that nothing is said to anybody."""
    os.kill(koala("status", "--json").document["pid"], signal.SIGKILL)
    koala.until(lambda: koala("status").status == 3)


def waits_for(gate: Path) -> str:
    return f"echo begun; while [ ! -e {gate} ]; do sleep 0.1; done; echo over"


def recovery(koala: Any) -> Document:
    return dict(koala("status", "--json").document["recovery"])


def kinds(koala: Any) -> list[str]:
    return [line["kind"] for line in recovery(koala)["lines"]]


def test_a_koalad_that_begins_has_nothing_to_recover(fresh: Any) -> None:
    fresh("up")
    assert kinds(fresh) == ["nothing_recovered"]
    assert "recovered" not in fresh("status").out
    assert "  Nothing was under way when koalad started.\n" in fresh("status", "--recovery").out


def test_a_killed_koalad_tells_what_it_found_again(fresh: Any, shell: Callable[..., Document]) -> None:
    gate = fresh.work / "gate"
    fresh("up")
    fresh.known()
    running = fresh.submit(shell(waits_for(gate), cluster="amsterdam"), shell(waits_for(gate), cluster="delft"))
    ending = fresh.submit(shell("sleep 2; exit 3", cluster="leiden"))
    fresh.until(lambda: {fresh.job(job)["state"] for job in (running, ending)} == {"running"})
    waiting = fresh.submit(shell("true", 4, cluster="delft"), when_busy="wait")
    kill(fresh)
    fresh.until(lambda: list((fresh.root / "leiden").glob("*/*/record.json")))
    fresh("up")
    fresh.until(lambda: recovery(fresh)["attempts_unheard"] == 0)
    found = recovery(fresh)
    assert found["jobs"] == {"waiting": 1, "held": 0, "claiming": 0, "running": 2, "stopping": 0}
    assert found["attempts"] == 3
    texts = [line["text"] for line in found["lines"]]
    assert texts[0] == "Jobs that were not over: 1 waiting, 2 running."
    by_attempt = {line["attempt"]: line for line in found["lines"] if line["attempt"]}
    assert by_attempt[f"{running}.0.1"]["kind"] == by_attempt[f"{running}.1.1"]["kind"] == "attempt_found"
    assert by_attempt[f"{running}.1.1"]["cluster"] == "delft"
    assert by_attempt[f"{ending}.0.1"]["text"].endswith("had ended meanwhile with exit status 3.")
    shown = fresh("status").out
    assert "recovered since its start, " in shown
    assert all(f"  {text}\n" in shown for text in texts)
    log = (fresh.root / "state" / "koala" / "live" / "koalad.log").read_text().splitlines()
    logged = [line["text"] for line in map(json.loads, log) if line["event"] == "recovered"]
    assert logged[-len(texts) :] == texts
    gate.touch()
    assert fresh.end(running)["state"] == fresh.end(waiting)["state"] == "done"
    assert fresh.end(ending)["state"] == "failed"
