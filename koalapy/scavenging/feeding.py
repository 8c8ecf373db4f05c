"""Feeding of parameters from a sweep's pool to its clusters, and their recall near the end of the sweep."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.commands import FeedSweep, RecallParameters
from koalapy.model.events import ParametersWanted
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.intervals import NONE, Intervals
from koalapy.model.states import JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import Instant
from koalapy.policies import call_policy
from koalapy.policies.sweep_order import Pool, SweepOrder, exclusion_error, feed_error
from koalapy.scavenging import policy_calls
from koalapy.scavenging.launchers import owner_of, slots_of, staying
from koalapy.scavenging.parameters import joined, living_sweeps, put_out, sweep_of, without


def on_parameters_wanted(core: Core, now: Instant, event: ParametersWanted) -> None:
    """Note how many parameters a KCM could use."""
    if sweep_of(core, event.sweep) is not None:
        core.sessions.wanted[event.sweep, event.cluster] = event.wanted


def begin(core: Core) -> None:
    """Send each new session with a KCM the parameters that are out on its cluster, and the Launchers there.

    It is called after all events that came with the connection are handled. Results among these events are confirmed
    first: a parameter that is sent as out would be run again.
    """
    clusters, core.sessions.fresh = list(core.sessions.fresh), {}
    for cluster in clusters:
        for sweep in living_sweeps(core):
            there = attempts_on(core, sweep, cluster)
            if (sweep.id, cluster) not in core.sessions.begun and (there or sweep.out_on(cluster)):
                _send_feed(core, sweep, cluster, NONE, there)


def feed(core: Core, now: Instant, sweep: Sweep, order: SweepOrder) -> None:
    """Feed the sweep's clusters the parameters that they can use now, from its pool."""
    clusters = [name for name in waiting_clusters(core, sweep.id) if name in core.information.reachable]
    if not clusters or sweep.state is not JobState.RUNNING or not (pool := sweep.pool):
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
    order: SweepOrder, sweep: Sweep, held: Mapping[str, int], clusters: Sequence[str]
) -> tuple[Sequence[str], str]:
    """Return the clusters where the sweep's order takes no further nodes, and the error in its answer or ''.

    `held`: the nodes of the sweep on each cluster.
    """
    pool = Pool(waiting=sweep.pool, returned=dict(sweep.returned), holds=held)
    nowhere: Sequence[str] = ()
    return call_policy(lambda: order.exclude(pool, clusters), lambda found: exclusion_error(found, clusters), nowhere)


def slots_by_cluster(core: Core, sweep: Sweep) -> dict[str, int]:
    """Return how many parameters the sweep's Launchers can run at a time on each cluster.

    Launchers that have not started yet count too.
    """
    slots: dict[str, int] = {}
    for launcher in staying(core.launchers.of(owner_of(sweep.id))):
        more = slots_of(sweep.request.components[0], launcher.processors)
        slots[launcher.cluster] = slots.get(launcher.cluster, 0) + more
    return slots


def attempts_on(core: Core, sweep: Sweep, cluster: str) -> tuple[AttemptId, ...]:
    """Return the sweep's attempts there that have not been cleaned up, stopping ones too."""
    theirs = core.launchers.of(owner_of(sweep.id))
    return tuple(each.id for each in theirs if each.cluster == cluster and not each.let_go)


def _room(sweep: Sweep, cluster: str, slots: dict[str, int]) -> int:
    """Return how many more parameters may be out on the cluster.

    A cluster may have one for each of its slots, or its share of all parameters left, whichever is more. Near the end
    of a sweep, no cluster therefore keeps parameters that others could run.
    """
    here, all_slots = slots.get(cluster, 0), sum(slots.values())
    part = -(-sweep.remaining * here // all_slots) if all_slots else 0
    return max(here, part) - len(sweep.out_on(cluster))


def _chosen(
    sweep: Sweep, pool: Intervals, slots: dict[str, int], order: SweepOrder, cluster: str, most: int
) -> tuple[Intervals, str]:
    """Return the numbers to feed, and the error in the order's answer or ''."""
    seen = Pool(waiting=pool, returned=dict(sweep.returned), holds=slots)
    return call_policy(
        lambda: order.feed(seen, cluster, most), lambda found: feed_error(found, seen, most), pool.lowest(most)
    )


def _starved(sweep: Sweep, cluster: str, numbers: Intervals) -> str:
    """Return an error if nodes are held for the sweep but get no parameters, else ''. The order is obeyed anyway."""
    if numbers or sweep.out_on(cluster):
        return ""
    waiting = len(sweep.pool)
    return f"it feeds nothing to {cluster}, where nodes are held for it, of {waiting} that wait"


def _hand_out(core: Core, sweep: Sweep, cluster: str, numbers: Intervals) -> None:
    left = without(sweep.returned, numbers)
    put_out(core, sweep, joined(sweep.out, cluster, numbers), returned=left)


def _send_feed(core: Core, sweep: Sweep, cluster: str, numbers: Intervals, there: tuple[AttemptId, ...]) -> None:
    """Send parameters to a KCM. The first message of a session has all that are out on the cluster."""
    if (sweep.id, cluster) in core.sessions.begun:
        core.records.hint(FeedSweep(cluster=cluster, sweep=sweep.id, numbers=numbers))
        return
    core.sessions.begun[sweep.id, cluster] = None
    everything = sweep.out_on(cluster)
    core.records.hint(FeedSweep(cluster=cluster, sweep=sweep.id, numbers=everything, anew=True, launchers=there))


def waiting_clusters(core: Core, sweep: JobId) -> Iterable[str]:
    return [name for (of, name), wanted in core.sessions.wanted.items() if of == sweep and wanted]


def recall(core: Core, sweep: Sweep) -> None:
    """Recall parameters from clusters that have more than their slots, for clusters that have fewer.

    It does so once the pool is empty. A cluster is asked again only after its parameters have changed, since all of
    them may have begun.
    """
    if sweep.pool or not sweep.out:
        return
    slots = slots_by_cluster(core, sweep)
    connected = [name for name in waiting_clusters(core, sweep.id) if name in core.information.reachable]
    lack = sum(max(0, slots.get(name, 0) - len(sweep.out_on(name))) for name in connected)
    for cluster, numbers in sweep.out:
        more = min(lack, len(numbers) - slots.get(cluster, 0))
        if more <= 0 or cluster not in core.information.reachable or (sweep.id, cluster) in core.sessions.recalled:
            continue
        core.sessions.recalled[sweep.id, cluster] = None
        core.records.hint(RecallParameters(cluster=cluster, sweep=sweep.id, most=more))
        lack -= more


def idlers(core: Core, sweep: Sweep, needed: int) -> list[Attempt]:
    """Return the Launchers that run nothing, as far as the sweep has more than `needed` nodes.

    A cluster with more parameters out than running has no idle Launchers: one of them may be about to begin a
    parameter.
    """
    if sweep.pool:
        return []
    stay = staying(core.launchers.of(owner_of(sweep.id)))
    running = Counter[str]()
    for each in stay:
        running[each.cluster] += _running(core, each, unheard=0)
    placed = {name for name, count in running.items() if len(sweep.out_on(name)) <= count}
    idle = [each for each in stay if each.cluster in placed and not _running(core, each, unheard=1)]
    return idle[: max(0, len(stay) - needed)]


def _running(core: Core, launcher: Attempt, unheard: int) -> int:
    """Return the parameters that the Launcher last reported as running; `unheard` before its first report."""
    return core.sessions.doing.get(launcher.id, (unheard, None))[0]
