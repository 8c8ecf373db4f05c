"""Jobs that no isolated lease can run: they are not asked for where they cannot run, and a lease never ends them."""

from typing import Any

import pytest
from engine_play import make
from koalapy_adapters.isolation import view
from site_play import BORROWER, LENDER, Site, Sites

from koalapy.config import inside, leased
from koalapy.config.convert import _cluster_settings
from koalapy.config.schema import Cluster
from koalapy.model import isolated
from koalapy.model.errors import Reason
from koalapy.model.events import AttemptCleanedUp, CancelRequested, LeaseExamined, WorkSubmitted
from koalapy.model.identity import JobId
from koalapy.model.lease import Borrow, LeasedCluster, Lend, Wanted, wanted
from koalapy.model.request import ComponentRequest, Interactive, Isolate, Launch, PilotOptions, Request
from koalapy.model.states import JobState
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration

BORROW = Borrow(after=Duration(0), idle=MINUTE, again=Duration(5 * SECOND))


def component(processors: int, cluster: str | None = None, **fields: Any) -> ComponentRequest:
    return ComponentRequest(**{"processors": processors, "executable": "./program", "cluster": cluster, **fields})


MPI = make(component(40, launch=Launch.MPI))
HIDDEN = make(component(40, executable="/home/me/program"))
SHOWN = make(component(40, executable="/opt/apps/program"))
TYPED = make(component(40), interactive=Interactive.INPUT)
SYSTEM = make(component(40, executable="/bin/sh"))


class Pair(Sites):
    """delft has 16 processors, and lyon lends 60 of its 64."""

    def __init__(self, **lend: Any) -> None:
        self.delft = Site("delft", BORROWER, borrow=BORROW)
        self.lyon = Site("lyon", LENDER, lend=Lend(**{"to": ("delft",), "processors": 60, **lend}))
        super().__init__(self.delft, self.lyon)
        self.link(self.delft, self.lyon)

    def submit(self, request: Request) -> JobId:
        before = set(self.delft.jobs)
        self.delft.apply(WorkSubmitted(request=request, owner="me"))
        self.delft.apply(after=Duration(3 * SECOND))
        self.exchange()
        (job,) = set(self.delft.jobs) - before
        return job

    @property
    def asked(self) -> int:
        return self.delft.record("lyon").next_lease - 1

    def bind(self) -> None:
        """Let the newest pilot run, and its lease join."""
        self.lyon.run(max(self.lyon.jobs))
        self.exchange()
        self.delft.follow()
        self.delft.apply()

    def finish(self, job: JobId) -> None:
        """Let the job run and end."""
        (attempt,) = self.delft.attempts(job)
        self.delft.run(job)
        self.delft.end(attempt)
        self.delft.apply(AttemptCleanedUp(attempt=attempt))
        self.delft.measure()

    def fail(self, job: JobId, whose: str = "request", component: int = 0) -> None:
        """Let the attempt of a component fail before its barrier."""
        found = next(each for each in self.delft.job(job).attempts if each and each.id.component == component)
        reason = Reason("no_executable", whose, "The executable does not exist on the cluster.", "Stage it in.")  # type: ignore[arg-type]
        report = self.delft.report(found.id, "ended", ending="failed", ended_at=self.delft.now, reason=reason)
        self.delft.apply(report)
        self.delft.obey()
        self.delft.apply(AttemptCleanedUp(attempt=found.id))


def where(pair: Pair, job: JobId) -> list[str]:
    return [each.cluster for each in pair.delft.job(job).attempts if each is not None]


@pytest.mark.parametrize(
    "request_", [MPI, HIDDEN, TYPED, SHOWN, SYSTEM], ids=["MPI", "hidden", "typed", "shown", "system"]
)
@pytest.mark.parametrize("isolate", [Isolate.NONE, Isolate.AUTO])
def test_a_lender_that_isolates_claims_nothing_for_what_it_cannot_run(request_: Request, isolate: Isolate) -> None:
    pair = Pair(isolate=isolate, visible=("/opt/apps",))
    job = pair.submit(request_)
    runs = isolate is Isolate.NONE or request_ in (SHOWN, SYSTEM)
    assert bool(pair.lyon.jobs) == runs
    refused = dict(pair.delft.record("lyon").counts.ours.refused)
    assert refused == ({} if runs else {"isolated": 1})
    if not runs:
        assert pair.delft.why(job) == {"lyon": "It isolates programs, and this one cannot run isolated."}


def test_a_request_names_what_must_be_visible_and_no_more() -> None:
    def want(request: Request) -> Wanted:
        found = wanted(request, MINUTE)
        assert isinstance(found, Wanted)
        return found

    assert (want(MPI).unisolated, want(TYPED).unisolated, want(SYSTEM).unisolated) == (True, True, False)
    assert want(HIDDEN).executables == ("/home/me/program",)
    assert want(SYSTEM).executables == want(MPI).executables == ()
    many = make(*[component(1, executable=f"/opt/{number}") for number in range(17)])
    for request in (
        many,
        make(component(1, executable="/opt/" + "x" * 300)),
        make(component(1, executable="/opt/\x1b")),
    ):
        assert want(request).unisolated
        assert want(request).executables == ()


