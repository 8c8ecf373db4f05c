"""Submitting by Slurm's API: what is said to it, where it is not the same as sbatch, what may befall its program."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.batch import slurm, slurm_api, torque
from koalapy_adapters.batch.protocol import BatchJob, BatchSettings
from koalapy_adapters.errors import ClusterError, RequestError, Result
from koalapy_adapters.kcm.execution.batch_system import BatchSystem, SubmitDoubt
from koalapy_adapters.kcm.execution.slurm_api import submitter
from koalapy_adapters.kcm.execution.slurm_api.filters import hindrance
from koalapy_adapters.kcm.execution.slurm_api.submitter import AUTO, REQUIRED, Submitter, find_submitter
from koalapy_adapters.kcm.execution.subprocess_runner import Handle, Ran

from koalapy.model.identity import FIRST_PILOT, AttemptId, InstanceId, JobId, tag_of

JOB = BatchJob("kabcde000000001", "/shared/k %j", ["true"], 5, 61)
RICH = JOB._replace(
    processors_per_node=4,
    memory_per_processor=(100 << 20) + 1,
    exclusive=True,
    queue="short,batch",
    account="physics",
    qos="normal",
    reservation="mine",
    constraint="ib&gpu",
    avoid=["c2", "c1"],
)


# ---- what is said ----------------------------------------------------------------------------------------------------


def test_a_job_is_described_as_sbatch_would() -> None:
    said = slurm_api.submit_fields(RICH, "/shared/script")
    assert said is not None
    assert {name: said[name] for name in said if name.startswith("env.")} == {
        "env.SLURM_NTASKS": "5",
        "env.SLURM_NPROCS": "5",
        "env.SLURM_NTASKS_PER_NODE": "3",
        "env.SLURM_JOB_NAME": "kabcde000000001",
        "env.SLURM_OPEN_MODE": "a",
    }
    assert {name: said[name] for name in said if not name.startswith("env.")} == {
        "name": "kabcde000000001",
        "script_path": "/shared/script",
        "work_dir": "/shared/k %j",
        "std_in": "/dev/null",
        "std_out": "/shared/k %%j/batch.out",
        "num_tasks": "5",
        "min_cpus": "5",
        "min_nodes": "2",
        "max_nodes": "2",
        "ntasks_per_node": "3",
        "time_limit": "2",
        "pn_min_memory": str((1 << 63) + 101),
        "shared": "0",
        "partition": "short,batch",
        "account": "physics",
        "qos": "normal",
        "reservation": "mine",
        "features": "ib&gpu",
        "exc_nodes": "c1,c2",
        "open_mode": "1",
        "requeue": "0",
        "contiguous": "0",
        "mail_type": "0",
        "mem_bind_type": "0",
    }


@pytest.mark.parametrize(
    "wish",
    [{"native": ["--licenses=a"]}, {"gpus": 1}, {"lowest": True}, {"constraint": '"a|b"'}, {"account": "a #b"}],
    ids=lambda wish: next(iter(wish)),
)
def test_options_that_only_sbatch_has_are_left_to_sbatch(wish: dict[str, Any]) -> None:
    assert slurm_api.submit_fields(JOB._replace(**wish), "/script") is None


def test_hosts_that_are_none_are_refused_here_too() -> None:
    with pytest.raises(RequestError):
        slurm_api.submit_fields(JOB._replace(avoid=["c1,c[2-9]"]), "/script")


@pytest.mark.parametrize(
    ("settings", "passed"),
    [
        ({"PropagateResourceLimits": "ALL"}, {"CORE", "NOFILE"}),
        ({"PropagateResourceLimits": "NONE"}, set()),
        ({"PropagateResourceLimits": "STACK,NOFILE"}, {"NOFILE"}),
        ({"PropagateResourceLimits": "(null)", "PropagateResourceLimitsExcept": "CORE"}, {"NOFILE"}),
        ({"PropagateResourceLimits": "ALL", "PropagateResourceLimitsExcept": "(null)"}, {"CORE", "NOFILE"}),
    ],
)
def test_limits_go_along_as_the_site_has_sbatch_do_it(settings: dict[str, str], passed: set[str]) -> None:
    said = slurm_api.environment(settings, {"CORE": -1, "NOFILE": 1024}, "head", 0o27, 5)
    assert {name[13:] for name in said if name.startswith("SLURM_RLIMIT_")} == passed
    assert said.get("SLURM_RLIMIT_CORE") in (None, "18446744073709551615")
    assert (said["SLURM_UMASK"], said["SLURM_PRIO_PROCESS"], said["SLURM_SUBMIT_HOST"]) == ("0027", "5", "head")


@pytest.mark.parametrize(
    ("version", "number", "good"),
    [
        ("22.05.8", 38, True),
        ("23.11.10", 40, True),
        ("22.05.8", 39, False),
        ("24.11.5", 42, False),
        ("20.11.9", 36, False),
    ],
)
def test_only_a_release_that_is_known_and_the_controllers_own_is_used(version: str, number: int, good: bool) -> None:
    assert (slurm_api.other_release({"SLURM_VERSION": version}, number) == "") is good


def test_only_the_controllers_own_word_is_a_refusal() -> None:
    assert slurm_api.refused(2000)
    assert not any(slurm_api.refused(errno) for errno in (0, 11, 110, 1007, 1800, 1900, 5004, 6000))


# ---- where it is the same as sbatch ----------------------------------------------------------------------------------


class Cluster:
    """A head node's commands and Slurm's files, below a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("bin", "etc", "lib"):
            (root / name).mkdir()
        shutil.copy("/bin/true", root / "bin/sbatch")
        self.write("etc/slurm.conf", "")
        self.write("bin/scontrol", f"#!/bin/sh\nexec cat {root}/config\n", 0o755)
        self.write("lib/near.so", "\x7fELF slurm_spank_init\0")
        self.write("lib/far.so", "\x7fELF slurm_spank_task_init\0slurm_spank_user_init\0")
        self.settings = {
            "SLURM_VERSION": "22.05.8",
            "SLURM_CONF": str(root / "etc/slurm.conf"),
            "CliFilterPlugins": "(null)",
            "PlugStackConfig": "(null)",
            "PluginDir": f"/nowhere:{root}/lib",
            "PropagateResourceLimits": "NONE",
        }
        self.environ = {"PATH": f"{root}/bin:/usr/bin:/bin"}
        self.configure()

    def write(self, name: str, text: str, mode: int = 0o644) -> None:
        (self.root / name).write_text(text)
        (self.root / name).chmod(mode)

    def configure(self, **changes: str) -> None:
        self.settings.update(changes)
        lines = [f"{name:24}= {value}\n" for name, value in self.settings.items()]
        self.write("config", "Configuration data as of 2026-11-21T21:00:00\n" + "".join(lines))

    def hindrance(self) -> str:
        return hindrance(self.settings, self.environ, "sbatch")


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_nothing_is_passed_by_where_there_is_nothing(cluster: Cluster) -> None:
    assert cluster.hindrance() == ""
    cluster.write("etc/plugstack.conf", "# none\n\ninclude plugstack.conf.d/*\n")
    assert cluster.hindrance() == ""


