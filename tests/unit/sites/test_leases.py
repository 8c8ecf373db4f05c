"""A lender and a borrower as two engines, whose messages travel as JSON; links and clusters are played by hand."""

from dataclasses import replace
from typing import Any

import pytest
from engine_play import component, present
from site_play import BORROWER, LENDER, Site, Sites

from koalapy.model.cluster import ClusterState
from koalapy.model.commands import (
    CancelRequest,
    DelegateRequest,
    EndLease,
    ExamineNodes,
    ForgetAttempt,
    OfferLease,
    RejectRequest,
    ReturnLease,
    RevokeLease,
)
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AttemptCleanedUp,
    CancelRequested,
    ClusterMeasured,
    LeaseEndRequested,
    LeaseExamined,
    NeighbourConnected,
    NeighbourLeft,
)
from koalapy.model.identity import JobId
from koalapy.model.lease import REVOKE_GRACE, Borrow, BorrowedLease, Lend, Origin
from koalapy.model.neighbour import Neighbour, Relation
from koalapy.model.request import Isolate, RetryOn
from koalapy.model.states import JobState, LeaseState
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration, Instant
from koalapy.sites.lending import BINDING
from koalapy.sites.requests import ANSWER_WITHIN

BORROW = Borrow(after=Duration(0), idle=MINUTE, again=MINUTE)


class Pair(Sites):
    def __init__(self, borrow: Borrow | None = BORROW, **lend: Any) -> None:
        terms: dict[str, Any] = {"to": ("delft",), "processors": 60, **lend}
        self.delft = Site("delft", BORROWER, borrow=borrow)
        self.lyon = Site("lyon", LENDER, lend=Lend(**terms))
        super().__init__(self.delft, self.lyon)
        self.link(self.delft, self.lyon)

    def ask(self, processors: int = 40, **fields: Any) -> JobId:
        """Submit a job at delft that is too large for it, and let it ask."""
        job = self.delft.submit(component(processors, walltime=HOUR, **fields))
        self.delft.apply(after=Duration(3 * SECOND))
        return job

    @property
    def pilot(self) -> JobId:
        return max(self.lyon.jobs)

    def bound(self, processors: int = 40) -> JobId:
        """A job of delft that has a lease, which is a cluster by now."""
        job = self.ask(processors)
        self.exchange()
        self.lyon.run(self.pilot)
        self.exchange()
        self.delft.follow()
        return job

    def forgotten(self) -> list[tuple[JobId, str]]:
        """The lender's attempts whose directories are to be removed, and their clusters."""
        return [(each.attempt.job, each.cluster) for each in self.lyon.pending if isinstance(each, ForgetAttempt)]

    def end_pilot(self) -> None:
        """The lender's cluster ends what it was ordered to end."""
        self.lyon.obey()
        self.exchange()
        self.delft.follow()
        self.delft.apply()