def test_what_every_isolated_program_sees_is_one_list_on_both_sides() -> None:
    assert {*isolated.SYSTEM} == {*view._SYSTEM} - {"/sys/devices/system"}


def bound_for_another(pair: Pair) -> str:
    """Return the cluster of an isolated lease on which nothing runs yet: the job that asked for it is gone."""
    pair.submit(make(component(40, walltime=HOUR)))
    pair.lyon.run(max(pair.lyon.jobs))
    pair.lyon.apply(LeaseExamined(neighbour="delft", lease=1, reason=None))
    pair.exchange()
    pair.delft.follow()
    (name,) = [each for each in pair.delft.sizes if "~" in each]
    return name


@pytest.mark.parametrize("request_", [MPI, HIDDEN, TYPED], ids=["MPI", "hidden", "typed"])
def test_nothing_that_cannot_run_isolated_is_placed_on_an_isolated_lease(request_: Request) -> None:
    pair = Pair(isolate=Isolate.AUTO)
    first = max(pair.delft.jobs, default=JobId(0))
    name = bound_for_another(pair)
    (borrower,) = [each for each in pair.delft.jobs if each > first]
    assert where(pair, borrower) == [name]
    pair.delft.end(pair.delft.attempts(borrower)[0])
    pair.delft.apply(CancelRequested(borrower))
    pair.delft.obey()
    pair.delft.measure()
    job = pair.submit(request_)
    assert pair.delft.job(job).state is JobState.WAITING
    plain = pair.submit(SYSTEM)
    assert where(pair, plain) == [name]


@pytest.mark.parametrize("whose", ["request", "cluster"])
def test_a_failure_on_a_lease_sends_the_job_back_to_its_place_and_leaves_the_lender_out(whose: str) -> None:
    pair = Pair()
    job = pair.submit(make(component(12, executable="program", walltime=HOUR), component(20, walltime=HOUR)))
    pair.bind()
    position = pair.delft.job(job).position
    at_lyon = next(each.id.component for each in pair.delft.job(job).attempts if each and "~" in each.cluster)
    pair.fail(job, whose, at_lyon)
    pair.delft.obey()
    found = pair.delft.job(job)
    assert (found.state, found.position) == (JobState.WAITING, position)
    assert (found.submission_failures, found.completion_failures) == (0, 0)
    asked = pair.asked
    pair.let_pass(5 * MINUTE)
    assert pair.asked == asked, "it does not go round"
    assert where(pair, job) == []
    pair.lyon.obey()
    pair.exchange()
    pair.delft.follow()
    assert not pair.delft.leases()
    pair.let_pass(6 * MINUTE)
    assert (pair.asked > asked) == (whose == "cluster"), "one that is at fault is asked again after ten minutes"


def test_a_lender_that_is_left_out_serves_other_jobs_and_those_leases_stay_closed_to_the_job() -> None:
    pair = Pair()
    job = pair.submit(make(component(20, walltime=HOUR)))
    pair.bind()
    pair.fail(job)
    other = pair.submit(make(component(30, walltime=HOUR)))
    pair.bind()
    assert [each.partition("~")[0] for each in where(pair, other)] == ["lyon"]
    pair.finish(other)
    assert where(pair, job) == []
    assert pair.delft.job(job).state is JobState.WAITING
    pair.delft.sizes["alpha"] = 64
    pair.delft.measure()
    assert where(pair, job) == ["alpha"], "the cluster at home has grown"


def test_a_component_that_names_a_lease_fails_as_on_any_cluster_it_names() -> None:
    pair = Pair()
    first = pair.submit(make(component(20, walltime=HOUR)))
    pair.bind()
    (name,) = where(pair, first)
    named = pair.submit(make(component(8, name, walltime=MINUTE)))
    pair.finish(first)
    assert where(pair, named) == [name]
    pair.fail(named)
    assert pair.delft.job(named).state is JobState.FAILED


@pytest.mark.parametrize("isolate", [Isolate.NONE, Isolate.AUTO])
def test_a_pilot_and_a_lease_are_clusters_that_isolate_by_their_terms(isolate: Isolate) -> None:
    around = Cluster.model_construct(batch="local", connect=("local:",))
    terms = PilotOptions(shared=True, isolate=isolate, visible=("/opt/apps",))
    expected = None if isolate is Isolate.NONE else ("/opt/apps",)
    assert _cluster_settings("pilot~3", inside(around, JobId(3), terms)).isolation == expected
    lease = LeasedCluster("lyon", 3, "default", isolation=expected)
    assert _cluster_settings("lyon~3", leased(lease)).isolation == expected
    assert _cluster_settings("delft", around).isolation is None
