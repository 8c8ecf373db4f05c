"""The batch system `allocation`: its dialect, its queue, and the batch job around it."""

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koalapy_adapters.allocation import client, first_process, jobs, journal, outer_job, requests, script
from koalapy_adapters.batch import allocation, slurm_launch
from koalapy_adapters.batch.protocol import BatchJob, BatchSettings, Host
from koalapy_adapters.errors import ClusterError, RequestError, Result, TransientError, UnreadableError
from koalapy_adapters.host import node_identity
from koalapy_adapters.wrapper.program import environment

NODES = {"n1": 4, "n2": 4}
# Slurm 24.11, `scontrol --details --oneliner show job` of a job of two nodes, without what nobody reads.
DETAILS = (
    "JobId=3708 JobName=held.sh JobState=RUNNING Reason=None StartTime=2026-11-24T17:30:37 EndTime=2026-11-24T17:50:37"
    " ReqNodeList=(null) ExcNodeList=(null) NodeList=alpha-c[1-2] BatchHost=alpha-c1 NumNodes=2 NumCPUs=7"
    " JOB_GRES=(null)   Nodes=alpha-c1 CPU_IDs=0-3 Mem=400 GRES=   Nodes=alpha-c2 CPU_IDs=1,4-5 Mem=300 GRES="
    " MinCPUsNode=4\n"
)


def job(processors: int = 1, **more: object) -> jobs.Job:
    fields = {"id": 0, "name": "j", "directory": "/d", "output": "/d/o", "command": ["/bin/true"], "walltime_s": 60}
    return jobs.Job(**{**fields, "processors": processors, "submitted_at": 0.0, **more})  # type: ignore[arg-type]


def queue(ends_at: float | None = None) -> jobs.Queue:
    made = jobs.Queue(NODES, ends_at)
    made.up.update(dict.fromkeys(NODES, True))
    return made


def started(queue: jobs.Queue, now: float = 0.0) -> list[list[list[object]]]:
    return [each.hosts for each in queue.start(now)]


def test_a_job_goes_to_the_fullest_node_that_holds_it() -> None:
    made = queue()
    for processors in (3, 2, 1, 2):
        made.add(job(processors))
    assert started(made) == [[["n1", 3]], [["n2", 2]], [["n1", 1]], [["n2", 2]]]
    assert made.free() == {"n1": 0, "n2": 0}


def test_a_wide_job_takes_as_few_nodes_as_possible_or_what_it_asks_of_each() -> None:
    made = queue()
    made.add(job(6))
    assert started(made) == [[["n1", 4], ["n2", 2]]]
    made = queue()
    made.add(job(4, per_node=2))
    assert started(made) == [[["n1", 2], ["n2", 2]]]


def test_no_job_passes_the_first_that_waits_and_the_lowest_come_last() -> None:
    made = queue()
    made.add(job(1, lowest=True, name="last"))
    made.add(job(8, name="first"))
    assert [each.name for each in made.start(0.0)] == ["first"]
    made.ended(2, 0, False, 1.0)
    assert [each.name for each in made.start(1.0)] == ["last"]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (job(9), "too_many_processors"),
        (job(3, per_node=2), "too_many_processors"),
        (job(10, per_node=5), "too_many_processors"),
        (job(1, walltime_s=101), "allocation_too_short"),
        (job(8, walltime_s=100), ""),
    ],
)
def test_a_job_that_can_never_start_is_known(wanted: jobs.Job, code: str) -> None:
    assert queue(ends_at=100.0).hindrance(wanted, 0.0)[0] == code


def test_a_job_that_does_not_fit_any_more_holds_up_nobody() -> None:
    made = queue(ends_at=100.0)
    made.add(job(8))
    made.start(0.0)
    made.add(job(8, walltime_s=90, name="long"))
    made.add(job(1, name="short"))
    made.ended(1, 0, False, 30.0)
    assert [each.name for each in made.start(30.0)] == ["short"]


def test_a_cancelled_job_is_asked_and_then_killed() -> None:
    made = queue()
    made.add(job())
    made.start(0.0)
    assert [each.number for each in made.cancel(1, 10.0)] == [15]
    assert made.cancel(1, 11.0) == []
    assert made.due(39.0) == []
    assert [each.number for each in made.due(40.0)] == [9]
    made.ended(1, 137, True, 41.0)
    assert (made.jobs[1].ending, made.jobs[1].exit_status) == ("cancelled", 137)
    assert made.free() == NODES


