"""Site managers exchange messages over links that keep only their order: whatever comes, processors add up."""

from collections import deque
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koalapy.experiments.interop.site_manager import messages
from koalapy.experiments.interop.site_manager.manager import SiteManager
from koalapy.experiments.interop.site_manager.site import SiteSettings
from koalapy.model.neighbour import Relation
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration, Instant
from koalapy.policies import delegation as policies

BEGIN = Instant(HOUR * 10_000)
ARRIVES_AS = {
    messages.DelegateRequest: messages.RequestDelegated,
    messages.RejectRequest: messages.RequestRejected,
    messages.OfferLease: messages.LeaseOffered,
    messages.AcceptLease: messages.LeaseAccepted,
    messages.ReturnLease: messages.LeaseReturned,
    messages.CancelRequest: messages.RequestCancelled,
    messages.ReportFree: messages.FreeReported,
}


class Sites:
    """A network of site managers; messages lie on their links until `deliver`."""

    def __init__(self, target: policies.TargetPolicy = policies.nearest, **sites: dict[str, Any]) -> None:
        self.now = BEGIN
        self.managers = {
            name: SiteManager(SiteSettings(name=name, **each), policies.fcfs, target) for name, each in sites.items()
        }
        self.links: dict[tuple[str, str], deque[Any]] = {}
        self.granted: dict[messages.RequestId, messages.Lease] = {}
        self.refused: list[tuple[str, messages.RequestId]] = []
        self.sent: list[tuple[str, messages.Command]] = []

    def submit(self, site: str, number: int, processors: int = 1, dttl: int = 9) -> messages.RequestId:
        identity = messages.RequestId(site, number)
        self.apply(site, messages.RequestSubmitted(messages.ResourceRequest(identity, "ada", processors, dttl)))
        return identity

    def release(self, identity: messages.RequestId) -> None:
        del self.granted[identity]
        self.apply(identity.site, messages.LeaseReturned(None, identity))

    def cancel(self, identity: messages.RequestId) -> None:
        self.granted.pop(identity, None)
        self.apply(identity.site, messages.RequestCancelled(None, identity))

    def apply(self, site: str, *events: messages.Event) -> None:
        for command in self.managers[site].handle(self.now, events):
            self.sent.append((site, command))
            if isinstance(command, messages.GrantLease):
                assert command.lease.id.site == site
                assert command.lease.id not in self.granted, "granted twice"
                self.granted[command.lease.id] = command.lease
            else:
                self.links.setdefault((site, command.to), deque()).append(command)

    def deliver(self, link: tuple[str, str]) -> None:
        sender, to = link
        command = self.links[link].popleft()
        self.apply(to, ARRIVES_AS[type(command)](sender, *command[1:]))

    @property
    def busy_links(self) -> list[tuple[str, str]]:
        return [link for link, waiting in self.links.items() if waiting]

    def settle(self) -> None:
        """All that lies on links arrives, and what that brings about."""
        while self.busy_links:
            self.deliver(self.busy_links[0])

    def wake(self) -> bool:
        """On to the next cycle of anybody; False if none is due."""
        due = [at for manager in self.managers.values() if (at := manager.next_wakeup()) is not None]
        if not due:
            return False
        self.now = min(due)
        for name, manager in self.managers.items():
            at = manager.next_wakeup()
            if at is not None and at <= self.now:
                self.apply(name)
        return True

    def go_on(self, cycles: int) -> None:
        for _ in range(cycles):
            self.wake()
            self.settle()

    def rest(self, hours: float = 30) -> None:
        """Until nothing is due any more."""
        until = self.now + hours * HOUR
        self.settle()
        while self.wake():
            self.settle()
            assert self.now < until, "they never come to rest"


def pair(**first: Any) -> Sites:
    return Sites(
        a={"processors": 2, "neighbours": {"b": Relation.SIBLING}} | first,
        b={"processors": 4, "neighbours": {"a": Relation.SIBLING}},
    )


def test_a_request_waits_for_its_own_sites_matchmaking_cycle() -> None:
    sites = pair()
    identity = sites.submit("a", 1)
    assert sites.managers["a"].next_wakeup() == BEGIN + 5 * MINUTE
    sites.rest()
    assert sites.granted[identity] == messages.Lease(identity, "a", 0, Instant(BEGIN + 5 * MINUTE))


def test_what_a_site_cannot_serve_itself_is_delegated_oldest_first() -> None:
    sites = Sites(
        a={"processors": 2, "neighbours": {"b": Relation.SIBLING}},
        b={"processors": 1, "neighbours": {"a": Relation.SIBLING}},
    )
    first, second, third, fourth = (sites.submit("a", number) for number in (1, 2, 3, 4))
    sites.rest()
    assert [sites.granted[each].source for each in (first, second, third)] == ["a", "a", "b"]
    assert sites.granted[third].length == 1
    assert fourth not in sites.granted


