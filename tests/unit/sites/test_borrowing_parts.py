"""Co-allocated jobs with components on own and on leased processors: what is asked for them, and where they run."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from engine_play import component, make
from site_play import Site, Sites

from koalapy.broker.availability import Availability
from koalapy.information.kis import ClusterSummary
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import DelegateRequest, OfferLease, ReturnLease
from koalapy.model.events import AttemptCleanedUp, CancelRequested
from koalapy.model.identity import JobId
from koalapy.model.lease import Borrow, Lend, lease_network
from koalapy.model.neighbour import Relation
from koalapy.model.request import ComponentRequest
from koalapy.model.states import JobState, LeaseState
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration
from koalapy.policies.placement import PlacementPolicy, best_fit, cluster_minimisation, worst_fit
from koalapy.sites.parts import smallest_part
from koalapy.views.history import sentence

BORROW = Borrow(after=Duration(0), idle=MINUTE, again=Duration(30 * SECOND))
POLICIES = [worst_fit, best_fit, cluster_minimisation]


def own(network: str = "default", **idle: int) -> Availability:
    """Clusters of 100 processors, with so many idle ones."""
    return Availability([_summary(name, count, network) for name, count in idle.items()])


def _summary(name: str, idle: int, network: str) -> ClusterSummary:
    settings = ClusterSettings(name=name, batch="slurm", network=network)
    return ClusterSummary(
        name=name, settings=settings, total=100, idle=idle, committed=0, backlog=0, trouble=None, state=None
    )


def part(
    components: Sequence[ComponentRequest], there: Availability, policy: PlacementPolicy = worst_fit, **fields: Any
) -> tuple[int, tuple[int, ...], dict[str, int]] | None:
    """The processors and components that are borrowed, and what is left of the site's own."""
    most = fields.pop("most", None)
    found = smallest_part(make(*components, **fields), there, "default", policy, most=most)
    return None if found is None else (found.processors, found.components, dict(found.available.idle))


def sizes(*processors: int, **fields: Any) -> list[ComponentRequest]:
    return [component(each, **fields) for each in processors]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
