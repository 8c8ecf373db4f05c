"""In which parallel environment Launchers are, by a real Grid Engine's output on nine of them, and what a KCM asks."""

import json
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.batch import sge, slurm
from koalapy_adapters.batch.protocol import BatchJob, BatchSettings, Chosen
from koalapy_adapters.errors import RequestError, Result, TransientError
from koalapy_adapters.examination.head import launcher_environment
from koalapy_adapters.kcm.execution.batch_system import BatchSystem
from koalapy_adapters.kcm.execution.operations import Operations
from koalapy_adapters.kcm.execution.parallel_environment import UNANSWERED, ParallelEnvironments
from koalapy_adapters.kcm.execution.subprocess_runner import Handle, Ran
from koalapy_adapters.kcm.shared_directory.attempt_dirs import Directories
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.messages.koalad import ClusterConfig

from koalapy.doctor.examiner import launcher_environment_message
from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, InstanceId, JobId, tag_of

# `every`, `total`: the answers to the commands of these names; `offered`, `taken`: by environment. All of them are
# like `smp` but for: `threads` controls slaves, `closed` lets others in only, `rigged` has something run before each
# job, `tiny` has 2 slots, `loose` fills up hosts, `elsewhere` is offered by one host, which offers none of the others.
RECORDED = json.loads((Path(__file__).parents[1] / "samples" / "sge" / "launchers.json").read_text())
QUOTAS = """\
{{
   name         ours
   description  NONE
   enabled      TRUE
   limit        {} to slots=4
}}
"""
DOWN = Result([], 1, "", "error: commlib error: got select error (Connection refused)\n")
CLUSTER = BatchSettings("koala", queue="all.q", parallel_environment="mpi")
JOB = BatchJob(
    "kabcdeg00000001", "/shared/a", ["wrapper"], 4, 3600, queue="all.q", parallel_environment="mpi", lowest=True
)


class Qmaster:
    """Answers as the recorded one did, but for environments that it has not, and other words in its output."""

    def __init__(self, *lacks: str, quota: str = "", **shows: str) -> None:
        self.asked: list[str] = []
        self.up = True
        self.quota = QUOTAS.format(quota) if quota else ""
        self.lacks, self.shows = lacks, shows

    def run(self, argv: list[str], timeout: float = 0, handle: Handle | None = None) -> Ran:
        self.asked.append(argv[0] if argv[0] != "sh" else "qsub -w v" if argv[3] == "qsub" else argv[3])
        if handle is not None:
            handle.begin()
        return Ran(self._answer(argv)._replace(argv=argv) if self.up else DOWN._replace(argv=argv), 0)

    def _answer(self, argv: list[str]) -> Result:
        if self.asked[-1] == "qconf":
            return self._every()
        if self.asked[-1] == "qquota":
            return Result(argv, 0, self.quota, "")
        if argv[0] == "qstat":
            return result(RECORDED["total"])
        if argv[0] == "qselect":
            return result(RECORDED["offered"][argv[argv.index("-pe") + 1]])
        if argv[0] == "qsub":
            return Result(argv, 1, "", "Unable to run job: error: no suitable queues\nExiting.\n")
        (line,) = [each for each in argv[4].splitlines() if each.startswith("#$ -pe ")]
        return result(RECORDED["taken"][line.split()[2]])

    def _every(self) -> Result:
        reported = ["pe_name " + each for each in RECORDED["every"]["stdout"].split("pe_name ")[1:]]
        left = "".join(each for each in reported if each.split()[1] not in self.lacks)
        for old, new in self.shows.items():
            left = left.replace(old, new)
        return Result([], 0, left, "")


def result(recorded: dict[str, Any]) -> Result:
    return Result([], recorded["status"], recorded["stdout"], recorded["stderr"])


def chosen(qmaster: Qmaster, job: BatchJob = JOB) -> Chosen | None:
    return BatchSystem(sge, CLUSTER, runner=qmaster.run).launchers_environment(job)


def test_the_one_for_one_host_that_controls_no_slaves_is_the_best() -> None:
    qmaster = Qmaster()
    assert chosen(qmaster) == Chosen("smp", controls=False)
    assert qmaster.asked == ["qconf", "qstat", "qquota", "qselect", "qselect", "qsub -w v"]


