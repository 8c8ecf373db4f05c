"""The engine's pruning: only final jobs, the directories first, and nothing while a cluster is out of reach."""

from typing import Any

import pytest
from engine_play import BUSY_QUEUE, INSTANCE, Play, component, make

from koalapy.coallocation.pruning import COLLECTING, NOT_FINAL, PENDING_CANCEL, PRUNED, judge
from koalapy.engine import Engine
from koalapy.model.change import OutboxEntry, Snapshot
from koalapy.model.commands import CollectOutput, ForgetAttempt
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AttemptForgotten,
    CancelRequested,
    ClusterConnected,
    OutputCollected,
    PruneRequested,
    SubmissionFailed,
    WorkSubmitted,
)
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.records import Step
from koalapy.model.states import JobState
from koalapy.model.units import MINUTE, Duration, Instant
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies


def done(play: Play, *clusters: str) -> JobId:
    """A job with a component on each of these, which has ended well."""
    job = play.submit(*(component(4, cluster) for cluster in clusters))
    play.run(job)
    for attempt in play.attempts(job):
        play.end(attempt)
    play.obey()
    assert play.job(job).state is JobState.DONE
    return job


def request(play: Play, *jobs: JobId, records: bool = True, **fields: Any) -> PruneRequested:
    return PruneRequested(
        work=tuple(play.job(job) for job in jobs),
        before=fields.pop("before", Instant(play.now + 1)),
        records=records,
        **fields,
    )


def handled(play: Play, *events: Any) -> Step:
    play.now = Instant(play.now + 1000)
    return play.engine.handle(play.now, events)


def why_kept(play: Play, job: JobId, **fields: Any) -> str:
    ((why, _),) = judge(play.engine.core, request(play, job, **fields)).kept
    return why


def test_the_directories_go_first_then_the_record(play: Any) -> None:
    job = done(play, "alpha", "beta")
    first, second = play.attempts(job)
    step = handled(play, request(play, job))
    wanted = (ForgetAttempt(cluster="alpha", attempt=first), ForgetAttempt(cluster="beta", attempt=second))
    assert (step.commands, step.removed) == (wanted, ())
    assert handled(play, AttemptForgotten(cluster="alpha", attempt=first)).removed == ()
    assert play.engine.core.pruning.under_way([job]) == [job]
    assert handled(play, AttemptForgotten(cluster="beta", attempt=second)).removed == (job,)
    assert play.engine.core.pruning.under_way([job]) == []


def test_a_job_is_pruned_once_however_often_it_is_asked_for(play: Any) -> None:
    job = done(play, "alpha")
    (attempt,) = play.attempts(job)
    again = request(play, job)
    assert len(handled(play, again, again).commands) == 1
    assert handled(play, again).commands == ()
    assert handled(play, AttemptForgotten(cluster="alpha", attempt=attempt), again).removed == (job,)
    step = handled(play, again)
    assert (step.commands, step.removed) == ((), ())
    assert why_kept(play, job) == PRUNED


def test_a_job_that_never_ran_is_removed_at_once(play: Any) -> None:
    play.measure(alpha=32, beta=16, gamma=16)
    job = play.submit(component(4, "alpha"))
    play.apply(CancelRequested(job))
    assert handled(play, request(play, job)).removed == (job,)


