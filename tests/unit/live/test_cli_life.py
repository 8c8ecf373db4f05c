"""koalad's start, its end, and what outlives it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import live
import pytest
import yaml
from typer.testing import CliRunner

from koalapy import Grid
from koalapy.cli.main import app
from koalapy.model.errors import RequestError

Document = dict[str, Any]


def test_what_is_down_is_reported_with_exit_status_3(fresh: Any, shell: Callable[..., Document]) -> None:
    file = fresh.write("job.yaml", {"components": [shell("true")]})
    commands: list[list[object]] = [
        ["status"], ["clusters"], ["jobs"], ["submit", file], ["show", 1], ["logs", 1],
        ["explain", 1], ["wait", 1], ["cancel", 1, 2], ["hold", 1], ["release", 1], ["down"],
    ]  # fmt: skip
    for command in commands:
        fresh(*command).refused(3, "koalad of grid live is not running.", "Start it with `koala up`.")
    fresh("run", "-n", 1, "--", "true").refused(125, "koalad of grid live is not running.")
    fresh("--grid", "live", "status").refused(3, "koalad of grid live is not running.", "`koala up --grid FILE`")
    fresh("-g", fresh.root / "none.yaml", "config", "check").refused(2, "There is no grid file")
    fresh("status", "--grid", "live").refused(3, "koalad of grid live is not running.", "`koala up --grid FILE`")
    other = fresh.root / "other.yaml"
    other.write_text(fresh.grid_file.read_text())
    fresh("status", "--grid", other).refused(3, f"`koala up --grid {other}`")
    fresh("up", "--grid", "live").refused(2, "There is no grid file live, and no koalad of that name runs.")
    assert not (fresh.root / "state").exists()


def test_up_and_down(small: Any) -> None:
    answer = small("up")
    pid = small("status", "--json").document["pid"]
    assert (answer.status, answer.out) == (0, f"koalad of grid live is up (pid {pid})\n")
    assert os.getsid(pid) == pid  # detached from the terminal
    assert small("status", "--grid", "live").status == 0
    (found,) = small("grids", "--json").document["grids"]
    assert (found["grid"], found["pid"], found["grid_file"]) == ("live", pid, str(small.grid_file))
    assert small("grids").out.splitlines()[1].split() == ["live", "ready", str(pid), str(small.grid_file)]
    answer = small("down")
    assert (answer.status, answer.out) == (0, "koalad of grid live is down; its jobs run on\n")
    assert not alive(pid)
    small.until(lambda: not small.processes())
    assert [path.name for path in (small.root / "run" / "koala").iterdir()] == []
    assert small("status").status == 3
    answer = small("grids")
    assert (answer.status, answer.out) == (0, "")
    assert answer.err.startswith("No koalad of yours runs on this machine.")
    document = small("up", "--json").document
    assert (document["schema"], document["grid"], document["state"]) == ("koala.status/1", "live", "ready")
    assert small("down", "--json").document == {"schema": "koala.down/1", "grid": "live", "cancel": False}


def test_a_grid_file_of_the_same_name_does_not_reach_the_other_ones_koalad(
    fresh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = fresh.root / "other.yaml"
    other.write_text(fresh.grid_file.read_text())
    linked = fresh.root / "linked.yaml"
    linked.symlink_to(fresh.grid_file)
    assert fresh("up").status == 0
    words = f"koalad of grid live runs on {fresh.grid_file}, not {other}."
    job = fresh.write("job.yaml", "components: [{processors: 1, executable: /bin/true}]")
    for command in (["up"], ["clusters"], ["submit", job], ["status", "--unknown"], ["login", "delft"], ["down"]):
        fresh(*command, "--grid", other).refused(2, words)
    for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, fresh.environment[name])
    with Grid(other) as client, pytest.raises(RequestError, match=re.escape(words)):
        client.submit(job)
    assert fresh("clusters", "--grid", linked).status == 0
    assert fresh("jobs", "--grid", "live", "--json").document["jobs"] == []


def test_a_grid_file_that_was_changed_since_the_start_is_reported(small: Any) -> None:
    assert small("up").status == 0
    small.grid_file.touch()
    assert "changed" not in small("up").out + small("status").out
    small.write_grid(yaml.safe_load(small.grid_file.read_text()) | {"priority_of": 1})
    for command in ("up", "status", "clusters"):
        answer = small(command)
        assert answer.status == 0
        assert f"{small.grid_file} has changed since this koalad read it" in answer.out
        assert "`koala reload`" in answer.out
    assert small("status", "--json").document["grid_file_changed"] is True


def test_up_prints_which_clusters_are_not_connected_and_why(fresh: Any) -> None:
    grid = yaml.safe_load(fresh.grid_file.read_text())
    grid["clusters"] = {"leiden": grid["clusters"]["leiden"], "gone": {"batch": "local", "connect": "command:false"}}
    fresh.write_grid(grid)
    answer = fresh("up")
    assert answer.status == 0
    (line,) = answer.out.splitlines()[1:]
    assert line.startswith("gone is not connected: The login on `false` ended")


def alive(pid: int) -> bool:
    """A zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_down_and_up_at_once_never_find_each_other_in_the_way(small: Any) -> None:
    pids = set()
    for _ in range(2):
        assert small("up").status == 0
        pids.add(small("status", "--json").document["pid"])
        assert small("down").status == 0
    assert len(pids) == 2


