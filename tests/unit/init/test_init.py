"""`koala init`: the hosts of an ssh configuration, what is chosen of what was seen, the file, and who is asked."""

import contextlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import connection_ends
import pytest
import sshd as server
import yaml
from typer.testing import CliRunner
from waiting import until

from koalapy.cli.main import app
from koalapy.config import read_grid
from koalapy.init.choosing import Entry, chosen_environment, chosen_queue, entry, proposed_name
from koalapy.init.ssh_hosts import ssh_hosts
from koalapy.init.survey import HeadSurvey
from koalapy.init.writing import text

COMMAND = [sys.executable, "-m", "koalapy.cli.main", "init"]
BATCH_SYSTEMS = ["slurm", "sge", "pbs", "torque", "local"]
Document = dict[str, Any]


def queue(name: str, **changed: Any) -> Document:
    reported = {"name": name, "default": False, "closed": "", "walltime_s": None, "nodes": 2, "processors": 8}
    return reported | {"environments": []} | changed


def environment(name: str, rule: str = "$fill_up", controls: bool = True) -> Document:
    return {"name": name, "controls": controls, "rule": rule, "slots": 99}


def surveyed(**system: Any) -> HeadSurvey:
    """Return the survey of a head node with this batch system; without one, if none is given."""
    reported: dict[str, Any] = {
        "batch": "slurm",
        "version": "24.11.5",
        "queues": [],
        "accounts": [],
        "environments": [],
        "drmaa": None,
    }
    reported |= {"profile": {}, "processors_per_node": None}
    survey = {
        "host": "fs0",
        "user": "me",
        "python": "/usr/bin/python3",
        "python_version": "3.11.2",
        "processors": 8,
        "home": "/home/me",
        "home_kind": "nfs4",
        "home_remote": True,
        "systems": [reported | system] if system else [],
    }
    return HeadSurvey(survey)


sshd = connection_ends.sshd


# ---- the ssh configuration


def test_hosts_are_the_aliases_of_the_files_in_their_order_without_wildcards(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        "# mine\nHost fs0 fs1 # the first two\n  HostName fs0.example\nHost *.example !bad\nHost=fs2\n"
        'Include conf.d/*.conf\nhost "fs3" fs0\nMatch host other\n'
    )
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "a.conf").write_text("Host included\nInclude conf.d/b c config\n")
    (tmp_path / "conf.d" / "b").write_text("Host beside\n")
    (tmp_path / "conf.d" / "c").write_text("Host not-included\n")
    expected = ["fs0", "fs1", "fs2", "included", "beside", "fs3"]
    assert ssh_hosts(own=tmp_path) == expected
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(tmp_path / "config", tmp_path / "elsewhere" / "config")
    assert ssh_hosts(tmp_path / "elsewhere" / "config", tmp_path) == expected  # what it includes lies in ~/.ssh


