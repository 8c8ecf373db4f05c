"""The accounts of leases that have ended: both sides of a link have one charge, and sums that lose nothing of it."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from engine_play import component
from hypothesis import given
from hypothesis import strategies as st
from site_play import BORROWER, LENDER, Site, Sites

from koalapy.model.ended_lease import Charged, EndedLease, LeaseDay, charged_now, charges, lease_days
from koalapy.model.errors import Reason
from koalapy.model.events import CancelRequested, LeaseEndRequested, NeighbourConnected, NeighbourLeft, PruneRequested
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.lease import Borrow, Lend
from koalapy.model.records import Step
from koalapy.model.units import DAY, HOUR, MINUTE, SECOND, Duration, Instant
from koalapy.model.usage import By, Kind, Sum, Usage, sums
from koalapy.views.usage import as_csv, charges_of, rows_of

TAKEN_BACK = Reason("lease_ended", "request", "Its lender has taken it back.", "")


class Booked(Site):
    """A site whose steps' accounts are kept."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.accounts: list[EndedLease] = []
        super().__init__(*arguments, **settings)

    def apply(self, *events: Any, **options: Any) -> Any:
        handle: Any = self.engine.handle

        def handled(now: Instant, batch: Sequence[Any]) -> Step:
            step: Step = handle(now, batch)
            self.accounts += step.leases_ended
            return step

        engine: Any = self.engine
        engine.handle = handled
        try:
            return super().apply(*events, **options)
        finally:
            engine.handle = handle


class Pair(Sites):
    def __init__(self) -> None:
        borrow = Borrow(after=Duration(0), idle=MINUTE, again=MINUTE)
        self.delft = Booked("delft", BORROWER, borrow=borrow)
        self.lyon = Booked("lyon", LENDER, lend=Lend(to=("delft",), processors=60))
        super().__init__(self.delft, self.lyon)
        self.link(self.delft, self.lyon)

    def bound(self) -> JobId:
        job = self.delft.submit(component(40, walltime=HOUR))
        self.delft.apply(after=Duration(3 * SECOND))
        self.exchange()
        self.lyon.run(max(self.lyon.jobs))
        self.exchange()
        self.delft.follow()
        return job

    def take_back(self) -> None:
        self.lyon.apply(LeaseEndRequested(neighbour="delft", lease=1, lent=True, reason=TAKEN_BACK, at_once=True))
        self.lyon.obey()


def test_both_sides_have_one_charge_and_who_had_it_for_what() -> None:
    pair = Pair()
    job = pair.bound()
    pair.let_pass(10 * MINUTE)
    pair.take_back()
    pair.exchange()
    (borrowed,), (lent,) = pair.delft.accounts, pair.lyon.accounts
    assert borrowed.charge == lent.charge == lent.measured == 40 * (lent.ended_at - lent.began_at)
    assert borrowed.charge >= 40 * 10 * MINUTE
    assert (borrowed.processors, borrowed.lent, lent.lent) == (40, False, True)
    assert (borrowed.cluster, lent.cluster) == ("lyon~1", "big")
    for each, site in ((borrowed, ""), (lent, "delft")):
        assert (each.site, each.request, each.user, each.name) == (site, job, "me", "job")
        assert (each.code, each.reported) == ("lease_ended", True)
    assert (borrowed.job, lent.job) == (job, max(pair.lyon.jobs))


def test_the_borrowers_own_figure_differs_by_what_the_report_of_the_end_took() -> None:
    pair = Pair()
    pair.bound()
    pair.let_pass(MINUTE)
    pair.lose(pair.delft, pair.lyon)
    pair.take_back()
    for each in (pair.delft, pair.lyon):
        each.apply(after=Duration(2 * MINUTE))
    pair.connect(pair.delft, pair.lyon)
    (borrowed,), (lent,) = pair.delft.accounts, pair.lyon.accounts
    assert borrowed.charge == lent.charge
    assert borrowed.measured - borrowed.charge >= 40 * 2 * MINUTE
    (row,) = rows_of({}, By.SITE, charges(pair.delft.accounts))
    assert row["leased"] is not None
    assert row["leased"]["difference"] == (borrowed.charge - borrowed.measured) / SECOND < -80 * 60


@pytest.mark.parametrize("left", [True, False], ids=["removed", "new-store"])
def test_a_lease_whose_end_nobody_reports_is_charged_with_nothing_and_shown_as_a_difference(left: bool) -> None:
    pair = Pair()
    pair.bound()
    pair.let_pass(MINUTE)
    if left:
        pair.delft.apply(NeighbourLeft(neighbour="lyon"))
        pair.lyon.apply(NeighbourLeft(neighbour="delft"))
    else:
        pair.delft.apply(NeighbourConnected(neighbour="lyon", instance="another"))
        pair.lyon.apply(NeighbourConnected(neighbour="delft", instance="another"))
    (borrowed,), (lent,) = pair.delft.accounts, pair.lyon.accounts
    assert (borrowed.charge, borrowed.reported, borrowed.code) == (
        0, False, "neighbour_removed" if left else "lender_forgot"
    )  # fmt: skip
    assert lent.charge >= 40 * MINUTE <= borrowed.measured


def test_a_request_that_was_cancelled_is_no_lease() -> None:
    pair = Pair()
    job = pair.delft.submit(component(40, walltime=HOUR))
    pair.delft.apply(after=Duration(3 * SECOND))
    pair.exchange()
    pair.delft.apply(CancelRequested(job))
    pair.let_pass(MINUTE)
    pair.lyon.obey()
    pair.exchange()
    assert (pair.delft.accounts, pair.lyon.accounts) == ([], [])


