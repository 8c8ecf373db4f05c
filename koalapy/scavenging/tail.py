"""The end of a sweep: no cluster keeps a credit that others could run, and no Launcher stays that has nothing to do."""

from collections import Counter

from koalapy.core.core import Core
from koalapy.core.launchers import place, runner_of, staying
from koalapy.model.commands import RecallParameters
from koalapy.model.job import Job
from koalapy.scavenging.feeding import hungry, slots_by_cluster


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
        core.records.say(RecallParameters(cluster=cluster, sweep=sweep.id, most=more))
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
        running[place(each).cluster or ""] += _running(core, each, unheard=0)
    placed = {name for name, count in running.items() if len(runner.out_on(name)) <= count}
    idle = [each for each in stay if place(each).cluster in placed and not _running(core, each, unheard=1)]
    return idle[: max(0, len(stay) - needed)]


def _running(core: Core, launcher: Job, unheard: int) -> int:
    """Parameters, as it said last; `unheard` for one that has said nothing yet."""
    return core.sessions.doing.get(launcher.attempt_of(place(launcher)), (unheard, None))[0]
