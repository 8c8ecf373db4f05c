"""The observer of several sites: each has the watch of one world, and their leases are checked across them."""

from collections.abc import Callable

from koalapy.chaos.promises.watch import Watch
from koalapy.chaos.violation import Promise, promise
from koalapy.model.attempt import Attempt
from koalapy.model.change import Change
from koalapy.model.ended_lease import Charged, charges
from koalapy.model.errors import Reason
from koalapy.model.header import Outcome
from koalapy.model.identity import AttemptId, JobId, attempt_of
from koalapy.model.job import Job
from koalapy.model.lease import BorrowedLease, Lease, LeaseId, LentLease, Origin, lease_of_cluster
from koalapy.model.neighbour import Neighbour
from koalapy.model.request import Isolate
from koalapy.model.settings import Settings
from koalapy.model.states import JobState, LeaseState
from koalapy.store.contract import Store
from koalapy.world.behaviour import AT_HOME
from koalapy.world.leases import PilotAttempt, Use
from koalapy.world.program_log import LogEntry
from koalapy.world.sites import SimSites


class SitesWatch:
    """All checkers of several sites. `check` raises the first broken promise, as `Watch` does."""

    def __init__(self, sites: SimSites, note: Callable[[str], None]) -> None:
        self._sites = sites
        self.leases = Leases(sites)
        self._watches = {name: _SiteWatch(self, name, sites, note) for name in sites.worlds}
        for name, world in sites.worlds.items():
            world.program_log.subscribe(self._logged(name))

    @property
    def jobs(self) -> int:
        return sum(each.jobs for each in self._watches.values())

    @property
    def programs(self) -> int:
        return sum(each.programs for each in self._watches.values())

    @property
    def parameters(self) -> int:
        return sum(each.parameters for each in self._watches.values())

    def check(self) -> None:
        """Raises Violation for the first promise that was broken."""
        for each in self._watches.values():
            each.check()

    def check_without_faults(self) -> None:
        """Check promises that hold only in a world without faults."""
        for each in self._watches.values():
            each.check_without_faults()

    def quiescent(self) -> None:
        """Raises Violation if something is left, or the sites do not agree."""
        for each in self._watches.values():
            each.quiescent()
        self.leases.quiescent()

    def unfinished(self) -> tuple[Promise, str]:
        """Describe what keeps the sites from becoming quiescent, and the promise that breaks."""
        jobs = [f"{name}: {watch.unfinished()}" for name, watch in self._watches.items() if not self._is_done(name)]
        left = self._sites.left()
        return (Promise.LEASE_ENDS if left and not jobs else Promise.ENDS), "; ".join([*jobs, *left])

    def _is_done(self, name: str) -> bool:
        return self._sites.worlds[name].quiescent()

    def _logged(self, name: str) -> Callable[[LogEntry], None]:
        def logged(entry: LogEntry) -> None:
            if entry.what == "started":
                self._watches[name].ask(lambda: self.leases.started(name, entry))

        return logged


class _SiteWatch(Watch):
    """The watch of one site, which also has the leases checked."""

    def __init__(self, sites: SitesWatch, name: str, worlds: SimSites, note: Callable[[str], None]) -> None:
        super().__init__(worlds.worlds[name], lambda line: note(f"{name}: {line}"))
        self._sites_watch, self._name = sites, name
        self._given_back: dict[LeaseId, str] = {}  # clusters of leases

    def committed(self, change: Change, store: Store) -> None:
        for lease in change.leases:
            self._given_back.pop(lease.id, None)
            if isinstance(lease, BorrowedLease) and _is_given_back(lease):
                self._given_back[lease.id] = lease.cluster
        self.drain(self._given_back.values())
        super().committed(change, store)
        self.ask(lambda: self._sites_watch.leases.committed(self._name, change))