def test_what_is_not_over_is_left_alone(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    step = handled(play, request(play, job))
    assert (step.commands, step.removed, why_kept(play, job)) == ((), (), NOT_FINAL)


def test_what_is_over_since_a_moment_ago_is_kept(play: Any) -> None:
    job = done(play, "alpha")
    before = Instant(play.job(job).finished_at - 1)
    assert handled(play, request(play, job, before=before)).commands == ()
    assert why_kept(play, job, before=before) == NOT_FINAL


def test_a_job_with_a_pending_cancel_is_kept_until_it_is_settled(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    play.lose("alpha")
    play.apply(CancelRequested(job, force=True))
    assert why_kept(play, job) == PENDING_CANCEL
    play.reach("alpha")
    assert len(handled(play, request(play, job)).commands) == 1


def test_a_job_whose_output_is_on_its_way_is_kept(play: Any) -> None:
    job = play.submit(component(4, "alpha"), stage_out=("result",), directory="/home/me")
    play.run(job)
    play.end(play.attempts(job)[0])
    assert [each for each in play.pending if isinstance(each, CollectOutput)]
    play.apply(CancelRequested(job))
    play.obey()
    assert play.job(job).state is JobState.CANCELLED
    assert why_kept(play, job) == COLLECTING
    play.apply(OutputCollected(job=job))
    assert len(handled(play, request(play, job)).commands) == 1


def test_pruning_waits_for_a_cluster_out_of_reach(play: Any) -> None:
    job = done(play, "alpha", "beta")
    play.lose("beta")
    assert handled(play, request(play, job)).commands == ()
    assert judge(play.engine.core, request(play, job)).waiting == (("beta", play.job(job)),)
    play.reach("beta")
    assert len(handled(play, request(play, job)).commands) == 2


def test_a_person_may_leave_the_directories_of_a_cluster_behind(play: Any) -> None:
    job = done(play, "alpha", "beta")
    first, _ = play.attempts(job)
    play.lose("beta")
    step = handled(play, request(play, job, without=("beta",)))
    assert step.commands == (ForgetAttempt(cluster="alpha", attempt=first),)
    assert handled(play, AttemptForgotten(cluster="alpha", attempt=first)).removed == (job,)


def test_a_directory_of_an_earlier_try_on_a_cluster_that_is_gone_is_waited_for_by_name(play: Any) -> None:
    job = done(play, "alpha")
    (last,) = play.attempts(job)
    play.lose("beta")
    earlier = ForgetAttempt(cluster="beta", attempt=AttemptId(job, 0, last.number + 1))
    play.engine.core.pruning.note_commands([earlier])
    assert judge(play.engine.core, request(play, job)).waiting == (("beta", play.job(job)),)
    assert handled(play, request(play, job)).commands == ()
    step = handled(play, request(play, job, without=("beta",)))
    assert step.commands == (ForgetAttempt(cluster="alpha", attempt=last),)
    assert handled(play, AttemptForgotten(cluster="alpha", attempt=last)).removed == (job,)
    assert play.engine.core.pruning.directories == {}


def test_a_directory_that_is_not_removed_keeps_the_record(play: Any) -> None:
    job = done(play, "alpha")
    (attempt,) = play.attempts(job)
    handled(play, request(play, job))
    refused = Reason("bad_tag", "ours", "That is no tag.", "")
    step = handled(play, AttemptForgotten(cluster="alpha", attempt=attempt, refused=refused))
    assert (step.removed, play.engine.core.pruning.under_way([job])) == ((), [])
    assert len(handled(play, request(play, job)).commands) == 1


def test_output_alone_is_pruned_with_a_line_in_the_story(play: Any) -> None:
    job = done(play, "alpha")
    (attempt,) = play.attempts(job)
    handled(play, request(play, job, records=False))
    step = handled(play, AttemptForgotten(cluster="alpha", attempt=attempt))
    assert step.removed == ()
    assert [(line.job, line.kind) for line in step.history] == [(job, "output_pruned")]


def test_a_directory_of_an_earlier_try_is_waited_for_too(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    earlier = play.attempts(job)[0]
    play.apply(SubmissionFailed(attempt=earlier, reason=BUSY_QUEUE))
    play.wake()
    play.measure()
    play.run(job)
    (last,) = play.attempts(job)
    play.end(last)
    play.obey()
    assert handled(play, request(play, job)).commands == (ForgetAttempt(cluster="alpha", attempt=last),)
    assert handled(play, AttemptForgotten(cluster="alpha", attempt=last)).removed == ()
    assert handled(play, AttemptForgotten(cluster="alpha", attempt=earlier)).removed == (job,)


def test_after_a_restart_what_is_on_its_way_is_not_sent_again(play: Any) -> None:
    job = done(play, "alpha", "beta")
    step = handled(play, request(play, job))
    outbox = tuple(OutboxEntry(number, command) for number, command in enumerate(step.commands, start=1))
    play.engine = Engine(
        play.settings, Policies(worst_fit, fpfs), Snapshot(instance=INSTANCE, counters=play.counters, outbox=outbox[:1])
    )
    for cluster in play.sizes:
        play.engine.handle(play.now, [ClusterConnected(cluster=cluster, version="22.05")])
    assert handled(play, request(play, job)).commands == step.commands[1:]
    first, second = play.attempts(job)
    assert handled(play, AttemptForgotten(cluster="beta", attempt=second)).removed == ()
    assert handled(play, AttemptForgotten(cluster="alpha", attempt=first)).removed == (job,)


def test_the_key_of_a_pruned_job_may_be_used_again(play: Any) -> None:
    play.measure(alpha=32, beta=16, gamma=16)
    again = WorkSubmitted(request=make(component(4, "alpha")), owner="me", key="k")
    play.apply(again)
    job = max(play.jobs)
    play.apply(CancelRequested(job), after=Duration(MINUTE))
    play.apply(again)
    assert max(play.jobs) == job
    handled(play, request(play, job))
    play.apply(again)
    assert max(play.jobs) == job + 1


@pytest.mark.parametrize("year", [-365, 365])
def test_a_clock_that_jumps_prunes_nothing_that_is_not_over(play: Any, year: int) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    before = Instant(max(0, play.now + year * 24 * 60 * MINUTE))
    step = handled(play, request(play, job, before=before))
    assert (step.commands, step.removed) == ((), ())