def test_pruned_accounts_are_named_to_the_store() -> None:
    key = account().key
    play = Site("delft", BORROWER)
    step = play.engine.handle(play.now, [PruneRequested(work=(), before=Instant(9), records=True, leases=(key,))])
    assert step.leases_removed == (key,)


# ---- sums


def account(**fields: Any) -> EndedLease:
    values: dict[str, Any] = {
        "neighbour": "lyon", "lent": False, "number": 1, "asked_at": Instant(1), "began_at": Instant(10),
        "ended_at": Instant(20), "processors": 4, "charge": 41, "measured": 40, **fields,
    }  # fmt: skip
    return EndedLease(**values)


@st.composite
def accounts(draw: st.DrawFn) -> list[EndedLease]:
    instant, amount = st.integers(0, 3 * DAY), st.integers(0, 1 << 50)
    found = []
    for number in range(draw(st.integers(0, 6))):
        began_at, ended_at = sorted(draw(st.tuples(instant, instant)))
        lent, charge = draw(st.booleans()), draw(amount)
        found.append(
            account(
                neighbour=draw(st.sampled_from(["lyon", "nl"])), lent=lent, number=number,
                began_at=Instant(began_at), ended_at=Instant(ended_at), charge=charge,
                measured=charge if lent else draw(amount),
            )
        )  # fmt: skip
    return found


def whole(leases: list[EndedLease]) -> Charged:
    parts = [
        Charged(each.charge, 0, 0, 1) if each.lent else Charged(0, each.charge, each.measured, 1) for each in leases
    ]
    return charges_of(parts)


@given(accounts(), st.lists(st.integers(-DAY, 4 * DAY), max_size=4))
def test_the_charges_of_all_intervals_add_up_to_the_whole(leases: list[EndedLease], cuts: list[int]) -> None:
    bounds = [None, *map(Instant, sorted(set(cuts))), None]
    parts = [charges_of(charges(leases, since, until).values()) for since, until in pairwise(bounds)]
    assert charges_of(parts) == whole(leases) == charges_of(charges(leases).values())


@given(accounts(), st.integers(0, 6))
def test_pruned_accounts_count_as_before(leases: list[EndedLease], pruned: int) -> None:
    days = lease_days(leases[:pruned])
    assert charges(leases[pruned:], days=days) == charges(leases)
    assert all(each.day % DAY == 0 for each in days)
    assert len({(each.day, each.neighbour) for each in days}) == len(days)


def test_days_count_whole_if_they_begin_within_the_bounds() -> None:
    days = [LeaseDay(day=Instant(day * DAY), neighbour="nl", charged=Charged(lent=10**day)) for day in range(3)]
    assert charges([], Instant(1), Instant(2 * DAY), days) == {"nl": Charged(lent=10)}


def test_leases_that_go_on_are_not_charged_yet() -> None:
    pair = Pair()
    pair.bound()
    for site, found in ((pair.delft, Charged(borrowed_now=1)), (pair.lyon, Charged(lent_now=1))):
        (lease,) = leases = site.engine.core.leases.all()
        now = Instant((lease.bound_at or 0) + HOUR)
        ((_, charged),) = charged_now(leases, now).items()
        assert charged == Charged(*(part * 40 * HOUR for part in found))
        ((_, late),) = charged_now(leases, now, Instant(now - MINUTE)).items()
        assert late == Charged(*(part * 40 * MINUTE for part in found))


# ---- rows


def used(owner: str, cluster: str) -> Usage:
    return Usage(
        attempt=AttemptId(JobId(1), 0, len(owner + cluster)), owner=owner, charged=JobId(1), name="a",
        cluster=cluster, processors=1, kind=Kind.RUN, started_at=Instant(0), released_at=Instant(0),
        ended_at=Instant(SECOND),
    )  # fmt: skip


def test_usage_by_site_is_beside_what_was_lent_and_borrowed() -> None:
    entries = [used("mona", "alpha"), used("mona", "lyon~3"), used("site:nl", "alpha"), used("mona", "pilot~7")]
    found = sums(entries, By.SITE)
    one, on_pilot = Sum(run=SECOND, estimated=SECOND, attempts=1), Sum(attempts=1, on_pilots=SECOND)
    assert found == {("",): one.plus(on_pilot), ("lyon",): one, ("nl",): one}
    charged = {"paris": Charged(lent=7 * SECOND, leases=1), "lyon": Charged(borrowed=5 * SECOND, measured=SECOND)}
    rows = rows_of(found, By.SITE, charged)
    assert [(each["site"], each["run"]) for each in rows] == [(None, 1.0), ("lyon", 1.0), ("nl", 1.0), ("paris", 0.0)]
    assert [each["leased"] and (each["leased"]["lent"], each["leased"]["difference"]) for each in rows] == [
        None, (0.0, 4.0), (0.0, 0.0), (7.0, 0.0)
    ]  # fmt: skip
    lines = as_csv(rows, By.SITE).splitlines()
    assert lines[0].endswith("attempts,on_pilots,used,lent,borrowed,difference,leases,lent_now,borrowed_now")
    assert [line.split(",")[0] for line in lines[1:]] == ["", "lyon", "nl", "paris"]
    assert {row["leased"] is None for row in rows_of(sums(entries, By.USER), By.USER, charged)} == {True}