class Leases:
    """The leases of all sites, as their commits made them."""

    def __init__(self, sites: SimSites) -> None:
        self._sites = sites
        self._leases: dict[str, dict[LeaseId, Lease]] = {name: {} for name in sites.worlds}
        self._served: dict[tuple[str, Origin], tuple[str, int]] = {}
        self._pilots: dict[tuple[str, str, int], JobId] = {}  # that serve each request
        self._holders: dict[tuple[str, JobId], LeaseId] = {}  # of each pilot the lease that it holds
        self._unsuited = {name: Unsuited(name) for name in sites.worlds}

    def committed(self, site: str, change: Change) -> None:
        """Check the leases that have changed at a site, and the jobs on them."""
        self._unsuited[site].committed(change)
        for lease in change.leases:
            self._leases[site].pop(lease.id, None)
            if lease.state is LeaseState.GONE:
                self._check_gone(site, lease)
                continue
            self._leases[site][lease.id] = lease
            if isinstance(lease, LentLease):
                self._check_served(site, lease)
                self._check_holder(site, lease)
                self._check_examined(site, lease)
            elif lease.state.ended:
                self._check_nothing_runs(Use(site, lease.cluster))
        if change.leases:
            self._check_limit(site, self._sites.worlds[site].settings)
            self._check_uses()

    def started(self, site: str, entry: LogEntry) -> None:
        """Check that a borrower's program starts on a lease that its lender knows."""
        if lease_of_cluster(entry.run.cluster) is None or not entry.run.tag.startswith("k"):
            return
        use = Use(site, entry.run.cluster)
        held = [each for each, uses in self._sites.leases.uses.items() if use in uses]
        for each in held:
            pilot = attempt_of(each.tag)[1].job
            known = any(lease.job == pilot for lease in self._leases[each.site].values() if lease.lent)
            promise(
                known, Promise.AFTER_LEASE, entry.run.tag, "starts on", use.cluster, "which", each.site, "has ended"
            )

    def quiescent(self) -> None:
        """Check that no lease is left on any side, and that both sides of each link have the same charges."""
        for site, sides in self._leases.items():
            promise(not sides, Promise.LEASE_ENDS, site, "has", *sides)
        for held, inside in self._sites.leases.insides.items():
            promise(inside.dead, Promise.LEASE_ENDS, "the inside of", held.tag, "at", held.site, "still runs")
        for pair in self._sites.pairs:
            for lender, borrower in ((pair.one, pair.other), (pair.other, pair.one)):
                lent, borrowed = self._record(lender, borrower).lent, self._record(borrower, lender).borrowed
                words = lender, "has lent", lent, "to", borrower, "which has borrowed", borrowed
                promise(lent == borrowed, Promise.CHARGES, *words)
                accounts = self._accounts(lender, borrower).lent, self._accounts(borrower, lender).borrowed
                words = lender, "has", accounts[0], "in its accounts of", borrower, "which has", accounts[1]
                promise(accounts == (lent, borrowed), Promise.CHARGES, *words, "and both have", lent, "in all")
                counted = dict(self._record(borrower, lender).counts.misbehaved).get("bad_end", 0)
                forged = self._sites.forged[borrower, lender]
                words = borrower, "has counted", counted, "bad ends of", lender, "which has forged", forged
                promise(counted <= forged, Promise.CHARGES, *words)

    def _record(self, site: str, neighbour: str) -> Neighbour:
        engine = self._sites.worlds[site].koalad.engine
        assert engine is not None
        return engine.core.neighbours.records[neighbour]

    def _accounts(self, site: str, neighbour: str) -> Charged:
        """Return the sums of the accounts that a site has in its store."""
        leases, days = self._sites.worlds[site].koalad.store.ended_leases()
        return charges(leases, days=days).get(neighbour, Charged())

    # ---- one lease

    def _check_served(self, site: str, lease: LentLease) -> None:
        if lease.job is None and lease.beyond is None:
            return
        first = self._served.setdefault((site, lease.origin), (lease.neighbour, lease.number))
        words = site, "serves", lease.origin, "of", lease.neighbour, "again, after", first
        promise(first == (lease.neighbour, lease.number), Promise.SERVED, *words)
        pilot = self._pilots.setdefault((site, *first), lease.job) if lease.job is not None else None
        promise(pilot == lease.job, Promise.SERVED, site, "serves", first, "by the pilots", pilot, "and", lease.job)

    def _check_holder(self, site: str, lease: LentLease) -> None:
        if lease.job is not None:
            holder = self._holders.setdefault((site, lease.job), lease.id)
            words = "pilot", lease.job, "of", site, "holds the leases", holder, "and", lease.id
            promise(holder == lease.id, Promise.POOL, *words)

    def _check_examined(self, site: str, lease: LentLease) -> None:
        """Check that the nodes of a lease that is bound were found to isolate programs, if its pilot must."""
        engine = self._sites.worlds[site].koalad.engine
        job = None if engine is None or lease.job is None else engine.records.jobs.get(lease.job)
        if lease.state.bound and _isolates(job):
            examined = (site, lease.job) in self._sites.leases.examined
            promise(examined, Promise.EXAMINED, site, "offers", lease.id, "on nodes that nobody has examined")

    def _check_gone(self, site: str, lease: Lease) -> None:
        if isinstance(lease, BorrowedLease):
            if lease.beyond is None:
                self._check_nothing_runs(Use(site, lease.cluster))
                self._check_kept(Use(site, lease.cluster))
        elif lease.job is not None:
            for held in self._of_pilot(site, lease.job):
                for use in self._sites.leases.uses[held]:
                    self._check_nothing_runs(use)

    def _check_nothing_runs(self, use: Use) -> None:
        log = self._sites.worlds[use.site].program_log
        running = [
            tag for tag in log.tags() if any(run.running and run.cluster == use.cluster for run in log.runs(tag))
        ]
        promise(not running, Promise.AFTER_LEASE, use.cluster, "of", use.site, "is over, but on it run", *running)

    def _check_kept(self, use: Use) -> None:
        """Check that no parameter counts as being on a lease that has ended: it would never be run again."""
        engine = self._sites.worlds[use.site].koalad.engine
        for sweep in [] if engine is None else engine.records.sweeps.values():
            out = sweep.out_on(use.cluster)
            promise(
                not out, Promise.PARAMETERS, "parameters", out, "of", sweep.id, "are on", use.cluster, "which is over"
            )

    def _of_pilot(self, site: str, job: JobId) -> list[PilotAttempt]:
        found = self._sites.leases.uses
        return [each for each in found if each.site == site and attempt_of(each.tag)[1].job == job]

    # ---- all leases

    def _check_limit(self, site: str, settings: Settings) -> None:
        lent = [each for each in self._leases[site].values() if isinstance(each, LentLease) and not each.is_undecided]
        most = 0 if settings.lend is None else settings.lend.processors
        total = sum(each.processors for each in lent)
        promise(total <= most, Promise.POOL, site, "lends", total, "processors, and", most, "at most")

    def _check_uses(self) -> None:
        clusters: dict[Use, PilotAttempt] = {}
        for held, uses in self._sites.leases.uses.items():
            promise(len(uses) == 1, Promise.POOL, "the pilot", held.tag, "of", held.site, "is the clusters", *uses)
            first = clusters.setdefault(uses[0], held)
            promise(first is held, Promise.POOL, uses[0].cluster, "leads to", first.tag, "and", held.tag)


