"""Launchers of sweeps: their claims, starts, suspensions and stops, and the consequences of their ends."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from koalapy.attempts import launchers
from koalapy.attempts.directories import host_cluster_of
from koalapy.attempts.submission import submit
from koalapy.core.core import Core
from koalapy.model.attempt import Attempt, LauncherFields, Owner, OwnerKind, fields_of
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import LauncherWork
from koalapy.model.errors import Reason
from koalapy.model.events import StoreRestored
from koalapy.model.facts import LetGo
from koalapy.model.history import HistoryKind
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.request import ComponentRequest, Launch
from koalapy.model.settings import Scavenging, Settings
from koalapy.model.states import AttemptState, Ending
from koalapy.model.sweep import Sweep
from koalapy.model.units import MINUTE, SECOND, Duration, Instant
from koalapy.model.usage import usage_of_launcher
from koalapy.scavenging.parameters import living_sweeps, sweep_of

START_TIMEOUT = Duration(30 * SECOND)  # a waiting Launcher competes with others' jobs
_BESIDE = Duration(MINUTE)  # of a Launcher's walltime: before its first parameter begins and after its last ends

STOP_REASONS = {
    "preempted": Reason("preempted", "transient", "Other jobs want its node.", ""),
    "shrunk": Reason("shrunk", "transient", "Another sweep has a right to its node.", ""),
    "withdrawn": Reason("withdrawn", "transient", "Its batch job did not start in time.", ""),
    "idle": Reason("idle", "transient", "Nothing is left for it to do.", ""),
    "black_hole": Reason("black_hole", "cluster", "Everything that it ran failed at once, as nowhere else.", ""),
    "no_longer_needed": Reason("no_longer_needed", "transient", "Its sweep needs it no more.", ""),
}


def owner_of(sweep: JobId) -> Owner:
    """Return the sweep as an owner of Launchers."""
    return Owner(OwnerKind.SWEEP, sweep)


def staying(found: Iterable[Attempt]) -> list[Attempt]:
    """Return the Launchers that neither have a reason to stop nor are ending."""
    return [each for each in found if not fields_of(each).stop_reason and not each.cancelling]


def launch(core: Core, now: Instant, sweep: Sweep, cluster: ClusterSettings, size: int) -> bool:
    """Claim one Launcher on one node of `size` processors. Return False if no id is left for it."""
    identity = core.records.new_launcher_id()
    if identity is None:
        return False
    fields = LauncherFields(owner=owner_of(sweep.id), claimed_at=now)
    request = node_request(sweep, cluster, size, core.settings, core.information.walltime_limit(cluster.name))
    host_cluster = host_cluster_of(core, cluster.name)
    attempt = Attempt(id=identity, cluster=cluster.name, request=request, launcher=fields, host_cluster=host_cluster)
    launcher = launchers.claim(core, now, attempt)
    space = sweep.request.parameters
    assert space is not None
    template = sweep.request.components[0]
    work = LauncherWork(
        sweep=sweep.id,
        space=space,
        slots=slots_of(template, size),
        limit=template.walltime,
        grace=core.settings.scavenging.grace,
    )
    avoid = tuple(host for name, host in sweep.black_holes if name == cluster.name)
    submit(core, launcher, sweep.request, lowest=True, avoid=avoid, launcher=work)
    return True


def node_request(
    sweep: Sweep, cluster: ClusterSettings, size: int, settings: Settings, walltime_limit: Duration | None = None
) -> ComponentRequest:
    """Return the request of a Launcher: one whole node.

    The sweep's component, with its program, is the template. `walltime_limit`: the longest walltime of the cluster's
    own queue; a Launcher asks for no more, unless a parameter needs it.
    """
    template = sweep.request.components[0]
    request = replace(
        template,
        processors=size,
        processors_per_node=size,
        cluster=cluster.name,
        launch=Launch.ONCE,
        walltime=launcher_walltime(template, settings.scavenging),
        queue=cluster.scavenge.queue or template.queue,
        qos=cluster.scavenge.qos or template.qos,
        optional=False,
    )
    if walltime_limit is None or request.queue_walltime is None:
        return request
    walltime = max(shortest_walltime(template, settings.scavenging), min(request.walltime, walltime_limit))
    return replace(request, walltime=Duration(walltime))


def launcher_walltime(template: ComponentRequest, rules: Scavenging) -> Duration:
    """Return the walltime of a Launcher.

    It is enough for one parameter that uses up its own walltime and grace. Otherwise such a parameter would be begun
    again without end.
    """
    return max(rules.walltime, shortest_walltime(template, rules))


def shortest_walltime(template: ComponentRequest, rules: Scavenging) -> Duration:
    """Return the walltime of a Launcher that is enough for one parameter."""
    return Duration(template.walltime + 2 * rules.grace + _BESIDE)


def slots_of(template: ComponentRequest, size: int) -> int:
    """Return how many parameters run at a time on a node of `size` processors."""
    return size // max(1, template.processors)


def stop_launcher(core: Core, now: Instant, launcher: Attempt, stop_reason: str, force: bool = False) -> None:
    """Stop a Launcher: its running parameters return to the pool, and its results are kept.

    Nothing happens if it is let go, or if it is ending already and `force` is false.
    """
    launchers.stop(core, now, launcher, stop_reason, STOP_REASONS[stop_reason], force=force)


def on_store_restored(core: Core, now: Instant, event: StoreRestored) -> None:
    """Stop all Launchers after a restore of the store, since their states are unknown."""
    for sweep in living_sweeps(core):
        for launcher in core.launchers.of(owner_of(sweep.id)):
            stop_launcher(core, now, launcher, "no_longer_needed")


def starts_until(launcher: Attempt, stage_in: bool, settings: Settings) -> Instant | None:
    """Return the instant at which the Launcher is withdrawn; None once its batch job has started.

    The time-out begins when its batch job is queued and competes with others' jobs. Before that, a Launcher with files
    to stage in may take as long as any claim.
    """
    if launcher.cancelling or launcher.state.ended or launcher.allocated_at is not None:
        return None
    if launcher.queued_at is not None:
        return Instant(launcher.queued_at + START_TIMEOUT)
    patience = max(START_TIMEOUT, settings.claim_timeout) if stage_in else START_TIMEOUT
    return Instant(fields_of(launcher).claimed_at + patience)


MOST_FAILURES = 3  # in a row, of one sweep's Launchers on one cluster
LEFT_OUT = Duration(10 * MINUTE)
SHORT_LIFE = Duration(20 * SECOND)  # a Launcher that ends by itself earlier has failed


def on_let_go(core: Core, now: Instant, event: LetGo) -> None:
    """Charge the sweep for a Launcher of which nothing is left, and act on a withdrawal or a failure."""
    launcher = core.records.launchers[event.attempt]
    core.sessions.forget_launcher(launcher.id)
    sweep = sweep_of(core, JobId(event.owner_id))
    if sweep is None:
        return
    core.records.use(usage_of_launcher(launcher, sweep))
    if launcher.allocated_at is not None:
        spent = max(0, (launcher.ended_at or now) - launcher.allocated_at)
        core.records.change_work(sweep, charged=sweep.charged + spent * launcher.processors)
    if fields_of(launcher).stop_reason == "withdrawn" and launcher.cluster in core.information.clusters:
        core.pauses.begin(now, launcher.cluster)
    elif (reason := _failure(launcher)) is not None and not _preempted(core.settings, launcher, reason):
        _failed(core, now, sweep, launcher, reason)


def _failure(launcher: Attempt) -> Reason | None:
    """Return why the Launcher failed; None if it was asked to stop, or ended by itself after `SHORT_LIFE`."""
    reason = launchers.failure_of(launcher)
    if fields_of(launcher).stop_reason in STOP_REASONS or (reason is None and launcher.ending is not Ending.DONE):
        return None
    if reason is not None:
        return reason
    lived = (launcher.ended_at or 0) - (launcher.started_at or launcher.ended_at or 0)
    if lived < SHORT_LIFE:
        return Reason("ended_early", "ours", "It ended by itself as soon as it had begun.", "Look at its output.")
    return None


def _preempted(settings: Settings, launcher: Attempt, reason: Reason) -> bool:
    """Return whether the end was a preemption by the batch system, which is no failure.

    The batch system took the node for others' jobs, or suspended the Launcher so that it used up its walltime.
    """
    if reason.code == "walltime_exceeded" and fields_of(launcher).suspended:
        return True
    native = [each.name for each in settings.clusters if each.scavenge.native]
    return reason.code in _TAKEN and launcher.started_at is not None and launcher.cluster in native


_TAKEN = ("killed", "lost", "restarted", "void", "cancelled")


def _failed(core: Core, now: Instant, sweep: Sweep, launcher: Attempt, reason: Reason) -> None:
    cluster = launcher.cluster
    where = {"cluster": cluster, "component": 0, "attempt": launcher.id.number, "launcher": launcher.id.job}
    message = _worded(launcher, reason)
    core.records.note(
        now, sweep.id, HistoryKind.LAUNCHER_LOST, **where, code=reason.code, message=message, output=reason.words
    )
    if cluster not in core.information.clusters:
        return  # it has left the grid: nothing is counted there
    failures = core.sessions.failures.get((sweep.id, cluster), 0) + 1
    core.sessions.failures[sweep.id, cluster] = failures
    if failures >= MOST_FAILURES:
        core.sessions.failures.pop((sweep.id, cluster))
        if reason.whose == "request" and reason.code != "walltime_exceeded":  # the next Launcher may end in time
            core.sessions.refused[sweep.id, cluster] = _of_sweep(launcher, reason)
        _leave_out(core, now, sweep, cluster, reason.code, message)


def _worded(launcher: Attempt, reason: Reason) -> str:
    """Return the reason's message and advice, worded for a Launcher instead of a job with a component."""
    words = reason.message.removeprefix(f"{launcher.cluster}: ").replace("component 0", "it", 1)
    advice = f"`koala show {launcher.id}` shows its history." if reason.whose == "transient" else reason.advice
    return f"{words[:1].upper()}{words[1:]} {advice}".strip()


