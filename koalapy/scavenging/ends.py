"""What the end of a Launcher means: its time is charged, and one that failed is replaced, but not for ever."""

from dataclasses import replace

from koalapy.core.core import Core
from koalapy.core.launchers import place, runner_of
from koalapy.model.errors import Reason
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import MINUTE, SECOND, Duration, Instant
from koalapy.scavenging.parameters import put_runner, sweep_of

MOST_FAILURES = 3  # in a row, of one sweep's Launchers on one cluster
LEFT_OUT = Duration(10 * MINUTE)
SHORT_LIFE = Duration(20 * SECOND)  # one that ends by itself so soon has not drained


def over(core: Core, now: Instant, launcher: Job) -> None:
    """Called once, when nothing of it is left."""
    assert launcher.glide is not None
    component = place(launcher)
    core.sessions.forget_launcher(launcher.attempt_of(component))
    sweep = sweep_of(core, launcher.glide.sweep)
    if sweep is None:
        return
    if component.allocated_at is not None:
        spent = max(0, (component.ended_at or now) - component.allocated_at)
        sweep = put_runner(core, sweep, charged=runner_of(sweep).charged + spent * component.processors)
    cluster = component.cluster or ""
    if launcher.glide.going == "withdrawn":
        core.pauses.begin(now, cluster)
    elif (reason := _failure(launcher)) is not None and not _preempted(core.settings, launcher, reason):
        _failed(core, now, sweep, launcher, reason)


def _failure(launcher: Job) -> Reason | None:
    """Why it is to be replaced; None where it was asked to go, or has drained."""
    assert launcher.glide is not None
    if launcher.glide.going or launcher.state is JobState.CANCELLED:
        return None
    if launcher.state is JobState.FAILED:
        return launcher.reason or Reason("lost", "transient", "It was lost.", "")
    component = place(launcher)
    lived = (component.ended_at or 0) - (component.started_at or component.ended_at or 0)
    if lived < SHORT_LIFE:
        return Reason("ended_early", "ours", "It ended by itself as soon as it had begun.", "Look at its output.")
    return None


def _preempted(settings: Settings, launcher: Job, reason: Reason) -> bool:
    """Whether its batch system took its node for others', as the site has it, or its walltime in that it suspended it:
    that is no failure."""
    if reason.code == "walltime_exceeded" and launcher.glide is not None and launcher.glide.suspended:
        return True
    native = [each.name for each in settings.clusters if each.scavenge.native]
    return reason.code in _TAKEN and place(launcher).started_at is not None and place(launcher).cluster in native


_TAKEN = ("killed", "lost", "restarted", "revoked", "cancelled")


def _failed(core: Core, now: Instant, sweep: Job, launcher: Job, reason: Reason) -> None:
    component, cluster = place(launcher), place(launcher).cluster or ""
    where = {"cluster": cluster, "component": 0, "attempt": component.attempt, "launcher": launcher.id}
    message = _of_launcher(launcher, reason)
    core.records.note(now, sweep.id, "launcher_lost", **where, code=reason.code, message=message, words=reason.words)
    failures = core.sessions.failures.get((sweep.id, cluster), 0) + 1
    core.sessions.failures[sweep.id, cluster] = failures
    if failures >= MOST_FAILURES:
        core.sessions.failures.pop((sweep.id, cluster))
        if reason.whose == "request" and reason.code != "walltime_exceeded":  # which says nothing of the next
            core.sessions.refused[sweep.id, cluster] = _of_sweep(launcher, reason)
        leave_out(core, now, sweep.id, cluster, reason.code, message)


def _of_launcher(launcher: Job, reason: Reason) -> str:
    """The same in words about a Launcher: nobody knows it as a job with a component, nor has its output."""
    words = reason.message.removeprefix(f"{place(launcher).cluster}: ").replace("component 0", "it", 1)
    advice = f"`koala show {launcher.id}` tells its story." if reason.whose == "transient" else reason.advice
    return f"{words[:1].upper()}{words[1:]} {advice}".strip()


def _of_sweep(launcher: Job, reason: Reason) -> Reason:
    """Why the sweep cannot go there, which has neither this component nor its output."""
    message = reason.message.replace("component 0", f"Launcher {launcher.id}", 1)
    return replace(reason, message=message)


def leave_out(core: Core, now: Instant, sweep: JobId, cluster: str, code: str, why: str) -> None:
    """For a while no Launcher of the sweep goes there."""
    job = core.records.jobs[sweep]
    until = Instant(now + LEFT_OUT)
    kept = {name: each for name, each in job.excluded if each > now}
    core.records.put(replace(job, excluded=(*(kept | {cluster: until}).items(),)))
    message = f"{MOST_FAILURES} Launchers failed there in a row, the last one so: {why}"
    core.records.note(now, sweep, "cluster_left_out", cluster=cluster, until_at=until, code=code, message=message)