@pytest.mark.parametrize(
    ("lacks", "best"),
    [
        pytest.param(["smp"], Chosen("rigged", False), id="closed and elsewhere will not do"),
        pytest.param(["smp", "rigged"], Chosen("threads", True), id="one that controls has at least one host"),
        pytest.param(["smp", "rigged", "threads"], None, id="tiny is too small and loose lies anywhere"),
        pytest.param(["mpi"], Chosen("smp", False), id="the job's own is not there"),
    ],
)
def test_an_unsuitable_parallel_environment_is_not_used(lacks: list[str], best: Chosen | None) -> None:
    assert chosen(Qmaster(*lacks)) == best


def test_the_jobs_own_is_kept_where_none_is_better() -> None:
    qmaster = Qmaster()
    assert chosen(qmaster, JOB._replace(parallel_environment="smp")) == Chosen("smp", False)
    assert "qsub -w v" not in qmaster.asked
    own = JOB._replace(parallel_environment="rigged")
    assert chosen(Qmaster(), own) == Chosen("rigged", False)
    assert chosen(Qmaster("smp", "rigged"), JOB._replace(parallel_environment="threads")) == Chosen("threads", True)


def test_quotas_must_leave_as_much_room_as_in_the_jobs_own() -> None:
    assert chosen(Qmaster(quota="pes smp")) == Chosen("rigged", False)
    assert chosen(Qmaster(quota="users koala")) == Chosen("smp", False)
    assert chosen(Qmaster(quota="pes mpi")) == Chosen("smp", False)


def test_a_job_in_none_at_all_gets_one() -> None:
    assert chosen(Qmaster(), JOB._replace(parallel_environment=None)) == Chosen("smp", False)


def test_so_many_slots_of_each_host_are_one_host_for_a_job_of_so_many() -> None:
    """The environment `loose` is given another rule than it had."""
    fours = Qmaster("smp", "rigged", "mpi", **{"$fill_up": "4"})
    assert chosen(fours) == Chosen("loose", False)
    assert chosen(fours, JOB._replace(processors=2)) == Chosen("threads", True)


def test_a_site_without_any_has_none_to_offer() -> None:
    words = Result([], 1, "", "no parallel environment defined\n")
    asking = sge.launchers_environment(CLUSTER, JOB._replace(parallel_environment=None))
    next(asking)
    asking.send(words)
    asking.send(result(RECORDED["total"]))
    with pytest.raises(StopIteration) as ended:
        asking.send(Result([], 0, "", ""))
    assert ended.value.value is None


@pytest.mark.parametrize("step", range(6))
def test_a_missing_answer_is_not_taken_for_a_refusal(step: int) -> None:
    qmaster = Qmaster()
    asking = sge.launchers_environment(CLUSTER, JOB)
    argv = next(asking)
    for _ in range(step):
        argv = asking.send(qmaster.run(argv).result)
    with pytest.raises(TransientError):
        asking.send(DOWN)


def test_what_is_verified_is_the_job_itself_but_for_its_name_and_what_it_runs() -> None:
    scripts: list[str] = []

    class Noting(Qmaster):
        def _answer(self, argv: list[str]) -> Result:
            scripts.extend(argv[4:5] if argv[3:4] == ["qsub"] else [])
            return super()._answer(argv)

    chosen(Noting(), JOB._replace(native=["-l arch=lx-amd64"], avoid=["gamma-c2"]))
    (script,) = scripts
    assert {"#$ -pe smp 4", "#$ -q all.q", "#$ -p -1023", "#$ -l arch=lx-amd64"} < set(script.splitlines())
    assert JOB.tag not in script
    assert script.endswith("\nexec true\n")


# ---- the KCM


def tag(job: int, attempt: int = 1) -> str:
    return tag_of(InstanceId("abcde"), AttemptId(JobId(job), 0, attempt))


class Cluster:
    """The hands of a KCM over it."""

    def __init__(self, root: Path, qmaster: Qmaster, named: str | None = None) -> None:
        config = ClusterConfig(
            "here", "sge", queue="all.q", parallel_environment="mpi", shared=str(root), launchers_environment=named
        )
        directories = Directories(str(root), "abcde", "here", 1)
        directories.create()
        self._batch = BatchSystem(sge, CLUSTER, runner=qmaster.run)
        self._operations = Operations(config, self._batch, directories, lambda: 0)
        self._operations.pushed = "/pushed"

    def environment(self, tag: str) -> str | None:
        """The environment of the job that is prepared for this attempt."""
        prepared = self._operations.perform(do.Prepare(tag, {"processors": 4, "walltime_s": 60}, {}, []))
        assert prepared.error is None, prepared.error
        return self._operations.prepared(tag).parallel_environment

    def submit(self, tag: str, handle: Handle | None = None) -> do.JobSubmitted:
        return self._operations.submit(do.SubmitJob(tag), handle or Handle())


