"""Chains of sites: a request goes on over a site between, and so do its lease, its end and its charge."""

from dataclasses import replace
from typing import Any

import pytest
from engine_play import component, present
from site_play import Site, Sites

from koalapy.engine import Engine
from koalapy.model.change import Snapshot
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import (
    CancelRequest,
    DelegateRequest,
    EndLease,
    OfferLease,
    RejectRequest,
    ReturnLease,
    RevokeLease,
)
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AttemptCleanedUp,
    CancelRequested,
    ClusterConnected,
    LeaseEndRequested,
    NeighbourConnected,
    NeighbourLeft,
)
from koalapy.model.identity import JobId
from koalapy.model.lease import Borrow, Delegation, Lend
from koalapy.model.neighbour import Relation
from koalapy.model.states import JobState, LeaseState
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration
from koalapy.policies.delegation import SitePolicies
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies
from koalapy.sites.requests import ANSWER_WITHIN

BORROW = Borrow(after=Duration(0), idle=MINUTE, again=MINUTE)
TAKEN_BACK = Reason("lease_ended", "request", "Its lender has taken it back.", "")
Kinds = list[tuple[type, str]]


class Chain(Sites):
    """`delft` borrows of `nl`, its parent, which has too little itself, and is the parent of `lyon` too."""

    def __init__(self, borrow: Borrow = BORROW, nl: dict[str, Any] | None = None, **lend: Any) -> None:
        between: dict[str, Any] = {"to": ("delft", "paris"), "processors": 64, "pass_on": True, **(nl or {})}
        lends: dict[str, Any] = {"to": ("nl",), "processors": 60, "strangers": True, **lend}
        self.delft = Site("delft", {"alpha": 16}, borrow=borrow)
        self.nl = Site("nl", {"gamma": 8}, lend=Lend(**between))
        self.lyon = Site("lyon", {"big": 64}, lend=Lend(**lends))
        super().__init__(self.delft, self.nl, self.lyon)
        self.link(self.nl, self.lyon, Relation.CHILD)
        self.link(self.delft, self.nl, Relation.PARENT)
        self.let_pass(Duration(20 * SECOND))

    def ask(self, processors: int = 40, **fields: Any) -> JobId:
        job = self.delft.submit(component(processors, walltime=HOUR), **fields)
        self.delft.apply(after=Duration(3 * SECOND))
        return job

    @property
    def pilot(self) -> JobId:
        return max(self.lyon.jobs)

    def bound(self) -> JobId:
        job = self.ask()
        self.exchange()
        self.lyon.run(self.pilot)
        self.exchange()
        self.delft.follow()
        return job

    def running(self) -> JobId:
        job = self.bound()
        self.delft.run(job)
        assert self.delft.job(job).state is JobState.RUNNING
        return job

    def over(self) -> None:
        """The cluster of lyon ends the pilot; then nothing is left anywhere, and each link has one number."""
        self.lyon.obey()
        self.exchange()
        self.delft.follow()
        for each in self.sites.values():
            each.apply()
            assert each.leases() == [], each.name
        assert list(self.delft.sizes) == ["alpha"]
        self.books()

    def books(self) -> int:
        """The charge, which both ends of each link have recorded."""
        assert self.delft.record("nl").borrowed == self.nl.record("delft").lent
        assert self.nl.record("lyon").borrowed == self.lyon.record("nl").lent
        return self.delft.record("nl").borrowed


def kinds(messages: list[Any]) -> Kinds:
    return [(type(each), each.neighbour) for each in messages]


