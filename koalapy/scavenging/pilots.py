"""Pilots of sweeps: their claims, starts, suspensions and stops, and the consequences of their ends."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from koalapy.coallocation import claim
from koalapy.coallocation.stop import stop_job
from koalapy.core.core import Core
from koalapy.core.launchers import place, runner_of
from koalapy.model.cluster import ClusterSettings
from koalapy.model.errors import Reason
from koalapy.model.events import StoreRestored
from koalapy.model.identity import JobId
from koalapy.model.job import Job, Outcome
from koalapy.model.request import LOWEST_PRIORITY, ComponentRequest, Launch, Request
from koalapy.model.settings import Scavenging, Settings
from koalapy.model.states import AttemptState, JobState
from koalapy.model.sweep import Pilot
from koalapy.model.units import MINUTE, SECOND, Duration, Instant
from koalapy.scavenging.parameters import put_runner, sweep_of

START_TIMEOUT = Duration(30 * SECOND)  # a waiting pilot competes with others' jobs
_BESIDE = Duration(MINUTE)  # of a pilot's walltime: before its first parameter begins and after its last ends

STOP_REASONS = {
    "preempted": Reason("preempted", "transient", "Other jobs want its node.", ""),
    "shrunk": Reason("shrunk", "transient", "Another sweep has a right to its node.", ""),
    "withdrawn": Reason("withdrawn", "transient", "Its batch job did not start in time.", ""),
    "idle": Reason("idle", "transient", "Nothing is left for it to do.", ""),
    "black_hole": Reason("black_hole", "cluster", "Everything that it ran failed at once, as nowhere else.", ""),
    "over": Reason("over", "transient", "Its sweep needs it no more.", ""),
}


def launch(core: Core, now: Instant, sweep: Job, cluster: ClusterSettings, size: int) -> bool:
    """Claim one pilot on one node of `size` processors. Return False if no id is left for it."""
    identity = core.records.new_launcher_id()
    if identity is None:
        return False
    request = request_of(sweep, cluster, size, core.settings)
    job = core.records.add(
        Job(
            id=identity,
            owner=sweep.owner,
            request=request,
            state=JobState.WAITING,
            position=0,
            submitted_at=now,
            pilot=Pilot(sweep=sweep.id),
        )
    )
    claim.claim(core, now, job, (cluster.name,), patient=False)
    return True


def request_of(sweep: Job, cluster: ClusterSettings, size: int, settings: Settings) -> Request:
    """Return the request of a pilot: one whole node, at the lowest priority.

    The sweep's component, with its program, is the template.
    """
    template = sweep.request.components[0]
    node = replace(
        template,
        processors=size,
        processors_per_node=size,
        cluster=cluster.name,
        launch=Launch.ONCE,
        walltime=_walltime(template, settings.scavenging),
        queue=cluster.scavenge.queue or template.queue,
        qos=cluster.scavenge.qos or template.qos,
        optional=False,
    )
    request = sweep.request
    return Request(
        name=request.name,
        components=(node,),
        priority=LOWEST_PRIORITY,
        retry_on=(),
        stage_in=request.stage_in,
        directory=request.directory,
        files=request.files,
    )


def _walltime(template: ComponentRequest, rules: Scavenging) -> Duration:
    """Return the walltime of a pilot.

    It is enough for one parameter that uses up its own walltime and grace. Otherwise such a parameter would be begun
    again without end.
    """
    return Duration(max(rules.walltime, template.walltime + 2 * rules.grace + _BESIDE))


def slots_of(template: ComponentRequest, size: int) -> int:
    """Return how many parameters run at a time on a node of `size` processors."""
    return size // max(1, template.processors)


def stop_pilot(core: Core, now: Instant, launcher: Job, stop_reason: str, force: bool = False) -> None:
    """Stop a pilot: its running parameters return to the pool, and its results are kept.

    Nothing happens if it is final, or if it is stopping already and `force` is false.
    """
    if launcher.state.final or (launcher.state is JobState.STOPPING and not force):
        return
    assert launcher.pilot is not None
    pilot = replace(launcher.pilot, stop_reason=launcher.pilot.stop_reason or stop_reason)
    core.records.change(launcher, pilot=pilot, forced=force)
    stop_job(core, now, launcher, Outcome.CANCELLED, STOP_REASONS[stop_reason])


def on_store_restored(core: Core, now: Instant, event: StoreRestored) -> None:
    """Stop all pilots after a restore of the store, since their states are unknown."""
    for launcher in list(core.launchers):
        stop_pilot(core, now, launcher, "over")


def starts_until(launcher: Job, settings: Settings) -> Instant | None:
    """Return the instant at which the pilot is withdrawn; None once its batch job has started.

    The time-out begins when its batch job is queued and competes with others' jobs. Before that, a pilot with files to
    stage in may take as long as any claim.
    """
    attempt = place(launcher)
    if launcher.state is not JobState.CLAIMING or attempt.allocated_at is not None or launcher.claimed_at is None:
        return None
    if attempt.queued_at is not None:
        return Instant(attempt.queued_at + START_TIMEOUT)
    patience = max(START_TIMEOUT, settings.claim_timeout) if launcher.request.stage_in else START_TIMEOUT
    return Instant(launcher.claimed_at + patience)


MOST_FAILURES = 3  # in a row, of one sweep's Launchers on one cluster
LEFT_OUT = Duration(10 * MINUTE)
SHORT_LIFE = Duration(20 * SECOND)  # a Launcher that ends by itself earlier has failed


def ended(core: Core, now: Instant, launcher: Job) -> None:
    """Charge the sweep for a pilot of which nothing is left, and act on a withdrawal or a failure.

    It is called once for each pilot.
    """
    assert launcher.pilot is not None
    attempt = place(launcher)
    core.sessions.forget_launcher(attempt.id)
    sweep = sweep_of(core, launcher.pilot.sweep)
    if sweep is None:
        return
    if attempt.allocated_at is not None:
        spent = max(0, (attempt.ended_at or now) - attempt.allocated_at)
        put_runner(core, sweep, charged=runner_of(sweep).charged + spent * attempt.processors)
    cluster = attempt.cluster
    if launcher.pilot.stop_reason == "withdrawn" and cluster in core.information.clusters:
        core.pauses.begin(now, cluster)
    elif (reason := _failure(launcher)) is not None and not _preempted(core.settings, launcher, reason):
        _failed(core, now, sweep, launcher, reason)


def _failure(launcher: Job) -> Reason | None:
    """Return why the pilot failed; None if it was asked to stop, or ended by itself after `SHORT_LIFE`."""
    assert launcher.pilot is not None
    if launcher.pilot.stop_reason or launcher.state is JobState.CANCELLED:
        return None
    if launcher.state is JobState.FAILED:
        return launcher.reason or Reason("lost", "transient", "It was lost.", "")
    attempt = place(launcher)
    lived = (attempt.ended_at or 0) - (attempt.started_at or attempt.ended_at or 0)
    if lived < SHORT_LIFE:
        return Reason("ended_early", "ours", "It ended by itself as soon as it had begun.", "Look at its output.")
    return None


def _preempted(settings: Settings, launcher: Job, reason: Reason) -> bool:
    """Return whether the end was a preemption by the batch system, which is no failure.

    The batch system took the node for others' jobs, or suspended the pilot so that it used up its walltime.
    """
    if reason.code == "walltime_exceeded" and launcher.pilot is not None and launcher.pilot.suspended:
        return True
    native = [each.name for each in settings.clusters if each.scavenge.native]
    return reason.code in _TAKEN and place(launcher).started_at is not None and place(launcher).cluster in native


_TAKEN = ("killed", "lost", "restarted", "void", "cancelled")


def _failed(core: Core, now: Instant, sweep: Job, launcher: Job, reason: Reason) -> None:
    attempt, cluster = place(launcher), place(launcher).cluster
    where = {"cluster": cluster, "component": 0, "attempt": attempt.id.number, "launcher": launcher.id}
    message = _of_launcher(launcher, reason)
    core.records.note(now, sweep.id, "launcher_lost", **where, code=reason.code, message=message, output=reason.words)
    if cluster not in core.information.clusters:
        return  # it has left the grid: nothing is counted there
    failures = core.sessions.failures.get((sweep.id, cluster), 0) + 1
    core.sessions.failures[sweep.id, cluster] = failures
    if failures >= MOST_FAILURES:
        core.sessions.failures.pop((sweep.id, cluster))
        if reason.whose == "request" and reason.code != "walltime_exceeded":  # the next Launcher may end in time
            core.sessions.refused[sweep.id, cluster] = _of_sweep(launcher, reason)
        leave_out(core, now, sweep.id, cluster, reason.code, message)


def _of_launcher(launcher: Job, reason: Reason) -> str:
    """Return the reason's message and advice, worded for a Launcher instead of a job with a component."""
    words = reason.message.removeprefix(f"{place(launcher).cluster}: ").replace("component 0", "it", 1)
    advice = f"`koala show {launcher.id}` tells its story." if reason.whose == "transient" else reason.advice
    return f"{words[:1].upper()}{words[1:]} {advice}".strip()