def test_a_job_too_large_for_its_site_runs_on_a_lease_which_is_returned_when_nothing_runs_there() -> None:
    pair = Pair()
    assert pair.delft.record("lyon").free == 60
    job = pair.ask()
    assert pair.delft.job(job).state is JobState.WAITING
    assert pair.delft.why(job) == {"lyon": "It was asked 3s ago, and has not answered yet."}
    (request,) = pair.exchange()
    walltime = Duration(HOUR + pair.delft.settings.barrier_timeout + 5 * MINUTE)
    origin = Origin("", job, request.origin.round)
    assert request == DelegateRequest(
        neighbour="lyon", lease=1, processors=40, walltime=walltime, origin=origin, dttl=3, within=ANSWER_WITHIN,
        user="me", name="job",
    )  # fmt: skip
    pilot = pair.lyon.job(pair.pilot)
    assert (pilot.owner, present(pilot).cluster, present(pilot).processors) == ("site:delft", "big", 40)
    assert pair.lyon.leases()[0].state is LeaseState.BINDING

    pair.lyon.run(pair.pilot)
    (offer,) = pair.exchange()
    assert isinstance(offer, OfferLease)
    assert 0 <= walltime - offer.lasts < MINUTE
    pair.delft.follow()
    assert present(pair.delft.job(job)).cluster == "lyon~1"
    pair.delft.run(job)
    assert pair.let_pass(10 * MINUTE) == []  # it is in use
    (attempt,) = pair.delft.attempts(job)
    pair.delft.end(attempt)
    pair.delft.apply(AttemptCleanedUp(attempt=attempt))
    assert pair.delft.job(job).state is JobState.DONE
    assert [type(each) for each in pair.let_pass(2 * MINUTE)] == [ReturnLease]
    assert pair.lyon.job(pair.pilot).state is JobState.STOPPING
    pair.delft.follow()
    assert "lyon~1" in pair.delft.sizes  # until its end is certain
    pair.lyon.obey()
    assert pair.forgotten() == [(pair.pilot, "big")]
    (end,) = pair.exchange()
    assert isinstance(end, EndLease)
    assert end.reason.message == "The borrower has returned it."
    pair.delft.follow()
    assert pair.delft.leases() == pair.lyon.leases() == []
    assert pair.delft.record("lyon").borrowed == pair.lyon.record("delft").lent == end.charge
    assert end.charge >= 40 * 10 * MINUTE


def test_nothing_is_lent_without_a_word_of_the_grid_file() -> None:
    pair = Pair(to=("paris",))
    assert pair.delft.record("lyon").free == 0
    pair.lyon.apply(after=MINUTE)
    job = pair.ask()
    assert pair.exchange() == []
    assert pair.delft.why(job) == {"lyon": "It could lend 0 processors by its last report, and 40 are needed."}


@pytest.mark.parametrize(
    ("lend", "asked", "words"),
    [
        ({"to": ("paris",)}, {}, "It lends nothing to this site."),
        ({"processors": 10}, {}, "It can lend 10 processors now, and 40 are needed."),
        ({"clusters": ("small",)}, {}, "It can lend 8 processors now, and 40 are needed."),
        ({"clusters": ("gone",)}, {"processors": 1}, "It can lend 0 processors now, and 1 is needed."),
        ({"walltime": MINUTE}, {}, "It lends for 1m at most"),
        ({}, {"processors": 0}, "It asks for nothing that can be lent."),
        ({}, {"walltime": Duration(0)}, "It asks for nothing that can be lent."),
    ],
    ids=["to whom", "how much", "of which", "of none", "how long", "nothing", "no time"],
)
def test_the_lenders_limits_hold_whatever_a_neighbour_asks_for(
    lend: dict[str, Any], asked: dict[str, Any], words: str
) -> None:
    pair = Pair(**lend)
    known = pair.lyon.jobs.copy()
    request = DelegateRequest(
        neighbour="lyon", lease=7, processors=40, walltime=HOUR, origin=Origin("", 1, 1), dttl=3, within=MINUTE
    )
    pair.delft.pending.append(replace(request, **asked))
    rejection = pair.exchange()[-1]
    assert isinstance(rejection, RejectRequest)
    assert words in rejection.reason.message
    assert pair.lyon.jobs == known


def test_leases_together_are_within_the_lenders_limit() -> None:
    pair = Pair()
    pair.bound(40)
    other = pair.delft.submit(component(30, walltime=HOUR))
    pair.let_pass(Duration(20 * SECOND))
    assert "It can lend 20 processors now, and 30 are needed." in pair.delft.why(other)["lyon"]
    assert [each.processors for each in pair.lyon.leases()] == [40]


def test_the_lenders_own_jobs_come_first() -> None:
    pair = Pair()
    pair.lyon.measure(big=10)
    waits = pair.lyon.submit(component(60))
    assert pair.lyon.job(waits).state is JobState.WAITING
    pair.lyon.apply(after=Duration(20 * SECOND))
    pair.exchange()
    assert pair.delft.record("lyon").free == 54 + 8 - 60


