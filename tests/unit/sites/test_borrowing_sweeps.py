"""Sweeps on leased nodes: when a site asks for them, how much, and what becomes of parameters when a lease is gone."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from engine_play import component, make, present
from site_play import Site, Sites
from sweep_play import Sweeping, space

from koalapy.config.pilots import leased
from koalapy.model.attempt import Attempt
from koalapy.model.commands import CancelRequest, DelegateRequest, RejectRequest, ReturnLease
from koalapy.model.events import CancelRequested, ClusterMeasured, ParametersWanted, WorkSubmitted
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.intervals import Intervals
from koalapy.model.lease import Borrow, LeasedCluster, Lend
from koalapy.model.request import ComponentRequest, Isolate, KeepOutput, Request
from koalapy.model.states import JobState, LeaseState
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration
from koalapy.policies.placement import worst_fit
from koalapy.views.checking import Checked, check

BORROW = Borrow(after=Duration(10 * SECOND), idle=MINUTE, again=MINUTE, sweeps=True)


def swept(count: int, processors: int, **request: Any) -> Request:
    template = ComponentRequest(executable="./program", arguments=("{x}",), processors=processors, walltime=HOUR)
    return make(template, parameters=space(count), **request)


class SweepSite(Site, Sweeping):
    """A site whose clusters are one node each, on which sweeps run."""

    def measurement(self, cluster: str, others: int = 0, pending: Iterable[AttemptId] = ()) -> ClusterMeasured:
        found = super().measurement(cluster, others, pending)
        size, idle = self.sizes[cluster], found.state.idle
        nodes = ((size, 1),) if idle == size else ()
        return replace(found, state=replace(found.state, free_nodes=((idle, 1),) if idle else (), whole_nodes=nodes))

    def sweep(self, count: int, processors: int = 1, **request: Any) -> JobId:
        self.apply(WorkSubmitted(request=swept(count, processors, **request), owner="me"))
        return max(self.sweeps)

    def check(self, count: int, processors: int = 1, **request: Any) -> Checked:
        return check(self.engine, self.now, swept(count, processors, **request), worst_fit)

    def want(self, launcher: Attempt, sweep: JobId, wanted: int) -> None:
        self.apply(ParametersWanted(cluster=launcher.cluster, sweep=sweep, wanted=wanted))

    def begin(self, launcher: Attempt) -> None:
        super().begin(launcher)
        self.measure()


class Pair(Sites):
    """`delft` has one node of 4 processors, which local jobs use, or none. `lyon` has one of 64, and lends."""

    def __init__(self, borrow: Borrow = BORROW, size: int = 4, **lend: Any) -> None:
        self.delft = SweepSite("delft", {"alpha": size} if size else {}, borrow=borrow)
        self.lyon = SweepSite("lyon", {"big": 64}, lend=Lend(**{"to": ("delft",), "processors": 64, **lend}))
        super().__init__(self.delft, self.lyon)
        self.link(self.delft, self.lyon)
        self.delft.measure(**self.delft.sizes)
        self.let_pass(Duration(10 * SECOND))

    def asks(self, duration: int = 20 * SECOND) -> list[DelegateRequest]:
        return [each for each in self.let_pass(duration) if isinstance(each, DelegateRequest)]

    def grant(self) -> str:
        """Lyon's pilot runs, and its lease becomes a cluster of delft. Returns the cluster's name."""
        self.lyon.run(max(self.lyon.jobs))
        self.lyon.measure()
        self.exchange()
        self.delft.follow()
        self.delft.apply()
        return max(each for each in self.delft.sizes if "~" in each)

    def running(self, count: int = 10, **request: Any) -> tuple[JobId, Attempt]:
        """A sweep of delft with a Launcher on a lease of lyon."""
        sweep = self.delft.sweep(count, **request)
        assert self.asks()
        cluster = self.grant()
        (launcher,) = self.delft.launchers(sweep, cluster)
        self.delft.begin(launcher)
        return sweep, launcher


def test_a_sweep_without_idle_nodes_borrows_as_many_processors_as_parameters_wait_and_returns_them() -> None:
    pair = Pair()
    sweep = pair.delft.sweep(10)
    assert pair.asks(5 * SECOND) == []  # it has not waited long enough
    (request,) = pair.asks()
    assert (request.processors, request.launchers, request.origin.number) == (10, True, sweep)
    cluster = pair.grant()
    (launcher,) = pair.delft.launchers(sweep)
    assert (launcher.cluster, launcher.processors) == (cluster, 10)
    pair.delft.begin(launcher)
    assert pair.asks(MINUTE) == []  # a slot for each parameter
    numbers = Intervals(((1, 10),))
    pair.delft.want(launcher, sweep, 10)
    assert pair.delft.sweeps[sweep].out_on(cluster) == numbers
    pair.delft.ran(launcher, range(1, 11))
    pair.delft.go()
    assert pair.delft.sweeps[sweep].state is JobState.DONE
    assert ReturnLease in {type(each) for each in pair.let_pass(2 * MINUTE)}


@pytest.mark.parametrize(
    ("borrow", "lend", "expected"),
    [
        ({"sweeps": False}, {}, []),
        ({"processors": 6}, {}, [6]),
        ({}, {"processors": 8}, [8]),
        ({}, {"to": ("paris",)}, []),
    ],
    ids=["not for sweeps", "the site's limit", "what the lender has", "nothing is lent"],
)
def test_no_more_is_asked_for_than_is_allowed_and_reported(
    borrow: dict[str, Any], lend: dict[str, Any], expected: list[int]
) -> None:
    pair = Pair(replace(BORROW, **borrow), **lend)
    pair.delft.sweep(10)
    assert [each.processors for each in pair.asks()] == expected


@pytest.mark.parametrize(
    "request_fields",
    [{"stage_out": ("{x}.dat",)}, {"keep_output": KeepOutput.HOME}, {"dttl": 0}],
    ids=["files to fetch", "output to keep", "DTTL 0"],
)
def test_a_sweep_whose_files_would_be_lost_with_a_lease_borrows_nothing(request_fields: dict[str, Any]) -> None:
    pair = Pair()
    pair.delft.sweep(10, **request_fields)
    assert pair.asks() == []


@pytest.mark.parametrize(("size", "needed"), [(0, 1), (4, 8)], ids=["no cluster", "too small ones"])
def test_a_sweep_that_can_run_nowhere_at_home_runs_on_a_lease(size: int, needed: int) -> None:
    pair = Pair(size=size)
    pair.delft.measure(**dict.fromkeys(pair.delft.sizes, 0))  # so that the size of its node is known
    checked = pair.delft.check(4, needed)
    assert (checked.fits, checked.reason) == ("unknown", None)
    sweep = pair.delft.sweep(4, needed)
    assert [each.processors for each in pair.asks()] == [4 * needed]
    cluster = pair.grant()
    (launcher,) = pair.delft.launchers(sweep)
    assert (launcher.cluster, launcher.processors) == (cluster, 4 * needed)
    pair.delft.begin(launcher)
    pair.delft.want(launcher, sweep, 4)
    pair.delft.ran(launcher, range(1, 5))
    pair.delft.go()
    assert pair.delft.sweeps[sweep].state is JobState.DONE


@pytest.mark.parametrize(
    ("borrow", "fields"), [({"sweeps": False}, {}), ({}, {"dttl": 0})], ids=["not for sweeps", "DTTL 0"]
)
def test_a_sweep_that_can_run_nowhere_and_may_not_borrow_fails(borrow: dict[str, Any], fields: dict[str, Any]) -> None:
    pair = Pair(replace(BORROW, **borrow), size=0)
    assert pair.delft.check(4, **fields).fits == "never"
    sweep = pair.delft.sweep(4, **fields)
    assert pair.asks() == []
    assert pair.delft.sweeps[sweep].state is JobState.FAILED


def test_a_neighbour_that_had_few_processors_is_asked_for_the_rest_when_it_has_more() -> None:
    pair = Pair()
    pair.lyon.measure(big=60)
    pair.let_pass(10 * SECOND)
    sweep, launcher = pair.running(10)
    assert launcher.processors == 4
    assert pair.asks() == []
    pair.lyon.measure(big=0)
    assert [each.processors for each in pair.asks()] == [6]
    assert [each.processors for each in pair.delft.leases()] == [4, 6]
    assert pair.delft.sweeps[sweep].state is JobState.RUNNING


def test_no_more_is_asked_for_while_a_lease_that_is_granted_is_not_reached_yet() -> None:
    pair = Pair()
    pair.delft.sweep(10)
    assert [each.processors for each in pair.asks()] == [10]
    pair.lyon.run(max(pair.lyon.jobs))
    assert pair.asks(MINUTE) == []
    assert [each.state for each in pair.delft.leases()] == [LeaseState.BOUND]


def test_idle_nodes_at_home_come_first() -> None:
    pair = Pair()
    pair.delft.measure(alpha=0)
    sweep = pair.delft.sweep(10)
    assert [each.cluster for each in pair.delft.launchers(sweep)] == ["alpha"]
    (launcher,) = pair.delft.launchers(sweep)
    pair.delft.begin(launcher)
    assert [each.processors for each in pair.asks()] == [6]  # the others have a slot at home


def test_parameters_on_a_lease_that_is_lost_run_again() -> None:
    pair = Pair()
    sweep, launcher = pair.running()
    pair.delft.want(launcher, sweep, 10)
    pair.delft.ran(launcher, [1, 2])
    pair.lyon.apply(CancelRequested(max(pair.lyon.jobs)))
    pair.lyon.obey()
    pair.exchange()
    pair.delft.follow()
    pair.delft.apply()
    found = pair.delft.sweeps[sweep]
    assert (found.state, found.out, len(found.pool)) == (JobState.RUNNING, (), 8)
    assert [each.processors for each in pair.asks(2 * MINUTE)] == [8]


def test_parameters_on_a_lease_that_is_taken_back_go_back_into_the_pool_and_the_lease_is_returned() -> None:
    pair = Pair()
    sweep, launcher = pair.running()
    pair.delft.want(launcher, sweep, 10)
    pair.lyon.submit(component(60))
    pair.lyon.measure()
    pair.exchange()
    pair.delft.apply()
    assert pair.delft.staying(sweep) == []
    pair.delft.back(sweep, launcher.cluster, Intervals(((1, 10),)))
    pair.delft.go()
    pair.delft.apply(after=Duration(3 * SECOND))
    assert [type(each) for each in pair.exchange()][:1] == [ReturnLease]
    assert len(pair.delft.sweeps[sweep].pool) == 10


def test_jobs_come_first() -> None:
    pair = Pair()
    pair.delft.sweep(10)
    pair.delft.submit(component(40, walltime=HOUR))
    asked = pair.asks()
    assert [(each.processors, each.launchers) for each in asked] == [(40, False)]


def test_a_sweep_gives_a_lease_up_for_a_job_that_cannot_borrow_beside_it() -> None:
    pair = Pair()
    sweep, launcher = pair.running(30)
    assert launcher.processors == 30
    pair.delft.submit(component(60, walltime=HOUR))
    pair.let_pass(15 * SECOND)
    assert pair.delft.staying(sweep) == []
    pair.delft.go()
    assert ReturnLease in {type(each) for each in pair.let_pass(10 * SECOND)}
    pair.lyon.obey()
    pair.exchange()
    pair.delft.follow()
    assert [(each.processors, each.launchers) for each in pair.asks()] == [(60, False)]


def test_a_sweep_keeps_a_lease_whose_processors_no_job_could_have() -> None:
    pair = Pair()
    sweep, _ = pair.running(30)
    pair.delft.submit(component(65, walltime=HOUR))
    pair.let_pass(20 * SECOND)
    assert len(pair.delft.staying(sweep)) == 1


def test_a_small_job_is_placed_on_the_lease_of_a_sweep() -> None:
    pair = Pair()
    sweep, launcher = pair.running(30)
    job = pair.delft.submit(component(8, walltime=MINUTE))
    pair.delft.apply()
    assert present(pair.delft.job(job)).cluster == launcher.cluster
    assert pair.delft.staying(sweep) == []


def test_a_request_is_taken_back_when_the_sweep_is_over() -> None:
    pair = Pair()
    sweep = pair.delft.sweep(10)
    pair.delft.apply(after=Duration(11 * SECOND))
    assert [each.state for each in pair.delft.leases()] == [LeaseState.ASKED]
    pair.delft.apply(CancelRequested(sweep))
    assert CancelRequest in {type(each) for each in pair.let_pass(5 * SECOND)}


def test_a_lender_that_isolates_programs_serves_no_launchers() -> None:
    pair = Pair(isolate=Isolate.AUTO)
    pair.delft.sweep(10)
    passed = pair.let_pass(20 * SECOND)
    (rejection,) = [each for each in passed if isinstance(each, RejectRequest)]
    assert rejection.reason.message == "It isolates programs, and a Launcher of a sweep cannot be isolated."


def test_sweeps_are_placed_on_leases_that_were_requested_for_them() -> None:
    assert leased(LeasedCluster("lyon", 1, "default")).scavenge.off
    assert not leased(LeasedCluster("lyon", 1, "default", sweeps=True)).scavenge.off