def _of_sweep(launcher: Job, reason: Reason) -> Reason:
    """Return the reason, worded for the sweep, which does not have this component."""
    message = reason.message.replace("component 0", f"Launcher {launcher.id}", 1)
    return replace(reason, message=message)


def leave_out(core: Core, now: Instant, sweep: JobId, cluster: str, code: str, why: str) -> None:
    """Exclude the cluster for the sweep, for the duration `LEFT_OUT`."""
    job = core.records.jobs[sweep]
    until = Instant(now + LEFT_OUT)
    kept = {name: each for name, each in job.excluded if each > now}
    core.records.change(job, excluded=(*(kept | {cluster: until}).items(),))
    message = f"{MOST_FAILURES} Launchers failed there in a row, the last one so: {why}"
    core.records.note(now, sweep, "cluster_excluded", cluster=cluster, until_at=until, code=code, message=message)


NOW, BEFORE = "now", "before"  # see Pilot


def has_turned(launcher: Job) -> bool:
    """Return whether the pilot was suspended or resumed since the sweep's history recorded it.

    A pilot that is out of reach is neither suspended nor resumed. A pilot that ends while it is suspended is not
    resumed.
    """
    state, told = place(launcher).state, _glide(launcher).suspended == NOW
    return state is (AttemptState.RUNNING if told else AttemptState.SUSPENDED)


def note_suspensions(core: Core, now: Instant, turned: Iterable[JobId]) -> None:
    """Note suspended and resumed pilots in the histories of their sweeps, one entry for each cluster.

    `turned`: the pilots that may have been suspended or resumed.
    """
    counts = Counter[tuple[JobId, str, str]]()
    for identity in turned:
        launcher = core.records.jobs.get(identity)
        if launcher is None or launcher.state.final or not has_turned(launcher):
            continue
        stands = place(launcher).state is AttemptState.SUSPENDED
        pilot = replace(_glide(launcher), suspended=NOW if stands else BEFORE)
        core.records.change(launcher, pilot=pilot)
        counts[pilot.sweep, place(launcher).cluster, "sweep_suspended" if stands else "sweep_resumed"] += 1
    for (sweep, cluster, kind), nodes in counts.items():
        core.records.note(now, sweep, kind, cluster=cluster, nodes=nodes)


def _glide(launcher: Job) -> Pilot:
    assert launcher.pilot is not None
    return launcher.pilot
