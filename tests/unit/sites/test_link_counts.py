"""The counts of a link: requests both ways with their answers, and what a neighbour should not have done."""

from dataclasses import replace
from typing import Any

import pytest
from engine_play import component
from site_play import BORROWER, LENDER, Site, Sites

from koalapy.model.commands import (
    DelegateRequest,
    EndLease,
    OfferLease,
    RejectRequest,
    RevokeLease,
)
from koalapy.model.errors import Reason
from koalapy.model.events import (
    CancelRequested,
    LeaseEndRequested,
    MessageReceived,
    NeighbourLost,
)
from koalapy.model.identity import JobId
from koalapy.model.lease import Borrow, Lend, Origin
from koalapy.model.neighbour import LinkCounts, RequestCounts
from koalapy.model.units import DAY, HOUR, MINUTE, SECOND, Duration
from koalapy.store.records import dump_neighbour, load_neighbour

BUSY = Reason("busy", "transient", "It can lend 0 processors now, and 40 are needed.", "It is asked again.")
ENDED = Reason("lease_ended", "request", "Its lender has taken it back.", "")


class Pair(Sites):
    def __init__(self, **lend: Any) -> None:
        self.delft = Site("delft", BORROWER, borrow=Borrow(after=Duration(0), idle=MINUTE, again=MINUTE))
        self.lyon = Site("lyon", LENDER, lend=Lend(**{"to": ("delft",), "processors": 60, **lend}))
        super().__init__(self.delft, self.lyon)
        self.link(self.delft, self.lyon)

    def ask(self) -> JobId:
        job = self.delft.submit(component(40, walltime=HOUR))
        self.delft.apply(after=Duration(3 * SECOND))
        return job

    def bound(self) -> JobId:
        job = self.ask()
        self.exchange()
        self.lyon.run(max(self.lyon.jobs))
        self.exchange()
        self.delft.follow()
        return job

    @property
    def of_lyon(self) -> LinkCounts:
        return self.delft.record("lyon").counts

    @property
    def of_delft(self) -> LinkCounts:
        return self.lyon.record("delft").counts

    def request(self, number: int, **fields: Any) -> DelegateRequest:
        values: dict[str, Any] = {
            "neighbour": "lyon", "lease": number, "processors": 4, "walltime": HOUR, "origin": Origin("", number, 1),
            "dttl": 3, "within": MINUTE, **fields,
        }  # fmt: skip
        return DelegateRequest(**values)

    def answered(self, *messages: Any) -> None:
        """Let lyon's next messages be these, whatever it decides itself."""
        self.lyon.taken()
        self.lyon.pending += messages
        self.exchange()


def test_a_lease_is_counted_as_asked_and_granted_at_both_sides() -> None:
    pair = Pair()
    pair.bound()
    granted = RequestCounts(asked=1, granted=1)
    assert pair.of_lyon == LinkCounts(ours=granted)
    assert pair.of_delft == LinkCounts(theirs=granted)


def test_refusals_are_counted_by_reason_with_the_last_one() -> None:
    pair = Pair()
    pair.bound()
    pair.delft.submit(component(30, walltime=HOUR))
    pair.delft.apply(after=Duration(3 * SECOND))  # lyon has not reported yet that it lends less now
    pair.let_pass(3 * MINUTE)
    ours, theirs = pair.of_lyon.ours, pair.of_delft.theirs
    assert ours.refused == theirs.refused == (("busy", ours.asked - 1),)
    assert ours.asked == theirs.asked == 2
    assert ours.last_refusal is not None
    assert theirs.last_refusal is not None
    assert ours.last_refusal.message == theirs.last_refusal.message
    assert (pair.of_lyon.misbehaved, pair.of_delft.misbehaved) == ((), ())
    record = pair.delft.record("lyon")
    assert load_neighbour(dump_neighbour(record)) == record