def restart(site: Site) -> None:
    """A new engine has what the store had; sessions and clusters go on."""
    before = site.engine
    records = before.core.records
    snapshot = Snapshot(
        instance=records.instance, counters=site.counters,
        jobs=tuple(each for _, each in sorted(site.jobs.items()) if not each.state.final),
        neighbours=tuple(before.core.neighbours.records.values()),
        leases=tuple(before.core.leases.all()),
    )  # fmt: skip
    clusters = tuple(ClusterSettings(name=each, batch="slurm") for each in site.sizes)
    site.engine = Engine(replace(site.settings, clusters=clusters), Policies(worst_fit, fpfs), snapshot)
    site.engine.core.neighbours.connected = dict(before.core.neighbours.connected)
    for cluster in site.sizes:
        site.apply(ClusterConnected(cluster=cluster, version="22.05"))
    site.measure()


def test_a_job_runs_on_a_lease_of_a_site_that_its_own_does_not_know() -> None:
    chain = Chain()
    assert chain.delft.record("nl").free == 60
    job = chain.ask()
    first, second = chain.exchange()
    assert kinds([first, second]) == [(DelegateRequest, "nl"), (DelegateRequest, "lyon")]
    assert (first.dttl, second.dttl) == (3, 2)
    assert (second.origin.site, second.origin[1:]) == ("delft", first.origin[1:])
    assert second.within < first.within == ANSWER_WITHIN
    assert chain.lyon.job(chain.pilot).owner == "site:nl"
    chain.lyon.run(chain.pilot)
    offers = chain.exchange()
    assert kinds(offers) == [(OfferLease, "nl"), (OfferLease, "delft")]
    assert [each.length for each in offers] == [1, 2]
    chain.nl.follow()
    assert list(chain.nl.sizes) == ["gamma"]  # it is no cluster there
    assert [each.state for each in chain.nl.leases()] == [LeaseState.BOUND] * 2
    chain.delft.follow()
    assert present(chain.delft.job(job)).cluster == "nl~1"
    chain.delft.run(job)
    assert chain.let_pass(10 * MINUTE) == []
    (attempt,) = chain.delft.attempts(job)
    chain.delft.end(attempt)
    chain.delft.apply(AttemptCleanedUp(attempt=attempt))
    assert kinds(chain.let_pass(2 * MINUTE)) == [(ReturnLease, "nl"), (ReturnLease, "lyon")]
    chain.lyon.obey()
    assert kinds(chain.exchange()) == [(EndLease, "nl"), (EndLease, "delft")]
    chain.delft.follow()
    chain.over()
    assert chain.books() >= 40 * 10 * MINUTE


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nl": {"pass_on": False}}, "It could lend 8 processors by its last report, and 40 are needed."),
        ({"strangers": False}, "lyon: It lends nothing to sites that it does not know."),
        ({"walltime": MINUTE}, "lyon: It lends for 1m at most"),
        ({"nl": {"walltime": MINUTE}}, "It lends for 1m at most"),
        ({"nl": {"processors": 39}}, "It could lend 39 processors by its last report, and 40 are needed."),
    ],
    ids=["it passes nothing on", "strangers", "the walltime there", "the walltime between", "how much between"],
)
def test_every_site_of_a_chain_has_limits_of_its_own(change: dict[str, Any], words: str) -> None:
    chain = Chain(**change)
    job = chain.ask()
    chain.exchange()
    assert words in chain.delft.why(job)["nl"]
    assert chain.lyon.leases() == chain.nl.leases() == []


def test_a_request_passes_as_many_links_as_its_user_and_each_site_allow() -> None:
    chain = Chain()
    job = chain.ask(dttl=1)
    assert kinds(chain.exchange()) == [(DelegateRequest, "nl"), (RejectRequest, "delft")]
    assert "It can lend 8 processors now" in chain.delft.why(job)["nl"]
    never = chain.ask(dttl=0)
    assert chain.delft.job(never).state is JobState.FAILED  # it waits for nobody

    short = Chain()
    short.delft.engine.core.settings = replace(short.delft.settings, delegation=Delegation(dttl=1))
    short.ask()
    assert kinds(short.exchange()) == [(DelegateRequest, "nl"), (RejectRequest, "delft")]