def test_a_refusal_is_explained_and_the_next_neighbour_is_asked() -> None:
    pair = Pair()
    paris = Site("paris", LENDER, lend=Lend(to=("delft",), processors=64))
    pair.sites["paris"] = paris
    pair.link(pair.delft, paris, Relation.PARENT)  # further away than a sibling
    pair.lyon.measure(big=64)
    job = pair.ask()
    kinds = [(type(each), each.neighbour) for each in pair.let_pass(Duration(10 * SECOND))]
    assert kinds[:3] == [(DelegateRequest, "lyon"), (RejectRequest, "delft"), (DelegateRequest, "paris")]
    assert "It can lend 8 processors now" in pair.delft.why(job)["lyon"]
    assert "has not answered yet" in pair.delft.why(job)["paris"]
    assert [each for each in pair.delft.kinds if each.startswith("lease_")] == [
        "lease_requested", "lease_refused", "lease_requested",
    ]  # fmt: skip


def test_a_neighbour_that_refused_is_asked_again_after_a_while() -> None:
    pair = Pair()
    pair.lyon.measure(big=64)
    pair.ask()
    assert len(pair.exchange()) == 2
    pair.lyon.measure(big=0)
    assert pair.let_pass(Duration(30 * SECOND)) == []
    assert isinstance(pair.let_pass(MINUTE)[0], DelegateRequest)


def with_paris(pair: Pair) -> Site:
    """Another lender, which is asked after the first one."""
    paris = Site("paris", LENDER, lend=Lend(to=("delft",), processors=60))
    pair.sites["paris"] = paris
    pair.link(pair.delft, paris, Relation.PARENT)
    return paris


def test_a_neighbour_that_is_asked_again_takes_a_request_that_another_has_just_refused() -> None:
    pair = Pair()
    paris = with_paris(pair)
    pair.lyon.measure(big=64)
    job = pair.ask()
    pair.let_pass(Duration(10 * SECOND))
    assert [each.state for each in paris.leases()] == [LeaseState.BINDING]
    pair.lyon.measure(big=0)
    pair.let_pass(Duration(BINDING + SECOND))
    paris.obey()
    pair.let_pass(Duration(10 * SECOND))
    assert "did not start within 2m" in pair.delft.why(job)["paris"]
    assert [each.state for each in pair.lyon.leases()] == [LeaseState.BINDING]


def test_a_job_whose_lease_another_has_taken_asks_another_neighbour_after_a_while() -> None:
    pair = Pair()
    paris = with_paris(pair)
    job = pair.ask()
    pair.exchange()
    first = pair.delft.submit(component(40, walltime=HOUR), priority=1)
    pair.lyon.run(pair.pilot)
    pair.exchange()
    pair.delft.follow()
    assert present(pair.delft.job(first)).cluster == "lyon~1"
    pair.let_pass(Duration(50 * SECOND))
    assert [each.job for each in pair.delft.leases() if each.job == job] == [job]
    pair.let_pass(Duration(20 * SECOND))
    paris.run(max(paris.jobs))
    pair.exchange()
    pair.delft.follow()
    assert present(pair.delft.job(job)).cluster == "paris~1"


def test_a_job_asks_only_once_it_has_waited_and_within_the_sites_limit() -> None:
    pair = Pair(borrow=Borrow(after=MINUTE, processors=40))
    job = pair.ask()
    assert pair.exchange() == []
    assert pair.delft.why(job) == {"lyon": "Neighbours are asked once it has waited for 1m."}
    other = pair.delft.submit(component(20, walltime=HOUR))
    assert len(pair.let_pass(2 * MINUTE)) == 1
    assert pair.delft.why(other)["lyon"].startswith("This site borrows 40 processors at most")
    too_large = pair.delft.submit(component(41))
    assert pair.delft.job(too_large).state is JobState.FAILED


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"cluster": "alpha"}, "A component names a cluster."), ({"gpus": 1}, "GPUs"), ({"exclusive": True}, "nodes")],
    ids=["named", "GPUs", "whole nodes"],
)
def test_what_no_lease_can_serve_is_not_asked_for(fields: dict[str, Any], words: str) -> None:
    pair = Pair()
    pair.delft.measure(alpha=16)
    job = pair.ask(8, **fields)
    assert pair.exchange() == []
    assert words in pair.delft.why(job)["lyon"]


