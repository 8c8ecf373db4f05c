"""A Launcher's life as koalad sees it: claimed at once on a node that is known to be idle, and asked to go."""

from dataclasses import replace

from koalapy.coallocation import claim, stopping
from koalapy.core.core import Core
from koalapy.model.cluster import ClusterSettings
from koalapy.model.errors import Reason
from koalapy.model.events import StoreRestored
from koalapy.model.job import Component, Job, Outcome
from koalapy.model.request import LOWEST_PRIORITY, ComponentRequest, Launch, Request
from koalapy.model.settings import Scavenging, Settings
from koalapy.model.states import JobState
from koalapy.model.sweep import Glide
from koalapy.model.units import MINUTE, SECOND, Duration, Instant

START_TIMEOUT = Duration(30 * SECOND)  # while it waits it competes with others' jobs
_BESIDE = Duration(MINUTE)  # of a Launcher's walltime: until its first parameter begins, and after the last has ended

WHY = {
    "preempted": Reason("preempted", "transient", "Other jobs want its node.", ""),
    "shrunk": Reason("shrunk", "transient", "Another sweep has a right to its node.", ""),
    "withdrawn": Reason("withdrawn", "transient", "Its batch job did not start in time.", ""),
    "idle": Reason("idle", "transient", "Nothing is left for it to do.", ""),
    "black_hole": Reason("black_hole", "site", "Everything that it ran failed at once, as nowhere else.", ""),
    "over": Reason("over", "transient", "Its sweep needs it no more.", ""),
}


def launch(core: Core, now: Instant, sweep: Job, cluster: ClusterSettings, size: int) -> bool:
    """Claim one Launcher on one node of so many processors. False if there is no id left for it."""
    identity = core.records.new_launcher_id()
    if identity is None:
        return False
    request = request_of(sweep, cluster, size, core.settings)
    job = Job(
        id=identity,
        owner=sweep.owner,
        request=request,
        state=JobState.WAITING,
        place=0,
        submitted_at=now,
        components=(Component(index=0, request=request.components[0]),),
        glide=Glide(sweep=sweep.id),
    )
    claim.claim(core, now, job, (cluster.name,), patient=False)
    return True


def request_of(sweep: Job, cluster: ClusterSettings, size: int, settings: Settings) -> Request:
    """A batch job of one whole node, behind everybody else's. The sweep's program is a template in it."""
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
    """One parameter can use up its own, and its grace. Else one that never ends would be begun anew for ever."""
    return Duration(max(rules.walltime, template.walltime + 2 * rules.grace + _BESIDE))


def slots_of(template: ComponentRequest, size: int) -> int:
    """Parameters that run at a time on a node of so many processors."""
    return size // max(1, template.processors)


def send_away(core: Core, now: Instant, launcher: Job, going: str, force: bool = False) -> None:
    """Ask it to go: what it runs comes back, what it has run is kept. Nothing happens if it goes already."""
    launcher = core.records.jobs[launcher.id]
    if launcher.state.final or (launcher.state is JobState.STOPPING and not force):
        return
    assert launcher.glide is not None
    launcher = replace(launcher, glide=replace(launcher.glide, going=launcher.glide.going or going), forced=force)
    stopping.stop(core, now, launcher, Outcome.CANCELLED, WHY[going])


def on_store_restored(core: Core, now: Instant, event: StoreRestored) -> None:
    """After a backup nobody knows what became of Launchers: all make room for new ones."""
    for launcher in list(core.launchers):
        send_away(core, now, launcher, "over")


def starts_until(launcher: Job, settings: Settings) -> Instant | None:
    """When it is withdrawn; None once its batch job has started.

    Its time counts from when it began to wait in the batch queue, where it competes. Before that its files come, and
    their copies are made, for as long as a claim may take.
    """
    component = launcher.components[0]
    if launcher.state is not JobState.CLAIMING or component.allocated_at is not None or launcher.claimed_at is None:
        return None
    if component.queued_at is not None:
        return Instant(component.queued_at + START_TIMEOUT)
    patience = max(START_TIMEOUT, settings.claim_timeout) if launcher.request.stage_in else START_TIMEOUT
    return Instant(launcher.claimed_at + patience)