class Unsuited:
    """The jobs of one site that leases could not run, with the lenders of these."""

    def __init__(self, site: str) -> None:
        self._site = site
        self._next: dict[str, int] = {}  # by neighbour, the number of the next request to it
        self._left_out: dict[tuple[JobId, str], tuple[int, frozenset[AttemptId]]] = {}

    def committed(self, change: Change) -> None:
        """Check that no such failure has ended a job, and that no lender of such a lease serves it again."""
        for record in change.neighbours:
            self._next[record.name] = record.next_lease
        for lease in change.leases:
            if isinstance(lease, BorrowedLease):
                self._check_request(lease)
        for job in change.jobs:
            for attempt in job.present:
                self._check_attempt(attempt)
            self._note(job)

    def _note(self, job: Job) -> None:
        """Note the lender of a lease that could not run the job, once the job gives its claim back for that."""
        failed = next((each for each in job.present if job.reason is not None and _is_unsuited(each, job.reason)), None)
        lease = None if failed is None else lease_of_cluster(failed.cluster)
        if lease is None:
            return
        promise(job.state is not JobState.FAILED, Promise.UNSUITED, job.id, "of", self._site, "failed on", failed)
        if job.outcome is Outcome.GIVE_BACK:
            known = frozenset([each.id for each in job.present])
            self._left_out.setdefault((job.id, lease[0]), (self._next.get(lease[0], 1), known))

    def _check_request(self, lease: BorrowedLease) -> None:
        found = None if lease.job is None else self._left_out.get((lease.job, lease.neighbour))
        again = found is not None and lease.number >= found[0]
        promise(not again, Promise.UNSUITED, lease.neighbour, "is asked again by", self._site, "for", lease.job)

    def _check_attempt(self, attempt: Attempt) -> None:
        lease = lease_of_cluster(attempt.cluster)
        found = None if lease is None else self._left_out.get((attempt.id.job, lease[0]))
        again = found is not None and attempt.id not in found[1] and attempt.request.cluster is None
        promise(not again, Promise.UNSUITED, attempt.id, "of", self._site, "is on", attempt.cluster)


def _is_unsuited(attempt: Attempt, reason: Reason) -> bool:
    """Return whether the reason is that the cluster of the attempt, which names none, has not got its program."""
    here = reason.message.startswith(f"{attempt.cluster}: ") and AT_HOME in reason.message
    return here and attempt.request.cluster is None and not attempt.request.optional


def _isolates(job: Job | None) -> bool:
    """Return whether programs must be isolated on the pilot of a lease."""
    return job is not None and job.request.pilot is not None and job.request.pilot.isolate is not Isolate.NONE


def _is_given_back(lease: BorrowedLease) -> bool:
    """Return whether nothing more is placed on a borrowed lease: it is returned, or its lender takes it back."""
    is_gone = lease.state is LeaseState.GONE
    return lease.beyond is None and not is_gone and (lease.state.closing or lease.revoked_until is not None)