def test_a_request_is_taken_back_when_the_job_is_served_at_home() -> None:
    pair = Pair()
    pair.delft.measure(alpha=16)
    job = pair.ask(8)
    pair.exchange()
    pair.delft.measure(alpha=0)
    assert present(pair.delft.job(job)).cluster == "alpha"
    assert [type(each) for each in pair.let_pass(Duration(10 * SECOND))][:1] == [CancelRequest]
    pair.end_pilot()
    assert pair.lyon.job(pair.pilot).state is JobState.CANCELLED
    assert pair.delft.leases() == pair.lyon.leases() == []
    assert pair.delft.record("lyon").borrowed == 0


def test_an_answer_that_never_comes_is_waited_for_no_longer_and_a_late_lease_is_returned() -> None:
    pair = Pair()
    job = pair.ask()
    request = pair.delft.taken()
    pair.delft.apply(after=Duration(ANSWER_WITHIN + 3 * SECOND))
    assert "did not answer within 4m" in pair.delft.why(job)["lyon"]
    (cancel,) = [each for each in pair.delft.taken() if isinstance(each, CancelRequest)]
    pair.delft.pending += request
    pair.exchange()
    pair.lyon.run(pair.pilot)
    assert isinstance(pair.exchange()[0], OfferLease)
    pair.delft.follow()
    assert list(pair.delft.sizes) == ["alpha"]
    pair.delft.pending.append(cancel)
    pair.exchange()
    pair.end_pilot()
    assert pair.delft.leases() == pair.lyon.leases() == []


def test_a_pilot_that_does_not_start_in_time_is_a_refusal() -> None:
    pair = Pair()
    job = pair.ask()
    pair.exchange()
    pair.lyon.apply(after=Duration(BINDING + SECOND))
    assert pair.lyon.job(pair.pilot).state is JobState.STOPPING
    pair.lyon.obey()
    assert isinstance(pair.exchange()[0], RejectRequest)
    assert "did not start within 2m" in pair.delft.why(job)["lyon"]
    assert pair.lyon.leases() == []


def test_an_isolated_lease_is_offered_once_its_nodes_are_known_to_isolate() -> None:
    pair = Pair(isolate=Isolate.AUTO, visible=("/opt",))
    pair.ask()
    pair.exchange()
    terms = pair.lyon.job(pair.pilot).request.pilot
    assert terms is not None
    assert (terms.isolate, terms.visible) == (Isolate.AUTO, ("/opt",))
    assert not pair.lyon.hints
    pair.lyon.run(pair.pilot)
    assert pair.lyon.hints == [ExamineNodes("delft", 1)]
    assert pair.let_pass(Duration(10 * SECOND)) == []
    assert set(pair.lyon.hints) == {ExamineNodes("delft", 1)}
    assert len(pair.lyon.hints) == 3  # it is repeated while nobody answers
    pair.lyon.hints.clear()
    for _ in range(2):
        pair.lyon.apply(LeaseExamined(neighbour="delft", lease=1))
    assert [type(each) for each in pair.exchange()] == [OfferLease]
    assert not pair.lyon.hints
    pair.delft.follow()
    assert "lyon~1" in pair.delft.sizes