def test_a_plugin_that_does_nothing_where_jobs_are_submitted_is_not_passed_by(cluster: Cluster) -> None:
    cluster.write("etc/plugstack.conf", "include more*.conf\n")
    cluster.write("etc/more1.conf", "required far.so  # on nodes only\n")
    assert cluster.hindrance() == ""
    cluster.write("etc/more2.conf", f"optional {cluster.root}/lib/near.so debug=1\n")
    assert "near.so" in cluster.hindrance()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("required near.so\n", "near.so"),
        ("optional gone.so\n", "gone.so is not found"),
        ("plugin near.so\n", "cannot be read"),
        ("include plugstack.conf\n", "include each other"),
    ],
)
def test_a_plugin_that_may_have_a_part_in_it_hinders(cluster: Cluster, text: str, why: str) -> None:
    cluster.write("etc/plugstack.conf", text)
    assert why in cluster.hindrance()
    cluster.settings["PlugStackConfig"] = str(cluster.root / "etc/other.conf")
    assert cluster.hindrance() == ""


@pytest.mark.parametrize("filters", ["lua", "user_defaults", None])
def test_a_filter_of_the_commands_hinders(cluster: Cluster, filters: str | None) -> None:
    cluster.settings.pop("CliFilterPlugins")
    cluster.settings.update({"CliFilterPlugins": filters} if filters else {})
    assert "CliFilterPlugins" in cluster.hindrance()


