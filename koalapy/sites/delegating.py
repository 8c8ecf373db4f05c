"""One resource request: the neighbour that it goes to, its message and record, and the note of its refusal."""

from typing import Any

from koalapy.core.core import Core
from koalapy.model.commands import DelegateRequest
from koalapy.model.errors import Reason
from koalapy.model.history import HistoryKind
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.lease import Borrow, BorrowedLease, Origin, Refusal
from koalapy.model.request import Request
from koalapy.model.states import LeaseState
from koalapy.model.sweep import Sweep
from koalapy.model.units import Instant
from koalapy.sites import counts
from koalapy.sites.asking import Ask
from koalapy.sites.requests import ANSWER_WITHIN
from koalapy.sites.targets import next_target


def without(core: Core, now: Instant, job: JobId, borrow: Borrow) -> set[str]:
    """Return the connected neighbours that are not asked for the job: those that refused it lately, or serve it."""
    serving = {each.neighbour for each in core.leases.borrowed.values() if each.job == job}
    return (serving & core.neighbours.connected.keys()) | refused_lately(core, now, job, borrow)


def refused_lately(core: Core, now: Instant, job: JobId, borrow: Borrow) -> set[str]:
    """Return the connected neighbours that are not asked for the job again yet."""
    records = {name: core.neighbours.records[name] for name in core.neighbours.connected}
    return {
        name
        for name, each in records.items()
        if any(refusal.job == job and now < (refusal.until or refusal.at + borrow.again) for refusal in each.refusals)
    }


def target_of(core: Core, now: Instant, job: JobId, ask: Ask, excluded: set[str]) -> str | None:
    """Return the neighbour that the request goes to, none of the excluded ones; None if there is none."""
    others = set() if ask.targets is None else core.neighbours.connected.keys() - ask.targets
    target, wrong = next_target(core, ask.want.processors, excluded | others)
    if wrong:
        note_policy(core, now, job, f"The target policy failed: {wrong}.")
    return target


def delegate(core: Core, now: Instant, job: Job | Sweep, ask: Ask, target: str, borrow: Borrow) -> None:
    """Send the request to the neighbour, with a record of it and a note in the job's history."""
    neighbours, want = core.neighbours, ask.want
    number, began = neighbours.records[target].next_lease, _round(core, now, job.id, target, borrow)
    core.records.command(
        DelegateRequest(
            neighbour=target, lease=number, processors=want.processors, walltime=want.walltime,
            origin=Origin("", job.id, began), dttl=dttl_of(core, job.request) - 1 if ask.passes else 0,
            within=ANSWER_WITHIN, processors_per_node=want.processors_per_node, memory=want.memory,
            user=job.owner, name=job.request.name, launchers=want.launchers, unisolated=want.unisolated,
            executables=want.executables,
        )
    )  # fmt: skip
    lease = BorrowedLease(
        neighbour=target, number=number, job=job.id, processors=want.processors, state=LeaseState.ASKED, asked_at=now,
        round=began, components=() if ask.part is None else ask.part.components,
        sweeps=want.launchers, user=job.owner, name=job.request.name,
    )  # fmt: skip
    others = tuple(each for each in neighbours.records[target].refusals if each.job != job.id)
    neighbours.change(target, next_lease=number + 1, refusals=others)
    core.leases.add(lease)
    neighbours.asked += 1
    counts.asked(core, target)
    part, of_part = ask.part, dict[str, Any]()
    if part is not None:
        of_part = {"components": list(part.components), "kept_on": list(part.kept), "of": job.request.processors}
    core.records.note(now, job.id, HistoryKind.LEASE_REQUESTED, site=target, processors=want.processors, **of_part)


def dttl_of(core: Core, request: Request) -> int:
    """Return the links that the job's request may pass: the site's DTTL, or fewer as the job file has it."""
    dttl = core.settings.delegation.dttl
    return dttl if request.dttl is None else min(dttl, request.dttl)


def _round(core: Core, now: Instant, job: JobId, target: str, borrow: Borrow) -> int:
    """Return the round of the job's request: it goes on while a refusal of it holds, or begins now.

    One that has been to the target in this round already begins anew, since the target would not take it again.
    """
    records = core.neighbours.records
    refusals = [each for record in records.values() for each in record.refusals if each.job == job]
    round_of = max([each.round for each in refusals if now < each.at + borrow.again], default=now)
    had = any(each.job == job and each.round == round_of for each in records[target].refusals)
    return now if had else round_of


def note_refused(core: Core, now: Instant, lease: BorrowedLease, reason: Reason) -> None:
    """Note a neighbour's refusal, also in the history of the job or sweep."""
    job = work_of(core, lease)
    if job is None or job.state.final:
        return
    refuse(core, now, lease.neighbour, job, lease.round, reason)
    core.records.note(
        now, job.id, HistoryKind.LEASE_REFUSED, site=lease.neighbour, code=reason.code, message=reason.message
    )


def refuse(core: Core, now: Instant, neighbour: str, job: Job | Sweep, round_of: int, reason: Reason) -> None:
    """Note that the neighbour does not serve the job, so that others are asked before it."""
    record = core.neighbours.records[neighbour]
    others = [each for each in record.refusals if each.job != job.id]
    until = max([each.until for each in record.refusals if each.job == job.id and each.until is not None], default=None)
    refusal = Refusal(job=job.id, at=now, reason=reason, round=round_of, until=until)
    core.neighbours.change(neighbour, refusals=(*others, refusal))


def forget_refusals(core: Core) -> None:
    """Drop the refusals of jobs that do not wait any more, and of sweeps that have ended."""
    jobs, sweeps = core.records.jobs, core.records.sweeps
    for name, record in list(core.neighbours.records.items()):
        kept = tuple(
            each
            for each in record.refusals
            if each.job in sweeps
            or (each.job in jobs and (jobs[each.job].state.queued or (each.until and not jobs[each.job].state.final)))
        )
        if len(kept) < len(record.refusals):
            core.neighbours.change(name, refusals=kept)


def work_of(core: Core, lease: BorrowedLease) -> Job | Sweep | None:
    """Return the job or sweep for which a lease was requested; None if it is none of this site's, or final."""
    if lease.job is None:
        return None
    return core.records.sweeps.get(lease.job) if lease.sweeps else core.records.jobs.get(lease.job)


def note_policy(core: Core, now: Instant, job: JobId, message: str) -> None:
    """Note in the job's history, once, that a policy failed."""
    if (job, message) not in core.sessions.noted_errors:
        core.sessions.noted_errors[job, message] = None
        core.records.note(now, job, HistoryKind.POLICY_FAILED, message=message)