def test_the_persons_configuration_is_that_of_openssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which looks for it in the home of the password database, whatever $HOME is."""
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    (tmp_path / "home" / ".ssh" / "config").write_text("Host wrong\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert "wrong" not in ssh_hosts()


def test_no_configuration_and_one_with_an_open_quote_name_no_host(tmp_path: Path) -> None:
    assert ssh_hosts(tmp_path / "none") == []
    (tmp_path / "config").write_text('Host "fs0\n')
    assert ssh_hosts(tmp_path / "config") == []


# ---- what is chosen


def test_the_default_queue_is_chosen_and_of_several_an_open_one_that_is_large() -> None:
    assert chosen_queue([queue("long", processors=99), queue("batch", default=True)]) == queue("batch", default=True)
    several = [
        queue("shut", default=True, closed="its state is DOWN", processors=99),
        queue("small", default=True, processors=4),
        queue("large", default=True),
        queue("large-too", default=True),
    ]
    assert chosen_queue(several) == several[2]
    assert chosen_queue([]) is None


def test_a_parallel_environment_must_control_its_slaves_and_is_better_over_several_nodes() -> None:
    known = [environment("smp", "$pe_slots"), environment("tied", controls=False), environment("mpi")]
    offering = queue("all.q", environments=["smp", "tied", "mpi"])
    assert chosen_environment(known, offering) == known[2]
    assert chosen_environment(known, queue("small.q", environments=["smp", "tied"])) == known[0]
    assert chosen_environment(known[1:2], offering) is None
    threads = environment("threads", "$pe_slots", controls=False)
    assert chosen_environment([threads, *known], queue("threads.q", environments=["threads", "tied"])) == threads


def test_an_entry_has_what_was_found_and_names_what_else_there_was() -> None:
    seen = surveyed(
        batch="sge",
        version="8.1.9",
        queues=[queue("all.q", default=True, environments=["mpi"], walltime_s=5400)],
        environments=[environment("mpi"), environment("old", controls=False)],
        accounts=["physics"],
        drmaa="/usr/lib/libdrmaa.so",
    )
    made = entry("delft", "ssh://fs3", {"identity": "~/.ssh/das"}, seen)
    assert made.settings == {
        "batch": "sge",
        "connect": "ssh://fs3",
        "identity": "~/.ssh/das",
        "queue": "all.q",
        "parallel_environment": "mpi",
        "drmaa": "auto",
    }
    said = "\n".join(made.comments)
    for words in (
        "Grid Engine 8.1.9",
        "all.q (default, 8 processors, up to 1h30m)",
        "old ($fill_up, without",
        "physics",
    ):
        assert words in said


def test_what_the_profile_has_sbatch_do_is_written_since_koalapy_does_not_learn_of_it() -> None:
    seen = surveyed(queues=[queue("batch", default=True)], profile={"queue": "long", "account": "physics"})
    made = entry("vu", "ssh://fs0", {}, seen)
    assert (made.settings["queue"], made.settings["account"]) == ("long", "physics")
    assert "the login's profile names its queue, account" in made.comments


def test_torque_gets_the_processors_of_a_node() -> None:
    seen = surveyed(batch="torque", version="6.1.2", processors_per_node=16)
    assert entry("old", "ssh://fs0", {}, seen).settings["processors_per_node"] == 16


def test_a_machine_without_a_batch_system_gets_a_queue_of_its_own() -> None:
    assert entry("here", "local:", {}, surveyed()).settings == {"batch": "local", "connect": "local:", "slots": 8}


def test_a_python_that_had_to_be_looked_for_is_named() -> None:
    seen = HeadSurvey(surveyed(batch="slurm").survey, "/opt/python3")
    assert entry("vu", "ssh://fs0", {}, seen).settings["python"] == "/opt/python3"


@pytest.mark.parametrize(
    ("connect", "taken", "name"),
    [
        ("ssh://me@fs0.vu.example:22", [], "fs0"),
        ("ssh://fs0", ["FS0", "fs0-2"], "fs0-3"),
        ("ssh://10.0.0.1", [], "10-0-0-1"),
        ("local:", [], "local"),
        ("command:ssh -T lab.example", [], "lab"),
        ("docker://me@head_node", [], "head_node"),
    ],
)
def test_a_cluster_is_named_for_its_host(connect: str, taken: list[str], name: str) -> None:
    assert proposed_name(connect, taken) == name


# ---- the file


def test_the_file_is_one_that_koalad_reads_whatever_is_in_it() -> None:
    entries = [
        Entry("vu", {"batch": "slurm", "connect": "command:ssh -T 'a: b' # c", "queue": "yes"}, ("a\nb # c: d",)),
        Entry("long", {"batch": "slurm", "connect": "command:ssh -T 'a: b' # c", "queue": "1e3"}, ()),
        Entry("123", {"batch": "local", "connect": "local:", "slots": 2}, ()),
    ]
    content = text("on", entries, [("gone", {"connect": "ssh://a: b", "identity": "~/k"}, "it\nis down")])
    read = read_grid(content, "grid.yaml", BATCH_SYSTEMS)
    assert (read.grid, list(read.clusters)) == ("on", ["vu", "long", "123"])
    assert (read.clusters["vu"].queue, read.clusters["long"].queue) == ("yes", "1e3")
    assert read.clusters["long"].shared == "~/.koala/long"  # the agents of one head node do not share
    assert "# gone could not be looked at: it is down" in content


def test_a_cluster_that_could_not_be_looked_at_needs_no_more_than_its_comment_signs_removed() -> None:
    missing = [(name, {"connect": f"ssh://{name}", "identity": "~/k"}, "it is down") for name in ("gone", "far")]
    content = text("mine", [Entry("here", {"batch": "local", "connect": "local:"}, ())], missing)
    assert list(read_grid(content, "grid.yaml", BATCH_SYSTEMS).clusters) == ["here"]
    lines = content.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("  # Correct this"):
            lines[number + 1 : number + 5] = [each.replace("# ", "", 1) for each in lines[number + 1 : number + 5]]
    read = read_grid("\n".join(lines), "grid.yaml", BATCH_SYSTEMS)
    assert list(read.clusters) == ["here", "gone", "far"]
    assert (read.clusters["gone"].batch, read.clusters["far"].identity) == ("slurm", "~/k")


# ---- the command


def refused(*arguments: object) -> str:
    """Return the message for a mistake of usage: quicker than by a process of its own."""
    done = CliRunner().invoke(app, ["init", *map(str, arguments)])
    assert done.exit_code == 2, done.output
    if "--json" in arguments:
        return str(json.loads(done.stdout)["error"]["message"])
    assert done.stdout == ""
    return done.stderr


def init(*arguments: object) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done


def test_this_machine_is_written_and_never_over_another_file_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "new" / "grid.yaml"
    done = init("--yes", "--json", "--grid", path, "--name", "first")
    assert done.returncode == 0, done
    answer = json.loads(done.stdout)
    assert (answer["schema"], answer["written"], answer["grid_file"]) == ("koala.init/1", True, str(path))
    assert answer["text"] == path.read_text()
    assert answer["clusters"][0]["found"]["processors"] == os.cpu_count()
    assert path.stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load(path.read_text())["clusters"]["here"]["connect"] == "local:"
    assert "--force" in refused("--yes", "--grid", path, "--name", "second")
    assert yaml.safe_load(path.read_text())["grid"] == "first"
    assert init("--yes", "--force", "--grid", path, "--name", "second").returncode == 0
    assert yaml.safe_load(path.read_text())["grid"] == "second"
    assert os.listdir(path.parent) == ["grid.yaml"]


def test_the_hosts_of_another_ssh_configuration(sshd: Any, tmp_path: Path) -> None:
    """It names a real server, and stands in the file of the grid, which needs it too."""
    config, path = tmp_path / "config", tmp_path / "grid.yaml"
    own = [f"HostName {server.HOST}", f"Port {sshd.port}", f"User {sshd.user}"]
    own += [f"IdentityFile {sshd.identity}", f"UserKnownHostsFile {sshd.known_hosts}"]
    config.write_text("\n    ".join(["Host fs0", *own, ""]))
    done = init(
        "--yes", "--grid", path, "--ssh-config", config, "--cluster", "far=ssh://fs0", "--cluster", "here=local:"
    )
    assert done.returncode == 0, done
    found = yaml.safe_load(path.read_text())["clusters"]
    assert {name: each.get("ssh_config") for name, each in found.items()} == {"far": str(config), "here": None}
    assert "There is no file" in refused("--yes", "--grid", tmp_path / "2.yaml", "--ssh-config", tmp_path / "no")


def test_clusters_that_cannot_be_looked_at_are_reported_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    done = init("--yes", "--grid", path, "--cluster", "gone=command:false", "--cluster", "here=local:")
    assert done.returncode == 1
    assert "gone: The login on `false` ended" in done.stderr
    assert list(yaml.safe_load(path.read_text())["clusters"]) == ["here"]
    assert "# gone could not be looked at" in path.read_text()
    alone = init("--yes", "--json", "--grid", tmp_path / "none.yaml", "--cluster", "gone=command:false")
    assert (alone.returncode, json.loads(alone.stdout)["written"]) == (1, False)
    assert not (tmp_path / "none.yaml").exists()


def test_a_grid_is_named_for_its_file_so_that_two_of_them_are_two(tmp_path: Path) -> None:
    for name, grid in {"work.yaml": "work", "grid.yaml": "mine", "_lab 2.yaml": "lab-2"}.items():
        assert init("--yes", "--grid", tmp_path / name).returncode == 0
        assert yaml.safe_load((tmp_path / name).read_text())["grid"] == grid


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Standard input is not a terminal"),
        (["--json"], "Standard input is not a terminal"),
        (["--yes", "--cluster", "vu=http://fs0"], "is not a connection"),
        (["--yes", "--name", "a name", "--cluster", "vu=local:"], "is not a valid name for a"),
        (["--yes", "--cluster", "a b=local:"], "is not a valid name for a"),
        (["--yes", "--cluster", "=local:"], "is not a valid name for a"),
        (["--yes", "--cluster", "a=local:", "--cluster", "A=local:"], "Two clusters"),
    ],
)
def test_what_makes_no_grid_file_is_a_mistake_of_usage(tmp_path: Path, arguments: list[str], words: str) -> None:
    assert words in refused("--grid", tmp_path / "grid.yaml", *arguments)
    assert not (tmp_path / "grid.yaml").exists()


def test_a_person_is_asked_sees_the_file_and_may_still_refuse(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host fs0 fs1\n")
    path = tmp_path / "grid.yaml"
    shown = answered(tmp_path, path, ["a name", "lab", "http://fs0", "local:", "laptop", ""])
    assert "  1 fs0" in shown
    assert "'a name' is not a valid name for a grid." in shown  # and is asked for once more
    assert "'http://fs0' is not a connection" in shown
    assert yaml.safe_load(path.read_text())["grid"] == "lab"
    assert "koala doctor" in shown
    assert list(yaml.safe_load(path.read_text())["clusters"]) == ["laptop"]
    assert "Nothing is written." in answered(tmp_path, path, ["", "local:", "other", ""])  # it is there already
    assert list(yaml.safe_load(path.read_text())["clusters"]) == ["laptop"]


def test_an_interrupt_at_a_question_writes_nothing_and_is_reported_as_elsewhere(tmp_path: Path) -> None:
    shown, status = typed(tmp_path, tmp_path / "grid.yaml", ["lab"], interrupted_at="Head nodes")
    assert status == 130
    assert "Nothing is written." in shown
    assert "koala: interrupted." in shown
    assert "Aborted" not in shown
    assert not (tmp_path / "grid.yaml").exists()


def _sleeps(stat: Path) -> bool:
    return stat.read_text().rpartition(")")[2].split()[0] == "S"


def answered(home: Path, path: Path, lines: list[str]) -> str:
    """Return the screen of a person on a terminal who types these lines."""
    return typed(home, path, lines)[0]


def typed(home: Path, path: Path, lines: list[str], interrupted_at: str = "\0") -> tuple[str, int]:
    """Return the screen of a person on a terminal, and the exit status. SIGINT is sent once this text is shown.

    It is sent only once the command sleeps in read(). Just before that, Python would see it only after the next line.
    """
    ours, theirs = pty.openpty()
    config = home / ".ssh" / "config"
    more = ["--ssh-config", str(config)] if config.exists() else []
    environment = os.environ | {"HOME": str(home)}
    command = [*COMMAND, "--grid", str(path), *more]
    with (
        subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(process.kill)
        os.close(theirs)
        os.write(ours, "".join(f"{line}\n" for line in lines).encode())
        shown = b""
        with contextlib.suppress(OSError):  # the terminal's other end is closed
            while piece := os.read(ours, 65_536):
                shown += piece
                if interrupted_at.encode() in shown:
                    interrupted_at = "\0"
                    stat = Path(f"/proc/{process.pid}/stat")
                    until(partial(_sleeps, stat), 60, stat.read_text)
                    process.send_signal(signal.SIGINT)
        status = process.wait(240)
    os.close(ours)
    return shown.decode(), status