def test_no_answer_is_a_refusal_and_a_cancelled_request_is_none() -> None:
    pair = Pair()
    job = pair.ask()
    pair.delft.apply(CancelRequested(job))
    pair.exchange()
    pair.lyon.obey()
    pair.exchange()
    assert (pair.of_lyon.ours.refused, pair.of_delft.theirs.refused) == ((), ())
    pair.ask()
    pair.lose(pair.delft, pair.lyon)
    pair.delft.apply(after=Duration(5 * MINUTE))
    assert pair.of_lyon.ours.refused == (("no_answer", 1),)


def test_a_neighbour_that_asks_too_often_or_for_nothing_is_counted() -> None:
    pair = Pair(requests_per_minute=2)
    pair.delft.pending += [pair.request(number, processors=0) for number in range(10, 15)]
    pair.exchange()
    assert pair.of_delft.misbehaved == (("bad_request", 2), ("too_often", 3))
    assert dict(pair.of_delft.theirs.refused) == {"bad_request": 2, "too_often": 3}


@pytest.mark.parametrize(
    ("code", "counted"),
    [("garbled", (("garbled", 1),)), ("too_many_messages", (("too_many_messages", 1),)), ("cut", ()), ("silent", ())],
)
def test_the_end_of_a_session_is_counted_if_it_is_the_neighbours_doing(code: str, counted: Any) -> None:
    pair = Pair()
    pair.delft.apply(NeighbourLost(neighbour="lyon", reason=Reason(code, "ours", "It cannot be understood.", "")))
    pair.delft.apply(NeighbourLost(neighbour="nobody", reason=Reason(code, "ours", "It cannot be understood.", "")))
    assert pair.of_lyon.misbehaved == counted


def test_one_that_had_reported_more_than_it_lends_is_counted() -> None:
    pair = Pair()
    pair.ask()
    pair.answered(RejectRequest(neighbour="delft", lease=1, reason=BUSY, processors=0))
    assert pair.of_lyon.misbehaved == (("free_wrong", 1),)
    pair.delft.apply(after=MINUTE)
    assert pair.of_lyon.ours.asked == 1  # it has reported 0 since


def test_a_lease_for_longer_than_anybody_lives_is_cut_and_counted() -> None:
    pair = Pair()
    pair.ask()
    pair.answered(OfferLease(neighbour="delft", lease=1, lasts=Duration(1 << 53)))
    assert pair.of_lyon.misbehaved == (("too_long", 1),)
    (lease,) = pair.delft.leases()
    assert lease.ends_at is not None
    assert 0 <= pair.delft.now + 3650 * DAY - lease.ends_at < SECOND
    pair.answered(RevokeLease(neighbour="delft", lease=1, within=Duration(1 << 53)))
    (lease,) = pair.delft.leases()
    assert lease.revoked_until is not None
    assert 0 <= pair.delft.now + 3650 * DAY - lease.revoked_until < SECOND


@pytest.mark.parametrize(
    ("charge", "returned", "counted"),
    [(0, False, (("ended_early", 1),)), (1 << 53, True, (("overcharged", 1),)), (HOUR, True, ())],
    ids=["early", "overcharged", "well"],
)
def test_a_lenders_end_of_a_lease_is_looked_at(charge: int, returned: bool, counted: Any) -> None:
    pair = Pair()
    pair.bound()
    pair.let_pass(10 * MINUTE)
    if returned:
        pair.delft.apply(LeaseEndRequested(neighbour="lyon", lease=1, lent=False, reason=ENDED))
    pair.answered(EndLease(neighbour="delft", lease=1, charge=charge, reason=ENDED))
    assert pair.of_lyon.misbehaved == counted
    borrowed = pair.delft.record("lyon").borrowed
    assert borrowed == charge if charge <= HOUR else 40 * 10 * MINUTE < borrowed < 40 * 13 * MINUTE


