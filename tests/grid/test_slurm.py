"""Slurm's dialect on real Slurm: 22.05 without accounting, and 24.11 with slurmdbd, limits, threads and whole nodes."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_bytes
from typing import Any, NamedTuple

import pytest
import real_grid
from koalapy_adapters.batch import slurm
from koalapy_adapters.batch.protocol import BatchJob, BatchSettings, Capacity, Description, JobStatus
from koalapy_adapters.errors import BatchError, Result
from real_grid import Koalad, sh

from koalapy.model.identity import AttemptId, InstanceId, JobId, instance_id, tag_of
from koalapy.testgrid import Running

CLUSTER = BatchSettings(user="koala", queue="batch")


class Head(NamedTuple):
    """The dialect on a head: what it asks is asked as koala, in the login environment, and read by it.

    Jobs are numbered by the test, and have names that no other test's have, of which Slurm may know still.
    """

    testgrid: Running
    cluster: str
    instance: str

    def tag(self, number: int) -> str:
        return tag_of(InstanceId(self.instance), AttemptId(JobId(number), 0, 0))

    def ask(self, argv: list[str]) -> Result:
        status, output = self.testgrid.exec(self.cluster, ["env", "LC_ALL=C", *argv])
        return Result(argv, status, *((output, "") if status == 0 else ("", output)))

    def describe(self) -> Description:
        return slurm.parse_describe(self.ask(slurm.describe_argv(CLUSTER)))

    def capacity(self, **cluster: Any) -> Capacity:
        here = CLUSTER._replace(**cluster)
        return slurm.parse_capacity(here, [self.ask(argv) for argv in slurm.capacity_argvs(here)])

    def submit(self, number: int, *command: str, **wishes: Any) -> str:
        wishes = {"processors": 1, "walltime_s": 300, "command": list(command or ["sleep", "300"]), **wishes}
        job = BatchJob(tag=self.tag(number), directory="/home/koala", **wishes)
        path = f"/home/koala/{job.tag}"
        self.testgrid.check(self.cluster, ["bash", "-c", 'printf %s "$0" >"$1"', slurm.script(job), path])
        return slurm.parse_submit(self.ask(slurm.submit_argv(job, path)))

    def found(self, number: int) -> JobStatus | None:
        return slurm.parse_find(self.ask(slurm.find_argv(CLUSTER, self.tag(number))), self.tag(number))

    def history(self, number: int) -> JobStatus | None:
        argv = slurm.history_argv(CLUSTER, self.tag(number), "")
        assert argv is not None
        return slurm.parse_history(self.ask(argv), self.tag(number))

    def until(self, number: int, condition: Callable[[JobStatus], bool]) -> None:
        def met() -> bool:
            status = self.found(number)
            return status is not None and condition(status)

        self.testgrid.eventually(met, f"job {number} is as it should be")

    def runs(self, number: int) -> None:
        self.until(number, lambda status: status.state == "running")

    def clear(self) -> "Head":
        """Without jobs, of anybody, and with all nodes idle."""
        self.testgrid.containers.check(self.cluster, ["/opt/testgrid/cancel"])
        self.testgrid.containers.check(self.cluster, ["/opt/testgrid/settle", "180"])
        return self

    def local_load(self, *options: str) -> None:
        """A job of somebody else's that runs."""
        submit = ["sbatch", "--quiet", "--output=/dev/null", *options, "--wrap", "sleep 300"]
        self.testgrid.check(self.cluster, submit, "wombat")
        running = ["squeue", "-h", "-u", "wombat", "-t", "running", "-o", "%i"]
        self.testgrid.eventually(
            lambda: bool(self.testgrid.check(self.cluster, running, "wombat").strip()), "the local job runs"
        )


@pytest.fixture(params=["alpha", "delta"])
def head(request: pytest.FixtureRequest, standing_testgrid: Running) -> Head:
    """The head node of either version."""
    return on(standing_testgrid, request.param).clear()


@pytest.fixture
def delta(standing_testgrid: Running) -> Head:
    return on(standing_testgrid, "delta").clear()


def on(testgrid: Running, cluster: str) -> Head:
    return Head(testgrid, cluster, instance_id(token_bytes(4)))


def test_both_versions_print_what_they_are(head: Head) -> None:
    version, features = {"alpha": ("22.05", {"memory"}), "delta": ("24.11", {"memory", "accounting"})}[head.cluster]
    found = head.describe()
    assert found.version.startswith(version)
    assert set(found.features) == features