def test_a_cluster_whose_nodes_cannot_isolate_lends_nothing_for_a_while() -> None:
    pair = Pair(isolate=Isolate.AUTO, clusters=("big",))
    job = pair.ask()
    pair.exchange()
    pair.lyon.run(pair.pilot)
    why = Reason("no_isolation", "cluster", "Programs cannot be isolated on the nodes of slurm job 4 (n7: none).", "")
    pair.lyon.apply(LeaseExamined(neighbour="delft", lease=1, reason=why))
    assert pair.lyon.job(pair.pilot).reason == why
    pair.lyon.obey()
    rejection = pair.exchange()[0]
    assert isinstance(rejection, RejectRequest)
    assert (rejection.reason.code, rejection.processors) == ("no_isolation", 0)
    assert "n7" not in rejection.reason.message
    words = "Its nodes cannot isolate programs, and it lends no others."
    assert pair.delft.why(job) == {"lyon": words}
    assert [each for each in pair.let_pass(5 * MINUTE) if isinstance(each, DelegateRequest)] == []
    again = DelegateRequest(
        neighbour="lyon", lease=7, processors=40, walltime=HOUR, origin=Origin("", 1, 1), dttl=3, within=MINUTE
    )
    pair.delft.pending.append(again)
    assert words in pair.exchange()[-1].reason.message
    assert [each for each in pair.let_pass(6 * MINUTE) if isinstance(each, DelegateRequest)] != []


def test_an_examination_that_comes_too_late_changes_nothing() -> None:
    pair = Pair(isolate=Isolate.AUTO)
    pair.ask()
    pair.exchange()
    pair.lyon.run(pair.pilot)
    pair.lyon.apply(after=Duration(BINDING + SECOND))
    for reason in (None, Reason("no_isolation", "cluster", "None.", "")):
        pair.lyon.apply(LeaseExamined(neighbour="delft", lease=1, reason=reason))
    pair.lyon.obey()
    assert [type(each) for each in pair.exchange()] == [RejectRequest]
    pair.lyon.apply(LeaseExamined(neighbour="delft", lease=1))
    assert pair.exchange() == []


def test_a_borrower_out_of_reach_loses_its_lease_and_never_runs_its_job_twice() -> None:
    pair = Pair()
    job = pair.bound()
    pair.delft.run(job)
    pair.lose(pair.delft, pair.lyon)
    pair.let_pass(2 * MINUTE)
    assert pair.lyon.job(pair.pilot).state is JobState.RUNNING
    pair.let_pass(2 * MINUTE)
    assert pair.lyon.job(pair.pilot).state is JobState.STOPPING
    pair.lyon.obey()
    pair.delft.follow()
    assert "lyon~1" in pair.delft.sizes  # what runs there may go on, as far as delft knows
    assert pair.delft.job(job).state is JobState.RUNNING
    pair.connect(pair.delft, pair.lyon)
    pair.delft.follow()
    assert "lyon~1" not in pair.delft.sizes
    assert pair.delft.job(job).completion_failures == 1
    assert "lease_ended" in pair.delft.kinds


def test_a_lender_that_never_comes_back_has_ended_its_lease_by_its_time() -> None:
    pair = Pair()
    job = pair.bound()
    pair.delft.run(job)
    pair.lose(pair.delft, pair.lyon)
    pair.delft.apply(after=HOUR)
    assert [each.state for each in pair.delft.leases()] == [LeaseState.BOUND]
    pair.delft.apply(after=HOUR)
    assert [each.state for each in pair.delft.leases()] == [LeaseState.ENDED]
    pair.delft.follow()
    assert pair.delft.leases() == []
    assert list(pair.delft.sizes) == ["alpha"]


def test_a_lender_takes_a_lease_back() -> None:
    pair = Pair()
    job = pair.bound()
    pair.delft.run(job)
    why = Reason("lease_ended", "request", "Its lender has taken it back.")
    pair.lyon.apply(LeaseEndRequested(neighbour="delft", lease=1, lent=True, reason=why, at_once=True))
    pair.end_pilot()
    found = pair.delft.job(job)
    assert (found.state, found.completion_failures, found.revocations) == (JobState.WAITING, 0, 1)
    assert [each.details["message"] for each in pair.delft.history if each.kind == "lease_ended"] == [why.message]


