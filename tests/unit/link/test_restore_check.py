"""A cluster that knows more of the store than the store: restored from a backup, or at work for another koalad."""

from typing import Any

import pytest
from koalapy_adapters.messages import PROTOCOL
from koalapy_adapters.messages.kcm import Welcome

from koalapy.link.restore_check import CONNECTS, NUMBERS_AHEAD, REFUSALS, CheckResult, RestoreCheck, Verdict
from koalapy.model.events import StoreRestored
from koalapy.model.identity import AttemptId, InstanceId, JobId, is_tag, tag_of, tags_of

FINE, AGAIN, REPLACED = CheckResult(Verdict.FINE), CheckResult(Verdict.AGAIN), CheckResult(Verdict.REPLACED)
EPOCH, LAST = 7, 40
SESSION = EPOCH * CONNECTS + 1


def welcome(**fields: Any) -> Welcome:
    return Welcome(PROTOCOL, "1", 5, "3.6", "head", **fields)


def stale(epoch: int) -> Welcome:
    return welcome(error={"code": "stale", "whose": "cluster", "message": "replaced"}, newest_epoch=epoch)


@pytest.fixture
def check() -> RestoreCheck:
    return RestoreCheck(EPOCH, LAST)


@pytest.mark.parametrize("number", [0, LAST], ids=["nothing", "all that the store knows"])
def test_a_cluster_that_knows_no_more_is_fine(check: RestoreCheck, number: int) -> None:
    assert check.judge("vu", SESSION, welcome(newest_number=number)) == FINE
    assert check.judge("vu", SESSION + 5, welcome(newest_number=LAST + 100)) == FINE  # reported in this life


def test_a_number_that_the_store_does_not_know_makes_it_leap(check: RestoreCheck) -> None:
    restored = StoreRestored(epoch=EPOCH + 1, last_number=LAST + 1 + NUMBERS_AHEAD)
    assert check.judge("vu", SESSION, welcome(newest_number=LAST + 1)) == CheckResult(Verdict.AGAIN, restored)
    assert check.judge("vu", SESSION + 1, welcome(newest_number=LAST + 1)) == AGAIN
    said = REFUSALS[Verdict.AGAIN].message
    assert said.endswith("the store was restored from a backup, or another koalad used a copy of it.")
    check.committed(restored)
    assert check.judge("vu", SESSION + 2, welcome(newest_number=LAST + 1)) == AGAIN  # it began before
    assert check.judge("vu", (EPOCH + 1) * CONNECTS + 1, welcome(newest_number=LAST + 1)) == FINE


def test_an_epoch_that_the_store_does_not_know_makes_it_leap_beyond(check: RestoreCheck) -> None:
    found = check.judge("vu", SESSION, stale(12 * CONNECTS + 3))
    assert found == CheckResult(Verdict.AGAIN, StoreRestored(epoch=13, last_number=LAST + NUMBERS_AHEAD))
    assert found.restored is not None
    check.committed(found.restored)
    later = check.judge("delft", 13 * CONNECTS + 1, stale(20 * CONNECTS + 1))
    assert later.restored is not None
    assert later.restored.epoch == 21


def test_the_same_epoch_of_another_life_makes_it_leap(check: RestoreCheck) -> None:
    found = check.judge("vu", SESSION, stale(SESSION + 4))
    assert found.restored is not None
    assert found.restored.epoch == EPOCH + 1


def test_a_koalad_that_was_connected_is_replaced_and_never_leaps(check: RestoreCheck) -> None:
    assert check.judge("vu", SESSION, welcome(newest_number=0)) == FINE
    assert check.judge("vu", SESSION + 1, stale(9 * CONNECTS)) == REPLACED
    assert check.judge("vu", SESSION + 2, stale(9 * CONNECTS)) == REPLACED


def test_a_cluster_whose_directory_is_out_of_reach_is_vetted_when_it_is_not(check: RestoreCheck) -> None:
    assert check.judge("vu", SESSION, welcome()) == FINE
    assert check.judge("vu", SESSION, welcome(newest_number=LAST + 3)).restored is not None


@pytest.mark.parametrize("job", [1, 2, 31, 32, 100_000, (1 << 24) - 1])
def test_the_tags_of_a_job_lie_between_its_first_and_last(job: int) -> None:
    instance = InstanceId("4xy27")
    first, last = tags_of(instance, JobId(job))
    assert is_tag(first)
    assert is_tag(last)
    for attempt in (AttemptId(JobId(job), 0, 1), AttemptId(JobId(job), 5, 77), AttemptId(JobId(job), 1023, 2047)):
        assert first <= tag_of(instance, attempt) <= last
    for other in {job - 1, min(job + 1, (1 << 24) - 1)} - {job}:
        assert not first <= tag_of(instance, AttemptId(JobId(other), 3, 3)) <= last


@pytest.mark.parametrize(
    "said",
    [welcome(newest_number=LAST + 10**9 + 1), welcome(newest_number=1 << 53), stale((EPOCH + 10**6 + 1) * CONNECTS)],
    ids=["a number", "the largest number", "an epoch"],
)
def test_what_no_koalad_can_have_sent_is_a_fault_of_that_cluster_alone(check: RestoreCheck, said: Welcome) -> None:
    """A store that went on beyond it would have used up its numbers."""
    assert check.judge("evil", SESSION, said) == CheckResult(Verdict.IMPOSSIBLE)
    assert check.judge("vu", SESSION + 1, welcome(newest_number=LAST)) == FINE
    assert check.judge("evil", SESSION + 2, welcome(newest_number=LAST)) == FINE


def test_a_store_may_be_far_behind(check: RestoreCheck) -> None:
    found = check.judge("vu", SESSION, welcome(newest_number=LAST + 10**9))
    assert found.restored is not None