def test_a_job_from_its_submit_to_its_end(head: Head) -> None:
    """The accounting knows it where there is one; where there is none it reports that at once."""
    assert head.found(1) is None
    batch_id = head.submit(1, "sh", "-c", "exit 7")
    head.until(1, lambda status: status.state == "ended")
    ended = head.found(1)
    assert ended is not None
    assert (ended.batch_id, ended.ending, ended.exit_status) == (batch_id, "exited", 7)
    if head.cluster == "alpha":
        assert head.history(1) is None
    else:
        known = ended._replace(reason="FAILED")
        head.testgrid.eventually(lambda: head.history(1) == known, "the accounting knows of its end")


def test_a_value_reaches_slurm_whole(standing_testgrid: Running) -> None:
    """sbatch ends a directive at a #, and divides it at spaces, except within quotes."""
    head, account = on(standing_testgrid, "alpha"), "proj#7 it's \"a\\b\" 'c'"
    batch_id = head.submit(9, account=account, native=["--hold"])
    shown = head.ask(["scontrol", "show", "job", batch_id]).stdout
    head.ask(slurm.cancel_argv([batch_id]))
    assert f" Account={account} QOS=" in shown


def test_several_are_asked_about_at_once_and_one_that_never_was_is_in_no_table(head: Head) -> None:
    waits, runs = head.submit(1, native=["--begin=now+1hour"]), head.submit(2)
    head.runs(2)
    found = slurm.parse_status(head.ask(slurm.status_argv([waits, runs, "999999"])))
    assert {number: status.state for number, status in found.items()} == {waits: "queued", runs: "running"}
    assert slurm.parse_status(head.ask(slurm.status_argv(["999999"]))) == {}
    slurm.parse_cancel(head.ask(slurm.cancel_argv([waits, runs, "999999"])))
    head.until(2, lambda status: status.ending == "cancelled")


@pytest.mark.parametrize(("queue", "seconds"), [(None, 7200), ("short", 300), ("short,batch", 7200)])
def test_the_longest_walltime_of_a_partition_is_measured(
    standing_testgrid: Running, queue: str | None, seconds: int
) -> None:
    head = on(standing_testgrid, "alpha")
    settings = BatchSettings(user="koala", queue=queue)
    results = [head.ask(argv) for argv in slurm.capacity_argvs(settings)]
    assert slurm.parse_capacity(settings, results).walltime_limit_s == seconds


