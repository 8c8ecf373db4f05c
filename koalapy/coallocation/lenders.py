"""Lenders that a job leaves out: a failure on a lease sends the job back to its place.

What a lease cannot run, this site's own clusters may. The same holds for pilots that isolate programs.
"""

from koalapy.coallocation.refusals import LONGEST_PAUSE
from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.errors import Reason
from koalapy.model.history import HistoryKind
from koalapy.model.job import Job
from koalapy.model.lease import Refusal, is_temporary, lease_of_cluster
from koalapy.model.units import DAY, Duration, Instant

_EVER = Duration(3650 * DAY)


def leave_out(core: Core, now: Instant, job: Job, attempt: Attempt, reason: Reason) -> bool:
    """Leave out the lender or isolating pilot on which the attempt has failed. False if it is no matter of theirs.

    A lender whose cluster is at fault is left out for this job for ten minutes. One that the job does not suit is left
    out for good. A component that names the pilot or lease asks for no other.
    """
    lease, known = lease_of_cluster(attempt.cluster), core.information.clusters.get(attempt.cluster)
    isolates = known is not None and known.settings.isolation is not None
    unsuited = reason.whose == "request" and (lease is not None or isolates)
    at_fault = reason.whose == "cluster" and lease is not None
    if attempt.request.cluster is not None or not (unsuited or at_fault):
        return False
    until = Instant(now + (_EVER if unsuited else LONGEST_PAUSE))
    clusters = [attempt.cluster]
    if lease is not None and (record := core.neighbours.records.get(lease[0])) is not None:
        others = [each for each in record.refusals if each.job != job.id]
        asked = core.leases.borrowed.get(lease)
        round_of = 0 if asked is None else asked.round
        refusal = Refusal(job=job.id, at=now, reason=reason, round=round_of, until=until)
        core.neighbours.change(lease[0], refusals=(*others, refusal))
        borrowed = [each.cluster for each in core.leases.borrowed_of(lease[0])]
        clusters += [each for each in borrowed if each != attempt.cluster]
    for cluster in clusters:
        _exclude(core, now, job, cluster, until)
        core.records.note_attempt(now, attempt.id, cluster, HistoryKind.CLUSTER_EXCLUDED, until_at=until)
    return True


def keep_out(core: Core, now: Instant, lender: str, cluster: str) -> None:
    """Exclude a new lease's cluster for the jobs that leave its lender out."""
    for refusal in core.neighbours.records[lender].refusals:
        job = core.records.jobs.get(refusal.job)
        if job is not None and not job.state.final and refusal.until is not None and now < refusal.until:
            _exclude(core, now, job, cluster, refusal.until)


def _exclude(core: Core, now: Instant, job: Job, cluster: str, until: Instant) -> None:
    """Exclude a cluster for the job, and drop what is over: exclusions that have ended, and pilots and leases."""
    kept = {name: each for name, each in job.excluded if each > now and _is_there(core, name)}
    core.records.change(job, excluded=tuple({**kept, cluster: until}.items()))


def _is_there(core: Core, cluster: str) -> bool:
    """Return whether the cluster is not an ended pilot or lease. A bound lease may have yet to join the grid."""
    lease = lease_of_cluster(cluster)
    return not is_temporary(cluster) or cluster in core.information.clusters or lease in core.leases.borrowed