def test_what_waits_in_vain_hides_no_processors_from_neighbours() -> None:
    """A request that the load would turn away gets idle processors all the same: the large one cannot use them."""
    sites = pair()
    sites.submit("b", 1)
    sites.rest()
    sites.submit("b", 2, processors=4)
    sites.go_on(12)
    for number in (1, 2, 3):
        sites.submit("a", number)
    sites.go_on(12)
    assert messages.RequestId("b", 2) not in sites.granted
    assert sorted(sites.granted[messages.RequestId("a", number)].source for number in (1, 2, 3)) == ["a", "a", "b"]


def test_nobody_comes_between_a_request_that_may_not_be_passed_and_its_processors() -> None:
    sites = pair()
    sites.submit("b", 1)
    sites.rest()
    large = sites.submit("b", 2, processors=4, dttl=0)
    behind = sites.submit("b", 3, dttl=0)
    sites.rest()
    for number in (1, 2, 3):
        sites.submit("a", number)
    sites.rest()
    assert messages.RequestId("a", 3) not in sites.granted
    assert behind not in sites.granted
    sites.cancel(large)
    sites.rest()
    assert behind in sites.granted


def test_a_neighbours_request_that_goes_on_keeps_nobody_waiting() -> None:
    sites = pair(processors=6)
    small, running = sites.submit("a", 1), sites.submit("a", 2, processors=3)
    sites.rest()
    large = sites.submit("a", 3, processors=4)
    sites.wake()
    sites.settle()
    request = messages.ResourceRequest(messages.RequestId("x", 1), "ada", 2, 0)
    sites.apply("a", messages.RequestDelegated("b", request))
    behind = sites.submit("a", 4)
    sites.release(running)
    sites.rest()
    assert {small, large, behind} == set(sites.granted)


def test_released_resources_go_back_along_the_chain() -> None:
    chain = Sites(
        a={"neighbours": {"b": Relation.PARENT}},
        b={"neighbours": {"a": Relation.CHILD, "c": Relation.SIBLING}},
        c={"processors": 3, "neighbours": {"b": Relation.SIBLING}},
    )
    identity = chain.submit("a", 1, processors=3)
    chain.rest()
    assert chain.granted[identity].source == "c"
    assert chain.granted[identity].length == 2
    assert chain.managers["c"].free == 0
    chain.now = Instant(chain.now + HOUR)
    begun = chain.granted[identity].since
    chain.release(identity)
    chain.settle()
    assert chain.managers["c"].free == 3
    used = 3 * (chain.now - begun)
    assert chain.managers["a"].usage.by_user == {"ada": used}
    assert chain.managers["b"].usage.lent == {"a": used}
    assert chain.managers["c"].usage.lent == {"b": used}
    assert [chain.managers[name].usage.borrowed for name in "abc"] == [{"b": used}, {"c": used}, {}]


def test_a_request_whose_dttl_is_spent_is_not_delegated() -> None:
    sites = pair()
    identities = [sites.submit("a", number, dttl=0) for number in (1, 2, 3)]
    sites.rest()
    assert identities[2] not in sites.granted
    assert not [command for _, command in sites.sent if isinstance(command, messages.DelegateRequest)]


@pytest.mark.parametrize(("users", "sites", "source"), [(1, 4, None), (2, 4, "c"), (9, 1, None), (9, 2, "c")])
def test_a_request_goes_over_as_many_links_as_user_and_site_allow(users: int, sites: int, source: str | None) -> None:
    chain = Sites(
        a={"neighbours": {"b": Relation.SIBLING}, "dttl": sites},
        b={"neighbours": {"a": Relation.SIBLING, "c": Relation.SIBLING}},
        c={"processors": 1, "neighbours": {"b": Relation.SIBLING}},
    )
    identity = chain.submit("a", 1, dttl=users)
    chain.go_on(20)
    assert (chain.granted[identity].source if identity in chain.granted else None) == source
    asked = [sender for sender, command in chain.sent if isinstance(command, messages.DelegateRequest)]
    assert set(asked) == set("ab"[: min(users, sites)])


@pytest.mark.parametrize(
    ("later", "number", "taken"), [(0, 0, False), (HOUR - 1, 0, False), (HOUR, 0, True), (0, 1, True)]
)
def test_a_request_is_taken_once_an_hour_and_round(later: int, number: int, taken: bool) -> None:
    """Even if it could be served now: whoever asks again in the same round asks in a circle."""
    sites = pair()
    request = messages.ResourceRequest(messages.RequestId("x", 1), "ada", 9, 0)
    sites.apply("b", messages.RequestDelegated("a", request))
    assert sites.links["b", "a"].popleft() == messages.RejectRequest("a", request.id, 4)
    sites.now = Instant(sites.now + later)
    sites.apply("b", messages.RequestDelegated("a", request._replace(processors=1, round=number)))
    sites.wake()
    assert (messages.OfferLease in [type(message) for message in sites.links["b", "a"]]) == taken


