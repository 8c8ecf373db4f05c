"""The demand of waiting local jobs, laid on the idle processors."""

import random

from koalapy_adapters.batch.text import is_launcher
from koalapy_adapters.batch.waiting_demand import WaitingJob, wanted, whole_nodes

from koalapy.model.identity import FIRST_LAUNCHER, LAUNCHERS_END, MAX_JOBS, AttemptId, InstanceId, JobId, tag_of

FOURS = [4] * 8


def test_what_fits_on_what_is_idle_wants_no_more() -> None:
    assert wanted([WaitingJob(8, 2), WaitingJob(1)], [4, 4, 4], FOURS, 12) == 9
    assert wanted([], [4, 4], FOURS, 8) == 0


def test_own_limits_make_nothing_lacking() -> None:
    """Less is idle to us than to others."""
    assert wanted([WaitingJob(8, 2)], [4, 4], FOURS, 4) == 4


def test_small_jobs_share_a_node_and_those_of_several_nodes_do_not() -> None:
    assert wanted([WaitingJob(1, tasks=5)], [], FOURS, 0) == 8
    assert wanted([WaitingJob(2, 2), WaitingJob(2, 2)], [], FOURS, 0) == 8
    assert wanted([WaitingJob(5)], [], FOURS, 0) == 8
    assert wanted([WaitingJob(3, 3), WaitingJob(1)], [4], FOURS, 4) == 4 + 8


def test_more_than_there_is_cannot_be_lacking() -> None:
    assert wanted([WaitingJob(1000), WaitingJob(4, tasks=10**9)], [], FOURS, 0) == 32
    assert wanted([WaitingJob(4, 2, tasks=10**9)], [4], FOURS, 4) == 4 + 32
    assert wanted([WaitingJob(4)], [], [], 0) == 0


def test_a_million_jobs_cost_no_more_than_a_few_kinds_of_them() -> None:
    kinds = [WaitingJob(processors, nodes) for processors in range(1, 40) for nodes in (1, 3)]
    many = random.Random(7).choices(kinds, k=100_000)
    assert wanted(many, [], [64] * 500, 0) == 500 * 64


def test_in_all_that_is_free_whole_nodes_are_counted() -> None:
    assert whole_nodes([4, 8, 4, 0], 16) == [[8, 1], [4, 2]]
    assert whole_nodes([4, 8, 4], 9) == [[8, 1]]
    assert whole_nodes([4, 8, 4], 7) == [[4, 1]]


def test_launchers_are_known_by_their_tags() -> None:
    def named(job: int) -> str:
        return tag_of(InstanceId("aaaaa"), AttemptId(JobId(job), 0, 1))

    jobs = [1, FIRST_LAUNCHER - 1, FIRST_LAUNCHER, LAUNCHERS_END - 1, LAUNCHERS_END, MAX_JOBS - 1]
    assert [is_launcher(named(job)) for job in jobs] == [False, False, True, True, False, False]
    assert not is_launcher("g" * 15)