def test_an_sbatch_of_the_sites_own_hinders(cluster: Cluster) -> None:
    (cluster.root / "bin/sbatch").rename(cluster.root / "bin/wrapper")
    cluster.environ["PATH"] = str(cluster.root / "bin")
    assert "no sbatch" in cluster.hindrance()
    (cluster.root / "bin/sbatch").symlink_to("wrapper")
    assert "the cluster's own" in cluster.hindrance()
    (cluster.root / "bin/sbatch").unlink()
    cluster.write("bin/sbatch", "#!/bin/sh\nexec /opt/sbatch --account=x\n", 0o755)
    assert "the cluster's own" in cluster.hindrance()


def test_a_node_without_configuration_hinders(cluster: Cluster) -> None:
    (cluster.root / "etc/slurm.conf").unlink()
    assert "slurm.conf" in cluster.hindrance()


# ---- what may befall its program -------------------------------------------------------------------------------------

# Speaks as slurm_submit.pl does, and does as the script's name says.
HELPER = """
import os, sys, time
with open("%(log)s", "a") as runs: runs.write("%%d\\n" %% os.getpid())
def say(text): sys.stdout.write(text); sys.stdout.flush()
say("%(greeting)s\\n")
for line in sys.stdin:
    number, *words = line.split()
    if words == ["waiting"]:
        say(number + " " + open("%(log)s.waiting").read() + "\\n")
        continue
    what = dict(word.split("=", 1) for word in words)["script_path"]
    if what == "crash": os.abort()
    if what == "hang": time.sleep(600)
    if what == "half": say(number + " ok"); os._exit(0)
    said = {
        "garbage": "what a nice day", "another": "0 ok 7 0", "twice": number + " ok 7 0\\n" + number + " ok 8 0",
        "none": number + " ok 0 0", "empty": "", "nobody": number + " no 1800 0 Unable%%20to%%20contact",
        "refuse": number + " no 2000 0 Invalid%%20partition",
    }.get(what, number + " ok 7 10")
    say(said + "\\n")
    if what == "last": os._exit(0)
"""
Begin = Callable[..., Submitter]
PATIENCE_S = 120.0