@pytest.mark.parametrize("began_at", ["b", "a"])
def test_the_next_target_is_asked_at_once_after_a_rejection(began_at: str) -> None:
    """By the site where the request began, and by one that passes it on."""
    sites = Sites(b={"neighbours": dict.fromkeys("acd", Relation.SIBLING)})
    request = messages.ResourceRequest(messages.RequestId(began_at, 1), "ada", 2, 3)
    if began_at == "b":
        sites.apply("b", messages.RequestRejected("a", messages.RequestId("x", 1), 0))  # nothing is free there
        sites.apply("b", messages.RequestSubmitted(request))
        sites.wake()
    else:
        sites.apply("b", messages.RequestDelegated("a", request))
    for target in ("c", "d"):
        last = sites.sent[-1][1]
        assert isinstance(last, messages.DelegateRequest)
        assert last.to == target
        sites.apply("b", messages.RequestRejected(target, request.id, 0))
    refused = ("b", messages.RejectRequest("a", request.id, 0)) in sites.sent
    assert refused == (began_at == "a")


def test_a_lease_is_handed_on_with_the_next_delegation_cycle() -> None:
    sites = pair(delegation_interval=Duration(7 * MINUTE))
    identity = sites.submit("a", 1, processors=4)
    leases: list[tuple[Instant, str]] = []
    while identity not in sites.granted:
        sites.wake()
        sites.settle()
        leases = leases or [(sites.now, name) for name, each in sites.sent if isinstance(each, messages.OfferLease)]
    assert leases[0][1] == "b"
    assert sites.now % (7 * MINUTE) == 0
    assert leases[0][0] < sites.now


def test_a_lease_that_nobody_wants_any_more_goes_back_and_is_charged_for() -> None:
    sites = pair()
    identity = sites.submit("a", 1, processors=4)
    sites.wake()  # delegated
    sites.deliver(("a", "b"))
    sites.wake()  # matched: the lease is on its way
    leased = sites.now
    sites.now = Instant(sites.now + 7 * SECOND)
    sites.cancel(identity)
    sites.rest()
    assert sites.managers["b"].free == 4
    assert sites.managers["a"].usage.by_user == {"ada": 4 * 7 * SECOND}
    assert leased + 7 * SECOND <= sites.now


def test_a_request_that_is_cancelled_while_it_waits_at_a_neighbour_is_not_served_there() -> None:
    sites = pair()
    identity = sites.submit("a", 1, processors=4)
    sites.wake()  # delegated
    sites.settle()
    sites.cancel(identity)
    sites.rest()
    said = [(sender, type(command)) for sender, command in sites.sent]
    assert ("a", messages.CancelRequest) in said
    assert ("b", messages.RejectRequest) in said
    assert ("b", messages.OfferLease) not in said
    assert sites.managers["a"].usage.by_user == {}


def test_a_lease_for_a_request_that_is_not_here_goes_back() -> None:
    sites = pair()
    lease = messages.Lease(messages.RequestId("a", 7), "b", 1, BEGIN)
    sites.apply("a", messages.LeaseOffered("b", lease))
    assert ("a", messages.ReturnLease("b", lease.id)) in sites.sent


def test_a_neighbour_that_has_room_again_is_asked_again() -> None:
    sites = pair()
    sites.submit("b", 1, processors=4, dttl=0)
    sites.rest()
    identity = sites.submit("a", 1, processors=4)
    sites.go_on(3)
    assert identity not in sites.granted
    sites.release(messages.RequestId("b", 1))
    sites.rest()
    assert sites.granted[identity].source == "b"


def test_a_refuser_is_asked_in_a_new_round_once_it_reports_room() -> None:
    sites = Sites(a={"neighbours": {"b": Relation.SIBLING}})
    identity = sites.submit("a", 1, processors=4)
    sites.wake()
    sites.apply("a", messages.RequestRejected("b", identity, 0))
    sites.apply("a", messages.FreeReported("b", 4))
    sites.wake()
    asked = [command.request.round for _, command in sites.sent if isinstance(command, messages.DelegateRequest)]
    assert asked == [0, 1]


def test_a_large_request_is_passed_so_often_and_no_more() -> None:
    sites = pair(max_passes=2, threshold=9.0)
    sites.submit("a", 1)
    sites.rest()
    large = sites.submit("a", 2, processors=2)
    for number in (3, 4, 5):
        small = sites.submit("a", number)
        sites.rest()
        assert (small in sites.granted) == (number < 5)
        if small in sites.granted:
            sites.release(small)
    assert large not in sites.granted
    sites.release(messages.RequestId("a", 1))
    sites.rest()
    assert large in sites.granted


