"""Promises about choices: a job takes them in their order, each once, whole, and only clusters that suit it."""

from koalapy.chaos.violation import Promise, promise
from koalapy.model.change import Change
from koalapy.model.history import HistoryKind
from koalapy.model.identity import JobId
from koalapy.model.job import Choice, Job
from koalapy.world.koalad.matchmaker import NOT_BETA


class Choices:
    """The checker of choices. `committed` is called after every commit."""

    def __init__(self) -> None:
        self._taken: dict[JobId, int] = {}  # the place of the choice on which a job was claimed last
        self._refused: dict[JobId, int] = {}  # the place of the choice on which a job could not start

    def committed(self, change: Change) -> None:
        jobs = {job.id: job for job in change.jobs}
        for line in change.history:
            if line.kind == HistoryKind.WORK_STOPPING and line.details.get("outcome") == "next_choice":
                self._refused[line.job] = self._taken[line.job]
            elif line.kind == HistoryKind.CHOICES_MADE:
                self._refused.pop(line.job, None)
            elif line.kind == HistoryKind.JOB_CLAIMED:
                self._check_claim(jobs[line.job])

    def _check_claim(self, job: Job) -> None:
        for each in job.present:
            unsuited = each.request.requirements == NOT_BETA and each.cluster == "beta"
            promise(not unsuited, Promise.CHOICES, "job", job.id, "is claimed on beta, which does not suit")
        if not job.choices:
            return
        chosen = job.choices[job.choice]
        self._taken[job.id] = job.choice
        refused = self._refused.pop(job.id, None)
        in_order = refused is None or job.choice > refused
        promise(in_order, Promise.CHOICES, "job", job.id, "takes choice", job.choice, "after", refused)
        skipped = [each for each in job.choices[: job.choice] if each.refused is None]
        promise(not skipped and chosen.refused is None, Promise.CHOICES, "job", job.id, "leaves out a choice")
        claimed = tuple((each.cluster, each.processors) for each in job.present)
        promise(claimed == chosen.clusters, Promise.CHOICES, "job", job.id, "is claimed on", claimed, "of", chosen)
        asked, given = job.written or job.request, sum(count for _, count in chosen.clusters)
        enough = asked.smallest().processors <= given <= asked.processors
        promise(enough, Promise.CHOICES, "job", job.id, "gets", given, "of", asked.processors, "processors")
        ordered = all(_key(one) <= _key(other) for one, other in zip(job.choices, job.choices[1:], strict=False))
        promise(ordered, Promise.CHOICES, "job", job.id, "has choices out of order")


def _key(choice: Choice) -> tuple[int, bool, float]:
    return len(choice.clusters), choice.rank is None, -(choice.rank or 0.0)