@pytest.fixture
def begin(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    monkeypatch.setenv("PATH", cluster.environ["PATH"])
    monkeypatch.setattr(submitter, "BEGIN", PATIENCE_S)
    monkeypatch.setattr(submitter, "TIMEOUT", PATIENCE_S)
    opened: list[Submitter] = []

    def begin_one(wish: str = AUTO, greeting: str = "ready 38", command: list[str] | None = None) -> Submitter:
        cluster.write("helper.py", HELPER % {"log": cluster.root / "runs", "greeting": greeting})
        command = command or [sys.executable, "-I", "-S", str(cluster.root / "helper.py")]
        opened.append(Submitter(wish, slurm_api, command))
        return opened[-1]

    yield begin_one
    for each in opened:
        each.close()


class Shell:
    """A BatchSystem whose commands are noted: sbatch answers 8, or refuses as it would."""

    def __init__(self, submitter: Submitter, *shows: str) -> None:
        self.ran: list[str] = []
        self._shows = shows
        self.batch = BatchSystem(slurm, BatchSettings("me"), runner=self._run, submitter=submitter)

    def _run(self, argv: list[str], timeout: float, handle: Handle | None) -> Ran:
        if handle is not None and not handle.begin():
            return Ran(Result(argv, None, "", ""), 0)
        self.ran.append(argv[0])
        return Ran(Result(argv, 1, "", *self._shows) if self._shows else Result(argv, 0, "8\n", ""), 0)

    def submit(self, what: str, handle: Handle | None = None, job: BatchJob = JOB) -> str:
        return self.batch.submit(job, what, handle or Handle())


def runs(cluster: Cluster) -> int:
    """Of the program so far."""
    return len((cluster.root / "runs").read_text().splitlines()) if (cluster.root / "runs").exists() else 0


def test_jobs_go_by_one_program_and_no_command(begin: Begin, cluster: Cluster) -> None:
    shell = Shell(begin())
    assert [shell.submit("job") for _ in range(3)] == ["7"] * 3
    assert shell.ran == []
    assert runs(cluster) == 1
    assert shell.batch.spent >= 0.01
    assert shell.batch.submits_by() == "Slurm's API"


def test_a_job_with_options_that_only_sbatch_has_is_submitted_by_sbatch(begin: Begin, cluster: Cluster) -> None:
    shell = Shell(begin())
    assert shell.submit("job", job=JOB._replace(native=["--comment=x"])) == "8"
    assert shell.ran == ["sbatch"]
    assert runs(cluster) == 0


def test_a_job_that_the_controller_refuses_is_refused_by_sbatch_with_its_message(
    begin: Begin, cluster: Cluster
) -> None:
    shell = Shell(begin(), "sbatch: error: Batch job submission failed: Invalid partition name specified")
    with pytest.raises(RequestError) as caught:
        shell.submit("refuse")
    assert caught.value.code == "no_such_queue"
    assert shell.ran == ["sbatch"]
    assert Shell(begin()).submit("refuse") == "8"
    assert runs(cluster) == 2


@pytest.mark.parametrize("what", ["crash", "half", "garbage", "another", "twice", "none", "empty", "nobody"])
def test_without_a_clear_answer_the_job_may_be_there_and_sbatch_does_the_next(
    begin: Begin, cluster: Cluster, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is looked for by its tag before anything is sent again."""
    mine = begin()
    shell = Shell(mine)
    with pytest.raises(SubmitDoubt) as caught:
        shell.submit(what)
    assert (caught.value.error.code, caught.value.error.whose) == ("slurm_api_lost", "transient")
    assert shell.ran == []
    assert shell.submit("job") == "8"
    assert "submitted by sbatch" in capsys.readouterr().err
    mine._resting_until = 0.0
    assert shell.submit("job") == "7"
    assert runs(cluster) == 2


def test_a_program_that_hangs_is_ended(begin: Begin, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(begin())
    assert shell.submit("job") == "7"
    monkeypatch.setattr(submitter, "TIMEOUT", 0.1)
    with pytest.raises(SubmitDoubt, match="did not answer"):
        shell.submit("hang")
    with pytest.raises(ProcessLookupError):
        os.kill(int((cluster.root / "runs").read_text()), 0)


def test_a_program_that_dies_while_idle_costs_no_job(begin: Begin, cluster: Cluster) -> None:
    mine = begin()
    shell = Shell(mine)
    assert shell.submit("last") == "7"
    assert mine._process is not None
    mine._process._process.wait(PATIENCE_S)
    assert shell.submit("job") == "7"
    assert runs(cluster) == 2


@pytest.mark.parametrize(("what", "value"), [("AGE", 0.0), ("MEMORY", 0)])
def test_an_old_or_large_program_is_replaced(
    begin: Begin, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, what: str, value: float
) -> None:
    shell = Shell(begin())
    assert shell.submit("job") == "7"
    monkeypatch.setattr(submitter, what, value)
    assert shell.submit("job") == "7"
    assert runs(cluster) == 2


def test_an_unused_program_is_ended(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitter, "IDLE", 0.05)
    mine = begin()
    with mine._lock:  # as in `start`; without it, it might have ended already
        process = mine._running()
    assert process is not None
    process._process.wait(PATIENCE_S)
    assert Shell(mine).submit("job") == "7"


def test_a_submit_that_was_ended_before_is_not_begun(begin: Begin) -> None:
    shell, handle = Shell(begin()), Handle()
    handle.end()
    with pytest.raises(Exception, match="ended before it began"):
        shell.submit("job", handle)
    assert shell.ran == []


@pytest.mark.parametrize("greeting", ["ready 39", "ready", "hello 38", ""])
def test_another_library_is_not_used(begin: Begin, greeting: str) -> None:
    shell = Shell(begin(greeting=greeting))
    assert shell.submit("job") == "8"
    assert shell.batch.submits_by().startswith("sbatch, since ")


def test_a_site_that_changes_is_noticed(begin: Begin, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(begin())
    assert shell.submit("job") == "7"
    cluster.configure(CliFilterPlugins="lua")
    monkeypatch.setattr(submitter, "AGE", 0.0)
    assert shell.submit("job") == "8"
    assert "CliFilterPlugins" in shell.batch.submits_by()


def test_a_required_api_program_is_not_replaced_by_sbatch(begin: Begin, cluster: Cluster) -> None:
    cluster.configure(SLURM_VERSION="24.11.5")
    shell = Shell(begin(REQUIRED))
    with pytest.raises(ClusterError, match=r"24\.11") as caught:
        shell.submit("job")
    assert caught.value.code == "no_slurm_api"
    assert shell.ran == []
    with pytest.raises(ClusterError, match=r"24\.11"):
        shell.batch.submits_by()


def test_the_api_program_is_for_slurm_only_and_can_be_switched_off() -> None:
    assert find_submitter("off", slurm) is None
    assert find_submitter("auto", torque) is None
    assert find_submitter("auto", slurm) is not None


# ---- the program itself ----------------------------------------------------------------------------------------------

MODULE = r"""
package Slurm;
sub new { bless {} }
sub api_version { (38, 0, 0) }
sub get_errno { 2000 }
sub strerror { "Invalid partition; 100% \xe9" }
sub submit_batch_job {
    my ($self, $job) = @_;
    $| = 1;
    print "libslurm prints what it likes\n";
    return undef if ($job->{partition} // '') eq 'none';
    open(my $out, '>>:raw', $ENV{SAID});
    for my $name (sort keys %$job) {
        next if $name eq 'environment';
        my $value = $job->{$name};
        print $out "$name=" . (ref $value ? join(',', @$value) : $value) . "\0";
    }
    print $out "env.$_=$job->{environment}{$_}\0" for sort keys %{$job->{environment}};
    return { job_id => 4711 };
}
1;
"""
NASTY = "/tmp/a b=%41%\té\udcff\\'\"$x"


def test_the_program_passes_arguments_on_byte_for_byte(
    begin: Begin, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster.write("lib/Slurm.pm", MODULE)
    monkeypatch.setenv("PERL5LIB", str(cluster.root / "lib"))
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    monkeypatch.setenv("NASTY", NASTY)
    script = b"#!/bin/sh\n\xff %41 '\n"
    (tmp_path / "script %41").write_bytes(script)
    mine = Submitter(AUTO, slurm_api)
    try:
        path = str(tmp_path / "script %41")
        assert mine.submit(JOB._replace(directory=NASTY), path, lambda: True) == "4711"
        said = dict(each.split(b"=", 1) for each in (tmp_path / "said").read_bytes().split(b"\0")[:-1])
        assert said[b"script"] == script
        assert said[b"argv"] == path.encode()
        assert said[b"work_dir"] == said[b"env.NASTY"] == os.fsencode(NASTY)
        assert (said[b"env.LC_ALL"], said[b"env.SLURM_NTASKS"]) == (b"C", b"5")
        assert (int(said[b"user_id"]), int(said[b"group_id"])) == (os.getuid(), os.getgid())
        assert mine.submit(JOB._replace(queue="none"), path, lambda: True) is None, "sbatch says why"
        assert mine.submit(JOB._replace(queue="batch"), path, lambda: True) == "4711"
    finally:
        mine.close()


def test_without_slurms_module_sbatch_is_used(begin: Begin, monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    cluster.write("lib/Slurm.pm", "die 'no library';\n")
    monkeypatch.setenv("PERL5LIB", str(cluster.root / "lib"))
    mine = Submitter(AUTO, slurm_api)
    assert not mine.start()
    assert "libslurm-perl" in mine.hindrance


# ---- who waits -------------------------------------------------------------------------------------------------------

GLIDE = tag_of(InstanceId("bbbbb"), AttemptId(JobId(FIRST_PILOT), 0, 1))
OTHERS, LAUNCHER = "90,90,4,Priority,99,sim", f"91,91,4,Resources,99,{GLIDE}"
OURS = f"92,92,4,None,{os.getuid()},"
HELD, TASKS = "93,93,4,JobHeldUser,99,sim", "94,94_%5B1-9%252%5D,4,Priority,99,a%2C%0Ab"


class Queue:
    """A BatchSystem whose `squeue` lists so many jobs of others, and none that wait for processors."""

    def __init__(self, submitter: Submitter, cluster: Cluster, listed: int = 0) -> None:
        self.ran: list[str] = []
        self._cluster = cluster
        self.batch = BatchSystem(slurm, CLUSTER, runner=self._run, keeps=True, submitter=submitter)
        assert self.batch._asking is not None
        self.batch._asking.listing = "a job\n" * listed

    def _run(self, argv: list[str], timeout: float, handle: Handle | None) -> Ran:
        self.ran.append(argv[0])
        return Ran(Result(argv, 0, "", ""), 0)

    def fingerprint(self, *said: str) -> list[str] | None:
        self._cluster.write("runs.waiting", " ".join(said))
        return self.batch.queue_fingerprint()


CLUSTER = BatchSettings("me", instance="aaaaa")


def test_the_queue_fingerprint_is_taken_by_the_program_without_a_command(begin: Begin, cluster: Cluster) -> None:
    queue = Queue(begin(), cluster)
    assert queue.fingerprint("ok", "1", "0", OTHERS) == ["90 90 4"]
    seen = queue.fingerprint("ok", "5", "30", TASKS, HELD, OTHERS, LAUNCHER, OURS + "kaaaaa000000001")
    assert seen == ["90 90 4", "94 94_[1-9%2] 4"]
    assert queue.fingerprint("same", "0", "40") == seen
    assert queue.fingerprint("ok", "1", "40", OURS + "kbbbbb000000001") == ["92 92 4"]
    assert queue.ran == []
    assert runs(cluster) == 1
    assert queue.batch.spent_on["measure"] >= 40_000


def test_a_restarted_program_has_no_earlier_fingerprint(
    begin: Begin, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(begin(), cluster)
    assert queue.fingerprint("ok", "1", "0", OTHERS) == ["90 90 4"]
    monkeypatch.setattr(submitter, "AGE", 0.0)
    assert queue.fingerprint("same", "0", "0") == []
    assert queue.ran == ["squeue"]


@pytest.mark.parametrize(
    "said", [["no", "1800", "0", "Unable"], ["ok", "2", "0", OTHERS], ["ok", "1", "0", "x"], [], ["same"]], ids=str
)
def test_squeue_is_used_if_the_program_gives_no_fingerprint(begin: Begin, cluster: Cluster, said: list[str]) -> None:
    queue = Queue(begin(), cluster)
    assert queue.fingerprint(*said) == []
    assert queue.ran == ["squeue"]


def test_a_long_queue_is_squeues(begin: Begin, cluster: Cluster) -> None:
    queue = Queue(begin(), cluster, listed=10_000)
    assert queue.fingerprint("ok", "1", "0", OTHERS) == []
    assert (queue.ran, runs(cluster)) == (["squeue"], 0)


def test_both_see_the_same(begin: Begin, cluster: Cluster) -> None:
    line = "90|PENDING|ann|batch|4|0|0|Priority|90|1|NO|||      |sim\n"
    result = Result(["squeue"], 0, line, "")
    assert Queue(begin(), cluster).fingerprint("ok", "1", "0", OTHERS) == slurm.parse_queue_fingerprint(CLUSTER, result)
