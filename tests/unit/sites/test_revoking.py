"""A lender takes leases back for its own people: no more than they need, after a notice, uncounted at the borrower."""

from dataclasses import replace
from typing import Any

import pytest
from engine_play import component, make, present
from site_play import Site, Sites, received

from koalapy.link.neighbour import _body
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import DelegateRequest, EndLease, OfferLease, RejectRequest, ReturnLease, RevokeLease
from koalapy.model.events import CancelRequested, ClusterChanged, ClusterConnected, ClusterMeasured, WorkSubmitted
from koalapy.model.identity import JobId
from koalapy.model.lease import Borrow, Lend, RevokeFor
from koalapy.model.neighbour import Relation
from koalapy.model.states import JobState, LeaseState
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration
from koalapy.views.history import sentence

BORROW = Borrow(after=Duration(0), idle=MINUTE, again=MINUTE)
GRACE = Duration(20 * SECOND)


class Lender(Site):
    """A site of clusters of this size, whose local users may wait there. `wanted`: the processors that they want."""

    def __init__(self, name: str, size: int, clusters: int = 1, **lend: Any) -> None:
        self.wanted = 0
        sizes = {f"{name}{number}": size for number in range(clusters)}
        super().__init__(name, sizes, lend=Lend(**{"grace": GRACE, **lend}))

    def measurement(self, cluster: str, *args: Any, **kwargs: Any) -> ClusterMeasured:
        found = super().measurement(cluster, *args, **kwargs)
        return replace(found, state=replace(found.state, wanted_local=self.wanted))


class Three(Sites):
    """`delft` borrows of `lyon` first, and of `paris` too."""

    def __init__(self, **lend: Any) -> None:
        self.delft = Site("delft", {"alpha": 4}, borrow=BORROW)
        self.lyon = Lender("lyon", 64, to=("delft",), processors=64, **lend)
        self.paris = Lender("paris", 32, to=("delft",), processors=32)
        super().__init__(self.delft, self.lyon, self.paris)
        self.link(self.delft, self.lyon, Relation.CHILD)
        self.link(self.delft, self.paris, Relation.PARENT)

    def running(self, processors: int) -> JobId:
        """A job of delft that runs on a lease of lyon."""
        job = self.delft.submit(component(processors, walltime=HOUR))
        self.delft.apply(after=Duration(3 * SECOND))
        self.exchange()
        self.lyon.run(max(self.lyon.jobs))
        self.lyon.measure()
        self.exchange()
        self.delft.follow()
        self.delft.run(job)
        assert self.delft.job(job).state is JobState.RUNNING
        return job

    def own(self, processors: int, **fields: Any) -> JobId:
        """A job of lyon, which waits at first."""
        job = self.lyon.submit(component(processors, **fields))
        assert self.lyon.job(job).state is JobState.WAITING
        self.lyon.measure()
        return job

    def demand(self, processors: int) -> None:
        """Local users of lyon want so many idle processors."""
        self.lyon.wanted = processors
        self.lyon.measure()

    def revoked(self) -> list[int]:
        return [each.lease for each in self.exchange() if isinstance(each, RevokeLease)]

    def held(self) -> dict[int, LeaseState]:
        return {each.number: each.state for each in self.lyon.leases()}

    def end(self) -> list[Any]:
        """All clusters end what they were ordered to end, and all sites follow. Returns the messages."""
        passed: list[Any] = []
        for each in (self.delft, self.lyon):
            messages = each.taken()
            each.obey()
            each.pending[:0] = messages
            each.apply(after=Duration(3 * SECOND))
            each.measure()
            passed += self.exchange()
        self.delft.follow()
        self.delft.apply()
        return passed


def test_a_lease_is_taken_back_for_a_job_of_the_lender_and_the_borrowers_job_keeps_its_place_uncounted() -> None:
    three = Three()
    job = three.running(40)
    position = three.delft.job(job).position
    own = three.own(60)
    (notice,) = three.exchange()
    assert notice == RevokeLease(neighbour="delft", lease=1, within=GRACE)
    assert three.held() == {1: LeaseState.BOUND}  # until it is returned, or its grace is over
    assert three.delft.job(job).state is JobState.STOPPING
    three.delft.apply(after=Duration(3 * SECOND))
    assert three.exchange() == []  # as long as something is left there
    three.delft.obey()
    three.delft.apply(after=Duration(3 * SECOND))
    found = three.delft.job(job)
    assert (found.state, found.position, found.completion_failures, found.submission_failures) == (
        JobState.WAITING, position, 0, 0,
    )  # fmt: skip
    assert [type(each) for each in three.exchange()][:1] == [ReturnLease]
    three.end()
    assert three.held() == {}
    three.lyon.apply()
    assert three.lyon.job(own).state is JobState.CLAIMING
    assert [each.details["message"] for each in three.delft.history if each.kind == "lease_ended"] == [
        "Its lender's own jobs need the processors."
    ]


