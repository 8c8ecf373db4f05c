"""Admission of waiting sweeps: too many active ones would leave each with too few nodes (CCGrid 2009, section 5.3)."""

from collections.abc import Sequence
from dataclasses import replace

from koalapy.core.core import Core
from koalapy.core.sweeps import runner_of
from koalapy.model.job import Job
from koalapy.model.notification import NotifyOn
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.policies.admission import AdmissionPolicy, AdmissionState, admission_error
from koalapy.scavenging.policy_calls import call_policy
from koalapy.scavenging.shares import nodes_wanted


def in_turn(waiting: Sequence[Job]) -> list[Job]:
    return sorted(waiting, key=lambda job: (job.request.priority, job.position))


def admit(
    core: Core,
    now: Instant,
    active: Sequence[Job],
    waiting: Sequence[Job],
    policy: AdmissionPolicy,
    predicted: float,
) -> None:
    """Admit as many waiting sweeps as the policy allows, and note why the others wait.

    `waiting`: in the order of `in_turn`. `predicted`: the nodes that sweeps can expect to hold grid-wide. If the policy
    fails, no sweep is admitted, or one if none is active.
    """
    crowd = AdmissionState(
        active=tuple(nodes_wanted(core, job) for job in active),
        waiting=tuple(nodes_wanted(core, job) for job in waiting),
        predicted=predicted,
        most=core.settings.scavenging.max_runners,
        nodes_per_runner=core.settings.scavenging.nodes_per_runner,
    )
    without = 0 if active else 1
    count, wrong = call_policy(lambda: policy(crowd), lambda found: admission_error(found, crowd), without)
    for number, job in enumerate(waiting[:count], start=len(active) + 1):
        _begin(core, now, job)
        core.records.note(now, job.id, "sweep_admitted", runners=number)
    for job in waiting[count:]:
        crowded = f"{_sweeps_are(len(active) + count)} active, and there is room for no more."
        note_waiting(core, now, job, f"the admission policy failed: {wrong}." if wrong else crowded)


def _sweeps_are(count: int) -> str:
    return "1 sweep is" if count == 1 else f"{count} sweeps are"


def note_waiting(core: Core, now: Instant, sweep: Job, message: str) -> None:
    """Note in the sweep's history why it waits, unless the last such note was the same."""
    if core.sessions.noted_waits.get(sweep.id) != message:
        core.sessions.noted_waits[sweep.id] = message
        core.records.note(now, sweep.id, "sweep_waits", message=message)


def _begin(core: Core, now: Instant, sweep: Job) -> None:
    runner = replace(runner_of(sweep), admitted_at=now)
    is_first = runner_of(sweep).admitted_at is None
    core.records.change(sweep, state=JobState.RUNNING, runner=runner, started_at=sweep.started_at or now)
    if is_first and sweep.request.notify:
        core.notifications.note_change(sweep, NotifyOn.STARTED)
