"""From the pool to the clusters, no more than they can use; at a sweep's end nobody keeps what others could run."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from koalapy.core.core import Core
from koalapy.core.launchers import place, runner_of, staying
from koalapy.model.commands import FeedSweep, RecallParameters
from koalapy.model.events import ParametersWanted
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.intervals import NONE, Intervals
from koalapy.model.job import Job
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.policies.sweep_order import Pool, SweepOrder, exclusion_error, feed_error
from koalapy.scavenging import policy_calls
from koalapy.scavenging.parameters import joined, put_runner, sweep_of, without
from koalapy.scavenging.pilots import slots_of
from koalapy.scavenging.policy_calls import call_policy


def on_parameters_wanted(core: Core, now: Instant, event: ParametersWanted) -> None:
    """A KCM says how many parameters it could use."""
    if sweep_of(core, event.sweep) is not None:
        core.sessions.wanted[event.sweep, event.cluster] = event.wanted


def begin(core: Core) -> None:
    """To KCMs that begin: all that is out there, and whose hands it may be in.

    Said when all events that came with a KCM's connection are counted: results among them are acknowledged before it
    is heard, and what it names as out would be run again.
    """
    clusters, core.sessions.fresh = list(core.sessions.fresh), {}
    for cluster in clusters:
        for identity in core.launchers.sweeps:
            sweep = core.records.jobs[identity]
            there = attempts_on(core, sweep, cluster)
            if (sweep.id, cluster) not in core.sessions.begun and (there or runner_of(sweep).out_on(cluster)):
                _send_feed(core, sweep, cluster, NONE, there)


def feed(core: Core, now: Instant, sweep: Job, order: SweepOrder) -> None:
    """Feed the sweep's clusters what they could use now, from its pool."""
    clusters = [name for name in hungry(core, sweep.id) if name in core.information.reachable]
    if not clusters or sweep.state is not JobState.RUNNING or not (pool := runner_of(sweep).pool):
        return
    slots = slots_by_cluster(core, sweep)
    wrongs = []
    for cluster in clusters:
        most = min(core.sessions.wanted[sweep.id, cluster], _room(sweep, cluster, slots))
        if most <= 0 or not pool:
            continue
        numbers, wrong = _chosen(sweep, pool, slots, order, cluster, most)
        wrongs.append(wrong or _starved(sweep, cluster, numbers))
        _hand_out(core, sweep, cluster, numbers)
        pool = pool - numbers
        core.sessions.wanted[sweep.id, cluster] -= len(numbers)
        _send_feed(core, sweep, cluster, numbers, attempts_on(core, sweep, cluster))
    if wrongs:
        policy_calls.report_policy_error(core, now, sweep.id, "its order of parameters", next(filter(None, wrongs), ""))


def avoided(
    order: SweepOrder, sweep: Job, held: Mapping[str, int], clusters: Sequence[str]
) -> tuple[Sequence[str], str]:
    """Where the sweep takes no further nodes, and what is wrong with its order's answer, or ''."""
    pool = Pool(waiting=runner_of(sweep).pool, returned=dict(runner_of(sweep).returned), holds=held)
    nowhere: Sequence[str] = ()
    return call_policy(lambda: order.exclude(pool, clusters), lambda found: exclusion_error(found, clusters), nowhere)


def slots_by_cluster(core: Core, sweep: Job) -> dict[str, int]:
    """Parameters that its Launchers could run at a time, those that have yet to start counted."""
    slots: dict[str, int] = {}
    for launcher in staying(core.launchers.of(sweep.id)):
        cluster = place(launcher).cluster
        slots[cluster] = slots.get(cluster, 0) + slots_of(sweep.request.components[0], place(launcher).processors)
    return slots


def attempts_on(core: Core, sweep: Job, cluster: str) -> tuple[AttemptId, ...]:
    """Return the sweep's attempts there that have not been cleaned up, stopping ones too."""
    return tuple(
        place(each).id
        for each in core.launchers.of(sweep.id)
        if place(each).cluster == cluster and not place(each).let_go
    )


