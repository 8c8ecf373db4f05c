"""Jobs that ask for fewer processors after a failed claim, and then after a time; shown in their history."""

from typing import Any

import pytest
from engine_play import Play, component
from job_languages import read_native as read
from job_languages import read_rsl

from koalapy.languages.mapping import job_mapping
from koalapy.languages.reading import from_mapping
from koalapy.model.errors import RequestError
from koalapy.model.events import ClusterMeasured
from koalapy.model.identity import JobId
from koalapy.model.request import ComponentRequest
from koalapy.model.states import JobState
from koalapy.model.units import MINUTE, SECOND, Duration
from koalapy.runtime.resubmission import request_again
from koalapy.views.history import sentence

JOB = "components: [{processors: %s, executable: hostname}]\n"


def asked(play: Play, job: JobId) -> list[int]:
    return [each.processors for each in play.job(job).request.components]


def adaptive(most: int, least: int, **fields: Any) -> ComponentRequest:
    return ComponentRequest(processors=most, most=most, least=least, executable="x", **fields)


def reported(play: Play, job: JobId) -> list[str]:
    return [sentence(line) for line in play.history if line.job == job and line.kind == "job_lowered"]


def test_after_each_failed_claim_the_job_asks_for_half_down_to_the_least(play: Play) -> None:
    job = play.submit(adaptive(16, 5, cluster="alpha"), component(2, "beta"), retrials=9)
    seen = []
    for _ in range(4):
        play.measure()
        seen.append(asked(play, job))
        play.lose_claim(job)
    assert seen == [[16, 2], [8, 2], [5, 2], [5, 2]]
    assert reported(play, job) == [
        "It asks for fewer processors, since its claim failed: component 0 for 8 instead of 16.",
        "It asks for fewer processors, since its claim failed: component 0 for 5 instead of 8.",
    ]
    assert request_again(play.job(job)).components[0].processors == 16


def test_half_of_what_a_job_got_is_asked_for_after_its_claim_has_failed(play: Play) -> None:
    play.measure(alpha=26, beta=16, gamma=16)
    job = play.submit(adaptive(16, 1))
    assert asked(play, job) == [6]
    play.lose_claim(job)
    assert asked(play, job) == [3]
    assert request_again(play.job(job)).components[0].processors == 16


def test_a_job_that_has_failed_asks_for_fewer_whenever_it_has_waited_and_then_gets_no_more(play: Play) -> None:
    job = play.submit(adaptive(16, 2), relax_after=Duration(30 * SECOND), retrials=9)
    play.end(play.attempts(job)[0], None, "killed")
    play.apply(*full(play))
    play.obey()
    assert (play.job(job).state, asked(play, job)) == (JobState.WAITING, [8])
    assert play.engine.next_wakeup() is not None
    for processors in (8, 4):
        play.apply(*full(play))
        play.apply(after=Duration(29 * SECOND))
        assert asked(play, job) == [processors]
        play.apply(*full(play))
        play.apply(after=Duration(2 * SECOND))
    assert "since it has waited long enough" in reported(play, job)[-1]
    play.measure()
    assert (play.job(job).state, asked(play, job)) == (JobState.CLAIMING, [2])


def test_time_alone_takes_nothing_from_a_job_that_has_not_failed(play: Play) -> None:
    play.apply(*full(play))
    job = play.submit(adaptive(16, 4), relax_after=Duration(SECOND))
    play.apply(after=Duration(MINUTE))
    assert (play.job(job).state, asked(play, job)) == (JobState.WAITING, [16])
    play.measure(alpha=26, beta=16, gamma=16)
    assert (play.job(job).state, asked(play, job)) == (JobState.CLAIMING, [6])
    assert reported(play, job) == []


def full(play: Play) -> list[ClusterMeasured]:
    return [play.measurement(name, others=size) for name, size in play.sizes.items()]


def test_a_job_that_gets_what_it_wants_keeps_it(play: Play) -> None:
    job = play.submit(adaptive(16, 4), relax_after=Duration(SECOND))
    play.apply(after=Duration(MINUTE))
    assert asked(play, job) == [16]


@pytest.mark.parametrize(
    ("fields", "steps"),
    [
        ({}, [16, 8, 4, 3]),
        ({"threads_per_process": 3}, [16, 6, 3]),
        ({"processors_per_node": 4}, [16, 8, 4, 3]),
    ],
)
def test_processes_and_nodes_stay_whole(fields: dict[str, int], steps: list[int]) -> None:
    found: list[int] = []
    each = adaptive(16, 3, **fields)
    while not found or each.processors != found[-1]:
        found.append(each.processors)
        each = each.lowered()
    assert found == steps


def test_job_files_and_rsl_mean_it_alike() -> None:
    found = read(JOB % "{want: 16, least: 4}" + "relax_after: 2m\n", "job.yaml", "/")
    assert (found.components[0].processors, found.components[0].most, found.components[0].least) == (16, 16, 4)
    assert found.relax_after == 2 * MINUTE
    assert from_mapping(job_mapping(found), "job", "/") == found
    rsl = read_rsl("&(executable=/bin/hostname)(count=16)(min_count=4)", "job.rsl", "/")
    assert rsl.components[0].least == 4
    assert read(JOB % "{want: 4, least: 4}", "job.yaml", "/").components[0].least is None


@pytest.mark.parametrize(
    ("processors", "words"),
    [
        ("{want: 4, least: 5}", "job.yaml:1:15: components.0.processors wants 4, fewer than the least, 5"),
        ("{want: 4}", "components.0.processors needs both want and least"),
        ("{want: 4, last: 5}", "components.0.processors has the unknown key last"),
        ("{want: 4, least: 0}", "components.0.processors is 0"),
        ("{want: 6, least: 4}, processors_per_node: 4", "processors_per_node is 4, which does not divide both"),
        ("{want: 6, least: 4}, threads_per_process: 4", "threads_per_process is 4, which does not divide"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(processors: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(JOB % processors, "job.yaml", "/")
    assert words in caught.value.reason.message