def test_a_job_beyond_the_walltime_of_every_partition_fails_at_once(
    testgrid: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """alpha's partition has 2 h; one for each of short's 5 min is too long there, and goes to alpha."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    koalad = Koalad(testgrid, tmp_path, {"alpha": {}, "beta": {"queue": "short"}}, barrier={"timeout": "60s"})
    try:
        koalad.until(lambda: {each["walltime_limit_s"] for each in koalad.grid.clusters()} == {7200, 300})
        long = koalad.submit(sh(1, "true", walltime="3h"))
        assert koalad.end(long)["state"] == "failed"
        reason = koalad.grid.explain(long)["reason"]
        assert reason is not None
        assert reason["code"] == "walltime_limit"
        assert reason["message"].endswith("the longest that fits is 1h58m, on alpha.")
        done = koalad.end(koalad.submit(sh(1, "true", walltime="10m")))
        assert (done["state"], done["components"][0]["cluster"]) == ("done", "alpha")
    finally:
        koalad.stop()


def test_a_core_with_two_threads_is_taken_whole(delta: Head) -> None:
    before = delta.capacity()
    assert (before.unit, before.total, before.idle, before.free_nodes) == ("thread", 8, 8, [[4, 2]])
    delta.local_load("--ntasks=1")
    after = delta.capacity()
    assert (after.idle, after.others, after.free_nodes) == (6, 2, [[4, 1], [2, 1]])


def test_whole_nodes_are_idle_only_where_nobody_is(delta: Head) -> None:
    delta.local_load("--ntasks=1")
    assert delta.capacity(queue="whole").free_nodes == [[4, 1]]
    delta.submit(1, queue="whole")
    delta.runs(1)
    seen = delta.capacity(queue="whole")
    assert (seen.idle, seen.ours, seen.others) == (0, 4, 2)


def test_only_who_was_given_a_reservation_has_its_nodes(head: Head) -> None:
    create = ["scontrol", "create", "reservation", "ReservationName=course", "StartTime=now", "Duration=60"]
    head.testgrid.check(head.cluster, [*create, "Users=koala", f"Nodes={head.cluster}-c1"], "root")
    total = head.capacity().total
    head.testgrid.eventually(lambda: head.capacity().idle == total - 4, "Slurm says that a node is reserved")
    assert head.capacity(reservation="course").idle == 4
    head.submit(1, reservation="course", processors=2)
    head.runs(1)
    assert head.capacity(reservation="course").idle == 2


@contextmanager
def settings(head: Head, line: str) -> Iterator[None]:
    """Slurm with one more line in its settings."""
    configure = 'echo "$0" >>/etc/slurm/slurm.conf; scontrol reconfigure'
    try:
        head.testgrid.check(head.cluster, ["bash", "-c", configure, line], "root")
        yield
    finally:
        undo = "/opt/testgrid/start; scontrol reconfigure"
        head.testgrid.check(head.cluster, ["bash", "-c", undo], "root")


def test_what_hidden_jobs_hold_is_not_idle(head: Head) -> None:
    """After a change of its settings Slurm takes a moment until it knows its nodes again."""
    head.local_load("--ntasks=2")
    with settings(head, "PrivateData=jobs,usage,users,accounts"):
        eventually = head.testgrid.eventually
        eventually(lambda: "others_hidden" in head.describe().features, "Slurm hides others' jobs")
        assert "wombat" not in head.testgrid.check(head.cluster, ["squeue"])
        eventually(lambda: taken(head.capacity()) == (2, 2, 0), "all but the hidden processors are idle")


def taken(seen: Capacity) -> tuple[int, int, int]:
    return seen.total - seen.idle, seen.others, seen.waiting_local


@pytest.mark.parametrize(
    ("wishes", "code"),
    [
        ({"account": "nobody"}, "account_not_permitted"),
        ({"account": "physics"}, "account_not_permitted"),
        ({"queue": "physics"}, "account_not_permitted"),
        ({"queue": "nowhere"}, "no_such_queue"),
        ({"qos": "nowhere"}, "no_such_qos"),
        ({"processors": 9}, "too_many_processors"),
        ({"walltime_s": 3 * 3600}, "walltime_too_long"),
        ({"reservation": "nowhere"}, "no_such_reservation"),
        ({"constraint": "nowhere"}, "no_such_constraint"),
        ({"gpus": 1}, "no_such_resource"),
        ({"memory_per_processor": 2**40}, "memory_too_large"),
        ({"native": ["--nosuchoption"]}, "bad_native"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(map(str, value)),
)
def test_a_refusal_of_24_11_is_understood(standing_testgrid: Running, wishes: Mapping[str, Any], code: str) -> None:
    with pytest.raises(BatchError) as caught:
        on(standing_testgrid, "delta").submit(1, **wishes)
    assert caught.value.code == code, caught.value.message


def test_an_account_s_processors_are_all_there_is(delta: Head) -> None:
    """A job waits for a limit that it fits; a job that never fits is stuck."""
    before = delta.capacity(account="small")
    assert (before.idle, before.largest) == (2, 2)
    delta.submit(1, account="small", processors=2)
    delta.runs(1)
    assert (delta.capacity(account="small").idle, delta.capacity().idle) == (0, 6)
    waits, never = (delta.submit(processors, account="small", processors=processors) for processors in (2, 4))
    limit = ("queued", "AssocGrpCpuLimit")

    def seen() -> list[tuple[str, str, str]]:
        statuses = delta.capacity(account="small").statuses
        return [(each.state, each.reason, each.stuck) for each in (statuses[waits], statuses[never])]

    delta.testgrid.eventually(
        lambda: seen() == [(*limit, ""), (*limit, "assoc_grp_cpu_limit")], "both wait for their account"
    )


def test_a_limit_on_the_number_of_jobs(delta: Head) -> None:
    """One runs, one waits for it without being stuck, a third is to be tried again later."""
    delta.submit(1, account="few")
    delta.runs(1)
    assert delta.capacity(account="few").idle == 0
    delta.submit(2, account="few")
    delta.until(2, lambda status: (status.reason, status.stuck) == ("AssocMaxJobsLimit", ""))
    with pytest.raises(BatchError) as caught:
        delta.submit(3, account="few")
    assert (caught.value.code, caught.value.whose) == ("submit_limit", "transient")


@contextmanager
def account(testgrid: Running, name: str, limits: Mapping[str, str]) -> Iterator[None]:
    """An account of delta, which is koala's too, with these limits of its own and of a QOS of the same name."""

    def sacctmgr(*words: str) -> None:
        testgrid.containers.check("delta", ["sacctmgr", "--immediate", "--quiet", *words])

    sacctmgr("add", "account", name)
    try:
        sacctmgr("add", "qos", name)
        sacctmgr("add", "user", "koala", f"account={name}")
        sacctmgr("modify", "account", name, "set", f"qos+={name}")
        for of, limit in limits.items():
            sacctmgr("modify", of, name, "set", limit)
        known = ["scontrol", "show", "assoc_mgr", "flags=assoc,qos", "users=koala", f"accounts={name}", f"qos={name}"]
        testgrid.eventually(
            lambda: {f"Account={name}", f"QOS={name}"} <= {*re.split(r"[\s(]", testgrid.check("delta", known))},
            "the controller knows both",
        )
        yield
    finally:
        sacctmgr("delete", "account", name)
        sacctmgr("delete", "qos", name)


@pytest.mark.parametrize(
    "limits",
    [{"account": "MaxSubmitJobs=1"}, {"account": "GrpSubmitJobs=1"}, {"qos": "MaxSubmitJobsPerUser=1"}],
    ids=["a user of an account", "an account", "a user of a QOS"],
)
def test_jobs_beyond_a_limit_on_submitted_jobs_wait_until_one_has_ended(
    delta: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: Mapping[str, str]
) -> None:
    """sbatch refuses the second and third of three jobs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with account(delta.testgrid, "one", limits):
        cluster = {"account": "one", "qos": "one", "poll": "1s"}
        koalad = real_grid.Koalad(delta.testgrid, tmp_path, clusters={"delta": cluster})
        try:
            koalad.until(lambda: koalad.grid.clusters()[0]["idle"])
            jobs = [koalad.submit(real_grid.sh(1, "sleep 3")) for _ in range(3)]
            found = [koalad.end(job) for job in jobs]
            assert [job["state"] for job in found] == ["done"] * 3, [job["reason"] for job in found]
            assert [job["submission_failures"] for job in found] == [0] * 3
            refused = [
                line
                for job in jobs
                for line in koalad.grid.show(job)["events"]
                if (line["kind"], line.get("code")) == ("submission_failed", "submit_limit")
            ]
            assert len(refused) >= 2
        finally:
            koalad.stop()


def test_a_limit_of_the_quality_of_service(delta: Head) -> None:
    """Four processors a user; a minute a job, which a longer one can never get."""
    delta.submit(1, qos="short", walltime_s=60, processors=2)
    delta.runs(1)
    seen = delta.capacity(qos="short")
    assert (seen.idle, seen.largest) == (2, 4)
    delta.submit(2, qos="short", walltime_s=120)
    delta.until(2, lambda status: status.stuck == "qos_max_wall_duration_per_job_limit")


SHAPES: dict[str, tuple[int, dict[str, Any], int]] = {
    "all": (8, {}, 2),
    "half a core": (3, {}, 1),
    "whole nodes": (2, {"queue": "whole", "processors_per_node": 1}, 2),
    "exclusive": (3, {"exclusive": True}, 1),
}


@pytest.fixture
def koalad(delta: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[real_grid.Koalad]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    running = real_grid.Koalad(delta.testgrid, tmp_path, {"delta": {}})
    try:
        running.idle()
        yield running
    finally:
        running.stop()


def test_a_rank_for_every_processor_on_nodes_with_threads(koalad: real_grid.Koalad) -> None:
    script = "echo $KOALA_RANK $KOALA_SIZE $(hostname)"
    jobs = {
        name: koalad.submit(real_grid.sh(processors, script, **wishes))
        for name, (processors, wishes, _) in SHAPES.items()
    }
    for name, (processors, _, hosts) in SHAPES.items():
        job = koalad.end(jobs[name])
        assert job["state"] == "done", (name, job["reason"])
        lines = [line.split() for line in b"".join(koalad.grid.output(job["id"])).decode().splitlines()]
        assert sorted(int(rank) for rank, _, _ in lines) == list(range(processors)), name
        assert {size for _, size, _ in lines} == {str(processors)}, name
        assert len({host for _, _, host in lines}) == hosts, name