def test_two_who_start_it_at_once_have_one_koalad(small: Any) -> None:
    processes = [small.start("up", "--json") for _ in range(3)]
    answers = [(process.communicate(timeout=live.CALL_S), process.returncode) for process in processes]
    assert [status for _, status in answers] == [0, 0, 0], answers
    assert len({yaml.safe_load(out)["pid"] for (out, _), _ in answers}) == 1


def test_down_leaves_jobs_running_and_a_new_up_finds_them(fresh: Any, shell: Callable[..., Document]) -> None:
    gate = fresh.work / "gate"
    fresh("up")
    wait = f"echo begun; while [ ! -e {gate} ]; do sleep 0.1; done; echo over"
    job = fresh.submit(shell(wait, cluster="amsterdam"), shell(wait, cluster="delft"))
    queued = fresh.submit(shell("echo later", 4, cluster="delft"), when_busy="wait")
    fresh.until(lambda: fresh("logs", job).out == "begun\nbegun\n")
    waiting, impatient = fresh.start("wait", job, queued), fresh.start("wait", job, "--reconnect", 0)
    for process in (waiting, impatient):
        assert process.stderr.readline() == b"job %d is running (amsterdam, delft)\n" % job  # it has reached koalad
    assert fresh("down").status == 0
    _, errors = impatient.communicate(timeout=live.CALL_S)
    assert (impatient.returncode, errors.count(b"koala: koalad ")) == (3, 1), errors
    assert fresh.processes()  # wrappers and programs
    gate.touch()
    assert fresh("up").status == 0
    found = fresh.end(job)
    assert found["state"] == "done", found["reason"]
    assert [each["attempt"] for each in found["components"]] == [1, 1]
    assert fresh("logs", job).out == "begun\nover\nbegun\nover\n"
    assert fresh.end(queued)["state"] == "done"
    _, errors = waiting.communicate(timeout=live.CALL_S)
    assert waiting.returncode == 0, errors
    assert b"Waiting for it for 60 s.\n" in errors
    assert b"koalad answers again.\n" in errors


def test_down_cancel_ends_them_first(fresh: Any, shell: Callable[..., Document]) -> None:
    fresh("up")
    running = fresh.submit(shell("sleep 1000", 2), shell("sleep 1000", 2))
    fresh.until(lambda: fresh.job(running)["state"] == "running")
    waiting = fresh.submit(shell("true", 4, cluster="delft"), shell("true", 4, cluster="delft"), when_busy="wait")
    answer = fresh("down", "--cancel")
    assert (answer.status, answer.out) == (0, "koalad of grid live is down\n")
    fresh.until(lambda: not fresh.processes())
    fresh("up")
    assert fresh.job(running)["state"] == "cancelled"
    assert fresh.job(waiting)["state"] in ("cancelled", "failed")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_koalad_politely(small: Any, number: signal.Signals) -> None:
    small("up")
    pid = small("status", "--json").document["pid"]
    os.kill(pid, number)
    small.until(lambda: not alive(pid))
    assert '"event": "koalad_ended"' in (small.root / "state" / "koala" / "live" / "koalad.log").read_text()
    assert not list((small.root / "run" / "koala").iterdir())


