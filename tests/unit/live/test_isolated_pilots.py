"""Programs on a pilot that isolates them: a hostile one is refused everything, and an honest one works as elsewhere."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hostile_program
import live
import pytest

MEANS = [
    pytest.param(
        "bwrap", marks=pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed here")
    ),
    "unshare",
]
SHORT = {"batch": "local", "connect": "local:", "poll": "200ms", "max_age": "1m", "slots": 4}
SECRET = "the lender's own"


@pytest.fixture(scope="module", params=MEANS)
def pilot(request: pytest.FixtureRequest) -> Iterator[tuple[Any, str]]:
    """A grid whose cluster has an isolated pilot, and the pilot's name."""
    with tempfile.TemporaryDirectory(prefix="kl", dir="/var/tmp") as root:
        place = Path(root)
        (place / "secret").write_text(SECRET)
        isolation = {"method": request.param}
        clusters = {"delft": SHORT | {"shared": str(place / "delft"), "isolation": isolation}}
        koala = live.Koala(place, clusters, queue_after="1h")
        assert koala("up", LENDER_TOKEN="x").status == 0
        answer = koala("pilots", "open", "delft", "-n", "3", "--walltime", "30m", "--json")
        assert answer.status == 0, answer
        found = answer.document["pilot"]
        assert (found["state"], found["isolate"]) == ("bound", request.param)
        yield koala, found["name"]
        koala.stop()


def program(name: str, script: str, processors: int = 1, **fields: Any) -> dict[str, Any]:
    return live.sh(script, processors, cluster=name, walltime="1m", **fields)


def survivors() -> list[bytes]:
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                found.append((process / "cmdline").read_bytes())
            except OSError:
                continue  # it has ended meanwhile
    return [each for each in found if hostile_program.OUTLIVES.encode() in each]


def test_a_hostile_program_is_refused_everything_and_nothing_of_it_survives(pilot: tuple[Any, str]) -> None:
    koala, name = pilot
    shutil.copy(hostile_program.__file__, koala.work / "hostile_program.py")
    relays = [str(each) for each in koala.root.glob("delft/*/relay.*.json")]
    assert relays
    facts = {
        "secrets": [str(koala.root / "secret"), *relays, str(koala.grid_file)],
        "directories": [os.path.expanduser("~"), str(koala.root), str(koala.root / "delft"), "/root", "/home", "/run"],
        "writes": ["/", "/usr", "/etc", "/var", str(koala.root), str(koala.root / "delft"), "/dev/pts", "/sys"],
        "pids": [os.getpid(), koala("status", "--json").document["pid"]],
        "batch": [],
    }
    staged = {"stage_in": ["hostile_program.py"], "stage_out": ["leak"]}
    job = koala.submit(program(name, f"exec python3 hostile_program.py '{json.dumps(facts)}'"), **staged)
    ended = koala.end(job)
    said = koala("logs", job)
    result = json.loads(said.out)
    assert len(result) >= 30
    assert {key: value for key, value in result.items() if value[0] != "refused"} == {}
    assert not survivors()
    assert not (koala.work / "leak").exists()
    assert "leak" in str(ended["reason"]), ended


def test_an_honest_program_finds_what_it_finds_elsewhere(pilot: tuple[Any, str]) -> None:
    koala, name = pilot
    (koala.work / "given").write_text("given")
    script = """
        test "$ORDERED" = yes && test -z "$LENDER_TOKEN" && test "$HOME" = "$PWD" && test "$FROM_SETUP" = here || exit 3
        echo $KOALA_RANK > /tmp/rank.$KOALA_RANK; echo > /dev/shm/shared.$KOALA_RANK; cp given made.$KOALA_RANK
        $KOALA_RENDEZVOUS put key.$KOALA_RANK value.$KOALA_RANK
        $KOALA_RENDEZVOUS barrier all 2
        key=$($KOALA_RENDEZVOUS get key.0)
        echo $KOALA_RANK $key $(ls /tmp/rank.*) $(wc -l < $KOALA_HOSTS) $(ls /dev/shm) $(id -u)
        test -w $TMPDIR && python3 -c 'import json, socket; socket.socket().bind(("127.0.0.1", 0))'
    """
    component = program(name, script, 2, environment={"ORDERED": "yes"}, setup=["export FROM_SETUP=here"])
    job = koala.submit(component, stage_in=["given"], stage_out=["made.*"])
    ended = koala.end(job)
    said = koala("logs", job)
    assert ended["state"] == "done", (ended, said)
    seen = f"value.0 /tmp/rank.0 /tmp/rank.1 2 shared.0 shared.1 {os.getuid()}"
    assert sorted(said.out.splitlines()) == [f"0 {seen}", f"1 {seen}"]
    assert [(koala.work / f"made.{rank}").read_text() for rank in (0, 1)] == ["given", "given"]
    assert not list(Path("/tmp").glob("rank.*"))


def test_an_end_by_a_signal_and_a_missing_program_are_reported_as_elsewhere(pilot: tuple[Any, str]) -> None:
    koala, name = pilot
    inside, outside = (koala.submit(program(each, "kill -9 $$")) for each in (name, "delft"))
    ends = [koala.end(job)["components"][0] for job in (inside, outside)]
    assert [end["exit_status"] for end in ends] == [137, 137]
    inner, outer = (str(end["reason"]) for end in ends)
    assert inner.replace(name, "delft").replace(f"logs {inside}", f"logs {outside}") == outer
    tool = koala.root / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    hidden = koala.end(koala.submit({"processors": 1, "executable": str(tool), "cluster": name, "walltime": "1m"}))
    assert hidden["state"] == "failed"
    assert f"{name}: isolates programs, and {tool} is not visible to them." in str(hidden["reason"])


def test_a_program_that_is_cancelled_has_its_grace(pilot: tuple[Any, str]) -> None:
    koala, name = pilot
    script = "trap 'echo ending; exit 0' TERM; echo begun; while :; do sleep 0.1; done"
    job = koala.submit(program(name, script), keep_output="home")
    koala.until(lambda: "begun" in koala("logs", job).out)
    assert koala("cancel", job).status == 0
    koala.end(job)
    koala.until(lambda: "ending" in koala("logs", job).out)