def test_processors_that_go_are_not_given_again() -> None:
    sites = pair(neighbours={})
    first = sites.submit("a", 1, processors=2)
    sites.rest()
    sites.apply("a", messages.ProcessorsChanged(1))
    second = sites.submit("a", 2)
    sites.rest()
    assert second not in sites.granted
    sites.release(first)
    sites.rest()
    assert sites.managers["a"].free == 0
    assert second in sites.granted


FREE = {"far": (2, 9), "child": (0, 3), "beside": (1, 5), "silent": (1, None), "full": (0, 1)}


@pytest.mark.parametrize(
    ("policy", "delegations", "order"),
    [
        (policies.nearest, 0, ["child", "beside", "silent", "far"]),
        (policies.most_free, 0, ["far", "beside", "child", "silent"]),
        (policies.best_fit, 0, ["child", "beside", "far", "silent"]),
        (policies.round_robin, 0, ["far", "child", "beside", "silent"]),
        (policies.round_robin, 7, ["beside", "silent", "far", "child"]),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_targets_are_ordered_by_the_policy_without_those_that_have_too_little(
    policy: policies.TargetPolicy, delegations: int, order: list[str]
) -> None:
    targets = [policies.Target(name, distance, free) for name, (distance, free) in FREE.items()]
    assert [target.site for target in policy(2, targets, delegations)] == order


def test_requests_are_delegated_by_arrival_or_the_smallest_first() -> None:
    waits = [
        policies.WaitingRequest(processors=1, arrival=3),
        policies.WaitingRequest(4, 1),
        policies.WaitingRequest(1, 2),
    ]
    assert [request.arrival for request in sorted(waits, key=policies.fcfs)] == [1, 2, 3]
    assert [request.arrival for request in sorted(waits, key=policies.smallest_first)] == [2, 3, 1]


TARGETS = [policies.nearest, policies.most_free, policies.best_fit, policies.round_robin]


def tree(dice: Random, target: policies.TargetPolicy) -> Sites:
    """Two roots that are siblings, with clusters below them that are siblings too."""
    sites: dict[str, dict[str, Any]] = {}
    roots = ["r", "s"]
    below = {root: [f"{root}{number}" for number in range(dice.randint(1, 3))] for root in roots}
    for root, other in (("r", "s"), ("s", "r")):
        sites[root] = {"neighbours": dict.fromkeys(below[root], Relation.CHILD) | {other: Relation.SIBLING}}
        for name in below[root]:
            beside = dict.fromkeys((each for each in below[root] if each != name), Relation.SIBLING)
            sites[name] = {"processors": dice.randint(1, 4), "neighbours": beside | {root: Relation.PARENT}}
    for each in sites.values():
        each |= {"threshold": dice.choice((0.5, 1.0, 1.25)), "dttl": dice.randint(0, 5)}
        each |= {"delegation_interval": Duration(dice.choice((1, 30, 60)) * SECOND)}
    return Sites(target, **sites)


@pytest.mark.parametrize("target", TARGETS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_processors_add_up_whatever_happens(target: policies.TargetPolicy, seed: int) -> None:
    dice = Random(seed)
    sites = tree(dice, target)
    clusters = [name for name, manager in sites.managers.items() if len(name) > 1]
    totals = {name: manager.free for name, manager in sites.managers.items()}
    left: dict[messages.RequestId, messages.ResourceRequest] = {}
    for number in range(dice.randint(1, 60)):
        move = dice.random()
        if move < 0.35:
            identity = sites.submit(dice.choice(clusters), number, dice.choice((1, 1, 2, 4)), dice.randint(0, 6))
            left[identity] = messages.ResourceRequest(identity, "", 0, 0)
        elif move < 0.5 and sites.granted:
            identity = dice.choice(sorted(sites.granted))
            sites.release(identity)
            del left[identity]
        elif move < 0.6 and left:
            identity = dice.choice(sorted(left))
            sites.cancel(identity)
            del left[identity]
        elif move < 0.75:
            sites.wake()
        else:
            for _ in range(dice.randint(1, 8)):
                if sites.busy_links:
                    sites.deliver(dice.choice(sites.busy_links))
        assert all(0 <= manager.free <= totals[name] for name, manager in sites.managers.items())
    for identity in sorted(left):
        sites.cancel(identity)
    sites.rest()
    assert {name: manager.free for name, manager in sites.managers.items()} == totals
    assert all(not manager._site.requests for manager in sites.managers.values())
    assert all(not manager.load for manager in sites.managers.values())