def test_the_job_asks_another_neighbour_first_when_its_lender_has_taken_the_lease_back() -> None:
    three = Three()
    job = three.running(30)
    three.own(60)
    three.exchange()
    asked = three.end() + three.let_pass(Duration(10 * SECOND))
    assert [each.neighbour for each in asked if isinstance(each, DelegateRequest)] == ["paris"]
    three.paris.run(max(three.paris.jobs))
    three.exchange()
    three.delft.follow()
    three.delft.run(job)
    assert present(three.delft.job(job)).cluster == "paris~1"
    assert three.delft.record("lyon").borrowed == three.lyon.record("delft").lent > 0


def test_a_lender_that_took_a_lease_back_is_asked_again_after_a_while_though_another_cluster_is_idle() -> None:
    three = Three(clusters=2)
    three.paris.measure(paris0=32)
    three.let_pass(Duration(10 * SECOND))
    three.running(30)
    pilot = three.lyon.job(max(three.lyon.jobs))
    three.own(60, cluster=present(pilot).cluster)
    three.exchange()
    asked = three.end() + three.let_pass(Duration(40 * SECOND))
    assert three.delft.record("lyon").free == 64
    assert [each.neighbour for each in asked if isinstance(each, DelegateRequest)] == []
    asked = three.let_pass(Duration(30 * SECOND))
    assert [each.neighbour for each in asked if isinstance(each, DelegateRequest)] == ["lyon"]


def test_the_youngest_leases_go_and_no_more_of_them_than_the_job_needs() -> None:
    three = Three()
    for _ in range(3):
        three.running(16)
    three.own(30)  # 16 are idle
    assert three.revoked() == [3]
    three.lyon.apply(after=Duration(5 * SECOND))
    three.lyon.measure()
    assert three.revoked() == []  # that one suffices, once it is over


def test_no_lease_is_taken_back_beside_an_older_one_that_is_going_and_suffices() -> None:
    three = Three()
    three.running(16)
    first = three.own(60)
    assert three.revoked() == [1]
    three.lyon.apply(CancelRequested(first))
    three.running(16)
    three.own(48)  # without the older lease 48 are idle
    assert three.revoked() == []


def test_processors_that_are_being_freed_are_none_that_local_jobs_lack() -> None:
    three = Three(revoke_for=RevokeFor.LOCAL)
    three.running(30)
    own = three.lyon.submit(component(30))
    three.lyon.run(own)
    three.lyon.measure()
    three.lyon.apply(CancelRequested(own))
    three.demand(34)
    assert three.revoked() == []
    three.demand(35)
    assert three.revoked() == [1]


def test_nothing_is_placed_on_a_lease_in_the_step_in_which_it_is_taken_back_and_not_after_a_restart() -> None:
    three = Three()
    job = three.running(30)
    three.own(60)
    (notice,) = three.lyon.taken()
    small = WorkSubmitted(request=make(component(2, cluster="lyon~1")), owner="me")
    delft = three.delft
    delft.sizes["lyon~1"] = 40  # as if some of its processors were idle
    delft.apply(received("lyon", three.lyon.instance, 1000, _body(notice)), small, delft.measurement("lyon~1"))
    (waiting,) = [each for each in delft.jobs.values() if each.state.queued]
    assert delft.job(job).state is JobState.STOPPING
    delft.lose("lyon~1")
    delft.apply(ClusterChanged(settings=ClusterSettings(name="lyon~1", batch="allocation")))  # as when koalad starts
    delft.apply(ClusterConnected(cluster="lyon~1", version="1"))
    delft.apply(delft.measurement("lyon~1"))
    assert delft.job(waiting.id).state is JobState.WAITING


def test_leases_that_would_not_let_a_job_start_stay() -> None:
    three = Three()
    three.lyon.measure(lyon0=10)
    three.running(40)
    three.own(60)
    three.lyon.apply(after=MINUTE)
    three.lyon.measure()
    assert three.revoked() == []


def test_a_job_behind_one_that_no_lease_helps_gets_its_processors() -> None:
    three = Three()
    three.lyon.measure(lyon0=10)
    three.running(40)
    three.own(60)
    three.own(50)
    assert three.revoked() == [1]


@pytest.mark.parametrize(
    ("whom", "own", "local"),
    [(RevokeFor.NOBODY, [], []), (RevokeFor.OWN, [1], []), (RevokeFor.LOCAL, [1], [1])],
    ids=str,
)
def test_leases_are_taken_back_for_those_whom_the_grid_file_names(
    whom: RevokeFor, own: list[int], local: list[int]
) -> None:
    three = Three(revoke_for=whom)
    three.running(40)
    three.own(60)
    assert three.revoked() == own
    three = Three(revoke_for=whom)
    three.running(40)
    three.demand(50)  # 24 are idle
    assert three.revoked() == local