def test_the_end_of_a_lease_that_never_was_costs_nothing_and_is_counted() -> None:
    pair = Pair()
    for number in (1, 9, 1 << 40):
        pair.answered(EndLease(neighbour="delft", lease=number, charge=1 << 53, reason=ENDED))
    assert pair.of_lyon.misbehaved == (("bad_end", 3),)
    assert pair.delft.record("lyon").borrowed == 0


def test_the_end_of_a_lease_is_entered_once() -> None:
    pair = Pair()
    pair.bound()
    pair.let_pass(10 * MINUTE)
    for _ in range(3):
        pair.answered(EndLease(neighbour="delft", lease=1, charge=HOUR, reason=ENDED))
    assert pair.delft.record("lyon").borrowed == HOUR
    assert dict(pair.of_lyon.misbehaved)["bad_end"] == 2


def test_a_request_that_was_taken_back_before_an_offer_costs_nothing() -> None:
    pair = Pair()
    job = pair.ask()
    pair.delft.apply(CancelRequested(job))
    pair.delft.apply(after=Duration(3 * SECOND))
    pair.answered(EndLease(neighbour="delft", lease=1, charge=HOUR, reason=ENDED))
    assert pair.delft.record("lyon").borrowed == 0
    assert dict(pair.of_lyon.misbehaved) == {"bad_end": 1, "overcharged": 1}


@pytest.mark.parametrize("charge", [HOUR, 1 << 53])
def test_a_lease_that_was_given_up_may_be_charged_for_once_and_no_more_than_its_time(charge: int) -> None:
    pair = Pair()
    pair.bound()
    pair.lose(pair.delft, pair.lyon)
    pair.delft.apply(after=Duration(3 * HOUR))
    pair.delft.follow()
    pair.delft.apply(after=MINUTE)
    assert [each.number for each in pair.delft.record("lyon").given_up] == [1]
    assert not pair.delft.leases()
    record = pair.delft.record("lyon")
    assert load_neighbour(dump_neighbour(record)) == record
    for number in (100, 101):
        ended = EndLease(neighbour="lyon", lease=1, charge=charge, reason=ENDED)
        pair.delft.apply(MessageReceived(neighbour="lyon", instance="store-lyon", number=number, message=ended))
    borrowed = pair.delft.record("lyon").borrowed
    assert borrowed == HOUR if charge == HOUR else 40 * 3 * HOUR < borrowed < 40 * 4 * HOUR
    assert dict(pair.of_lyon.misbehaved)["bad_end"] == 1
    assert pair.delft.record("lyon").given_up == ()


def test_a_borrower_that_keeps_a_lease_beyond_its_notice_is_counted() -> None:
    pair = Pair()
    job = pair.bound()
    pair.delft.run(job)
    pair.lyon.submit(component(40, "big", walltime=HOUR))
    pair.lyon.measure()
    assert pair.lyon.leases()[0].revoked_until is not None
    pair.lose(pair.delft, pair.lyon)  # it gets no word of it
    pair.lyon.apply(after=Duration(20 * SECOND))
    assert not pair.of_delft.misbehaved
    pair.lyon.apply(after=Duration(20 * SECOND))
    pair.lyon.apply(after=Duration(20 * SECOND))
    assert pair.of_delft.misbehaved == (("not_returned", 1),)


def test_a_neighbour_cannot_make_up_any_number_of_reasons() -> None:
    pair = Pair()
    pair.ask()
    (lease,) = pair.delft.leases()
    for number in range(100):
        asked = replace(lease, number=number + 50)
        pair.delft.engine.core.leases.add(asked)
        reason = replace(BUSY, code=f"reason {number:02}")
        pair.answered(RejectRequest(neighbour="delft", lease=asked.number, reason=reason, processors=60))
    refused = dict(pair.of_lyon.ours.refused)
    assert len(refused) == 31
    assert (refused["reason 29"], refused["other"]) == (1, 70)