def test_a_person_takes_a_lease_back_with_a_notice_and_then_at_once() -> None:
    pair = Pair()
    job = pair.bound()
    pair.delft.run(job)
    why = Reason("lease_ended", "request", "Its lender has taken it back.")
    ended = LeaseEndRequested(neighbour="delft", lease=1, lent=True, reason=why)
    pair.lyon.apply(ended)
    pair.lyon.apply(ended)
    assert pair.exchange() == [RevokeLease(neighbour="delft", lease=1, within=REVOKE_GRACE)]
    assert pair.lyon.job(pair.pilot).state is JobState.RUNNING
    assert pair.delft.job(job).state is JobState.STOPPING
    pair.lyon.apply(replace(ended, at_once=True))
    assert pair.lyon.job(pair.pilot).state is JobState.STOPPING
    pair.end_pilot()
    found = pair.delft.job(job)
    assert (found.state, found.completion_failures, found.revocations) == (JobState.WAITING, 0, 1)


def test_an_end_by_the_lenders_will_without_a_notice_is_no_failure_of_a_job_either() -> None:
    pair = Pair()
    job = pair.bound()
    pair.delft.run(job)
    position = pair.delft.job(job).position
    why = Reason("lease_ended", "request", "Its lender has taken it back.")
    pair.lyon.pending.append(EndLease(neighbour="delft", lease=1, charge=7, reason=why))
    pair.exchange()
    pair.delft.follow()
    pair.delft.apply()
    found = pair.delft.job(job)
    assert (found.state, found.completion_failures, found.position) == (JobState.WAITING, 0, position)


@pytest.mark.parametrize("retry_on", [(RetryOn.LOST,), ()], ids=["lost", "nothing"])
def test_a_job_from_which_many_leases_were_taken_back_fails_with_each_further_one(retry_on: Any) -> None:
    pair = Pair()
    pair.delft.engine.core.settings = replace(pair.delft.engine.core.settings, max_revocations=1)
    why = Reason("lease_ended", "request", "Its lender has taken it back.")
    job = pair.delft.submit(component(40, walltime=HOUR), retry_on=retry_on)
    found = []
    for number in (1, 2):
        pair.let_pass(Duration(70 * SECOND))
        pair.lyon.run(pair.pilot)
        pair.exchange()
        pair.delft.follow()
        pair.delft.run(job)
        pair.lyon.apply(LeaseEndRequested(neighbour="delft", lease=number, lent=True, reason=why, at_once=True))
        pair.end_pilot()
        found.append((pair.delft.job(job).state, pair.delft.job(job).completion_failures))
    again = (JobState.WAITING, 1) if retry_on else (JobState.FAILED, 0)
    assert found == [(JobState.WAITING, 0), again]
    assert pair.delft.job(job).revocations == 2


def test_a_pilot_that_ends_by_whatever_cause_ends_its_lease() -> None:
    pair = Pair()
    pair.bound()
    pair.lyon.apply(CancelRequested(pair.pilot))
    pair.end_pilot()
    assert pair.delft.leases() == pair.lyon.leases() == []


def test_the_directory_of_a_lease_whose_cluster_was_out_of_reach_at_its_end_is_removed_later() -> None:
    pair = Pair()
    pair.bound()
    pair.lyon.lose("big")
    pair.lyon.apply(CancelRequested(pair.pilot, force=True))
    assert pair.lyon.job(pair.pilot).state.final
    assert pair.lyon.job(pair.pilot).attempts == ()  # as the store has it, where its pending cancel is kept
    assert pair.forgotten() == []
    pair.lyon.reach("big")  # where it is ended then
    assert pair.forgotten() == [(pair.pilot, "big")]


def test_a_new_store_of_either_side_knows_of_no_lease_and_the_other_ends_it() -> None:
    pair = Pair()
    pair.bound()
    pair.lyon.apply(NeighbourConnected(neighbour="delft", instance="new"))
    assert pair.lyon.job(pair.pilot).state is JobState.STOPPING
    assert pair.lyon.leases() == []
    pair.delft.apply(NeighbourConnected(neighbour="lyon", instance="new"))
    pair.delft.follow()
    assert list(pair.delft.sizes) == ["alpha"]
    assert pair.delft.leases() == []


