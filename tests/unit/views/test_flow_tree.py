"""The tree of a flow that `koala show` prints, in parts of bounded size."""

from dataclasses import replace

from engine_play import component, make

from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.views.flow_tree import flow_tree


def work(id: int, after: tuple[int, ...] = (), state: JobState = JobState.BLOCKED) -> Job:
    request = replace(make(component(1)), name=f"j{id}", after=tuple(map(JobId, after)))
    return Job(id=JobId(id), owner="me", request=request, state=state, position=id, submitted_at=Instant(0))


FLOW = JobId(99)
DIAMOND = [work(1, state=JobState.DONE), work(2, (1,)), work(3, (1,)), work(4, (2, 3)), work(5)]


def test_each_job_stands_below_the_last_that_it_waits_for_and_the_others_are_named() -> None:
    found = flow_tree(FLOW, DIAMOND, 0, 10)
    assert [(each["id"], each["level"], each["other_names"]) for each in found["jobs"]] == [
        (1, 0, []), (2, 1, []), (3, 1, []), (4, 2, ["j2"]), (5, 0, []),
    ]  # fmt: skip
    assert (found["levels"], found["more"]) == (3, 0)
    assert found["states"] == {"done": 1, "blocked": 4}


def test_parts_together_have_each_job_once_and_each_part_counts_the_whole() -> None:
    parts = [flow_tree(FLOW, DIAMOND, skip, 2) for skip in (0, 2, 4, 6)]
    assert [[each["id"] for each in part["jobs"]] for part in parts] == [[1, 2], [3, 4], [5], []]
    assert [part["more"] for part in parts] == [3, 1, 0, 0]
    assert {part["levels"] for part in parts} == {3}
    assert all(sum(part["states"].values()) == 5 for part in parts)


def test_many_others_are_counted_and_few_of_them_named() -> None:
    (*_, last) = flow_tree(FLOW, [*map(work, range(1, 8)), work(8, tuple(range(1, 8)))], 0, 10)["jobs"]
    assert (last["id"], last["level"], last["others"]) == (8, 1, 6)
    assert last["other_names"] == ["j1", "j2", "j3"]


def test_jobs_that_are_pruned_leave_those_that_waited_for_them_at_the_top() -> None:
    assert [(each["id"], each["level"]) for each in flow_tree(FLOW, [work(3, (1, 2))], 0, 10)["jobs"]] == [(3, 0)]
    empty = flow_tree(FLOW, [], 0, 10)
    assert (empty["levels"], empty["jobs"]) == (0, [])


def test_a_chain_of_ten_thousand_has_as_many_levels() -> None:
    chain = [work(1), *[work(id, (id - 1,)) for id in range(2, 10_001)]]
    found = flow_tree(FLOW, chain, 9_990, 200)
    assert [each["level"] for each in found["jobs"]] == [*range(9_990, 10_000)]
    assert (found["levels"], found["more"]) == (10_000, 0)
