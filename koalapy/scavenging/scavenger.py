"""The control of sweeps beside the scheduler: after every step of the engine, it admits, grows, shrinks and feeds."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from koalapy.coallocation.stop import code_and_message, stop_sweep
from koalapy.core.core import Core
from koalapy.model.attempt import OwnerKind, fields_of
from koalapy.model.errors import Reason
from koalapy.model.header import Outcome
from koalapy.model.history import HistoryKind
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.learned import Learned
from koalapy.model.request import Request
from koalapy.model.states import JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import MINUTE, Instant
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.policies.shares import ClusterShare, RunnerShare
from koalapy.policies.sweep_order import SweepOrder
from koalapy.scavenging import (
    admission,
    black_holes,
    feasibility,
    feeding,
    launchers,
    lease_demand,
    parameters,
    policy_calls,
    reclaim,
    shares,
)
from koalapy.scavenging.idle_nodes import IdleNodes, Nodes
from koalapy.scavenging.launchers import launch, owner_of, starts_until, staying, stop_launcher
from koalapy.scavenging.prediction import Prediction


class Scavenger:
    """The control of all sweeps. Without sweeps, a step costs almost nothing.

    Its own state is only what it derives: the nodes as last surveyed, and the shares.
    """

    def __init__(self, core: Core, policies: ScavengingPolicies, learned: Learned) -> None:
        self._core, self._policies = core, policies
        self._idle_nodes = IdleNodes(core, policies.idleness, learned)
        self._shares = shares.Shares(policies.fairshare)
        self._shared_by = self._active_ids()
        self._unshared: dict[str, None] = {}  # clusters that were closed at the last full division
        self._wakeup: Instant | None = None

    # ---- queries

    @property
    def running_parameters(self) -> Mapping[AttemptId, int]:
        """The parameters that run in each Launcher, by its last report."""
        return {attempt: running for attempt, (running, _) in self._core.sessions.doing.items()}

    @property
    def prediction(self) -> Prediction:
        return self._idle_nodes.prediction

    def why_no_more(self, now: Instant, sweep: Sweep) -> dict[str, str]:
        """Return why clusters give a running sweep no more nodes, as of the last step, as ends of sentences."""
        avoided, _ = self._avoided(sweep)
        return feasibility.why_no_more(self._core, now, sweep, self._idle_nodes.nodes, avoided)

    def may_go(self, request: Request) -> dict[str, int] | Reason:
        """Return the clusters that a sweep of this request may use, and the largest node seen on each.

        Sizes are in processors, 0 if no node was seen. If there is no such cluster, and it may not run on leases,
        return the reason why it would fail.
        """
        core, template, sizes = self._core, request.components[0], self._idle_nodes.shown(self._core)
        barred = feasibility.never(core, template, sizes)
        left = {each.name: sizes.get(each.name, 0) for each in core.settings.clusters if each.name not in barred}
        return left if left or lease_demand.may_borrow(core, request) else feasibility.nowhere(core, template, sizes)

    def waits_because(self, sweep: JobId) -> str:
        """Return why the sweep waits, as its history has it; '' if it does not wait."""
        return self._core.sessions.noted_waits.get(sweep, "")

    def faults(self, sweep: JobId) -> tuple[str, ...]:
        """Return the present errors of policies that concern the sweep, as sentences."""
        return policy_calls.policy_errors(self._core, sweep)

    def wakeup(self) -> Instant | None:
        """Return the instant from which time alone changes something for sweeps; None: there is none."""
        return self._wakeup if self._core.records.sweeps else None

    # ---- steps

    def end_sweeps(self, now: Instant) -> bool:
        """End the sweeps that have ended. Jobs that wait for them can then be placed before nodes are taken back.

        It is due in each batch while there are sweeps.
        """
        if self._core.records.sweeps:
            feeding.begin(self._core)
            for sweep in self._sweeps():
                self._follow_up(now, sweep)
        return bool(self._core.records.sweeps)

    def step(self, now: Instant) -> bool:
        """Take back nodes for placed jobs, and give the idle ones to sweeps; no job is placed after it.

        It is due in each batch while there are sweeps.
        """
        if not self._core.records.sweeps:
            lease_demand.forget(self._core)
        if self._core.records.sweeps or self._core.nodes_changed:
            self._divide(now)
        return bool(self._core.records.sweeps)

    def _divide(self, now: Instant) -> None:
        self._note_suspensions(now)
        reclaim.withdraw(self._core, now)
        black_holes.judge(self._core, now)
        self._survey(now)
        self._reclaim(now)
        self._admit(now)
        self._share(now)
        for sweep in self._active():
            feeding.feed(self._core, now, sweep, self._order_of(sweep))
        for sweep in self._active():
            feeding.recall(self._core, sweep)
            needed = shares.nodes_wanted(self._core, sweep)
            reclaim.stop_idlers(self._core, now, sweep, feeding.idlers(self._core, sweep, needed))
        barred = partial(self._barred, now)
        lease_demand.note_demand(self._core, now, self._active(), self._idle_nodes.nodes, barred)
        self._wakeup = min(self._moments(now), default=None)

    def _barred(self, now: Instant, sweep: Sweep) -> Sequence[str]:
        return feasibility.barred(self._core, now, sweep, self._idle_nodes.idle)

    def _note_suspensions(self, now: Instant) -> None:
        turned, self._core.launchers.turned = self._core.launchers.turned, []
        launchers.note_suspensions(self._core, now, turned)

    def _follow_up(self, now: Instant, sweep: Sweep) -> None:
        """End a sweep whose parameters are all done, or that can run nowhere.

        Stop all Launchers of a sweep that stops or collects its files. A stopping sweep without Launchers becomes
        final.
        """
        if sweep.state is JobState.RUNNING and not sweep.remaining:
            parameters.finish_sweep(self._core, now, sweep)
        elif sweep.state is JobState.RUNNING:
            reason = feasibility.why_hopeless(self._core, sweep)
            if reason is not None:
                stop_sweep(self._core, now, sweep, Outcome.FAILED, reason)
        if sweep.state is not JobState.STOPPING and not sweep.collecting:
            return
        living = self._core.launchers.of(owner_of(sweep.id))
        for launcher in living:
            if not fields_of(launcher).stop_reason or (sweep.forced and not fields_of(launcher).forced):
                stop_launcher(self._core, now, launcher, "no_longer_needed", sweep.forced)
        if not living and sweep.state is JobState.STOPPING:
            _apply_outcome(self._core, now, sweep)
            self._core.sessions.forget_sweep(sweep.id)

    # ---- nodes

    def _survey(self, now: Instant) -> None:
        self._idle_nodes.survey(self._core, now)
        learned = self._idle_nodes.prediction.to_keep()
        if learned is not None:
            self._core.records.learn(learned)

    def _reclaim(self, now: Instant) -> None:
        for name, each in self._idle_nodes.nodes.items():
            there = self._core.launchers.on(name, OwnerKind.SWEEP)
            if not there or name not in self._core.information.reachable:
                continue
            known = self._core.information.clusters[name]
            stay = staying(there)
            lack = reclaim.processors_short(self._core, known, there)
            count = reclaim.nodes_for(lack, stay)
            if count:
                self._take(now, name, count, "preempted")
            elif known.state is not None and len(stay) > each.allowed:
                self._take(now, name, len(stay) - each.allowed, "preempted")

    def _take(self, now: Instant, cluster: str, count: int, stop_reason: str) -> None:
        found, wrong = reclaim.most_held(self._claimants(now), cluster, count, self._policies.fairshare)
        for sweep, nodes in found.items():
            self._report_policy_error(now, JobId(sweep), "what the fair-share policy takes", wrong)
            self._shrink(now, JobId(sweep), cluster, nodes, stop_reason)
            shares.note_reclaimed(self._core, JobId(sweep), cluster, nodes)

    def _shrink(self, now: Instant, sweep: JobId, cluster: str, nodes: int, stop_reason: str) -> None:
        order, wrong = reclaim.first_to_go(self._core, sweep, cluster, self._policies.reclaim)
        self._report_policy_error(now, sweep, "the reclaim policy", wrong)
        reclaim.shrink(self._core, now, sweep, cluster, order[:nodes], stop_reason)

    # ---- runners

    def _admit(self, now: Instant) -> None:
        waiting = admission.in_order([sweep for sweep in self._sweeps() if sweep.state is JobState.WAITING])
        if waiting:
            admission.admit(
                self._core, now, self._active(), waiting, self._policies.admission, self._idle_nodes.predicted(now)
            )

    # ---- shares

    def _claimants(self, now: Instant) -> list[RunnerShare]:
        return [self._claimant(now, sweep) for sweep in self._active()]

    def _claimant(self, now: Instant, sweep: Sweep) -> RunnerShare:
        barred = list(self._barred(now, sweep))
        avoided, wrong = self._avoided(sweep)
        self._report_policy_error(now, sweep.id, "what its order stays away from", wrong)
        barred += avoided
        return shares.runner_share(self._core, sweep, tuple(dict.fromkeys(barred)))

    def _avoided(self, sweep: Sweep) -> tuple[Sequence[str], str]:
        held = shares.holds(self._core.launchers.of(owner_of(sweep.id)))
        return feeding.avoided(self._order_of(sweep), sweep, held, list(self._core.information.clusters))

    def _share(self, now: Instant) -> None:
        active = self._active()
        clusters = [self._cluster_share(now, name, each) for name, each in self._idle_nodes.nodes.items()]
        anew = self._is_anew(clusters)
        claimants = self._claimants(now)
        found, wrong = self._shares.node_changes(claimants, clusters, anew)
        for sweep in active:
            self._report_policy_error(now, sweep.id, "the fair-share policy", wrong)
        idle = {name: list(each.idle) for name, each in self._idle_nodes.nodes.items()}
        for turn in found:
            if turn.nodes > 0:
                there, count = idle[turn.cluster], min(turn.nodes, self._usable(turn))
                idle[turn.cluster] = there[count:]
                self._grow(now, turn, there[:count])
            else:
                self._shrink(now, turn.sweep, turn.cluster, -turn.nodes, "shrunk")
        for sweep in self._active() if anew else ():
            shares.forget_reclaimed(self._core, sweep)

    def _is_anew(self, clusters: Sequence[ClusterShare]) -> bool:
        """Return whether all nodes must be divided anew.

        The active runners have changed, or a cluster has opened that was closed at the last full division.
        """
        closed = {each.cluster: None for each in clusters if each.excluded}
        runners, self._shared_by = self._shared_by, self._active_ids()
        opened = any(name not in closed for name in self._unshared)
        anew = runners != self._shared_by or opened
        if anew:
            self._unshared = closed if self._shared_by else {}
        return anew and bool(self._shared_by)

    def _usable(self, turn: shares.NodeChange) -> int:
        """Return how many idle nodes the sweep can use, without those that may be its black holes."""
        holes = feasibility.black_holes(self._core.records.sweeps[turn.sweep], turn.cluster)
        return max(0, len(self._idle_nodes.nodes[turn.cluster].idle) - holes)

    def _cluster_share(self, now: Instant, name: str, nodes: Nodes) -> ClusterShare:
        there = self._core.launchers.on(name, OwnerKind.SWEEP)
        coming = sum(fields_of(each).stop_reason not in ("", "preempted") for each in there)
        return shares.cluster_share(name, nodes, coming, self._core.pauses.active(now, name))

    def _grow(self, now: Instant, turn: shares.NodeChange, sizes: Sequence[int]) -> None:
        """Launch a Launcher for each of `sizes`, the processors of the nodes."""
        if not sizes:
            return
        sweep = self._core.records.sweeps[turn.sweep]
        settings = self._core.information.clusters[turn.cluster].settings
        grown = sum(launch(self._core, now, sweep, settings, size) for size in sizes)
        if grown:
            self._core.records.note(now, sweep.id, HistoryKind.SWEEP_GROWN, cluster=turn.cluster, nodes=grown)
            shares.note_given_back(self._core, sweep, turn.cluster, grown)

    # ---- helpers

    def _report_policy_error(self, now: Instant, sweep: JobId, task: str, wrong: str) -> None:
        policy_calls.report_policy_error(self._core, now, sweep, task, wrong)

    def _order_of(self, sweep: Sweep) -> SweepOrder:
        return self._policies.order_of(sweep.request.order)

    def _sweeps(self) -> list[Sweep]:
        return parameters.living_sweeps(self._core)

    def _active(self) -> list[Sweep]:
        """Return the active sweeps, the oldest runner first. A sweep that collects its files needs no nodes."""
        running = [sweep for sweep in self._sweeps() if sweep.state is JobState.RUNNING and not sweep.collecting]
        return sorted(running, key=lambda sweep: (sweep.admitted_at or 0, sweep.id))

    def _active_ids(self) -> tuple[JobId, ...]:
        return tuple(sorted(sweep.id for sweep in self._active()))

    def _moments(self, now: Instant) -> Iterable[Instant]:
        for sweep in self._sweeps():
            for launcher in self._core.launchers.of(owner_of(sweep.id)):
                if (until := starts_until(launcher, bool(sweep.request.stage_in), self._core.settings)) is not None:
                    yield until
        active = self._active()
        untils = [until for sweep in active for _, until in sweep.excluded]
        yield from (until for until in (*untils, *self._core.pauses.until.values()) if until > now)
        if active and any(each.scavenge.hours is not None for each in self._core.settings.clusters):
            yield Instant((now // MINUTE + 1) * MINUTE)


def _apply_outcome(core: Core, now: Instant, sweep: Sweep) -> None:
    """Let a sweep of which no Launcher is left wait again, hold it, or end it."""
    outcome = sweep.outcome
    assert outcome is not None
    if outcome in (Outcome.GIVE_BACK, Outcome.HOLD):
        state = JobState.HELD if outcome is Outcome.HOLD else JobState.WAITING
        core.records.change_work(sweep, state=state, waiting_since=now, started_at=None, outcome=None)
        return core.records.note(now, sweep.id, HistoryKind.WORK_REQUEUED, state=str(state))
    state = JobState(str(outcome))
    core.records.change_work(sweep, state=state, finished_at=now)
    return core.records.note(now, sweep.id, HistoryKind(f"work_{state}"), **code_and_message(sweep.reason))