def test_a_job_beyond_its_walltime_is_ended() -> None:
    made = queue()
    made.add(job(walltime_s=5))
    made.start(1.0)
    assert made.next_due() == 6.0
    assert [each.number for each in made.due(6.0)] == [15]
    made.ended(1, 0, False, 7.0)
    assert made.jobs[1].ending == "walltime"


def test_a_node_that_is_down_takes_no_jobs_and_names_those_that_began_there() -> None:
    made = queue()
    made.add(job(6))
    made.add(job(2))
    made.start(0.0)
    assert [each.id for each in made.node_down("n2")] == [2]
    made.lose(2, 1.0, "gone", sure=False)
    made.lose(1, 1.0, "gone", sure=True)
    assert [(made.jobs[number].ending, made.jobs[number].exit_status) for number in (1, 2)] == [
        ("killed", 137),
        ("lost", None),
    ]
    assert made.total == 4
    made.add(job(5))
    assert made.start(1.0) == []


def test_ended_jobs_are_forgotten_after_a_while_and_ids_go_on() -> None:
    made = queue()
    made.add(job())
    made.start(0.0)
    made.ended(1, 0, False, 1.0)
    made.due(1.0 + jobs.REMEMBERED_S)
    assert made.jobs == {}
    assert made.add(job()).id == 2


# ---- the batch job around


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"SLURM_JOB_ID": "12", "JOB_ID": "9"}, "slurm-12"),
        ({"JOB_ID": "2488", "SGE_CELL": "default"}, "sge-2488"),
        ({"PBS_JOBID": "7.server", "PBS_NODEFILE": "/var/f"}, "pbs-7.server"),
        (
            {"KOALA_ALLOCATION_JOB": "3@/home/me/.koala/local-queue/local-h", "SLURM_JOB_ID": "12"},
            "allocation-3__home_me_.koala_local-queue_local-h",
        ),
    ],
)
def test_the_batch_job_is_found_by_its_variables(variables: dict[str, str], name: str) -> None:
    assert outer_job.find(variables).name == name


def test_outside_a_batch_job_there_is_no_allocation() -> None:
    with pytest.raises(ClusterError, match="does not run in a batch job"):
        outer_job.find({"HOME": "/root"})


def examined(environment: dict[str, str], result: Result) -> outer_job.Outer:
    return outer_job.examine(environment, lambda path: Path(path).read_text(), lambda argv: result)


def test_slurm_shows_the_nodes_and_the_end_even_to_a_step_of_one_node() -> None:
    step = {"SLURM_JOB_ID": "3708", "SLURM_JOB_NODELIST": "alpha-c1", "SLURM_TASKS_PER_NODE": "1", "SLURM_NTASKS": "1"}
    outer = examined(step, Result(["scontrol"], 0, DETAILS, ""))
    assert outer.hosts == [Host("alpha-c1", 4), Host("alpha-c2", 3)]
    assert outer.ends_s == time.mktime(time.strptime("2026-11-24T17:50:37", "%Y-%m-%dT%H:%M:%S"))
    assert [launch.hosts for launch in outer.dialect.launch(outer.environment, ["alpha-c1"], ["agent"])] == [
        ["alpha-c1"]
    ]