def test_a_killed_koalad_leaves_nothing_in_the_way(small: Any) -> None:
    small("up")
    os.kill(small("status", "--json").document["pid"], signal.SIGKILL)
    small.until(lambda: small("status").status == 3)
    assert small("up").status == 0


def test_its_files_are_its_owners_alone(small: Any) -> None:
    (small.root / "state" / "koala" / "live").mkdir(parents=True, mode=0o755)
    (small.root / "run" / "koala").mkdir(parents=True, mode=0o777)
    (small.root / "state" / "koala").chmod(0o777)
    small("up")
    state, runtime = small.root / "state" / "koala" / "live", small.root / "run" / "koala"
    assert mode(state) == mode(runtime) == 0o700
    assert mode(state.parent) == 0o755
    assert mode(runtime / "live.sock") == 0o600
    assert mode(state / "store.sqlite") == 0o600


@pytest.mark.skipif(os.getuid() != 0, reason="only root can leave a link in another user's name")
def test_neither_link_nor_directory_of_another_user_is_used(small: Any) -> None:
    (small.root / "mine").mkdir(mode=0o755)
    (small.root / "run").mkdir()
    (small.root / "run" / "koala").symlink_to(small.root / "mine")
    os.lchown(small.root / "run" / "koala", 65_534, 65_534)
    small("up").refused(1, f"The directory {small.root}/run/koala belongs to another user.", "$XDG_RUNTIME_DIR")
    assert mode(small.root / "mine") == 0o755
    os.lchown(small.root / "run" / "koala", os.getuid(), os.getgid())
    states = small.root / "state" / "koala"
    os.chown(states, 65_534, 65_534)
    small("up").refused(1, f"The directory {states} belongs to another user.")
    os.chown(states, os.getuid(), os.getgid())
    assert small("up").status == 0


@pytest.mark.parametrize("what", ["state", "run"])
def test_a_place_below_one_that_others_may_write_is_refused(small: Any, what: str) -> None:
    """Both when koalad starts and when the clusters are examined."""
    assert small("up").status == 0
    assert small("down").status == 0
    above = small.root / what
    above.chmod(0o777)
    for command in (("up",), ("doctor",)):
        small(*command).refused(1, f"{above} belongs to ", f"Enter `chmod go-w {above}`")
    small.until(lambda: not small.processes())
    above.chmod(0o755)
    assert small("up").status == 0


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_socket_is_found_whatever_the_runtime_directory(small: Any) -> None:
    """As from cron, where $XDG_RUNTIME_DIR is not set."""
    small("up")
    pid = small("status", "--json").document["pid"]
    assert small("status", "--json", XDG_RUNTIME_DIR="").document["pid"] == pid
    assert small("up", "--json", XDG_RUNTIME_DIR="").document["pid"] == pid
    assert small("down", XDG_RUNTIME_DIR="").status == 0
    assert small("up", XDG_RUNTIME_DIR="").status == 0
    assert small("status").status == 0
    assert small("down").status == 0


def test_a_directory_that_cannot_be_made_is_reported(small: Any) -> None:
    (small.root / "state").write_text("a file")
    small("up").refused(1, f"The directory {small.root}/state/koala/live cannot be made: Not a directory.")
    (small.root / "state").unlink()


def test_a_runtime_directory_with_a_long_name_is_reported(small: Any) -> None:
    long = small.root / ("x" * 100)
    small("up", XDG_RUNTIME_DIR=str(long)).refused(1, "is too long for a Unix socket.", "XDG_RUNTIME_DIR")
    small.until(lambda: not small.processes())