def test_the_fewest_processors_are_borrowed_beside_which_the_policy_places_the_job(policy: PlacementPolicy) -> None:
    assert part(sizes(10, 6, 5), own(alpha=16), policy) == (5, (2,), {"alpha": 0})
    assert part(sizes(8, 8), own(alpha=15), policy) in [(8, (0,), {"alpha": 7}), (8, (1,), {"alpha": 7})]
    assert part(sizes(12, 8), own(alpha=10, beta=9), policy, communication=False) in [
        (12, (0,), {"alpha": 2, "beta": 9}), (12, (0,), {"alpha": 10, "beta": 1}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("components", "idle"),
    [(sizes(10, 6), 16), (sizes(10, 6), 5), (sizes(20), 10), (sizes(10, 6), 0)],
    ids=["all of it fits", "nothing of it fits", "one component", "nothing is idle"],
)
def test_there_is_no_part_of_a_job_that_fits_or_that_would_keep_nothing(
    components: list[ComponentRequest], idle: int
) -> None:
    assert part(components, own(alpha=idle)) is None


def test_a_part_keeps_within_the_sites_limit() -> None:
    assert part(sizes(10, 6), own(alpha=10), most=5) is None
    assert part(sizes(10, 6), own(alpha=10), most=6) == (6, (1,), {"alpha": 0})


def test_components_that_no_lease_can_serve_are_kept() -> None:
    named = [component(10, cluster="alpha"), component(12)]
    assert part(named, own(alpha=12)) == (12, (1,), {"alpha": 2})
    assert part(named, own(alpha=9, beta=50)) is None  # the lease would not help it
    assert part([component(4, gpus=1), component(12)], own(alpha=4)) == (12, (1,), {"alpha": 0})


def test_components_that_communicate_are_kept_in_the_network_of_the_lease() -> None:
    assert part(sizes(10, 8), own("elsewhere", alpha=10)) is None
    assert part(sizes(10, 8), own("elsewhere", alpha=10), communication=False) == (8, (1,), {"alpha": 0})


def test_an_optional_component_is_not_borrowed_for() -> None:
    assert part([component(10), component(8), component(4, optional=True)], own(alpha=10)) == (8, (1,), {"alpha": 0})


def test_of_a_component_that_may_be_spread_what_is_lacking_is_borrowed() -> None:
    spread = component(20, spread=True)
    assert part([spread], own(alpha=6, beta=5)) == (9, (0,), {"alpha": 0, "beta": 0})
    assert part([replace(spread, threads_per_process=4)], own(alpha=6)) == (16, (0,), {"alpha": 2})
    assert part([spread], own(alpha=20)) is None
    assert part([spread], own(alpha=19)) == (1, (0,), {"alpha": 0}), "the least that can be lacking"


# ---- two sites


class Pair(Sites):
    """`delft` has clusters of these sizes, and borrows of `lyon`, whose nodes are in its network."""

    def __init__(self, sizes: dict[str, int], borrow: Borrow | None = None) -> None:
        near = replace(BORROW, networks=(("lyon", "default"),))
        self.delft = Site("delft", sizes, borrow=borrow or near)
        self.lyon = Site("lyon", {"big": 64}, lend=Lend(to=("delft",), processors=64))
        super().__init__(self.delft, self.lyon)
        self.link(self.delft, self.lyon)

    def ask(self, *components: ComponentRequest, **fields: Any) -> tuple[JobId, list[int]]:
        """Submit a job of delft, and let it ask. Returns the processors that it asks for."""
        job = self.delft.submit(*components, **fields)
        self.delft.apply(after=Duration(3 * SECOND))
        return job, self.asked()

    def asked(self) -> list[int]:
        return [each.processors for each in self.exchange() if isinstance(each, DelegateRequest)]

    def grant(self) -> str:
        """Lyon's pilot runs, and its lease becomes a cluster of delft. Returns the cluster's name."""
        self.lyon.run(max(self.lyon.jobs))
        self.lyon.measure()
        self.exchange()
        self.delft.follow()
        return max(each for each in self.delft.sizes if "~" in each)

    def placed(self, job: JobId) -> list[str | None]:
        return [each.cluster for each in self.delft.job(job).present]


def walled(processors: int, **fields: Any) -> ComponentRequest:
    return component(processors, walltime=HOUR, **fields)


def test_a_job_runs_with_components_on_own_and_on_leased_processors() -> None:
    pair = Pair({"alpha": 16})
    job, asked = pair.ask(walled(10), walled(12))
    assert asked == [10]
    (line,) = [each for each in pair.delft.history if each.kind == "lease_requested"]
    assert sentence(line) == "The site lyon is asked for 10 processors of 22, for component 0: the others fit on alpha."
    assert pair.delft.why(job) == {"lyon": "It was asked 3s ago for 10 of its 22 processors, and has not answered yet."}
    assert pair.grant() == "lyon~1"
    assert pair.placed(job) == ["lyon~1", "alpha"]
    pair.delft.run(job)
    assert pair.delft.job(job).state is JobState.RUNNING
    for attempt in pair.delft.attempts(job):
        pair.delft.end(attempt)
        pair.delft.apply(AttemptCleanedUp(attempt=attempt))
    assert pair.delft.job(job).state is JobState.DONE
    assert ReturnLease in {type(each) for each in pair.let_pass(2 * MINUTE)}


def test_nothing_is_held_for_it_meanwhile_and_it_starts_at_home_once_it_fits_there() -> None:
    pair = Pair({"alpha": 22})
    first = pair.delft.submit(walled(6))
    pair.delft.run(first)
    job, asked = pair.ask(walled(10), walled(12))
    assert asked == [10]
    other = pair.delft.submit(walled(15))
    assert pair.placed(other) == ["alpha"]
    pair.delft.apply(CancelRequested(first), CancelRequested(other))
    pair.delft.obey()
    pair.delft.measure()
    assert pair.placed(job) == ["alpha", "alpha"]
    pair.let_pass(Duration(10 * SECOND))
    assert [each.state for each in pair.delft.leases()] == [LeaseState.CLOSING]


def test_a_job_whose_own_processors_are_gone_asks_for_the_rest_or_is_placed_wholly_and_the_lease_ends_unused() -> None:
    pair = Pair({"alpha": 16})
    paris = Site("paris", {"large": 64}, lend=Lend(to=("delft",), processors=64))
    pair.sites["paris"] = paris
    pair.delft.engine.core.settings = replace(
        pair.delft.engine.core.settings, borrow=replace(BORROW, networks=(("lyon", "default"), ("paris", "default")))
    )
    pair.link(pair.delft, paris, Relation.PARENT)
    job, asked = pair.ask(walled(10), walled(12))
    assert asked == [10]
    other = pair.delft.submit(walled(16))
    pair.grant()
    assert pair.delft.job(job).state is JobState.WAITING
    assert pair.delft.why(job)["lyon"] == "It lends 10 processors, as lyon~1."
    pair.delft.apply(after=Duration(3 * SECOND))
    assert pair.asked() == []  # not yet: its own processors may come back soon
    pair.delft.apply(after=Duration(30 * SECOND))
    assert pair.asked() == [12]
    pair.delft.apply(CancelRequested(other))
    pair.delft.obey()
    pair.delft.measure()
    assert pair.placed(job) == ["lyon~1", "alpha"]
    del pair.sites["paris"]


def test_two_jobs_do_not_count_on_the_same_own_processors() -> None:
    pair = Pair({"alpha": 12})
    _, first = pair.ask(walled(10), walled(12))
    _, second = pair.ask(walled(10), walled(12))
    assert (first, second) == ([10], [22])


def test_a_job_that_cannot_be_divided_asks_for_all_of_its_processors() -> None:
    apart = replace(BORROW, networks=())
    assert Pair({"alpha": 16}).ask(walled(20))[1] == [20]
    assert Pair({"alpha": 16}, apart).ask(walled(10), walled(12))[1] == [22]
    assert Pair({"alpha": 16}, apart).ask(walled(10), walled(12), communication=False)[1] == [10]


def test_a_component_that_may_be_spread_gets_what_it_lacks_of_a_neighbour() -> None:
    pair = Pair({"alpha": 16})
    job, asked = pair.ask(walled(40, spread=True))
    assert asked == [24]
    pair.grant()
    assert sorted((each.cluster, each.processors) for each in pair.delft.job(job).present) == [
        ("alpha", 16), ("lyon~1", 24),
    ]  # fmt: skip


def test_a_job_too_large_for_its_site_waits_if_a_neighbour_may_serve_the_rest_of_it_and_fails_otherwise() -> None:
    def state(borrow: Borrow, *components: ComponentRequest) -> JobState:
        pair = Pair({"alpha": 16}, borrow)
        return pair.delft.job(pair.delft.submit(*components)).state

    near = replace(BORROW, networks=(("lyon", "default"),))
    assert state(near, walled(10, cluster="alpha"), walled(30)) is JobState.WAITING
    assert state(BORROW, walled(10, cluster="alpha"), walled(30)) is JobState.FAILED
    assert state(near, walled(17, cluster="alpha"), walled(30)) is JobState.FAILED
    assert state(replace(near, processors=20), walled(10, cluster="alpha"), walled(30)) is JobState.FAILED


def test_components_that_communicate_ask_no_site_beyond_the_neighbour_itself() -> None:
    def links(**fields: Any) -> int:
        pair = Pair({"alpha": 16})
        pair.delft.submit(walled(10), walled(12), **fields)
        pair.delft.apply(after=Duration(3 * SECOND))
        (request,) = [each for each in pair.exchange() if isinstance(each, DelegateRequest)]
        return request.dttl

    assert links() == 0
    assert links(communication=False) == 3


def test_the_nodes_of_a_lease_are_in_the_network_that_the_grid_file_names_if_they_are_the_neighbours_own() -> None:
    borrow = replace(BORROW, networks=(("lyon", "default"),))
    assert lease_network(borrow, "lyon", 7, 1) == "default"
    assert lease_network(borrow, "lyon", 7, 2) == "lyon:7"
    assert lease_network(borrow, "paris", 7, 1) == "paris:7"
    assert lease_network(None, "lyon", 7, 1) == "lyon:7"


def test_an_offer_is_taken_of_what_was_asked_and_no_more() -> None:
    pair = Pair({"alpha": 16})
    pair.ask(walled(10), walled(12))
    pair.lyon.run(max(pair.lyon.jobs))
    pair.lyon.measure()
    assert OfferLease in {type(each) for each in pair.exchange()}
    (lease,) = pair.delft.engine.core.leases.borrowed.values()
    assert (lease.processors, lease.components, lease.state) == (10, (0,), LeaseState.BOUND)