def test_a_site_between_lowers_the_dttl_of_others_to_its_own() -> None:
    chain = Chain()
    chain.nl.engine.core.settings = replace(chain.nl.settings, delegation=Delegation(dttl=1))
    chain.ask()
    assert chain.exchange()[1].dttl == 0


class Two(Chain):
    """`nl` has a second child, `paris`, which lends as well."""

    def __init__(self, **lend: Any) -> None:
        super().__init__(**lend)
        self.paris = Site("paris", {"large": 64}, lend=Lend(to=("nl", "delft"), processors=64, strangers=True))
        self.sites["paris"] = self.paris
        self.link(self.nl, self.paris, Relation.CHILD)
        self.let_pass(Duration(20 * SECOND))


def test_a_site_between_asks_the_next_one_after_a_rejection() -> None:
    two = Two()
    two.paris.engine.core.settings = replace(two.paris.settings, lend=Lend(to=("nl",), processors=64))
    two.ask()
    assert kinds(two.exchange()) == [
        (DelegateRequest, "nl"), (DelegateRequest, "paris"), (RejectRequest, "nl"), (DelegateRequest, "lyon"),
    ]  # fmt: skip
    two.lyon.run(two.pilot)
    assert kinds(two.exchange()) == [(OfferLease, "nl"), (OfferLease, "delft")]


def test_a_request_that_comes_by_two_ways_is_taken_once_in_each_round() -> None:
    two = Two(strangers=False)
    two.link(two.delft, two.paris, Relation.SIBLING)
    two.paris.measure(large=64)
    two.let_pass(Duration(20 * SECOND))
    two.ask()
    first = two.exchange()
    assert kinds(first)[:2] == [(DelegateRequest, "nl"), (DelegateRequest, "lyon")]
    two.paris.measure(large=0)
    two.let_pass(Duration(20 * SECOND))
    asked = next(each for each in first if each.neighbour == "lyon")
    again = replace(asked, neighbour="paris", lease=90, origin=asked.origin._replace(site=""))
    two.delft.pending += [again, replace(again, lease=91)]
    answers = [each for each in two.exchange() if isinstance(each, RejectRequest) and each.lease == 91]
    assert [each.reason.code for each in answers] == ["seen"]


def test_a_chain_is_no_longer_than_the_dttl_and_never_comes_back_to_where_it_began() -> None:
    """Three sites in a ring, none of which has enough."""
    ring = Sites(*[
        Site(
            name,
            {f"{name}0": 8},
            borrow=BORROW if name == "a" else None,
            lend=Lend(to=("a", "b", "c"), processors=64, pass_on=True, strangers=True),
        )
        for name in ("a", "b", "c")
    ])  # fmt: skip
    a, b, c = ring.sites.values()
    for one, other in ((a, b), (b, c), (c, a)):
        ring.link(one, other, Relation.CHILD)
        for each, there in ((one, other), (other, one)):
            each.engine.core.neighbours.change(there.name, free=64)
    a.submit(component(40, walltime=HOUR))
    a.apply(after=Duration(3 * SECOND))
    passed = kinds(ring.exchange())
    assert passed.count((DelegateRequest, "a")) == 0
    assert len([each for each in passed if each[0] is DelegateRequest]) <= 4


def test_a_request_is_cancelled_along_the_chain() -> None:
    chain = Chain()
    chain.delft.measure(alpha=16)
    job = chain.ask(8)
    chain.delft.engine.core.neighbours.change("nl", free=60)
    chain.nl.measure(gamma=8)
    chain.exchange()
    chain.delft.measure(alpha=0)
    assert present(chain.delft.job(job)).cluster == "alpha"
    assert kinds(chain.let_pass(Duration(10 * SECOND)))[:2] == [(CancelRequest, "nl"), (CancelRequest, "lyon")]
    chain.over()
    assert chain.books() == 0


