"""The tasks that prune: the engine is asked, in bounded batches, to remove jobs that have been final for long."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from koalapy.coallocation.pruning import NOT_FINAL, PRUNED, Judgement, final_since, judge, number_of
from koalapy.config.maintenance import Maintenance
from koalapy.model.attempt import Attempt
from koalapy.model.counts import counted_as
from koalapy.model.errors import TransientError
from koalapy.model.events import PruneRequested
from koalapy.model.identity import JobId
from koalapy.model.units import DAY, Duration, Instant, format_duration
from koalapy.runtime.maintenance.task import Koalad, Outcome

BATCH = 200  # jobs
PATIENCE = Duration(7 * DAY)  # time that a cluster may be unreachable before a person is asked
_MOST_LEASES = 1 << 31
_POLL_S, _STALLED_LOOKS = 0.2, 600  # while directories are removed; two minutes without progress


def prune_history(koalad: Koalad, entry: Maintenance, dry: bool) -> Outcome:
    """Remove directories, records, histories and results of jobs that have been final for longer than they are kept.

    Raises KoalaError.
    """
    return _prune(koalad, entry, dry, records=True)


def prune_output(koalad: Koalad, entry: Maintenance, dry: bool) -> Outcome:
    """Remove only the directories of jobs that have been final for longer than they are kept. Raises KoalaError."""
    return _prune(koalad, entry, dry, records=False)


@dataclass(slots=True)
class _Tally:
    jobs: int = 0
    launchers: int = 0
    leases: int = 0
    stalled: int = 0
    waiting: Counter[str] = field(default_factory=Counter)
    overdue: Counter[str] = field(default_factory=Counter)
    gone: frozenset[str] = frozenset()  # those of the clusters that are not in the grid any more
    kept: Counter[str] = field(default_factory=Counter)


def _prune(koalad: Koalad, entry: Maintenance, dry: bool, records: bool) -> Outcome:
    before = Instant(koalad.now() - entry.kept)
    tally = _Tally()
    empty = PruneRequested(work=(), before=before, records=records, without=entry.without)
    for requests in (_launchers(koalad, empty), _work(koalad, empty)):  # a sweep is removed after its Launcherss
        for request in requests:
            judgement = koalad.ask(lambda engine, request=request: judge(engine.core, request))  # type: ignore[misc]
            _count(tally, judgement, before)
            if judgement.ready and not dry:
                work = tuple(each for each in judgement.ready if not isinstance(each, Attempt))
                launchers = tuple(each for each in judgement.ready if isinstance(each, Attempt))
                koalad.do(replace(request, work=work, launchers=launchers))
                tally.stalled += _wait(koalad, [number_of(each) for each in judgement.ready])
            if koalad.ending.is_set():
                raise TransientError("ending", "koalad ended before all was pruned.", "The next run goes on with it.")
    waiting = frozenset(tally.waiting)
    tally.gone = koalad.ask(lambda engine: waiting - engine.core.information.clusters.keys())
    if records:
        tally.leases = _sum_up_leases(koalad, empty, dry)
    return _outcome(tally, entry, dry, records)


def _sum_up_leases(koalad: Koalad, empty: PruneRequested, dry: bool) -> int:
    """Replace the accounts of old leases by sums, and return their number."""
    if dry:
        return len(koalad.store.prunable_leases(empty.before, _MOST_LEASES))
    count = 0
    while page := koalad.store.prunable_leases(empty.before, BATCH):
        koalad.do(replace(empty, leases=tuple(page)))
        count += len(page)
        if koalad.ending.is_set():
            raise TransientError("ending", "koalad ended before all was pruned.", "The next run goes on with it.")
    return count


def _work(koalad: Koalad, empty: PruneRequested) -> Iterator[PruneRequested]:
    after = JobId(0)
    while page := koalad.store.prunable(empty.before, BATCH, after, empty.records):
        yield replace(empty, work=tuple(page))
        after = page[-1].id


def _launchers(koalad: Koalad, empty: PruneRequested) -> Iterator[PruneRequested]:
    after = JobId(0)
    while page := koalad.store.prunable_launchers(empty.before, BATCH, after, empty.records):
        yield replace(empty, launchers=tuple(page))
        after = page[-1].id.job


def _wait(koalad: Koalad, jobs: list[JobId]) -> int:
    """Wait while directories are removed. Returns the number of jobs left after two minutes without progress."""
    left, looks = jobs, 0
    while left and looks < _STALLED_LOOKS and not koalad.ending.is_set():
        before = len(left)
        left = koalad.ask(lambda engine: engine.core.pruning.under_way(jobs))
        looks = 0 if len(left) < before else looks + 1
        if left:
            koalad.ending.wait(_POLL_S)
    return len(left)


def _count(tally: _Tally, judgement: Judgement, before: Instant) -> None:
    for each in judgement.ready:
        if isinstance(each, Attempt):
            tally.launchers += 1
        else:
            tally.jobs += 1
    for cluster, job in judgement.waiting:
        tally.waiting[cluster] += 1
        if (final_since(job) or before) <= before - PATIENCE:
            tally.overdue[cluster] += 1
    tally.kept.update(why for why, _ in judgement.kept if why not in (NOT_FINAL, PRUNED))


def _outcome(tally: _Tally, entry: Maintenance, dry: bool, records: bool) -> Outcome:
    what = "and all that the store has of them" if records else "and their records stay"
    done = tally.jobs + tally.launchers - tally.stalled
    pilots = counted_as(tally.launchers, "of them a Launcher", "of them Launchers")
    of_sweeps = f", {pilots}" if tally.launchers else ""
    verb = "would be pruned" if dry else "pruned"
    sentences = [f"{counted_as(done, 'job')} {verb}{of_sweeps}: the directories on the clusters, {what}."]
    if tally.leases:
        leases = "The account of 1 lease" if tally.leases == 1 else f"The accounts of {tally.leases} leases"
        sentences.append(f"{leases} {'would be' if dry else 'now'} summed up by day.")
    for why, count in sorted(tally.kept.items()):
        sentences.append(f"{counted_as(count, 'job')} kept for now: {why}.")
    for cluster, count in sorted(tally.waiting.items()):
        jobs = counted_as(count, "job")
        if cluster in tally.gone:
            sentences.append(
                f"{jobs} kept: their directories are on {cluster}, which is not in the grid any more. "
                f"Leave them there: {_without(entry, cluster)}."
            )
        else:
            sentences.append(f"{jobs} kept until {cluster} can be reached, which has their directories.")
    if tally.stalled:
        sentences.append(
            f"{counted_as(tally.stalled, 'job')} kept: a cluster has not removed their directories in time."
        )
    for cluster, count in sorted(tally.overdue.items()):
        if cluster not in tally.gone:
            sentences.append(
                f"{counted_as(count, 'of them has', 'of them have')} waited for {cluster} for more than "
                f"{format_duration(PATIENCE)}. "
                f"Bring it back, or leave their directories there: {_without(entry, cluster)}."
            )
    return Outcome(well=not tally.overdue and not tally.stalled, message=" ".join(sentences))


def _without(entry: Maintenance, cluster: str) -> str:
    return f"`koala maintenance run {entry.task} --set keep={entry.keep} --set without={cluster}`"
