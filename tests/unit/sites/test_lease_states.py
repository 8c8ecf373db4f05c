"""The states of leases: which one may follow which, at the lender and at the borrower."""

from dataclasses import replace
from itertools import product

import pytest

from koalapy.core.due import DueSteps
from koalapy.core.leases import Leases
from koalapy.model.lease import Asked, BorrowedLease, LentLease, Origin, Wanted
from koalapy.model.states import BORROWED_TRANSITIONS, LEASE_TRANSITIONS, LENT_TRANSITIONS, LeaseState
from koalapy.model.units import HOUR, Instant

WANT = Wanted(processors=4, walltime=HOUR)
LENT = LentLease(
    neighbour="delft", number=1, processors=4, state=LeaseState.ASKED, asked_at=Instant(5),
    asked=Asked(origin=Origin("delft", 7, 1), want=WANT, dttl=0, answer_by=Instant(9)),
)  # fmt: skip
BORROWED = BorrowedLease(neighbour="delft", number=1, processors=4, state=LeaseState.ASKED, asked_at=Instant(4))


@pytest.mark.parametrize("lease", [LENT, BORROWED], ids=["lent", "borrowed"])
def test_a_lease_goes_from_state_to_state_by_the_table_of_its_side(lease: LentLease | BorrowedLease) -> None:
    transitions = LEASE_TRANSITIONS[lease.lent]
    assert set(transitions) == set(LeaseState)
    for before, after in product(LeaseState, LeaseState):
        leases = Leases(DueSteps())
        leases.add(there := replace(lease, state=before))
        if after in transitions[before]:
            assert leases.change(there, state=after).state is after
        else:
            with pytest.raises(ValueError, match=f"cannot go from {before} to {after}"):
                leases.change(there, state=after)
            assert leases.all() == [there]


def test_a_lease_is_never_offered_twice_and_never_leaves_while_it_is_bound() -> None:
    assert LeaseState.BOUND not in LENT_TRANSITIONS[LeaseState.CLOSING]
    assert LeaseState.GONE not in BORROWED_TRANSITIONS[LeaseState.BOUND]


def test_both_sides_have_records_of_the_same_number() -> None:
    leases = Leases(DueSteps(), [LENT, BORROWED])
    assert leases.all() == [LENT, BORROWED]
    assert (leases.lent_to("delft"), leases.borrowed_of("delft")) == ([LENT], [BORROWED])
    leases.drop(LENT)
    assert leases.all() == [BORROWED]
    assert [each.state for each in leases.take_changed()] == [LeaseState.GONE]
    assert leases.take_changed() == ()


def test_a_lease_that_is_passed_on_has_two_records_that_name_each_other() -> None:
    passed = replace(LENT, beyond=("lyon", 3))
    ours = replace(BORROWED, neighbour="lyon", number=3, beyond=("delft", 1))
    leases = Leases(DueSteps(), [passed, ours])
    assert (leases.borrowed_for(passed), leases.lent_on(ours)) == (ours, passed)
    leases.drop(ours)
    assert (leases.borrowed_for(passed), leases.lent_on(BORROWED)) == (None, None)
