"""A world without faults: jobs of every kind end as expected, and nothing of them is left."""

import pytest

from koalapy.model.cluster import ClusterSettings
from koalapy.model.events import CancelRequested
from koalapy.model.identity import JobId, tag_of
from koalapy.model.request import ComponentRequest, Request, RetryOn
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration
from koalapy.world.behaviour import MISSING, behaviour_of
from koalapy.world.koalad.file_operations import MISSING_FILE
from koalapy.world.random_requests import draw_request
from koalapy.world.random_streams import stream
from koalapy.world.world import World

JOBS = 200
GRID = (("alpha", "slurm"), ("beta", "sge"), ("gamma", "pbs"))
SETTINGS = Settings(
    clusters=tuple(ClusterSettings(name=name, batch=batch) for name, batch in GRID),
    claim_timeout=HOUR,  # a wait at the barrier for a component in a queue is no fault
    barrier_timeout=HOUR,
    max_completion_failures=2,
    orphan_timeout=Duration(2 * MINUTE),
)
SEED = 7


def expected(request: Request, cancelled: bool) -> set[tuple[JobState, str]]:
    """The expected final states, each with the code of the reason."""
    ends = {(JobState.CANCELLED, "cancelled")} if cancelled else set()
    required = [each for each in request.components if not each.optional]
    if MISSING_FILE in request.stage_in:
        return ends | {(JobState.FAILED, "no_such_file")}
    if any(each.executable == MISSING for each in required):
        return ends | {(JobState.FAILED, "no_executable")}
    failures = {(JobState.FAILED, code) for code in map(_failure, required) if code}
    if failures:
        return ends | failures
    if "never-written" in request.stage_out:
        return ends | {(JobState.FAILED, "no_output_file")}
    return ends | {(JobState.DONE, "")}


def _failure(component: ComponentRequest) -> str:
    behaviour = behaviour_of(component.arguments)
    if behaviour.runs >= component.walltime:
        return "walltime_exceeded"
    return "exit_status" if behaviour.exit_status else ""


class Users:
    """Users who submit jobs over hours, and cancel some."""

    def __init__(self, world: World, jobs: int) -> None:
        self._world, self._dice = world, stream(world.seed, "users")
        self.requests: list[Request] = []
        self.cancelled: set[JobId] = set()
        self._left = jobs
        self._after(20, self._submit)

    def _submit(self) -> None:
        request = draw_request(self._dice, {name: size // 2 for name, size in self._world.sizes.items()})
        assert self._world.koalad.submit(request)
        self.requests.append(request)
        if self._dice.random() < 0.1:
            job = JobId(len(self.requests))
            self._after(60, lambda: self._cancel(job))
        self._left -= 1
        if self._left:
            self._after(20, self._submit)

    def _cancel(self, job: JobId) -> None:
        self.cancelled.add(job)
        assert self._world.koalad.request(CancelRequested(job))

    def _after(self, seconds: int, call: object) -> None:
        assert callable(call)
        self._world.agenda.after(Duration(self._dice.randint(0, seconds * SECOND)), call)


@pytest.fixture(scope="module")
def finished() -> tuple[World, Users]:
    """A world after its users' last job."""
    world = World(SEED, settings=SETTINGS)
    users = Users(world, JOBS)
    world.run_for(Duration(HOUR))
    assert world.settle(Duration(2 * HOUR)), [job.id for job in world.koalad.store.jobs() if not job.state.final]
    return world, users


def test_every_job_has_the_expected_end(finished: tuple[World, Users]) -> None:
    world, users = finished
    jobs = world.koalad.store.jobs()
    assert [job.request for job in jobs] == users.requests
    wrong = [
        (job.id, job.state, job.reason)
        for job in jobs
        if (job.state, job.reason.code if job.reason else "") not in expected(job.request, job.id in users.cancelled)
    ]
    assert not wrong
    assert {job.state for job in jobs} == {JobState.DONE, JobState.FAILED, JobState.CANCELLED}


def test_without_faults_no_job_is_retried(finished: tuple[World, Users]) -> None:
    world, _ = finished
    for job in world.koalad.store.jobs():
        assert job.submission_failures == 0, (job.id, job.reason)
        assert job.completion_failures == 0 or RetryOn.EXIT in job.request.retry_on, (job.id, job.reason)


def test_every_program_of_a_done_component_ran_once(finished: tuple[World, Users]) -> None:
    world, _ = finished
    for job in world.koalad.store.jobs():
        for component in job.present:
            runs = world.program_log.runs(tag_of(world.instance, component.id))
            assert len(runs) <= 1
            if job.state is JobState.DONE and not component.request.optional:
                assert [run.exit_status for run in runs] == [0]


def test_nothing_is_left_on_any_cluster(finished: tuple[World, Users]) -> None:
    world, _ = finished
    assert world.quiescent()
    assert not world.koalad.store.load().outbox


def test_the_same_seed_is_the_same_world() -> None:
    def story() -> list[str]:
        world = World(SEED + 1)
        Users(world, 10)
        world.run_for(Duration(10 * MINUTE))
        return [
            f"{line.at} {line.kind} {line.details}"
            for job in world.koalad.store.jobs()
            for line in world.koalad.store.history(job.id)
        ]

    first = story()
    assert len(first) > 30
    assert first == story()