@pytest.mark.parametrize(
    ("result", "error", "words"),
    [
        (Result([], 0, DETAILS.replace("RUNNING", "CANCELLED"), ""), ClusterError, "its state is CANCELLED"),
        (Result([], 1, "", "slurm_load_jobs error: Invalid job id specified"), ClusterError, "not known to Slurm"),
        (Result([], 1, "", "Unable to contact slurm controller"), TransientError, "does not describe job 3708"),
        (Result([], 0, DETAILS.replace("CPU_IDs", "Other"), ""), UnreadableError, "shows no processors"),
    ],
)
def test_a_slurm_job_that_cannot_be_used_is_an_error(result: Result, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        slurm_launch.parse_surrounding({"SLURM_JOB_ID": "3708"}, result)


def test_grid_engine_names_its_nodes_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "pe_hostfile"
    file.write_text("gamma-c4 4 all.q@gamma-c4 UNDEFINED\ngamma-c1 2 all.q@gamma-c1 UNDEFINED\n")
    found = examined({"JOB_ID": "1", "SGE_CELL": "default", "PE_HOSTFILE": str(file)}, Result([], 0, "", ""))
    assert (found.hosts, found.ends_s) == ([Host("gamma-c4", 4), Host("gamma-c1", 2)], None)


# ---- inside a job


def test_the_variables_of_the_batch_job_around_do_not_count_inside() -> None:
    outer_env = {"SLURM_JOB_ID": "1", "JOB_ID": "1", "HOSTNAME": "n1", "CUDA_VISIBLE_DEVICES": "0"}
    inside = dict(outer_env, KOALA_ALLOCATION_JOB="1@/d", KOALA_ALLOCATION_HOSTS="n1:1")
    assert set(node_identity.of_batch(inside)) == set(inside) - {"SLURM_JOB_ID", "JOB_ID"}


def test_node_agents_are_launched_by_the_batch_system_around() -> None:
    outer_env = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_CPUS_PER_NODE": "4(x2)", "SLURM_JOB_ID": "7"}
    inside = {
        "KOALA_ALLOCATION_JOB": "3@/q",
        "KOALA_ALLOCATION_HOSTS": "n1:4,n2:2",
        "KOALA_ALLOCATION_BATCH": "slurm",
        "KOALA_ALLOCATION_OUTER": json.dumps(outer_env),
    }
    assert allocation.hosts(inside, lambda path: "") == [Host("n1", 4), Host("n2", 2)]
    (launch,) = allocation.launch(inside, ["n2"], ["python3", "x.pyz", "agent", "n2"])
    assert launch.hosts == ["n2"]
    assert launch.argv[:4] == [
        "/usr/bin/env",
        "SLURM_JOB_CPUS_PER_NODE=4(x2)",
        "SLURM_JOB_ID=7",
        "SLURM_JOB_NODELIST=n[1-2]",
    ]
    assert launch.argv[4] == "srun"
    assert launch.argv[-8:-5] == ["/usr/bin/env", "-u", "KOALA_ALLOCATION_NODE"]
    assert launch.argv[-5:] == ["KOALA_ALLOCATION_JOB=3@/q", "python3", "x.pyz", "agent", "n2"]


def test_outside_its_jobs_there_are_no_hosts() -> None:
    with pytest.raises(UnreadableError, match="not a job of an embedded queue"):
        allocation.hosts({}, lambda path: "")


def test_a_kept_login_environment_serves_jobs_without_setup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_login", None)
    assert environment.kept_login([], "/w") is None
    environment.keep_login({"MODULES": "m", "PWD": "/home/me", "KOALA_ALLOCATION_NODE": "n1"})
    monkeypatch.setenv("KOALA_ALLOCATION_JOB", "1@/d")
    kept = environment.kept_login([], "/w")
    assert kept is not None
    assert (kept["MODULES"], kept["PWD"], kept["KOALA_ALLOCATION_JOB"]) == ("m", "/w", "1@/d")
    assert environment.kept_login(["module load x"], "/w") is None
    old = environment.LoginEnvironment({}, time.monotonic() - environment.KEPT_S)
    monkeypatch.setattr(environment, "_login", old)
    assert environment.kept_login([], "/w") is None


def test_programs_of_a_killed_node_server_are_ended_and_no_others(tmp_path: Path) -> None:
    def program(directory: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(["sleep", "60"], env={"KOALA_ALLOCATION_JOB": f"3@{directory}"})

    left, other = program(str(tmp_path)), program(f"{tmp_path}-other")
    try:
        first_process.end_programs_of(str(tmp_path))
        assert left.wait(10) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for each in (left, other):
            each.kill()
            each.wait()


# ---- the dialect


BATCH = BatchJob(
    tag="k0123456789abcd",
    directory="/s/i/k0123456789abcd",
    command=["/usr/bin/python3", "-I", "-S", "/s/bin/x.pyz", "wrapper", "/s/i/k0123456789abcd"],
    processors=4,
    walltime_s=600,
    processors_per_node=2,
)


def test_the_script_has_its_command_as_a_list_too() -> None:
    text = allocation.script(BATCH)
    assert f"#KOALA command={json.dumps(BATCH.command)}\n#KOALA per_node=2\n" in text
    assert text.endswith("exec /usr/bin/python3 -I -S /s/bin/x.pyz wrapper /s/i/k0123456789abcd\n")
    assert allocation.submit_argv(BATCH, "/p") == ["/s/allocations/queue", "submit", "/p"]


def test_the_capacity_is_counted_node_by_node() -> None:
    answer = {"slots": 8, "nodes": [[4, 4], [4, 1]], "jobs": [view("1@/q", "running", 3)]}
    capacity = allocation.parse_capacity(BatchSettings(user="me"), [Result([], 0, json.dumps(answer), "")])
    assert (capacity.total, capacity.idle, capacity.free_nodes) == (8, 5, [[4, 1], [1, 1]])
    assert capacity.whole_nodes == [[4, 1]]


def test_nothing_is_idle_while_a_job_waits() -> None:
    answer = {"slots": 8, "nodes": [[4, 4], [4, 1]], "jobs": [view("1@/q", "running", 3), view("2@/q", "queued", 8)]}
    capacity = allocation.parse_capacity(BatchSettings(user="me"), [Result([], 0, json.dumps(answer), "")])
    assert (capacity.idle, capacity.free_nodes, capacity.whole_nodes) == (0, [], [])


def view(batch_id: str, state: str, processors: int) -> dict[str, object]:
    rest = {"exit_status": None, "ending": "", "reason": "", "stuck": ""}
    return {"id": batch_id, "name": "k0123456789abcd", "state": state, "processors": processors, **rest}


# ---- the client, without a server


def test_jobs_of_an_allocation_that_is_over_are_lost(tmp_path: Path) -> None:
    over = tmp_path / "slurm-1"
    running, ended = job(id=1, name="a", state=jobs.RUNNING), job(id=2, name="b", state=jobs.ENDED, ending="exited")
    write(over, [running, ended])
    asked = client.Client(str(tmp_path), ["false"], {"SLURM_JOB_ID": "2"})
    found = asked.run(["status", f"1@{over}", f"2@{over}", f"3@{over}"])["jobs"]
    assert [(each["state"], each["ending"]) for each in found] == [("ended", "lost"), ("ended", "exited")]
    assert client.Client(str(tmp_path), ["false"], {}).run(["find", "a"])["jobs"] == [found[0]]
    assert asked.run(["cancel", f"1@{over}"]) == {}


def write(directory: Path, rows: list[jobs.Job]) -> None:
    written = journal.Journal(str(directory))
    written.write(rows, {})
    written.close()


def test_a_line_that_a_crash_cut_off_is_skipped(tmp_path: Path) -> None:
    write(tmp_path, [job(id=1)])
    with (tmp_path / "jobs.jsonl").open("a") as file:
        file.write('{"id": 2, "na')
    assert list(journal.read(str(tmp_path))) == [1]


def test_a_server_that_cannot_start_gives_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="does not run in a batch job"):
        client.Client(str(tmp_path), ["false"], {}).run(["describe"])
    with pytest.raises(ClusterError, match="did not start"):
        client.Client(str(tmp_path), ["false"], {"SLURM_JOB_ID": "2", **os.environ}).run(["describe"])


def test_a_server_on_another_host_is_not_doubled(tmp_path: Path) -> None:
    here = tmp_path / "slurm-2"
    here.mkdir()
    (here / "server.json").write_text(json.dumps(journal.Address("elsewhere", "b", 1, 1, "/s")._asdict()))
    with pytest.raises(ClusterError, match="served on elsewhere"):
        client.Client(str(tmp_path), ["false"], {"SLURM_JOB_ID": "2"}).run(["capacity"])


def test_wishes_that_an_allocation_cannot_grant_are_refused() -> None:
    with pytest.raises(RequestError, match="The queue has no whole nodes to give away"):
        script.directives(allocation.script(BATCH._replace(exclusive=True)))


# ---- suspended jobs


def test_a_suspended_job_frees_its_processors_and_is_stopped_by_its_wrapper() -> None:
    made = queue()
    made.add(job(4))
    made.start(0.0)
    assert [(each.job.id, each.number) for each in made.suspend(1, 1.0)] == [(1, signal.SIGTSTP)]
    assert made.free() == NODES
    assert made.suspend(1, 2.0) == []
    assert [each.state for each in made.running()] == ["suspended"]


def test_a_resumed_job_goes_on_once_its_nodes_have_room_and_before_any_other_job() -> None:
    made = queue()
    made.add(job(4))
    made.add(job(4))
    made.start(0.0)
    made.suspend(1, 1.0)
    made.add(job(3, name="urgent"))
    assert started(made, 1.0) == [[["n1", 3]]]
    made.add(job(1, name="later"))
    made.resume(1)
    assert (made.go_on(2.0), made.start(2.0)) == ([], [])
    made.ended(3, 0, False, 3.0)
    assert [(each.job.id, each.number) for each in made.go_on(3.0)] == [(1, signal.SIGCONT)]
    assert started(made, 3.0) == []
    assert made.free() == {"n1": 0, "n2": 0}


def test_a_job_that_fits_elsewhere_leaves_what_a_suspended_one_needs() -> None:
    made = queue()
    made.add(job(4))
    made.start(0.0)
    made.suspend(1, 1.0)
    assert made.unreserved() == {"n1": 0, "n2": 4}
    made.add(job(1))
    made.add(job(6, name="urgent"))
    assert started(made, 1.0) == [[["n2", 1]], [["n1", 4], ["n2", 2]]]


def test_the_walltime_of_a_suspended_job_stands_still() -> None:
    made = queue()
    made.add(job(walltime_s=10))
    made.start(0.0)
    made.suspend(1, 4.0)
    assert made.due(1000.0) == []
    made.resume(1)
    made.go_on(1004.0)
    assert made.due(1009.0) == []
    assert [each.number for each in made.due(1010.0)] == [15]


def test_the_walltime_of_a_job_does_not_count_the_sleep_of_its_machine() -> None:
    made = queue()
    made.add(job(walltime_s=10))
    made.start(0.0)
    made.slept(3600.0)
    assert made.due(3609.0) == []
    assert [each.number for each in made.due(3610.0)] == [15]


def test_a_queue_that_gets_more_processors_starts_what_waits() -> None:
    made = queue()
    made.add(job(4))
    made.add(job(5))
    made.resize("n1", 2)
    assert (made.total, started(made)) == (6, [[["n2", 4]]])
    made.resize("n1", 5)
    assert started(made) == [[["n1", 5]]]


def test_a_suspended_job_that_is_cancelled_ends_and_frees_nothing_twice() -> None:
    made = queue()
    made.add(job(4))
    made.start(0.0)
    made.suspend(1, 1.0)
    assert [each.number for each in made.cancel(1, 2.0)] == [15]
    made.resume(1)
    assert made.go_on(2.0) == []
    made.ended(1, 143, True, 3.0)
    assert made.free() == NODES
    assert (made.jobs[1].ending, made.jobs[1].resuming) == ("cancelled", False)
    for refused in (lambda: made.suspend(1, 4.0), lambda: made.resume(1)):
        with pytest.raises(KeyError):
            refused()


_Steps = st.lists(
    st.tuples(st.sampled_from(["add", "suspend", "resume", "cancel", "end", "time"]), st.integers(1, 8)), max_size=60
)


@given(_Steps)
def test_no_node_ever_has_more_than_it_holds_and_every_resumed_job_goes_on(steps: list[tuple[str, int]]) -> None:
    made, now = queue(), 0.0

    def advance() -> None:
        made.go_on(now)
        made.start(now)
        held = {name: sum(dict(map(tuple, each.hosts)).get(name, 0) for each in runs()) for name in NODES}
        assert made.free() == {name: size - held[name] for name, size in NODES.items()}
        assert all(taken <= NODES[name] for name, taken in held.items())

    def runs() -> list[jobs.Job]:
        return [each for each in made.running() if each.state == "running"]

    for what, number in steps:
        now += 1.0
        if what == "add":
            made.add(job(number, walltime_s=10**6))
        elif what == "end":
            made.ended(number, 0, False, now)
        elif what == "cancel":
            made.cancel(number, now)
        elif what in ("suspend", "resume"):
            with suppress(KeyError):
                made.suspend(number, now) if what == "suspend" else made.resume(number)
        advance()
    for each in list(made.running()):
        if each.state == "suspended":
            with suppress(KeyError):
                made.resume(each.id)
    while active := runs():
        for each in active:
            made.ended(each.id, 0, False, now)
        advance()
    assert all(each.state == "ended" or each.id in made._stopping for each in made.jobs.values())


def test_what_the_queue_answers_about_a_suspended_job() -> None:
    made = queue()
    made.add(job(4, name="k00000000000001"))
    made.start(0.0)
    requests.handle(made, "/a/q", {"do": "suspend", "ids": ["1@/a/q"]}, 1.0)
    answer, _ = requests.handle(made, "/a/q", {"do": "capacity"}, 2.0)
    found = allocation.parse_capacity(BatchSettings(user="me"), [Result([], 0, json.dumps(answer), "")])
    assert (found.idle, found.allocated, found.free_nodes) == (8, [], [[4, 1]])
    assert [each.state for each in found.statuses.values()] == ["suspended"]
    with pytest.raises(RequestError):
        requests.handle(made, "/a/q", {"do": "suspend", "ids": ["7@/a/q"]}, 3.0)
    assert allocation.suspend_argv("1@/a/q") == ["/a/queue", "suspend", "1@/a/q"]
    assert allocation.resume_argv("1@/a/q") == ["/a/queue", "resume", "1@/a/q"]