def test_local_jobs_get_what_they_lack_of_the_youngest_leases_and_nothing_is_lent_that_they_want() -> None:
    three = Three(revoke_for=RevokeFor.LOCAL)
    for _ in range(3):
        three.running(16)
    three.demand(16)  # as many are idle: they start by themselves
    assert three.revoked() == []
    three.demand(40)
    assert three.revoked() == [3, 2]
    three.lyon.apply(after=Duration(5 * SECOND))
    three.lyon.measure()
    assert three.revoked() == []
    three.end()
    three.let_pass(Duration(20 * SECOND))
    assert three.delft.record("lyon").free == 48 - 40


def test_a_borrower_that_does_not_answer_loses_the_lease_after_its_grace_uncounted() -> None:
    three = Three()
    job = three.running(40)
    three.lose(three.delft, three.lyon)
    three.own(60)
    three.lyon.apply(after=Duration(GRACE - 2 * SECOND))
    assert three.lyon.job(JobId(1)).state is JobState.RUNNING
    three.lyon.apply(after=Duration(3 * SECOND))
    assert three.lyon.job(JobId(1)).state is JobState.STOPPING
    three.end()
    assert three.delft.job(job).state is JobState.RUNNING  # as far as delft knows
    three.connect(three.delft, three.lyon)
    three.delft.follow()
    three.delft.apply()
    assert three.delft.job(job).completion_failures == 0
    assert three.delft.job(job).state is JobState.WAITING


def test_without_a_grace_the_lease_ends_at_once_and_the_borrower_is_given_notice_all_the_same() -> None:
    three = Three(grace=Duration(0))
    job = three.running(40)
    three.own(60)
    assert three.held() == {1: LeaseState.CLOSING}
    assert [type(each) for each in three.exchange()] == [RevokeLease]
    assert three.delft.job(job).state is JobState.STOPPING
    three.end()
    assert three.delft.job(job).completion_failures == 0


def test_a_lease_that_is_not_bound_yet_is_refused() -> None:
    three = Three()
    three.delft.submit(component(40, walltime=HOUR))
    three.delft.apply(after=Duration(3 * SECOND))
    three.exchange()
    three.own(60)
    assert three.exchange() == []
    assert three.held() == {1: LeaseState.CLOSING}
    three.lyon.obey()
    three.lyon.measure()
    assert [type(each) for each in three.exchange() if each.neighbour == "delft"] == [RejectRequest]


def test_the_histories_of_both_sites_have_the_reason() -> None:
    three = Three()
    job = three.running(40)
    own = three.own(60)
    three.exchange()
    there = {line.kind: sentence(line) for line in three.lyon.history}
    assert there["lease_revoked"] == f"It is taken back for job {own}."
    assert there["lease_needed"] == "A lease of 40 processors of the site delft is taken back for it."
    here = {line.kind: sentence(line) for line in three.delft.history if line.job == job}
    assert here["job_revoked"] == "The site lyon takes lyon~1 back."
    assert "The site lyon needs its processors." in here["work_stopping"]


def test_a_notice_goes_along_the_chain_to_the_site_that_uses_the_lease() -> None:
    delft = Site("delft", {"alpha": 4}, borrow=BORROW)
    nl = Site("nl", {"gamma": 2}, lend=Lend(to=("delft",), processors=64, pass_on=True))
    lyon = Lender("lyon", 64, to=("nl",), processors=64, strangers=True)
    chain = Sites(delft, nl, lyon)
    chain.link(nl, lyon, Relation.CHILD)
    chain.link(delft, nl, Relation.PARENT)
    chain.let_pass(Duration(20 * SECOND))
    job = delft.submit(component(40, walltime=HOUR))
    delft.apply(after=Duration(3 * SECOND))
    chain.exchange()
    lyon.run(max(lyon.jobs))
    lyon.measure()
    assert OfferLease in {type(each) for each in chain.exchange()}
    delft.follow()
    delft.run(job)
    lyon.submit(component(60))
    lyon.measure()
    passed = chain.exchange()
    assert [(type(each), each.neighbour) for each in passed] == [(RevokeLease, "nl"), (RevokeLease, "delft")]
    assert all(each.revoked_until is not None for site in (delft, nl, lyon) for each in site.leases())
    assert delft.job(job).state is JobState.STOPPING
    delft.obey()
    delft.apply(after=Duration(3 * SECOND))
    assert [(type(each), each.neighbour) for each in chain.exchange()][:2] == [
        (ReturnLease, "nl"),
        (ReturnLease, "lyon"),
    ]
    lyon.obey()
    assert [(type(each), each.neighbour) for each in chain.exchange()] == [(EndLease, "nl"), (EndLease, "delft")]
    assert delft.job(job).completion_failures == 0
