"""Black holes: a node on which everything fails at once would swallow a whole sweep, faster than any other."""

from koalapy.model.commands import TrustLauncher
from koalapy.model.events import LauncherSuspected, ParametersEnded
from koalapy.model.identity import AttemptId
from koalapy.model.job import Job
from koalapy.model.records import Records
from koalapy.model.sweep import ParameterResult
from koalapy.model.units import Instant
from koalapy.scavenging.heard import Heard
from koalapy.scavenging.launch import send_away
from koalapy.scavenging.launchers import Launchers, place, runner_of, staying
from koalapy.scavenging.parameters import put_runner


def suspected(records: Records, heard: Heard, event: LauncherSuspected) -> None:
    if records.component(event.attempt) is not None:
        heard.suspects[event.attempt] = event.host


def ran(records: Records, heard: Heard, event: ParametersEnded, fresh: tuple[ParameterResult, ...]) -> None:
    """What it has run lately tells of the program what it tells of no suspect."""
    if fresh and records.component(event.attempt) is not None:
        heard.latest[event.attempt] = any(each.succeeded for each in fresh)
        heard.suspects.pop(event.attempt, None)  # a suspect says nothing of what it runs


def judge(records: Records, launchers: Launchers, heard: Heard, now: Instant) -> None:
    """Of each suspect: is it the node, or the program? It waits as long as only time can tell."""
    for attempt in list(heard.suspects):
        found = records.component(attempt)
        if found is None or found[0].glide is None or found[0].glide.going:
            del heard.suspects[attempt]
        elif (good := _works_elsewhere(launchers, heard, found[0], attempt)) is not None:
            host = heard.suspects.pop(attempt)
            heard.latest[attempt] = False
            _leave_out(records, now, found[0], host) if good else _trust(records, now, found[0], attempt)


def _works_elsewhere(launchers: Launchers, heard: Heard, suspect: Job, attempt: AttemptId) -> bool | None:
    """Whether the program works for other Launchers of the sweep by now; None while it cannot be said."""
    assert suspect.glide is not None
    others = [each.attempt_of(place(each)) for each in staying(launchers.of(suspect.glide.sweep))]
    others = [each for each in others if each != attempt and each not in heard.suspects]
    if any(heard.latest.get(each, False) for each in others):
        return True
    unsure = [each for each in others if each not in heard.latest]
    return None if unsure else False


def _leave_out(records: Records, now: Instant, suspect: Job, host: str) -> None:
    assert suspect.glide is not None
    sweep, cluster = records.jobs[suspect.glide.sweep], place(suspect).cluster or ""
    left_out = runner_of(sweep).left_out
    if (cluster, host) not in left_out:
        put_runner(records, sweep, left_out=(*left_out, (cluster, host)))
    records.note(now, sweep.id, "black_hole_left_out", cluster=cluster, host=host)
    send_away(records, now, suspect, "black_hole")


def _trust(records: Records, now: Instant, suspect: Job, attempt: AttemptId) -> None:
    assert suspect.glide is not None
    cluster = place(suspect).cluster or ""
    records.say(TrustLauncher(cluster=cluster, attempt=attempt))
    records.note(now, suspect.glide.sweep, "black_hole_trusted", cluster=cluster, launcher=suspect.id)