def test_a_cancelled_request_pays_for_a_lease_that_was_bound_meanwhile() -> None:
    chain = Chain()
    job = chain.ask()
    chain.exchange()
    chain.lose(chain.nl, chain.lyon)
    chain.lyon.run(chain.pilot)
    chain.delft.apply(CancelRequested(job))
    chain.delft.apply(after=Duration(3 * SECOND))
    chain.exchange()
    chain.lyon.apply(after=MINUTE)
    chain.connect(chain.nl, chain.lyon)
    chain.over()
    assert chain.books() >= 40 * MINUTE


def test_a_next_site_that_does_not_answer_is_waited_for_less_long_than_this_one() -> None:
    chain = Chain()
    job = chain.ask()
    chain.exchange()
    chain.lose(chain.nl, chain.lyon)
    passed = chain.let_pass(Duration(ANSWER_WITHIN - 5 * SECOND))
    assert (RejectRequest, "delft") in kinds(passed)
    assert "lyon: It did not answer in time." in chain.delft.why(job)["nl"]
    assert chain.nl.engine.core.leases.lent_to("delft") == []
    chain.connect(chain.nl, chain.lyon)  # it is informed that nobody waits any more
    chain.over()


@pytest.mark.parametrize("site", ["delft", "nl", "lyon"])
def test_a_restart_of_any_site_in_any_state_changes_nothing(site: str) -> None:
    chain = Chain()
    job = chain.ask()
    for step in range(5):
        restart(chain.sites[site])
        chain.exchange()
        if step == 1:
            chain.lyon.run(chain.pilot)
        if step == 2:
            chain.delft.follow()
            chain.delft.run(job)
        if step == 3:
            chain.lyon.apply(LeaseEndRequested(neighbour="nl", lease=1, lent=True, reason=TAKEN_BACK, at_once=True))
    chain.over()
    assert chain.delft.job(job).completion_failures == 0
    assert chain.books() > 0


def test_a_borrower_that_is_away_from_the_site_between_loses_its_lease_at_its_source_too() -> None:
    chain = Chain()
    job = chain.running()
    chain.lose(chain.delft, chain.nl)
    chain.let_pass(2 * MINUTE)
    assert chain.lyon.job(chain.pilot).state is JobState.RUNNING
    chain.let_pass(2 * MINUTE)
    assert chain.lyon.job(chain.pilot).state is JobState.STOPPING
    assert chain.delft.job(job).state is JobState.RUNNING
    chain.lyon.obey()
    chain.exchange()
    chain.connect(chain.delft, chain.nl)
    chain.over()
    assert chain.delft.job(job).completion_failures == 1


def test_a_source_that_is_away_from_the_site_between_ends_the_lease_and_the_borrower_learns_of_it_later() -> None:
    chain = Chain()
    job = chain.running()
    chain.lose(chain.nl, chain.lyon)
    chain.let_pass(4 * MINUTE)
    chain.lyon.obey()
    chain.delft.follow()
    assert chain.delft.job(job).state is JobState.RUNNING
    chain.connect(chain.nl, chain.lyon)
    chain.over()
    assert chain.delft.job(job).completion_failures == 1


def test_a_source_that_never_comes_back_is_over_by_its_time_and_charged_once_it_does() -> None:
    chain = Chain()
    chain.running()
    chain.lose(chain.nl, chain.lyon)
    for each in (chain.nl, chain.delft):
        each.apply(after=Duration(2 * HOUR))
        each.apply()
    chain.exchange()
    assert chain.nl.leases() == []
    charged = chain.nl.record("delft").lent
    assert charged == chain.delft.record("nl").borrowed > 0
    chain.lyon.apply(after=Duration(4 * MINUTE))
    chain.lyon.obey()
    chain.connect(chain.nl, chain.lyon)
    assert 0 < chain.books() == charged