def test_a_damaged_store_is_reported(small: Any) -> None:
    store = small.root / "state" / "koala" / "live" / "store.sqlite"
    store.parent.mkdir(parents=True)
    store.write_bytes(b"no database at all" * 100)
    small("up").refused(1, f"{store} cannot be read as a store of koalapy")
    assert store.read_bytes() == b"no database at all" * 100


def test_a_koalad_that_does_not_answer_is_reported(small: Any) -> None:
    """Something else listens on its socket."""
    path = small.root / "run" / "koala" / "live.sock"
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        listening.settimeout(live.CALL_S)
        process = small.start("status")
        connection, _ = listening.accept()
        connection.close()
        out, err = process.communicate(timeout=live.CALL_S)
    assert (process.returncode, out) == (3, b"")
    assert err.decode().splitlines()[0] == "koala: koalad of grid live does not answer: it was cut off."
    path.unlink()


# ---- grid files

GRID = "grid: live\nclusters:\n  here: {batch: local, connect: 'local:', slots: 2}\n"
BAD_GRIDS: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "empty": (b"", ("is empty",)),
    "blank": (b"\n# nothing\n", ("is empty",)),
    "binary": (b"\x7fELF\x02\x01\x01\x00\xff\xfe", ("is not text",)),
    "huge": (GRID.encode() + b"#" * 10_000_001, ("10,000,000",)),
    "malformed": (GRID.encode() + b"  there: [1, 2\n", (":4:", "not closed")),
    "a list": (b"- grid: live\n", (":1:1: ",)),
    "unknown key": (GRID.replace("slots", "slot").encode(), (":3:43: ", "slots")),
    "unknown section": (GRID.encode() + b"schedulling: {queue: fcfs}\n", (":4:1: ", "scheduling")),
    "no clusters": (b"grid: live\n", ("clusters",)),
    "no name": (GRID.replace("grid: live\n", "").encode(), ("names no grid",)),
    "bad name": (GRID.replace("live", "../live").encode(), ("../live",)),
    "no processors": (GRID.replace("slots: 2", "slots: 0").encode(), (":3:43: ", "slots")),
    "negative": (GRID.replace("slots: 2", "slots: -2").encode(), (":3:43: ", "slots")),
    "absurd": (GRID.replace("slots: 2", "slots: 1e9").encode(), (":3:43: ", "slots")),
    "unknown batch system": (GRID.replace("batch: local", "batch: slrum").encode(), (":3:10: ", "slrum")),
    "bad connection": (GRID.replace("local:'", "telnet://x'").encode(), (":3:24: ", "connect")),
    "unknown policy": (GRID.encode() + b"scheduling: {queue: lifo}\n", (":4:14: ", "lifo")),
    "two documents": (GRID.encode() + b"---\n" + GRID.encode(), (":4:1: ",)),
    "an alias": (GRID.encode() + b"claim: *x\n", (":4:8: ",)),
    "another version": (b"koala: 2\n" + GRID.encode(), (":1:1: ",)),
}


@pytest.mark.parametrize(("text", "words"), BAD_GRIDS.values(), ids=BAD_GRIDS)
def test_a_bad_grid_file_is_refused_with_its_place(small: Any, text: bytes, words: tuple[str, ...]) -> None:
    small.grid_file.write_bytes(text)
    small("up").refused(2, str(small.grid_file), *words)
    small.until(lambda: not small.processes())


def test_a_bad_grid_file_is_found_without_koalad(small: Any) -> None:
    text, words = BAD_GRIDS["unknown key"]
    small.grid_file.write_bytes(text)
    small("config", "check").refused(2, str(small.grid_file), *words)


def test_a_grid_file_that_is_none(small: Any) -> None:
    small("up", "--grid", small.work).refused(2, f"{small.work} is a directory.")
    small("up", "--grid", "/dev/zero").refused(2, "/dev/zero")
    small("up", "--grid", "/dev/null").refused(2, "/dev/null is empty")


