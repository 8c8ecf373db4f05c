"""Reclaim: how many nodes others want back, and which Launchers of a runner stop for them (CCGrid 2009, 2.2)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from koalapy.core.core import Core
from koalapy.information.commitments import processors_of
from koalapy.information.kis import Known
from koalapy.model.attempt import Attempt
from koalapy.model.history import HistoryKind
from koalapy.model.identity import JobId
from koalapy.model.sweep import Sweep
from koalapy.model.units import Instant
from koalapy.policies import call_policy
from koalapy.policies.reclaim import Candidate, ReclaimPolicy, order_error
from koalapy.policies.shares import FairShare, RunnerShare, reclaim_error
from koalapy.scavenging.launchers import owner_of, starts_until, staying, stop_launcher
from koalapy.scavenging.parameters import living_sweeps


def processors_short(core: Core, known: Known, launchers: Sequence[Attempt]) -> int:
    """Return the processors that others want on the cluster beyond the idle ones.

    Processors of Launchers that are stopping count as idle.
    """
    state = known.state
    if state is None or known.settings.scavenge.native:
        return 0
    commitments = core.information.commitments
    committed, _ = commitments.on(known.settings.name)
    scavenged = commitments.scavenged_on(known.settings.name)
    stay = {each.id for each in staying(launchers)}
    going = sum(each.processors for each in launchers if each.id not in stay)
    idle = state.idle + processors_of(scavenged.freed) - scavenged.coming
    wanted = committed + state.wanted_local
    return max(0, wanted - idle - going) if wanted else 0


def most_held(
    claimants: Sequence[RunnerShare], cluster: str, nodes: int, policy: FairShare
) -> tuple[dict[int, int], str]:
    """Return how many nodes each runner gives up, and the error in the policy's answer or ''.

    If the policy fails, the youngest runners give up nodes first.
    """
    otherwise: Mapping[int, int] = _youngest_first(claimants, cluster, nodes)
    found, wrong = call_policy(
        lambda: policy.reclaim(claimants, cluster, nodes),
        lambda taken: reclaim_error(taken, claimants, cluster, nodes),
        otherwise,
    )
    return {sweep: count for sweep, count in found.items() if count}, wrong


def _youngest_first(claimants: Sequence[RunnerShare], cluster: str, nodes: int) -> dict[int, int]:
    taken: dict[int, int] = {}
    for each in reversed(claimants):
        taken[each.sweep] = min(nodes, each.holds.get(cluster, 0))
        nodes -= taken[each.sweep]
    return taken


def nodes_for(lack: int, launchers: Sequence[Attempt]) -> int:
    """Return how many of the Launchers must stop to free `lack` processors, if the largest stop first."""
    count = 0
    for processors in sorted((each.processors for each in launchers), reverse=True):
        if lack <= 0:
            break
        lack, count = lack - processors, count + 1
    return count


_NOTHING_LEFT = "Nothing is left for them to do."
_OTHERS = "Other sweeps have a right to them."


def first_to_go(core: Core, sweep: JobId, cluster: str, policy: ReclaimPolicy) -> tuple[Sequence[Attempt], str]:
    """Return the sweep's Launchers there in the order of the reclaim policy, and the error in its answer or ''."""
    there = {each.id.job: each for each in staying(core.launchers.of(owner_of(sweep))) if each.cluster == cluster}
    candidates: Sequence[Candidate] = [_candidate(core, each) for each in there.values()]
    order, wrong = call_policy(lambda: policy(candidates), lambda found: order_error(found, candidates), candidates)
    return [there[JobId(each.launcher)] for each in order], wrong


def _candidate(core: Core, launcher: Attempt) -> Candidate:
    running, pulled_at = core.sessions.doing.get(launcher.id, (0, None))
    return Candidate(launcher=launcher.id.job, running=running, pulled_at=pulled_at, started_at=launcher.allocated_at)


def shrink(core: Core, now: Instant, sweep: JobId, cluster: str, chosen: Iterable[Attempt], stop_reason: str) -> None:
    """Stop the chosen Launchers, and note it in the sweep's history. `stop_reason`: preempted or shrunk."""
    count = running = 0
    for launcher in chosen:
        count += 1
        running += core.sessions.doing.get(launcher.id, (0, now))[0]
        stop_launcher(core, now, launcher, stop_reason)
    if count and stop_reason == "preempted":
        core.records.note(now, sweep, HistoryKind.SWEEP_PREEMPTED, cluster=cluster, nodes=count, parameters=running)
    elif count:
        core.records.note(now, sweep, HistoryKind.SWEEP_SHRUNK, cluster=cluster, nodes=count, message=_OTHERS)


def stop_idlers(core: Core, now: Instant, sweep: Sweep, idle: Sequence[Attempt]) -> None:
    for launcher in idle:
        stop_launcher(core, now, launcher, "idle")
    for cluster, nodes in Counter(each.cluster for each in idle).items():
        core.records.note(now, sweep.id, HistoryKind.SWEEP_SHRUNK, cluster=cluster, nodes=nodes, message=_NOTHING_LEFT)


def withdraw(core: Core, now: Instant) -> None:
    """Stop Launchers that have not started in time; end the pause of a cluster where others have started since."""
    late: Counter[tuple[JobId, str]] = Counter()
    for sweep in living_sweeps(core):
        stage_in = bool(sweep.request.stage_in)
        for launcher in core.launchers.of(owner_of(sweep.id)):
            until = starts_until(launcher, stage_in, core.settings)
            if until is not None and now >= until:
                stop_launcher(core, now, launcher, "withdrawn")
                late[sweep.id, launcher.cluster] += 1
            elif launcher.allocated_at is not None:
                core.pauses.started(launcher.cluster, launcher.allocated_at)
    for (identity, cluster), nodes in late.items():
        core.records.note(now, identity, HistoryKind.LAUNCHER_WITHDRAWN, cluster=cluster, nodes=nodes)
