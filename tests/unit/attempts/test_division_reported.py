"""A wrapper's report on its nodes counts only if it is what the component starts: the ranks of all depend on it."""

from typing import Any

import pytest
from engine_play import Play, component, present

from koalapy.model.cluster import Node
from koalapy.model.commands import ReleaseAttempt
from koalapy.model.counts import counted_as
from koalapy.model.events import WrapperReported
from koalapy.model.identity import AttemptId
from koalapy.model.request import Launch
from koalapy.model.states import Ending, JobState, ReportedEnding, WrapperPhase


def nodes(counts: list[int]) -> tuple[Node, ...]:
    return tuple(Node(f"n{index}", f"10.0.0.{index}", count) for index, count in enumerate(counts))


def comes(attempt: AttemptId, counts: list[int], cluster: str = "alpha", **facts: Any) -> WrapperReported:
    parts: dict[str, Any] = {"phase": WrapperPhase.AT_BARRIER, **facts}
    return WrapperReported(cluster=cluster, attempt=attempt, batch_id="1", nodes=nodes(counts), **parts)


def placed(processors: int = 4, **fields: Any) -> tuple[Play, Any, AttemptId]:
    play = Play()
    job = play.submit(component(processors, cluster="alpha", **fields))
    return play, job, play.attempts(job)[0]


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, [4]),
        ({}, [3, 1]),
        ({}, [4, 0]),
        ({"threads_per_process": 2}, [1, 1]),
        ({"threads_per_process": 3}, [1]),
        ({"threads_per_process": 9}, [1]),
        ({"launch": Launch.PER_NODE}, [1, 1, 1]),
        ({"launch": Launch.PER_NODE}, [1]),
        ({"launch": Launch.ONCE}, [1, 0, 0]),
    ],
    ids=repr,
)
def test_what_was_asked_for_is_released(fields: dict[str, Any], counts: list[int]) -> None:
    play, job, attempt = placed(**fields)
    commands = play.apply(comes(attempt, counts))
    (release,) = [each for each in commands if isinstance(each, ReleaseAttempt)]
    assert [host[2] for host in release.hosts] == counts
    assert play.job(job).state is JobState.RUNNING


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, [5]),
        ({}, [10**9]),
        ({}, [0]),
        ({}, [3, 0]),
        ({"threads_per_process": 2}, [4]),
        ({"launch": Launch.PER_NODE}, [1, 2]),
        ({"launch": Launch.PER_NODE}, [0, 1]),
        ({"launch": Launch.ONCE}, [2]),
        ({"launch": Launch.ONCE}, [0, 0]),
    ],
    ids=repr,
)
def test_what_was_not_asked_for_ends_the_attempt(fields: dict[str, Any], counts: list[int]) -> None:
    play, job, attempt = placed(**fields)
    commands = play.apply(comes(attempt, counts))
    assert [type(each).__name__ for each in commands] == ["CancelAttempt"]
    found = play.job(job)
    assert found.state is JobState.STOPPING
    assert present(found).nodes == ()
    assert present(found).ending is Ending.FAILED
    assert found.reason is not None
    assert (found.reason.code, found.reason.whose) == ("wrong_processes", "cluster")
    reported = f"{counted_as(sum(counts), 'process', 'processes')} on {counted_as(len(counts), 'node')}"
    assert f"Its wrapper reported {reported}, which is not what was asked for." in found.reason.message


def test_the_others_hosts_never_hold_them() -> None:
    play = Play()
    job = play.submit(component(4, cluster="alpha"), component(4, cluster="beta"))
    mine, theirs = play.attempts(job)
    play.apply(comes(mine, [4]))
    commands = play.apply(comes(theirs, [400], "beta"))
    assert {type(each).__name__ for each in commands} == {"CancelAttempt"}
    assert len(commands) == 2


def test_a_job_that_was_released_goes_on_with_the_nodes_that_were_known() -> None:
    play, job, attempt = placed()
    play.apply(comes(attempt, [4]))
    assert play.apply(comes(attempt, [9], phase=WrapperPhase.RUNNING)) == []
    found = play.job(job)
    assert found.state is JobState.RUNNING
    assert present(found).nodes == nodes([4])


def test_the_end_of_an_attempt_counts_whatever_nodes_it_reports() -> None:
    play, job, attempt = placed()
    play.apply(comes(attempt, [4]))
    play.apply(comes(attempt, [9], phase=WrapperPhase.ENDED, ending=ReportedEnding.EXITED, exit_status=3))
    found = play.job(job)
    assert present(found).exit_status == 3
    assert present(found).nodes == nodes([4])
