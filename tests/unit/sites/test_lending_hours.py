"""Hours in which a site lends: none of its leases lasts beyond them, and what does nevertheless is taken back."""

from dataclasses import replace
from typing import Any

import pytest
from engine_play import component
from site_play import BORROWER, LENDER, Site, Sites

from koalapy.config.hours import parse_hours
from koalapy.model.commands import RejectRequest, ReturnLease, RevokeLease
from koalapy.model.identity import JobId
from koalapy.model.lease import Borrow, Lend, LentLease, RevokeFor
from koalapy.model.neighbour import Relation
from koalapy.model.states import JobState, LeaseState
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration, Instant

GRACE = Duration(20 * SECOND)
TODAY = 11 * 24 * HOUR  # plays begin on 1970-01-12 at 13:46:40 UTC


def open_from(hour: int, last: int) -> tuple[Any, ...]:
    return (parse_hours(f"* {hour}-{last} * * *"),)


class Three(Sites):
    """`delft` borrows of `lyon`, which passes on to `paris`. `offset`: of lyon's clock."""

    def __init__(self, hours: tuple[Any, ...], offset: int = 0, **lend: Any) -> None:
        self.delft = Site("delft", BORROWER, borrow=Borrow(after=Duration(0), idle=MINUTE, again=MINUTE))
        terms = {"to": ("delft",), "processors": 60, "grace": GRACE, **lend}
        self.lyon = Site("lyon", LENDER, lend=Lend(**terms, hours=hours))
        scavenging = replace(self.lyon.settings.scavenging, offsets=((Instant(0), Duration(offset)),))
        self.lyon.engine.core.settings = replace(self.lyon.engine.core.settings, scavenging=scavenging)
        self.paris = Site("paris", LENDER, lend=Lend(to=("lyon",), processors=60, strangers=True))
        super().__init__(self.delft, self.lyon, self.paris)
        self.link(self.lyon, self.paris, Relation.CHILD)
        self.link(self.delft, self.lyon)

    def ask(self, walltime: int) -> JobId:
        job = self.delft.submit(component(40, walltime=Duration(walltime)))
        self.delft.apply(after=Duration(3 * SECOND))
        return job

    def use_hours(self, hours: tuple[Any, ...]) -> None:
        core = self.lyon.engine.core
        assert core.settings.lend is not None
        core.settings = replace(core.settings, lend=replace(core.settings.lend, hours=hours))

    def bound(self, walltime: int) -> JobId:
        job = self.ask(walltime)
        self.exchange()
        self.lyon.run(max(self.lyon.jobs))
        self.exchange()
        self.delft.follow()
        self.delft.run(job)
        return job


def test_outside_the_hours_nothing_can_be_had_here_or_beyond() -> None:
    three = Three(open_from(15, 20), pass_on=True)
    assert three.delft.record("lyon").free == 0
    job = three.ask(HOUR)
    assert three.exchange() == []
    assert three.delft.job(job).state is JobState.WAITING


def test_what_is_asked_outside_the_hours_is_refused_with_the_time_when_it_lends_again() -> None:
    three = Three(open_from(0, 23), pass_on=True)
    three.ask(HOUR)  # delft does not know yet that the hours have changed
    three.use_hours(open_from(15, 20))
    (rejection,) = [each for each in three.exchange() if isinstance(each, RejectRequest)]
    assert rejection.reason.code == "closed"
    again = "It does not lend at this hour, and again from 1970-01-12T15:00:00.000000Z on."
    assert rejection.reason.message == again
    three.let_pass(Duration(20 * SECOND))
    assert three.delft.record("lyon").free == 0


def test_the_hours_are_those_of_the_lenders_own_clock() -> None:
    assert Three(open_from(15, 20), offset=2 * HOUR).delft.record("lyon").free == 60


def test_no_lease_is_given_that_would_outlast_the_hours() -> None:
    three = Three(open_from(13, 14), pass_on=True)  # until 15:00, in 73 minutes
    three.ask(2 * HOUR)
    (rejection,) = [each for each in three.exchange() if isinstance(each, RejectRequest)]
    assert rejection.reason.code == "closes"
    assert rejection.reason.message.startswith("It lends until 1970-01-12T15:00:00.000000Z, and 2h")
    three.bound(HOUR // 2)
    assert [each.state for each in three.lyon.leases()] == [LeaseState.BOUND]


def test_a_lease_that_begins_late_is_offered_until_the_end_of_the_hours_only() -> None:
    three = Three((parse_hours("0-57 13 * * *"),))
    three.ask(MINUTE)
    three.exchange()
    (lease,) = three.lyon.leases()
    assert isinstance(lease, LentLease)
    closes_at = TODAY + 13 * HOUR + 58 * MINUTE
    assert 0 < closes_at - three.lyon.now - lease.asked.want.walltime < MINUTE
    three.lyon.apply(after=Duration(100 * SECOND))
    three.lyon.run(max(three.lyon.jobs))
    three.exchange()
    (lease,), (borrowed,) = three.lyon.leases(), three.delft.leases()
    assert lease.ends_at == closes_at
    assert borrowed.state is LeaseState.BOUND
    assert abs((borrowed.ends_at or 0) - closes_at) < 3 * MINUTE  # by its own clock, which is behind in this play


@pytest.mark.parametrize("revoke_for", RevokeFor)
def test_a_lease_that_outlasts_changed_hours_is_taken_back_after_a_notice_and_uncounted(revoke_for: RevokeFor) -> None:
    three = Three((), revoke_for=revoke_for)
    job = three.bound(HOUR)
    position = three.delft.job(job).position
    three.use_hours(open_from(15, 20))
    three.lyon.apply(after=SECOND)
    assert three.exchange() == [RevokeLease(neighbour="delft", lease=1, within=GRACE)]
    three.lyon.apply(after=SECOND)
    assert three.exchange() == []  # once is enough
    three.delft.obey()
    three.delft.apply(after=Duration(3 * SECOND))
    found = three.delft.job(job)
    assert (found.state, found.position, found.completion_failures) == (JobState.WAITING, position, 0)
    assert [type(each) for each in three.exchange()][:1] == [ReturnLease]
    three.lyon.obey()
    three.exchange()
    assert three.lyon.leases() == []
    ends = [each.details["message"] for each in three.delft.history if each.kind == "lease_ended"]
    assert ends == ["Its lender does not lend at this hour."]


def test_a_lease_of_another_site_is_taken_back_by_the_one_between_outside_its_hours() -> None:
    three = Three((), pass_on=True, processors=60, clusters=("small",))
    job = three.ask(HOUR)
    three.exchange()
    three.paris.run(max(three.paris.jobs))
    three.exchange()
    three.delft.follow()
    three.delft.run(job)
    three.use_hours(open_from(15, 20))
    three.lyon.apply(after=SECOND)
    assert three.exchange() == [RevokeLease(neighbour="delft", lease=1, within=GRACE)]
    three.lyon.apply(after=GRACE)
    three.lyon.apply(after=SECOND)
    assert [each for each in three.exchange() if each == ReturnLease(neighbour="paris", lease=1)]
