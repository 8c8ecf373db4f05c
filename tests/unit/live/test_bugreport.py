"""`koala bugreport` of a real koalad: what is in it, that it is asked for, and that no secret ever is."""

import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from koalapy import Grid

Document = dict[str, Any]
SUBMIT = "model.commands:SubmitAttempt"
SECRET = "Tr0ub4dor&3"


def texts(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        return {each.name: archive.extractfile(each).read().decode() for each in members}  # type: ignore[union-attr]


def test_it_holds_what_helps_and_no_secret(fresh: Any, shell: Callable[..., Document]) -> None:
    """The job's program writes a value of its environment where koalad quotes it."""
    text = fresh.grid_file.read_text()
    fresh.grid_file.write_text(f"# the account's password: {SECRET}\n{text}")
    assert fresh("up").status == 0
    job = fresh.submit(shell("echo it is $MINE >&2; exit 3", environment={"MINE": SECRET}))
    assert fresh.end(job)["state"] == "failed"
    log = fresh.root / "state" / "koala" / "live" / "koalad.log"
    assert SECRET in log.read_text()
    with log.open("a") as more:  # as koalad logs in text, and as it ends by a signal
        more.write(
            f'attempt_ended output="it is {SECRET}"\nFatal Python error: Aborted\n  File "loop.py", line 70 in x\n'
        )

    for name, up in (("up.tar.gz", True), ("down.tar.gz", False)):
        if not up:
            assert fresh("down").status == 0
        answer = fresh("bugreport", "--yes", "-o", name, "--json")
        assert answer.status == 0, answer
        found = texts(fresh.work / name)
        listed = [f"koala-bugreport/{each['name']}" for each in answer.document["files"]]
        assert list(found) == listed
        assert [Path(each).name for each in listed] == [
            *("versions.json", "status.json", "grid.yaml", "koalad.log"),
            *(["journal.json"] if up else []),
        ]
        assert not [line for said in found.values() for line in said.splitlines() if SECRET in line], up
        assert "amsterdam" in found["koala-bugreport/grid.yaml"]
        assert '"event": "koalad_started"' in found["koala-bugreport/koalad.log"]
        assert 'Fatal Python error: Aborted\n  File "loop.py", line 70 in x\n' in found["koala-bugreport/koalad.log"]
        assert ('"clusters"' in found["koala-bugreport/status.json"]) is up
        assert os.stat(fresh.work / name).st_mode & 0o077 == 0
    again = fresh("bugreport", "--yes", "-o", "up.tar.gz", "--json")
    assert again.status == 2
    assert "up.tar.gz exists" in again.err


def test_its_journal_is_replayed_and_a_difference_found(
    small: Any, monkeypatch: pytest.MonkeyPatch, shell: Callable[..., Document]
) -> None:
    text = small.grid_file.read_text()
    small.grid_file.write_text(f"# the account's password: {SECRET}\n{text}")
    assert small("up").status == 0
    for _ in range(3):
        assert small.end(small.submit(shell("true", environment={"MINE": SECRET})))["state"] == "done"
    with monkeypatch.context() as patch:  # no process that outlives the test may begin with these
        for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
            patch.setenv(name, small.environment[name])
        with Grid(small.grid_file) as grid:
            document: Any = grid.journal()
    assert SECRET not in json.dumps(document)
    path = small.work / "journal.json"
    path.write_text(json.dumps(document))
    same = small("sim", "replay", "--journal", str(path))
    assert same.status == 0, same
    assert "all as in the journal" in same.out
    answer = small("sim", "replay", "--journal", str(path), "--json")
    assert answer.document["difference"] is None
    assert answer.document["batches"] == len(document["batches"])

    submits = [each for each in document["values"] if isinstance(each, dict) and each["is"] == SUBMIT]
    submits[0]["barrier_timeout"] += 1
    path.write_text(json.dumps(document))
    other = small("sim", "replay", "--journal", str(path))
    assert other.status == 1
    assert "differs" in other.out
    assert "expected: SubmitAttempt(" in other.out
    assert "got:      SubmitAttempt(" in other.out
    assert small("sim", "replay", "--journal", str(path), "--jobs", "3").status == 2
    assert small("sim", "replay", "--journal", str(small.grid_file)).status == 2


def test_it_lists_what_would_be_in_it_before_it_is_written(small: Any) -> None:
    answer = small("bugreport")
    assert answer.status == 2
    assert "needs confirmation on a terminal" in answer.err
    for word in ("versions.json", "status.json", "grid.yaml", "WHAT"):
        assert word in answer.out
    assert list(small.work.glob("*.tar.gz")) == []
