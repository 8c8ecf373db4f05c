"""Sweeps as one machine beside the scheduler: it hears what concerns them, and after every step does what follows."""

from collections.abc import Iterable, Mapping, Sequence

from koalapy.coallocation import stopping
from koalapy.information.kis import Information
from koalapy.model.errors import Reason
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job, Outcome
from koalapy.model.learned import Learned
from koalapy.model.records import Records
from koalapy.model.request import ComponentRequest
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import MINUTE, Instant
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.policies.shares import Claimant, Site
from koalapy.policies.sweep_order import SweepOrder
from koalapy.scavenging import (
    admission,
    ends,
    faults,
    feeding,
    hearing,
    hopeless,
    leaving,
    output,
    owed,
    reclaim,
    shares,
    suspended,
    suspicion,
    tail,
    whynot,
)
from koalapy.scavenging.ground import Ground
from koalapy.scavenging.heard import Heard
from koalapy.scavenging.launch import launch, send_away, starts_until
from koalapy.scavenging.launchers import Launchers, runner_of, staying
from koalapy.scavenging.nodes import Nodes
from koalapy.scavenging.prediction import Prediction


class Scavenger:
    """`launchers` is to be an index of the records. Nothing costs anything while there is no sweep."""

    def __init__(
        self,
        records: Records,
        settings: Settings,
        information: Information,
        launchers: Launchers,
        policies: ScavengingPolicies,
        learned: Learned,
    ) -> None:
        self._records, self._settings, self._information = records, settings, information
        self._launchers, self._policies = launchers, policies
        self._heard, self._pauses = Heard(), ends.Pauses()
        self._ground = Ground(information, launchers, policies.idleness, settings.scavenging, learned)
        self._shares = shares.Shares(policies.fairshare)
        self._shared_by = self._active_ids()
        self._unshared: dict[str, None] = {}  # clusters that were closed when all was last shared out anew
        self._wakeup: Instant | None = None

    # ---- what it is told

    def connected(self, cluster: str) -> None:
        self._heard.new_session(cluster)

    def restored(self, now: Instant) -> None:
        """After a backup nobody knows what became of Launchers: all make room for new ones."""
        for launcher in list(self._launchers):
            send_away(self._records, now, launcher, "over")

    def hear(self, event: hearing.Told) -> int:
        """How many results it passes over, of parameters that were never out on the cluster that tells them."""
        return hearing.hear(self._records, self._heard, event)

    def measured(self, cluster: str) -> None:
        self._ground.measured(cluster)

    # ---- what it is asked

    @property
    def running_parameters(self) -> Mapping[AttemptId, int]:
        """What was last heard of each Launcher."""
        return {attempt: running for attempt, (running, _) in self._heard.doing.items()}

    @property
    def prediction(self) -> Prediction:
        return self._ground.prediction

    def why_no_more(self, now: Instant, sweep: Job) -> dict[str, str]:
        """Of clusters that give a running sweep no more nodes, as of the last step: why, as the end of a sentence."""
        ground = self._ground
        avoided, _ = self._avoided(sweep)
        return whynot.why_no_more(now, sweep, self._settings, ground.sizes, ground.nodes, self._pauses, avoided)

    def may_go(self, template: ComponentRequest) -> dict[str, int] | Reason:
        """Clusters that a sweep of such parameters may go to, with the largest node that each has shown, 0 before that.

        If there are none, the reason for which it would fail.
        """
        sizes = self._ground.shown()
        barred = hopeless.never(template, self._settings, sizes)
        left = {each.name: sizes.get(each.name, 0) for each in self._settings.clusters if each.name not in barred}
        return left or hopeless.nowhere(template, self._settings, sizes)

    def told(self, sweep: JobId) -> str:
        """Why it waits, as it was last told in its story; '' if it was not."""
        return self._heard.told.get(sweep, "")

    def faults(self, sweep: JobId) -> tuple[str, ...]:
        """What is wrong with the last answers of policies that concern it, in sentences."""
        return faults.of(self._heard, sweep)

    def wakeup(self) -> Instant | None:
        """When time alone changes something for sweeps; None: never."""
        return self._wakeup if self._launchers.sweeps else None

    # ---- what follows

    def step(self, now: Instant) -> None:
        if not self._launchers.sweeps and not self._launchers.ended and not self._ground.news:
            return
        feeding.begin(self._records, self._launchers, self._heard)
        self._bury(now)
        self._tell_turns(now)
        for sweep in self._sweeps():
            self._follow_up(now, sweep)
        leaving.withdraw(self._records, self._settings, self._launchers, self._pauses, now)
        suspicion.judge(self._records, self._launchers, self._heard, now)
        self._survey(now)
        self._reclaim(now)
        self._admit(now)
        self._share(now)
        for sweep in self._active():
            order, reachable = self._order_of(sweep), self._information.reachable
            feeding.feed(self._records, self._launchers, self._heard, order, reachable, now, sweep)
        for sweep in self._active():
            tail.recall(self._records, self._launchers, self._heard, self._information.reachable, sweep)
            needed = shares.nodes_wanted(sweep, self._ground.sizes)
            leaving.stop_idlers(self._records, now, sweep, tail.idlers(self._launchers, self._heard, sweep, needed))
        self._wakeup = min(self._moments(now), default=None)

    def _bury(self, now: Instant) -> None:
        dead, self._launchers.ended = self._launchers.ended, []
        for launcher in dead:
            ends.over(self._records, self._settings, self._heard, self._pauses, now, launcher)

    def _tell_turns(self, now: Instant) -> None:
        turned, self._launchers.turned = self._launchers.turned, []
        suspended.tell(self._records, now, turned)

    def _follow_up(self, now: Instant, sweep: Job) -> None:
        """One whose parameters are all done ends; of one that stops all Launchers do, and then it has stopped."""
        if sweep.state is JobState.RUNNING and not runner_of(sweep).left:
            output.finish(self._records, now, sweep)
        elif sweep.state is JobState.RUNNING:
            reason = hopeless.why_hopeless(sweep, self._settings, self._ground.sizes, self._heard)
            if reason is not None:
                stopping.stop(self._records, now, sweep, Outcome.FAILED, reason)
        sweep = self._records.jobs[sweep.id]
        if sweep.state is not JobState.STOPPING and not sweep.collecting:
            return
        launchers = self._launchers.of(sweep.id)
        for launcher in launchers:
            if not launcher.glide or not launcher.glide.going or (sweep.forced and not launcher.forced):
                send_away(self._records, now, launcher, "over", sweep.forced)
        if not launchers and sweep.state is JobState.STOPPING:
            stopping.settle(self._records, now, sweep, 1, 0)
            self._heard.forget_sweep(sweep.id)

    # ---- nodes

    def _survey(self, now: Instant) -> None:
        self._ground.survey(now)
        learned = self._ground.prediction.to_keep()
        if learned is not None:
            self._records.learn(learned)

    def _reclaim(self, now: Instant) -> None:
        for name, each in self._ground.nodes.items():
            launchers = self._launchers.on(name)
            if not launchers or name not in self._information.reachable:
                continue
            known, promises = self._information.clusters[name], self._information.promises
            stay = staying(launchers)
            lack = reclaim.lacking(known, promises, launchers)
            count = reclaim.nodes_for(lack, stay)
            if count:
                self._take(now, name, count, "preempted")
            elif known.state is not None and len(stay) > each.allowed:
                self._take(now, name, len(stay) - each.allowed, "preempted")

    def _take(self, now: Instant, cluster: str, count: int, going: str) -> None:
        found, wrong = reclaim.most_held(self._claimants(now), cluster, count, self._policies.fairshare)
        for sweep, nodes in found.items():
            self._heed(now, JobId(sweep), "what the fair-share policy takes", wrong)
            self._shrink(now, JobId(sweep), cluster, nodes, going)
            owed.owe(self._records, JobId(sweep), cluster, nodes)

    def _shrink(self, now: Instant, sweep: JobId, cluster: str, nodes: int, going: str) -> None:
        order, wrong = leaving.first_to_go(self._launchers, self._heard, self._policies.preemption, sweep, cluster)
        self._heed(now, sweep, "the preemption policy", wrong)
        leaving.shrink(self._records, self._heard, now, sweep, cluster, order[:nodes], going)

    # ---- runners

    def _admit(self, now: Instant) -> None:
        waiting = admission.in_turn([job for job in self._sweeps() if job.state is JobState.WAITING])
        if waiting:
            admission.admit(
                self._records, self._heard, now, self._active(), waiting, self._policies.admission,
                self._settings.scavenging, self._ground.sizes, self._ground.predicted(now),
            )  # fmt: skip

    # ---- shares

    def _claimants(self, now: Instant) -> list[Claimant]:
        return [self._claimant(now, sweep) for sweep in self._active()]

    def _claimant(self, now: Instant, sweep: Job) -> Claimant:
        barred = hopeless.barred(now, sweep, self._settings, self._ground.sizes, self._ground.idle)
        avoided, wrong = self._avoided(sweep)
        self._heed(now, sweep.id, "what its order stays away from", wrong)
        barred += avoided
        personal = self._settings.scavenging.personal
        return shares.claimant(sweep, self._launchers, self._ground.sizes, tuple(dict.fromkeys(barred)), personal)

    def _avoided(self, sweep: Job) -> tuple[Sequence[str], str]:
        held = shares.holds(self._launchers.of(sweep.id))
        return feeding.avoided(self._order_of(sweep), sweep, held, list(self._information.clusters))

    def _share(self, now: Instant) -> None:
        active, sites = self._active(), [self._site(now, name, each) for name, each in self._ground.nodes.items()]
        anew = self._is_anew(sites)
        claimants = self._claimants(now)
        found, wrong = self._shares.turns(claimants, sites, anew)
        for sweep in active:
            self._heed(now, sweep.id, "the fair-share policy", wrong)
        idle = {name: list(each.idle) for name, each in self._ground.nodes.items()}
        for turn in found:
            if turn.nodes > 0:
                there, count = idle[turn.cluster], min(turn.nodes, self._usable(turn))
                idle[turn.cluster] = there[count:]
                self._grow(now, turn, there[:count])
            else:
                self._shrink(now, turn.sweep, turn.cluster, -turn.nodes, "shrunk")
        for sweep in self._active() if anew else ():
            owed.cancel(self._records, sweep.id)

    def _is_anew(self, sites: Sequence[Site]) -> bool:
        """Whether all is to be shared out anew: the runners are others, or a cluster could not be when they were."""
        closed = {site.cluster: None for site in sites if site.closed}
        runners, self._shared_by = self._shared_by, self._active_ids()
        opened = any(name not in closed for name in self._unshared)
        anew = runners != self._shared_by or opened
        if anew:
            self._unshared = closed if self._shared_by else {}
        return anew and bool(self._shared_by)

    def _usable(self, turn: shares.Turn) -> int:
        """Of the idle nodes, without those that may be the sweep's black holes."""
        holes = hopeless.black_holes(self._records.jobs[turn.sweep], turn.cluster)
        return max(0, len(self._ground.nodes[turn.cluster].idle) - holes)

    def _site(self, now: Instant, name: str, nodes: Nodes) -> Site:
        there = self._launchers.on(name)
        coming = sum(1 for each in there if each.glide is not None and each.glide.going not in ("", "preempted"))
        return shares.site(name, nodes, coming, self._pauses.active(now, name))

    def _grow(self, now: Instant, turn: shares.Turn, sizes: Sequence[int]) -> None:
        """On nodes of so many processors each."""
        if not sizes:
            return
        sweep = self._records.jobs[turn.sweep]
        settings = self._information.clusters[turn.cluster].settings
        grown = sum(launch(self._records, self._settings, now, sweep, settings, size) for size in sizes)
        if grown:
            self._records.note(now, sweep.id, "sweep_grown", cluster=turn.cluster, nodes=grown)
            owed.repay(self._records, sweep.id, turn.cluster, grown)

    # ---- words

    def _heed(self, now: Instant, sweep: JobId, asked: str, wrong: str) -> None:
        faults.heed(self._records, self._heard, now, sweep, asked, wrong)

    def _order_of(self, sweep: Job) -> SweepOrder:
        return self._policies.order_of(sweep.request.order)

    def _sweeps(self) -> list[Job]:
        return [self._records.jobs[identity] for identity in self._launchers.sweeps]

    def _active(self) -> list[Job]:
        """The oldest runner first. One whose files are on their way needs no nodes any more."""
        running = [job for job in self._sweeps() if job.state is JobState.RUNNING and not job.collecting]
        return sorted(running, key=lambda job: (runner_of(job).admitted_at or 0, job.id))

    def _active_ids(self) -> tuple[JobId, ...]:
        return tuple(sorted(job.id for job in self._active()))

    def _moments(self, now: Instant) -> Iterable[Instant]:
        for launcher in self._launchers:
            if (until := starts_until(launcher, self._settings)) is not None:
                yield until
        active = self._active()
        untils = [until for sweep in active for _, until in sweep.excluded]
        yield from (until for until in (*untils, *self._pauses.until.values()) if until > now)
        if active and any(each.scavenge.hours is not None for each in self._settings.clusters):
            yield Instant((now // MINUTE + 1) * MINUTE)