def test_a_grid_file_in_another_style_is_read(fresh: Any) -> None:
    grid = yaml.safe_load(fresh.grid_file.read_text())
    fresh.grid_file.write_text(yaml.safe_dump(grid, default_flow_style=True))
    assert fresh("config", "check").status == 0
    fresh.grid_file.write_text('# mine\r\n"grid": live\r\n' + yaml.safe_dump({"clusters": grid["clusters"]}))
    assert fresh("config", "check").out == f"{fresh.grid_file} is fine: grid live, 3 clusters\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user to be refused")
def test_a_file_of_another_user_is_reported(small: Any) -> None:
    """As a user without name and home, who may read the program but not this file."""
    small.grid_file.chmod(0o600)
    code = (
        "import os, sys\n"
        "from koalapy.common.locations import Locations\n"
        "from koalapy.model.errors import KoalaError\n"
        "os.setgid(64321); os.setuid(64321)\n"
        "for name in ('HOME', 'KOALA_GRID', 'XDG_CONFIG_HOME'): os.environ.pop(name, None)\n"
        "for grid in (sys.argv[1], None):\n"
        "  try: Locations.of(grid)\n"
        "  except KoalaError as error: print(error.reason.message)\n"
    )
    small.root.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", code, small.grid_file], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"{small.grid_file} cannot be read: Permission denied.",
        "The user 64321 has no home directory: neither $HOME nor the machine names one.",
    ]


# ---- a submission, and koalad that goes away


@pytest.mark.parametrize("command", ["submit", "submit --json", "run -d -n 1 -- true", "resubmit 1"])
def test_what_was_recorded_is_a_success_although_koalad_goes_away_afterwards(
    small: Any, shell: Callable[..., Document], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    small("up")
    files = [small.write(f"{number}.yaml", {"components": [shell("true")]}) for number in (1, 2)]
    if command == "resubmit 1":
        small.submit(shell("true"))
    before = small.ids()
    asked = Grid.jobs

    def killed_first(grid: Grid, *arguments: Any, **filters: Any) -> Any:
        small.kill()
        return asked(grid, *arguments, **filters)

    words = command.split() + (list(map(str, files)) if command.startswith("submit") else [])
    with monkeypatch.context() as patch:
        for name, value in small.environment.items():
            patch.setenv(name, value)
        patch.setattr(Grid, "jobs", killed_first)
        answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.output
    accepted = answer.stdout if "--json" in command else answer.stdout.splitlines()
    assert "koalad of grid live" in answer.stderr
    assert "recorded" in answer.stderr
    assert small("up").status == 0
    new = [job for job in small.ids() if job not in before]
    assert len(new) == (2 if command.startswith("submit") else 1)
    assert (
        json.loads(answer.stdout)["ids"] == new
        if "--json" in command
        else all(f"job {job} accepted" in line for job, line in zip(new, accepted, strict=True))
    )


def test_a_submission_with_a_key_is_accepted_once(small: Any, shell: Callable[..., Document]) -> None:
    small("up")
    one, two, three = (small.write(f"{number}.yaml", {"components": [shell("true")]}) for number in (1, 2, 3))
    first = small("submit", "--key", "monday", one, two, one, "--json").document["ids"]
    assert len(set(first)) == 3
    again = small("submit", "--key", "monday", two, three, one, one, "--json").document["ids"]
    assert [again[0], *again[2:]] == [first[1], first[0], first[2]]
    alone = small("submit", "--key", "monday", one, "--json").document["id"]
    assert alone == small("submit", "--key", "monday", one, "--json").document["id"]
    for command in (
        ["run", "-d", "--key", "a", "-n", 1, "--", "true"],
        ["sweep", "--key", "b", "-p", "x=1:2", "--", "true", "{x}"],
        ["resubmit", alone, "--key", "c"],
    ):
        assert small(*command).out == small(*command).out != ""
    ran = [small("run", "--key", "d", "-n", 1, "--", "sh", "-c", "echo $$").out for _ in range(2)]
    assert ran[0] == ran[1] != ""
    assert len(small.ids()) == 9
    refused = small("submit", "--key", "", one)
    assert (refused.status, "1 to 160 characters" in refused.err) == (2, True), refused