def _room(sweep: Job, cluster: str, slots: dict[str, int]) -> int:
    """Return how many more may be out there: enough for every slot, no more than its part of all that is left.

    So near the end no cluster keeps a credit that others could run.
    """
    here, all_slots = slots.get(cluster, 0), sum(slots.values())
    runner = runner_of(sweep)
    part = -(-runner.left * here // all_slots) if all_slots else 0
    return max(here, part) - len(runner.out_on(cluster))


def _chosen(
    sweep: Job, pool: Intervals, slots: dict[str, int], order: SweepOrder, cluster: str, most: int
) -> tuple[Intervals, str]:
    """Return the numbers to feed, and what is wrong with the order's answer or ''."""
    seen = Pool(waiting=pool, returned=dict(runner_of(sweep).returned), holds=slots)
    return call_policy(
        lambda: order.feed(seen, cluster, most), lambda found: feed_error(found, seen, most), pool.lowest(most)
    )


def _starved(sweep: Job, cluster: str, numbers: Intervals) -> str:
    """Return what is wrong if nodes have nothing to run and are fed nothing, else ""; the order is obeyed."""
    if numbers or runner_of(sweep).out_on(cluster):
        return ""
    waiting = len(runner_of(sweep).pool)
    return f"it feeds nothing to {cluster}, where nodes are held for it, of {waiting} that wait"


def _hand_out(core: Core, sweep: Job, cluster: str, numbers: Intervals) -> None:
    runner = runner_of(sweep)
    left = without(runner.returned, numbers)
    put_runner(core, sweep, out=joined(runner.out, cluster, numbers), returned=left)


def _send_feed(core: Core, sweep: Job, cluster: str, numbers: Intervals, there: tuple[AttemptId, ...]) -> None:
    """The first that a KCM hears of a sweep is all that is out there."""
    if (sweep.id, cluster) in core.sessions.begun:
        core.records.hint(FeedSweep(cluster=cluster, sweep=sweep.id, numbers=numbers))
        return
    core.sessions.begun[sweep.id, cluster] = None
    everything = runner_of(sweep).out_on(cluster)
    core.records.hint(FeedSweep(cluster=cluster, sweep=sweep.id, numbers=everything, anew=True, launchers=there))


def hungry(core: Core, sweep: JobId) -> Iterable[str]:
    return [name for (of, name), wanted in core.sessions.wanted.items() if of == sweep and wanted]


def recall(core: Core, sweep: Job) -> None:
    """Once the pool is empty: from clusters that have more than they can run at a time, for those that have less.

    Asked once, until what is out there has changed: it may all be begun.
    """
    runner = runner_of(sweep)
    if runner.pool or not runner.out:
        return
    slots = slots_by_cluster(core, sweep)
    starving = [name for name in hungry(core, sweep.id) if name in core.information.reachable]
    lack = sum(max(0, slots.get(name, 0) - len(runner.out_on(name))) for name in starving)
    for cluster, numbers in runner.out:
        more = min(lack, len(numbers) - slots.get(cluster, 0))
        if (
            more <= 0
            or cluster not in core.information.reachable
            or core.sessions.recalled.get((sweep.id, cluster)) == len(numbers)
        ):
            continue
        core.sessions.recalled[sweep.id, cluster] = len(numbers)
        core.records.hint(RecallParameters(cluster=cluster, sweep=sweep.id, most=more))
        lack -= more


def idlers(core: Core, sweep: Job, needed: int) -> list[Job]:
    """Launchers that run nothing, of those beyond the nodes that are needed for all that is left.

    Not where more is out than is said to run: one of them may be about to begin it, and would begin it for nothing.
    """
    runner = runner_of(sweep)
    if runner.pool:
        return []
    stay = staying(core.launchers.of(sweep.id))
    running = Counter[str]()
    for each in stay:
        running[place(each).cluster] += _running(core, each, unheard=0)
    placed = {name for name, count in running.items() if len(runner.out_on(name)) <= count}
    idle = [each for each in stay if place(each).cluster in placed and not _running(core, each, unheard=1)]
    return idle[: max(0, len(stay) - needed)]


def _running(core: Core, launcher: Job, unheard: int) -> int:
    """Parameters, as it said last; `unheard` for one that has said nothing yet."""
    return core.sessions.doing.get(place(launcher).id, (unheard, None))[0]