def test_launchers_go_where_they_are_best_and_others_where_the_grid_file_names(tmp_path: Path) -> None:
    qmaster = Qmaster()
    cluster = Cluster(tmp_path, qmaster)
    assert cluster.environment(tag(7)) == "mpi"
    assert qmaster.asked == []
    assert [cluster.environment(tag(FIRST_LAUNCHER, attempt)) for attempt in (1, 2)] == ["smp", "smp"]
    assert qmaster.asked.count("qconf") == 1


def test_a_named_parallel_environment_is_used_without_a_query(tmp_path: Path) -> None:
    qmaster = Qmaster()
    assert Cluster(tmp_path, qmaster, named="mpi").environment(tag(FIRST_LAUNCHER)) == "mpi"
    assert qmaster.asked == []


def test_a_parallel_environment_that_refuses_a_launcher_gets_no_more_of_them(tmp_path: Path) -> None:
    """Another's refusal has no consequence, nor has a submit that was ended before it began."""
    cluster = Cluster(tmp_path, Qmaster())
    assert cluster.environment(tag(FIRST_LAUNCHER)) == "smp"
    assert cluster.environment(tag(FIRST_LAUNCHER, 4)) == "smp"
    ended = Handle()
    ended.end()
    assert (cluster.submit(tag(FIRST_LAUNCHER, 4), ended).error or {})["code"] == "submit_ended"
    assert cluster.environment(tag(7)) == "mpi"
    assert (cluster.submit(tag(7)).error or {})["code"] == "too_large_a_request"
    assert cluster.environment(tag(FIRST_LAUNCHER, 2)) == "smp"
    assert (cluster.submit(tag(FIRST_LAUNCHER)).error or {})["code"] == "too_large_a_request"
    assert cluster.environment(tag(FIRST_LAUNCHER, 3)) == "mpi"


def test_a_qmaster_that_does_not_answer_is_asked_again_later_and_one_that_cannot_be_read_is_not() -> None:
    qmaster, times = Qmaster(), [0.0]
    environments = ParallelEnvironments(BatchSystem(sge, CLUSTER, runner=qmaster.run), clock=lambda: times[-1])
    qmaster.up = False
    assert environments.best(JOB) == JOB
    qmaster.up = True
    times.append(UNANSWERED - 1)
    assert environments.best(JOB) == JOB
    assert len(qmaster.asked) == 1
    times.append(UNANSWERED)
    assert environments.best(JOB).parallel_environment == "smp"

    def nonsense(argv: list[str], timeout: float, handle: object) -> Ran:
        asked.append(argv)
        raise RequestError("nonsense", "What is this?")

    asked: list[list[str]] = []
    lost = ParallelEnvironments(BatchSystem(sge, CLUSTER, runner=nonsense))
    assert [lost.best(JOB), lost.best(JOB)] == [JOB, JOB]
    assert len(asked) == 1


# ---- the doctor


@pytest.mark.parametrize(
    ("lacks", "own", "named", "said"),
    [
        pytest.param([], "mpi", None, "Sweeps use smp.", id="found"),
        pytest.param([], "mpi", "smp", "Sweeps use smp, as `scavenge.parallel_environment` sets.", id="named"),
        pytest.param([], "mpi", "mpi", "in smp their nodes would be free a second sooner", id="named another"),
        pytest.param(["smp", "rigged"], "mpi", None, "Sweeps use threads; in one with", id="one that controls"),
        pytest.param(["smp", "rigged", "threads"], "mpi", None, "Sweeps use mpi; in one with", id="none found"),
        pytest.param(
            ["smp", "rigged", "threads", "elsewhere"],
            None,
            None,
            "Sweeps find no parallel environment",
            id="none at all",
        ),
    ],
)
def test_the_doctor_shows_where_sweeps_run_and_what_would_be_better(
    lacks: list[str], own: str | None, named: str | None, said: str
) -> None:
    """A job of the one processor that the doctor asks for when no number is known."""
    config = ClusterConfig("here", "sge", queue="all.q", parallel_environment=own, launchers_environment=named)
    cluster = CLUSTER._replace(parallel_environment=own)
    found = launcher_environment(config, BatchSystem(sge, cluster, runner=Qmaster(*lacks).run))
    assert found is not None
    assert said in launcher_environment_message(found)


def test_other_batch_systems_have_no_such_thing() -> None:
    assert (
        launcher_environment(ClusterConfig("here", "slurm"), BatchSystem(slurm, CLUSTER, runner=Qmaster().run)) is None
    )