def _of_sweep(launcher: Attempt, reason: Reason) -> Reason:
    """Return the reason, worded for the sweep, which does not have this component."""
    stated = reason.on(launcher.cluster)
    return replace(stated, message=stated.message.replace("component 0", f"Launcher {launcher.id}", 1))


def _leave_out(core: Core, now: Instant, sweep: Sweep, cluster: str, code: str, why: str) -> None:
    """Exclude the cluster for the sweep, for the duration `LEFT_OUT`."""
    until = Instant(now + LEFT_OUT)
    kept = {name: each for name, each in sweep.excluded if each > now}
    core.records.change_work(sweep, excluded=(*(kept | {cluster: until}).items(),))
    message = f"{MOST_FAILURES} Launchers failed there in a row, the last one so: {why}"
    core.records.note(
        now, sweep.id, HistoryKind.CLUSTER_EXCLUDED, cluster=cluster, until_at=until, code=code, message=message
    )


NOW, BEFORE = "now", "before"  # see LauncherFields


def has_turned(launcher: Attempt) -> bool:
    """Return whether the Launcher was suspended or resumed since the sweep's history recorded it.

    A Launcher that is out of reach is neither suspended nor resumed. A Launcher that ends while it is suspended is not
    resumed.
    """
    noted = fields_of(launcher).suspended == NOW
    return launcher.state is (AttemptState.RUNNING if noted else AttemptState.SUSPENDED)


def note_suspensions(core: Core, now: Instant, turned: Iterable[AttemptId]) -> None:
    """Note suspended and resumed Launchers in the histories of their sweeps, one entry for each cluster.

    `turned`: the Launchers that may have been suspended or resumed.
    """
    counts = Counter[tuple[JobId, str, HistoryKind]]()
    for identity in turned:
        launcher = core.records.launchers.get(identity)
        if (
            launcher is None
            or launcher.let_go
            or launcher.owner.kind is not OwnerKind.SWEEP
            or not has_turned(launcher)
        ):
            continue
        stands = launcher.state is AttemptState.SUSPENDED
        core.records.change_launcher(launcher, suspended=NOW if stands else BEFORE)
        kind = HistoryKind.SWEEP_SUSPENDED if stands else HistoryKind.SWEEP_RESUMED
        counts[JobId(launcher.owner.id), launcher.cluster, kind] += 1
    for (sweep, cluster, kind), nodes in counts.items():
        core.records.note(now, sweep, kind, cluster=cluster, nodes=nodes)