def test_a_site_that_is_no_neighbour_any_more_has_nothing_lent_or_borrowed() -> None:
    pair = Pair()
    job = pair.bound()
    pair.delft.run(job)
    pair.lyon.apply(NeighbourLeft(neighbour="delft"))
    assert pair.lyon.job(pair.pilot).state is JobState.STOPPING
    assert [each for each in pair.lyon.taken() if isinstance(each, EndLease)] == []
    pair.delft.apply(NeighbourLeft(neighbour="lyon"))
    pair.delft.follow()
    assert list(pair.delft.sizes) == ["alpha"]


def test_a_lease_on_which_no_job_can_be_placed_is_returned_too() -> None:
    pair = Pair()
    pair.ask()
    pair.exchange()
    pair.lyon.run(pair.pilot)
    pair.exchange()  # nobody reaches its nodes
    assert pair.let_pass(4 * MINUTE) == []
    assert [type(each) for each in pair.let_pass(2 * MINUTE)] == [ReturnLease]


@pytest.mark.parametrize(
    ("state", "job_state"), [(LeaseState.BOUND, JobState.CLAIMING), (LeaseState.CLOSING, JobState.WAITING)]
)
def test_nothing_is_placed_after_a_restart_on_a_lease_that_was_given_back_before(
    state: LeaseState, job_state: JobState
) -> None:
    begun = Instant(1_000_000 * SECOND)
    lease = BorrowedLease(
        neighbour="lyon", number=1, processors=40, state=state, asked_at=begun, bound_at=begun,
        ends_at=Instant(begun + 10 * HOUR),
    )  # fmt: skip
    lyon = Neighbour(name="lyon", relation=Relation.CHILD, instance="store-lyon")
    delft = Site("delft", {"alpha": 4, "lyon~1": 40}, neighbours=(lyon,), leases=(lease,))
    assert delft.job(delft.submit(component(40))).state is job_state


def test_an_offer_of_a_lease_that_nobody_knows_is_returned() -> None:
    pair = Pair()
    pair.lyon.pending.append(OfferLease(neighbour="delft", lease=9, lasts=HOUR))
    assert ReturnLease(neighbour="lyon", lease=9) in pair.exchange()
    assert pair.delft.leases() == []


def test_a_cluster_of_a_lease_is_not_lent_on() -> None:
    pair = Pair()
    pair.delft.engine.core.settings = replace(pair.delft.settings, lend=Lend(to=("lyon",), processors=100))
    pair.bound()
    state = ClusterState(measured_at=pair.delft.now, total=40, idle=40, ours=0, others=0, waiting_local=0)
    pair.delft.apply(ClusterMeasured(cluster="lyon~1", state=state))
    pair.let_pass(Duration(20 * SECOND))
    assert (pair.lyon.record("delft").free or 0) <= 16


def test_a_lender_takes_so_many_requests_of_a_neighbour_a_minute_and_rejects_the_others() -> None:
    pair = Pair(requests_per_minute=2)
    pair.ask()
    asked = next(each for each in pair.delft.pending if isinstance(each, DelegateRequest))

    def rejected(first: int) -> dict[int, str]:
        """Let five further requests come at once, and return the reasons of the rejected ones by number."""
        numbers = range(first, first + 5)
        pair.delft.pending += [
            replace(asked, lease=number, origin=asked.origin._replace(number=number)) for number in numbers
        ]
        answers = [each for each in pair.exchange() if isinstance(each, RejectRequest) and each.lease in numbers]
        return {each.lease: each.reason.code for each in answers}

    assert [number for number, code in rejected(90).items() if code == "too_often"] == [91, 92, 93, 94]
    assert set(rejected(100).values()) == {"too_often"}
    pair.let_pass(MINUTE)
    assert [number for number, code in rejected(110).items() if code == "too_often"] == [112, 113, 114]
