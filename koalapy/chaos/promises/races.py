"""The promises about races: one attempt of a component wins, and the others leave their queues without a program."""

from koalapy.chaos.promises.committed import Committed
from koalapy.chaos.promises.knowledge import Decided
from koalapy.chaos.violation import Promise, promise
from koalapy.model.attempt import Attempt
from koalapy.model.change import Change
from koalapy.model.commands import ReleaseAttempt
from koalapy.model.history import HistoryKind
from koalapy.model.identity import AttemptId, JobId, Tag, attempt_of
from koalapy.model.job import Job
from koalapy.model.settings import Settings
from koalapy.model.units import MINUTE, Duration, Instant
from koalapy.world.world import World

_POLLS = 2
_PATIENCE = Duration(2 * MINUTE)  # for a reconnect, and for batch commands that fail


class Races:
    """The checker of candidates. `committed` follows every commit, `look` is called once all faults have ended."""

    def __init__(self, world: World, settings: Settings) -> None:
        self._world, self._settings = world, settings
        self._waits: dict[AttemptId, Instant] = {}  # losers that are in a queue, and since when

    def committed(self, change: Change, before: dict[JobId, Job], decided: Decided) -> None:
        """Check that only present attempts are released, and that a component which has come has no rivals."""
        jobs = {job.id: job for job in change.jobs}
        for command in (entry.command for entry in change.sent if isinstance(entry.command, ReleaseAttempt)):
            if (job := jobs.get(command.attempt.job)) is not None:
                present = job.attempt(command.attempt.component)
                wins = present is not None and present.id == command.attempt
                promise(wins, Promise.RACE, command.attempt, "is released, and is not its component's attempt")
        for job in change.jobs:
            for each in job.candidates:
                self._check_candidate(job, each, decided.engine.records.counters.doubtful_below)
        lost = {line.job for line in change.history if line.kind == HistoryKind.CANDIDATE_LOST}
        for identity in lost & jobs.keys() & before.keys():
            was, now = before[identity], jobs[identity]
            same = was.submission_failures == now.submission_failures or not now.state.claiming
            promise(same, Promise.RACE, "job", identity, "counts a candidate that is lost")

    def _check_candidate(self, job: Job, candidate: Attempt, doubtful_below: int) -> None:
        promise(candidate.released_at is None, Promise.RACE, candidate.id, "was released, and is a candidate")
        present = job.attempt(candidate.id.component)
        if present is None or candidate.cancelling or candidate.state.ended:
            return
        waits = not present.state.released and not present.state.at_barrier
        promise(waits, Promise.RACE, candidate.id, "keeps its place, though", present.id, "has come")
        together = 1 + len(job.candidates_of(candidate.id.component))
        most = self._settings.race.most if job.request.race is None else job.request.race
        recalled = job.id < doubtful_below  # a restored store does not know how many there were
        promise(together <= most or recalled, Promise.RACE, "job", job.id, "waits in", together, "queues of", most)

    def look(self, committed: Committed) -> None:
        """Check that no loser waits in a queue for long, without faults."""
        now, waits = self._world.agenda.now, self._waits
        self._waits = {}
        polls = {each.name: each.poll for each in self._world.koalad.grid.settings.clusters}
        for name, cluster in self._world.clusters.items():
            if cluster.dead or name not in polls:
                continue
            for queued in cluster.batch.everything:
                if not queued.live or not cluster.is_ours(queued):
                    continue
                attempt = attempt_of(Tag(queued.name))[1]
                if _has_lost(committed.jobs.get(attempt.job), attempt):
                    since = self._waits[attempt] = waits.get(attempt, now)
                    limit = since + _POLLS * polls[name] + _PATIENCE
                    promise(now <= limit, Promise.RACE, attempt, "is still in the queue of", name)


def _has_lost(job: Job | None, attempt: AttemptId) -> bool:
    """Return whether another attempt of the component has come to its barrier while its job goes on."""
    if job is None or job.state.final:
        return False
    present = job.attempt(attempt.component)
    return present is not None and present.id != attempt and present.at_barrier_at is not None