@pytest.mark.parametrize("which", ["new store", "removed"])
def test_a_source_that_knows_nothing_any_more_ends_the_lease_at_the_borrower(which: str) -> None:
    chain = Chain()
    job = chain.running()
    chain.nl.apply(
        NeighbourConnected(neighbour="lyon", instance="new")
        if which == "new store"
        else NeighbourLeft(neighbour="lyon")
    )
    assert (EndLease, "delft") in kinds(chain.exchange())
    chain.delft.follow()
    assert list(chain.delft.sizes) == ["alpha"]
    assert chain.delft.job(job).completion_failures == 1
    assert chain.nl.leases() == []


def test_a_borrower_that_knows_nothing_any_more_gives_the_lease_back_to_its_source() -> None:
    chain = Chain()
    chain.bound()
    chain.nl.apply(NeighbourConnected(neighbour="delft", instance="new"))
    assert kinds(chain.exchange()) == [(ReturnLease, "lyon")]
    chain.lyon.obey()
    chain.exchange()
    assert chain.nl.leases() == chain.lyon.leases() == []
    assert chain.nl.record("lyon").borrowed == chain.lyon.record("nl").lent > 0


@pytest.mark.parametrize("side", [("delft", True), ("lyon", False)])
def test_people_of_the_site_between_take_the_lease_back(side: tuple[str, bool]) -> None:
    chain = Chain()
    job = chain.running()
    neighbour, lent = side
    chain.nl.apply(LeaseEndRequested(neighbour=neighbour, lease=1, lent=lent, reason=TAKEN_BACK, at_once=True))
    assert kinds(chain.exchange()) == [(RevokeLease, "delft"), (ReturnLease, "lyon")]
    chain.over()
    found = chain.delft.job(job)
    assert (found.completion_failures, found.revocations) == (0, 1)
    assert [each.details["message"] for each in chain.delft.history if each.kind == "lease_ended"] == [
        TAKEN_BACK.message
    ]


def test_what_is_passed_on_counts_in_the_limits_of_the_site_between() -> None:
    chain = Chain()
    chain.bound()
    chain.delft.submit(component(30, walltime=HOUR))
    chain.let_pass(Duration(30 * SECOND))
    assert chain.delft.record("nl").free == 20  # of lyon's 60, and of nl's 64


class Hub(Sites):
    """`nl` lends to `delft` and `paris`, in cycles of a minute, by this policy."""

    def __init__(self, dispatching: Any) -> None:
        self.nl = Site(
            "nl", {"gamma": 64}, lend=Lend(to=("delft", "paris"), processors=40), delegation=Delegation(interval=MINUTE)
        )
        self.nl.engine.core.neighbours.policies = SitePolicies(dispatching=dispatching)
        borrowers = [Site(each, {each: 4}, borrow=BORROW) for each in ("delft", "paris")]
        super().__init__(self.nl, *borrowers)
        for each in borrowers:
            self.link(each, self.nl, Relation.PARENT)

    def ask(self, site: str, processors: int) -> None:
        asking = self.sites[site]
        asking.submit(component(processors, walltime=HOUR))
        asking.apply(after=Duration(3 * SECOND))
        self.exchange()


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        (lambda request: request.arrival, [("delft", 30), ("delft", 8)]),
        (lambda request: request.processors, [("paris", 5), ("delft", 8), ("paris", 20)]),
        (lambda request: 1 // 0, [("delft", 30), ("delft", 8)]),
    ],
    ids=["first come", "smallest", "one that fails"],
)
def test_requests_are_served_in_the_order_of_the_dispatching_policy(policy: Any, served: list[tuple[str, int]]) -> None:
    hub = Hub(policy)
    for site, processors in (("delft", 30), ("paris", 20), ("delft", 8), ("paris", 5)):
        hub.ask(site, processors)
    assert [each.state for each in hub.nl.leases()] == [LeaseState.ASKED] * 4
    hub.let_pass(MINUTE)
    found = [each for each in hub.nl.engine.core.leases.lent.values() if each.job is not None]
    assert [(each.neighbour, each.processors) for each in sorted(found, key=lambda each: each.job or 0)] == served
