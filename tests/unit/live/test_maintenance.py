"""Maintenance by a real koalad: what is pruned leaves no file, and what fails is reported until it goes well."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import live
import pytest

Document = dict[str, Any]


@pytest.fixture
def koala(place: Path) -> Iterator[Any]:
    settings = [
        {"task": "prune-history", "cron": "30 3 * * *", "keep": "30d"},
        {"task": "backup", "cron": "0 4 * * 0", "to": str(place / "backups")},
    ]
    made = live.Koala(place, queue_after="2s", maintenance=settings)
    assert made("up").status == 0
    made.known()
    yield made
    made.stop()


def attempts(koala: Any) -> list[str]:
    """The names of all files and directories of attempts on all clusters, those of what was pruned too."""
    return sorted(path.name for path in koala.root.rglob("k" + "?" * 14) if path.is_dir())


def test_pruned_jobs_leave_no_file_and_the_others_all(koala: Any, shell: Callable[..., Document]) -> None:
    jobs = [koala.submit(shell("echo $KOALA_JOB_ID")) for _ in range(3)]
    jobs.append(koala.submit(shell("echo a", cluster="amsterdam"), shell("echo b", cluster="delft")))
    assert {koala.end(job)["state"] for job in jobs} == {"done"}
    runs = koala.submit(shell("while :; do sleep 0.2; done"))
    koala.until(lambda: koala.job(runs)["state"] == "running")
    assert len(attempts(koala)) == 6
    listed = koala("maintenance", "list", "--json").document["tasks"]
    assert [(each["name"], each["last"]) for each in listed] == [("prune-history", None), ("backup", None)]

    kept = koala("maintenance", "run", "prune-history")
    assert (kept.status, koala.ids()) == (0, [*jobs, runs])
    dry = koala("maintenance", "run", "prune-history", "--set", "keep=0s", "--dry-run")
    assert dry.out.startswith("4 jobs would be pruned"), dry
    assert koala.ids() == [*jobs, runs]
    output = koala("maintenance", "run", "prune-output", "--set", "keep=0s")
    assert output.status == 0, output
    assert len(attempts(koala)) == 1
    assert "Its directories on the clusters are pruned" in koala("show", jobs[0]).out
    for asked in (("logs", jobs[0]), ("logs", jobs[0], "-f"), ("fetch", jobs[0], "output.txt")):
        koala(*asked).refused(2, f"What job {jobs[0]} wrote was pruned on ")
    used = koala("usage", "--json").document["total"]
    pruned = koala("maintenance", "run", "prune-history", "--set", "keep=0s", "--json").document["run"]
    assert pruned["ok"], pruned
    assert pruned["message"].startswith("4 jobs pruned"), pruned
    assert koala.ids() == [runs]
    koala("show", jobs[0]).refused(1, "There is no job")
    total = koala("usage", "--by", "job", "--json").document["total"]
    assert [total[part] for part in ("held", "lost", "attempts")] == [
        used[part] for part in ("held", "lost", "attempts")
    ]
    report = koala("maintenance", "run", "report", "--set", f"to={koala.root}/reports", "--set", "by=cluster")
    assert report.status == 0, report
    (lines,) = (path.read_text().splitlines() for path in (koala.root / "reports").iterdir())
    assert lines[0] == koala("usage", "--by", "cluster", "--csv").out.splitlines()[0]
    assert [line.split(",")[0] for line in lines[1:]] == sorted({line.split(",")[0] for line in lines[1:]})
    assert koala.job(runs)["state"] == "running"


def test_what_fails_stands_in_the_status_until_it_goes_well(koala: Any) -> None:
    backups = koala.root / "backups"
    backups.write_text("no directory")
    failed = koala("maintenance", "run", "backup")
    assert failed.status == 1, failed
    assert any("Maintenance backup did not go well" in each for each in koala("status", "--json").document["troubles"])
    backups.unlink()
    assert koala("maintenance", "run", "backup").status == 0
    assert koala("status", "--json").document["troubles"] == []
    assert len(list(backups.iterdir())) == 1
    listed = koala("maintenance", "list")
    assert "30 3 * * *" in listed.out
    assert not re.search(r"\dT\d\d:", listed.out)  # times are local, as elsewhere
    in_utc = koala("maintenance", "list", "--utc").out.splitlines()[1]
    assert len(re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", in_utc)) >= 1, in_utc
    assert "ok: The store is copied to" in " ".join(listed.out.split())
    checked = koala("maintenance", "run", "check")
    assert checked.status == 0, checked
    assert "pass the quick part of `koala doctor`" in " ".join(checked.out.split())
    koala("maintenance", "run", "tidy").refused(2, "maintenance task")
    koala("maintenance", "run", "prune-history", "--set", "keep").refused(2, "KEY=VALUE")
