"""Black holes: nodes on which every parameter fails at once, so that they would consume a whole sweep."""

from koalapy.core.core import Core
from koalapy.model.attempt import Attempt, fields_of
from koalapy.model.commands import TrustLauncher
from koalapy.model.events import LauncherSuspected
from koalapy.model.history import HistoryKind
from koalapy.model.identity import JobId
from koalapy.model.units import Instant
from koalapy.scavenging.launchers import staying, stop_launcher


def on_suspected(core: Core, now: Instant, event: LauncherSuspected) -> None:
    """Note that every parameter of a Launcher has failed at once; `judge` decides what follows."""
    launcher = core.records.launchers.get(event.attempt)
    if launcher is not None and not launcher.let_go:
        core.sessions.suspects[event.attempt] = event.host


def judge(core: Core, now: Instant) -> None:
    """Decide for each suspected Launcher whether its node or the program is to blame.

    If the program works in another Launcher of the sweep, the node is excluded. If it works in none, the Launcher is
    trusted. The decision waits while another Launcher has no results yet.
    """
    for attempt in list(core.sessions.suspects):
        suspect = core.records.launchers.get(attempt)
        if suspect is None or suspect.let_go or fields_of(suspect).stop_reason:
            del core.sessions.suspects[attempt]
        elif (good := _works_elsewhere(core, suspect)) is not None:
            host = core.sessions.suspects.pop(attempt)
            core.sessions.latest[attempt] = False
            _exclude(core, now, suspect, host) if good else _trust(core, now, suspect)


def _works_elsewhere(core: Core, suspect: Attempt) -> bool | None:
    """Return True if the newest results of another Launcher of the sweep include a success.

    Other suspects do not count. Return None while another Launcher has no results yet, else False.
    """
    others = [each.id for each in staying(core.launchers.of(suspect.owner))]
    others = [each for each in others if each != suspect.id and each not in core.sessions.suspects]
    if any(core.sessions.latest.get(each, False) for each in others):
        return True
    unsure = [each for each in others if each not in core.sessions.latest]
    return None if unsure else False


def _exclude(core: Core, now: Instant, suspect: Attempt, host: str) -> None:
    sweep, cluster = core.records.sweeps[JobId(suspect.owner.id)], suspect.cluster
    known = sweep.black_holes
    if (cluster, host) not in known:
        core.records.change_work(sweep, black_holes=(*known, (cluster, host)))
    core.records.note(now, sweep.id, HistoryKind.BLACK_HOLE_EXCLUDED, cluster=cluster, host=host)
    stop_launcher(core, now, suspect, "black_hole")


def _trust(core: Core, now: Instant, suspect: Attempt) -> None:
    core.records.hint(TrustLauncher(cluster=suspect.cluster, attempt=suspect.id))
    core.records.note(
        now, JobId(suspect.owner.id), HistoryKind.BLACK_HOLE_TRUSTED, cluster=suspect.cluster, launcher=suspect.id.job
    )
