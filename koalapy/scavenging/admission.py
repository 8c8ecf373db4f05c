"""Admission of waiting sweeps: too many active ones would leave each with too few nodes (CCGrid 2009, section 5.3)."""

from collections.abc import Sequence

from koalapy.core.core import Core
from koalapy.model.counts import counted_as
from koalapy.model.history import HistoryKind
from koalapy.model.notification import NotifyOn
from koalapy.model.states import JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import Instant
from koalapy.policies import call_policy
from koalapy.policies.admission import AdmissionPolicy, AdmissionState, admission_error
from koalapy.scavenging.shares import nodes_wanted


def in_order(waiting: Sequence[Sweep]) -> list[Sweep]:
    return sorted(waiting, key=lambda sweep: (sweep.request.priority, sweep.position))


def admit(
    core: Core,
    now: Instant,
    active: Sequence[Sweep],
    waiting: Sequence[Sweep],
    policy: AdmissionPolicy,
    predicted: float,
) -> None:
    """Admit as many waiting sweeps as the policy allows, and note why the others wait.

    `waiting`: in the order of `in_order`. `predicted`: the nodes that sweeps can expect to hold grid-wide. If the
    policy fails, no sweep is admitted, or one if none is active.
    """
    crowd = AdmissionState(
        active=tuple(nodes_wanted(core, sweep) for sweep in active),
        waiting=tuple(nodes_wanted(core, sweep) for sweep in waiting),
        predicted=predicted,
        most=core.settings.scavenging.max_runners,
        nodes_per_runner=core.settings.scavenging.nodes_per_runner,
    )
    without = 0 if active else 1
    count, wrong = call_policy(lambda: policy(crowd), lambda found: admission_error(found, crowd), without)
    for number, sweep in enumerate(waiting[:count], start=len(active) + 1):
        _begin(core, now, sweep)
        core.records.note(now, sweep.id, HistoryKind.SWEEP_ADMITTED, runners=number)
    for sweep in waiting[count:]:
        crowded = f"{counted_as(len(active) + count, 'sweep is', 'sweeps are')} active, and there is room for no more."
        note_waiting(core, now, sweep, f"the admission policy failed: {wrong}." if wrong else crowded)


def note_waiting(core: Core, now: Instant, sweep: Sweep, message: str) -> None:
    """Note in the sweep's history why it waits, unless the last such note was the same."""
    if core.sessions.noted_waits.get(sweep.id) != message:
        core.sessions.noted_waits[sweep.id] = message
        core.records.note(now, sweep.id, HistoryKind.SWEEP_WAITS, message=message)


def _begin(core: Core, now: Instant, sweep: Sweep) -> None:
    is_first = sweep.admitted_at is None
    core.records.change_work(sweep, state=JobState.RUNNING, admitted_at=now, started_at=sweep.started_at or now)
    if is_first and sweep.request.notify:
        core.notifications.note_change(sweep, NotifyOn.STARTED)
