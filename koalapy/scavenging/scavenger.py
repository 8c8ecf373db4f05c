"""Sweeps as one machine beside the scheduler: it hears what concerns them, and after every step does what follows."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from koalapy.coallocation import stopping
from koalapy.information.kis import Information, View
from koalapy.model.events import (
    LaunchersSeen,
    LauncherSuspected,
    ParametersEnded,
    ParametersReturned,
    ParametersWanted,
)
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job, Outcome
from koalapy.model.records import Records
from koalapy.model.settings import DYNAMIC, Settings
from koalapy.model.states import JobState
from koalapy.model.units import MINUTE, Instant
from koalapy.policies.admission import Crowd, wrong_admission
from koalapy.policies.preemption import Candidate, wrong_order
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.policies.shares import Claimant, Site
from koalapy.policies.sweep_order import Pool, wrong_avoidance
from koalapy.scavenging import ends, feeding, hopeless, parameters, reclaim, shares, suspicion, tail
from koalapy.scavenging.asking import answer
from koalapy.scavenging.heard import Heard
from koalapy.scavenging.launch import launch, send_away, starts_until
from koalapy.scavenging.launchers import Launchers, place, runner_of, staying
from koalapy.scavenging.nodes import Nodes, look, node_size
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
    ) -> None:
        self._records, self._settings, self._information = records, settings, information
        self._launchers, self._policies = launchers, policies
        self._heard, self._pauses = Heard(), ends.Pauses()
        self._sizes: dict[str, int] = {}
        self._shared_by = self._active_ids()
        self._prediction = Prediction(offsets=settings.scavenging.offsets)
        self._wakeup: Instant | None = None
        self._idle: dict[str, int] = {}  # nodes, as they were found in this step
        self._measured = False

    # ---- what it is told

    def connected(self, cluster: str) -> None:
        feeding.connected(self._records, self._launchers, self._heard, cluster)

    def restored(self, now: Instant) -> None:
        """After a backup nobody knows what became of Launchers: all make room for new ones."""
        for launcher in list(self._launchers):
            send_away(self._records, now, launcher, "over")

    def ended(self, event: ParametersEnded) -> None:
        fresh = parameters.ended(self._records, event)
        self._heard.failures.pop((event.sweep, event.cluster), None)
        suspicion.ran(self._records, self._heard, event, fresh)

    def returned(self, event: ParametersReturned) -> None:
        parameters.returned(self._records, event)

    def wanted(self, event: ParametersWanted) -> None:
        if parameters.sweep_of(self._records, event.sweep) is not None:
            self._heard.wanted[event.sweep, event.cluster] = event.wanted

    def seen(self, event: LaunchersSeen) -> None:
        for attempt, running, pulled_at in event.launchers:
            if self._records.component(attempt) is not None:
                self._heard.doing[attempt] = running, pulled_at

    def suspected(self, event: LauncherSuspected) -> None:
        suspicion.suspected(self._records, self._heard, event)

    def measured(self, now: Instant, cluster: str) -> None:
        if self._launchers.sweeps or self._learns:
            known = self._information.clusters[cluster]
            self._sizes[cluster] = node_size(known, self._sizes.get(cluster, 0))
            self._measured = True

    @property
    def _learns(self) -> bool:
        """Whether it is to know what clusters have for sweeps before there is any."""
        return self._settings.scavenging.admission == DYNAMIC

    # ---- what it is asked

    @property
    def running_parameters(self) -> Mapping[AttemptId, int]:
        """What was last heard of each Launcher."""
        return {attempt: running for attempt, (running, _) in self._heard.doing.items()}

    @property
    def prediction(self) -> Prediction:
        return self._prediction

    def wakeup(self) -> Instant | None:
        """When time alone changes something for sweeps; None: never."""
        return self._wakeup if self._launchers.sweeps else None

    # ---- what follows

    def step(self, now: Instant) -> None:
        if not self._launchers.sweeps and not self._launchers.ended and not self._measured:
            return
        self._bury(now)
        for sweep in self._sweeps():
            self._follow_up(now, sweep)
        self._withdraw(now)
        suspicion.judge(self._records, self._launchers, self._heard, now)
        nodes = self._look(now)
        self._idle = {name: len(each.idle) for name, each in nodes.items()}
        self._predict(now, nodes)
        self._reclaim(now, nodes)
        self._admit(now, nodes)
        self._share(now, nodes)
        for sweep in self._active():
            feeding.feed(
                self._records, self._launchers, self._heard, self._policies.order, self._information.reachable, sweep
            )
        for sweep in self._active():
            tail.recall(self._records, self._launchers, self._heard, self._information.reachable, sweep)
            self._stop_idlers(now, sweep)
        self._wakeup = min(self._moments(now), default=None)

    def _bury(self, now: Instant) -> None:
        dead, self._launchers.ended = self._launchers.ended, []
        for launcher in dead:
            ends.over(self._records, self._settings, self._heard, self._pauses, now, launcher)

    def _follow_up(self, now: Instant, sweep: Job) -> None:
        """One whose parameters are all done ends; of one that stops all Launchers do, and then it has stopped."""
        if sweep.state is JobState.RUNNING and not runner_of(sweep).left:
            stopping.stop(self._records, now, sweep, Outcome.DONE)
        elif sweep.state is JobState.RUNNING:
            reason = hopeless.why_hopeless(sweep, self._settings, self._sizes, self._heard)
            if reason is not None:
                stopping.stop(self._records, now, sweep, Outcome.FAILED, reason)
        sweep = self._records.jobs[sweep.id]
        if sweep.state is not JobState.STOPPING:
            return
        launchers = self._launchers.of(sweep.id)
        for launcher in launchers:
            if not launcher.glide or not launcher.glide.going or (sweep.forced and not launcher.forced):
                send_away(self._records, now, launcher, "over", sweep.forced)
        if not launchers:
            stopping.settle(self._records, now, sweep, 1, 0)
            self._heard.forget_sweep(sweep.id)

    def _stop_idlers(self, now: Instant, sweep: Job) -> None:
        idle = tail.idlers(self._launchers, self._heard, sweep, shares.nodes_wanted(sweep, self._sizes))
        for launcher in idle:
            send_away(self._records, now, launcher, "idle")
        for cluster, nodes in Counter(place(each).cluster for each in idle).items():
            self._records.note(now, sweep.id, "sweep_shrunk", cluster=cluster, nodes=nodes, message=_NOTHING_LEFT)

    def _withdraw(self, now: Instant) -> None:
        late: Counter[tuple[JobId, str]] = Counter()
        for launcher in list(self._launchers):
            until = starts_until(launcher)
            if until is not None and now >= until and launcher.glide is not None:
                send_away(self._records, now, launcher, "withdrawn")
                late[launcher.glide.sweep, place(launcher).cluster or ""] += 1
            elif (started_at := place(launcher).allocated_at) is not None:
                self._pauses.started(place(launcher).cluster or "", started_at)
        for (sweep, cluster), nodes in late.items():
            self._records.note(now, sweep, "launcher_withdrawn", cluster=cluster, nodes=nodes)

    # ---- nodes

    def _look(self, now: Instant) -> dict[str, Nodes]:
        views = {view.name: view for view in self._information.views(now)}
        return {name: self._look_at(now, name, views[name]) for name in self._information.clusters}

    def _predict(self, now: Instant, nodes: Mapping[str, Nodes]) -> None:
        """Learn from every measurement what sweeps could have had."""
        if not self._measured:
            return
        self._measured = False
        for name, each in nodes.items():
            self._prediction.observe(now, name, each.allowed if name in self._information.reachable else 0)

    def _look_at(self, now: Instant, name: str, view: View) -> Nodes:
        known = self._information.clusters[name]
        size = self._sizes[name] = max(
            [node_size(known, self._sizes.get(name, 0)), *(place(each).processors for each in self._launchers.on(name))]
        )
        held = len(self._launchers.on(name))
        policy, rules = self._policies.idleness, self._settings.scavenging
        return look(now, known, view, self._information.promises, held, size, policy, rules)

    def _reclaim(self, now: Instant, nodes: Mapping[str, Nodes]) -> None:
        for name, each in nodes.items():
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
        for sweep, nodes in reclaim.most_held(self._claimants(now), cluster, count, self._policies.fairshare).items():
            self._shrink(now, JobId(sweep), cluster, nodes, going)
            job = self._records.jobs[JobId(sweep)]
            owed = Counter(dict(runner_of(job).owed))
            owed[cluster] += nodes
            parameters.put_runner(self._records, job, owed=(*owed.items(),))

    def _shrink(self, now: Instant, sweep: JobId, cluster: str, nodes: int, going: str) -> None:
        chosen = self._first_to_go(sweep, cluster)[:nodes]
        running = 0
        for launcher in chosen:
            running += self._heard.doing.get(launcher.attempt_of(place(launcher)), (0, now))[0]
            send_away(self._records, now, launcher, going)
        if chosen:
            kind = "sweep_preempted" if going == "preempted" else "sweep_shrunk"
            told = {"parameters": running} if going == "preempted" else {}
            self._records.note(now, sweep, kind, cluster=cluster, nodes=len(chosen), **told)

    def _first_to_go(self, sweep: JobId, cluster: str) -> list[Job]:
        there = {each.id: each for each in staying(self._launchers.of(sweep)) if place(each).cluster == cluster}
        candidates: Sequence[Candidate] = [self._candidate(each) for each in there.values()]
        order, _ = answer(
            lambda: self._policies.preemption(candidates), lambda found: wrong_order(found, candidates), candidates
        )
        return [there[JobId(each.launcher)] for each in order]

    def _candidate(self, launcher: Job) -> Candidate:
        running, pulled_at = self._heard.doing.get(launcher.attempt_of(place(launcher)), (0, None))
        return Candidate(
            launcher=launcher.id, running=running, pulled_at=pulled_at, started_at=place(launcher).allocated_at
        )

    # ---- runners

    def _admit(self, now: Instant, nodes: Mapping[str, Nodes]) -> None:
        waiting = [job for job in self._sweeps() if job.state is JobState.WAITING]
        if not waiting:
            return
        waiting.sort(key=lambda job: (job.request.priority, job.place))
        active, rules = self._active(), self._settings.scavenging
        crowd = Crowd(
            active=tuple(shares.nodes_wanted(job, self._sizes) for job in active),
            waiting=tuple(shares.nodes_wanted(job, self._sizes) for job in waiting),
            predicted=self._prediction.forecast(now) or float(sum(each.allowed for each in nodes.values())),
            most=rules.max_runners,
            nodes_per_runner=rules.nodes_per_runner,
        )
        count, wrong = answer(
            lambda: self._policies.admission(crowd), lambda found: wrong_admission(found, crowd), 0 if active else 1
        )
        for job in waiting[:count]:
            self._records.put(self._begun(now, job))
            self._records.note(now, job.id, "sweep_admitted", runners=len(self._active()))
        for job in waiting[count:]:
            self._tell(now, job, f"the admission policy failed: {wrong}" if wrong else _crowded(len(active) + count))

    def _begun(self, now: Instant, sweep: Job) -> Job:
        runner = replace(runner_of(sweep), admitted_at=now)
        return replace(sweep.to(JobState.RUNNING), runner=runner, started_at=sweep.started_at or now)

    def _tell(self, now: Instant, sweep: Job, message: str) -> None:
        """Once, until it is another."""
        if self._heard.told.get(sweep.id) != message:
            self._heard.told[sweep.id] = message
            self._records.note(now, sweep.id, "sweep_waits", message=message)

    # ---- shares

    def _claimants(self, now: Instant) -> list[Claimant]:
        return [self._claimant(now, sweep) for sweep in self._active()]

    def _claimant(self, now: Instant, sweep: Job) -> Claimant:
        barred = [*hopeless.barred(now, sweep, self._settings, self._sizes, self._idle), *self._avoided(sweep)]
        personal = self._settings.scavenging.personal
        return shares.claimant(sweep, self._launchers, self._sizes, tuple(dict.fromkeys(barred)), personal)

    def _avoided(self, sweep: Job) -> Sequence[str]:
        order, clusters = self._policies.order, list(self._information.clusters)
        runner, held = runner_of(sweep), shares.holds(self._launchers.of(sweep.id))
        pool = Pool(waiting=runner.pool, returned=dict(runner.returned), holds=held)
        nowhere: Sequence[str] = ()
        found, _ = answer(lambda: order.avoid(pool, clusters), lambda each: wrong_avoidance(each, clusters), nowhere)
        return found

    def _share(self, now: Instant, nodes: Mapping[str, Nodes]) -> None:
        active = self._active_ids()
        anew, self._shared_by = active != self._shared_by, active
        claimants = self._claimants(now)
        if not claimants:
            return
        sites = [self._site(now, name, each) for name, each in nodes.items()]
        found, wrong = shares.turns(claimants, sites, self._policies.fairshare, anew)
        for sweep in self._active() if wrong else ():
            self._tell(now, sweep, f"the fair-share policy failed: {wrong}")
        idle = {name: list(each.idle) for name, each in nodes.items()}
        for turn in found:
            if turn.nodes > 0:
                there, count = idle[turn.cluster], min(turn.nodes, self._usable(turn))
                idle[turn.cluster] = there[count:]
                self._grow(now, turn, there[:count])
            else:
                self._shrink(now, turn.sweep, turn.cluster, -turn.nodes, "shrunk")
        if anew:
            for sweep in self._active():
                if runner_of(sweep).owed:
                    parameters.put_runner(self._records, sweep, owed=())

    def _usable(self, turn: shares.Turn) -> int:
        """Of the idle nodes, without those that may be the sweep's black holes."""
        return self._idle[turn.cluster] - hopeless.black_holes(self._records.jobs[turn.sweep], turn.cluster)

    def _site(self, now: Instant, name: str, nodes: Nodes) -> Site:
        there = self._launchers.on(name)
        coming = sum(1 for each in there if each.glide is not None and each.glide.going not in ("", "preempted"))
        return shares.site(name, nodes, coming, self._pauses.active(now, name))

    def _grow(self, now: Instant, turn: shares.Turn, sizes: Sequence[int]) -> None:
        """On nodes of so many processors each."""
        sweep = self._records.jobs[turn.sweep]
        settings = self._information.clusters[turn.cluster].settings
        for size in sizes:
            launch(self._records, self._settings, now, sweep, settings, size)
        self._records.note(now, sweep.id, "sweep_grown", cluster=turn.cluster, nodes=len(sizes))
        owed = dict(runner_of(sweep).owed)
        if turn.cluster in owed:
            owed[turn.cluster] -= len(sizes)
            left = tuple((name, count) for name, count in owed.items() if count > 0)
            parameters.put_runner(self._records, sweep, owed=left)

    # ---- words

    def _sweeps(self) -> list[Job]:
        return [self._records.jobs[identity] for identity in self._launchers.sweeps]

    def _active(self) -> list[Job]:
        """The oldest runner first."""
        running = [job for job in self._sweeps() if job.state is JobState.RUNNING]
        return sorted(running, key=lambda job: (runner_of(job).admitted_at or 0, job.id))

    def _active_ids(self) -> tuple[JobId, ...]:
        return tuple(sorted(job.id for job in self._active()))

    def _moments(self, now: Instant) -> Iterable[Instant]:
        for launcher in self._launchers:
            if (until := starts_until(launcher)) is not None:
                yield until
        active = self._active()
        untils = [until for sweep in active for _, until in sweep.excluded]
        yield from (until for until in (*untils, *self._pauses.until.values()) if until > now)
        if active and any(each.scavenge.hours is not None for each in self._settings.clusters):
            yield Instant((now // MINUTE + 1) * MINUTE)


_NOTHING_LEFT = "Nothing is left for them to do."


def _crowded(runners: int) -> str:
    return f"{runners} sweeps are active, and there is room for no more."
