"""All faults of chaos. Faults that last end by themselves, or when the run ends all faults."""

from collections.abc import Callable
from random import Random

from koalapy_adapters.batch.protocol import QUEUED, RUNNING

from koalapy.chaos.plan import Act
from koalapy.model.units import MILLISECOND, MINUTE, SECOND, Duration
from koalapy.world.cluster.batch_job import SimBatchJob
from koalapy.world.cluster.cluster import SimCluster
from koalapy.world.cluster.shell import REFUSALS
from koalapy.world.network import Pipe
from koalapy.world.random_streams import between
from koalapy.world.world import World

_NEVER = Duration(10**15)
_SHORT, _LONG = (Duration(2 * SECOND), MINUTE), (MINUTE, Duration(8 * MINUTE))
_JUMPS = (Duration(-10 * MINUTE), Duration(-30 * SECOND), Duration(-SECOND), SECOND, Duration(20 * SECOND), 5 * MINUTE)
_NOTICED = (Duration(50 * MILLISECOND), Duration(5 * SECOND))  # after a sleep, until a dead connection is noticed
_STEPS = 40  # the most steps that a process makes before it is killed


# ---- submits and other commands


def _submit_refused(world: World, rng: Random) -> None:
    submit_faults = _cluster(world, rng).shell.submit_faults
    submit_faults.refusals += [rng.choice(REFUSALS) for _ in range(rng.randint(1, 3))]


def _submit_unanswered(world: World, rng: Random) -> None:
    _cluster(world, rng).shell.submit_faults.lost_replies += rng.randint(1, 2)


def _submit_hangs(world: World, rng: Random) -> None:
    """A submit hangs on the head node, or in the server's queue; there it takes effect even if it is killed."""
    hang = between(rng, Duration(5 * SECOND), Duration(4 * MINUTE)), rng.random() < 0.5
    _cluster(world, rng).shell.submit_faults.hangs.append(hang)


def _commands_fail(world: World, rng: Random) -> None:
    _cluster(world, rng).shell.failing += rng.randint(1, 6)


# ---- connections


def _events_disturbed(world: World, rng: Random) -> None:
    """The next event is repeated, lost, or overtaken by the one after it."""
    if (pipe := _pipe(world, rng)) is not None:
        pipe.disturb_next_event(rng.choice(("repeated", "dropped", "late")))


def _connection_stalls(world: World, rng: Random) -> None:
    if (pipe := _pipe(world, rng)) is not None:
        pipe.stall(between(rng, SECOND, Duration(90 * SECOND)))


def _connection_cut(world: World, rng: Random) -> None:
    if (pipe := _pipe(world, rng)) is not None:
        pipe.cut(near_notices=_soon(rng), far_notices=_soon(rng))


def _old_kcm_lives(world: World, rng: Random) -> None:
    """The KCM does not notice the cut, and works on until it notices the silence."""
    if (pipe := _pipe(world, rng)) is not None:
        pipe.cut(near_notices=_soon(rng), far_notices=_NEVER)


def _cluster_down(world: World, rng: Random) -> None:
    """The head node is unreachable; batch jobs continue."""
    cluster, duration = _cluster(world, rng), _duration(rng)
    cluster.out_of_reach(duration)
    if (pipe := _pipe_to(world, cluster.name)) is not None:
        pipe.cut(near_notices=_soon(rng), far_notices=rng.choice((Duration(0), _NEVER)))


def _logins_refused(world: World, rng: Random) -> None:
    """The next logins are refused, as without a key; the session ends, and later a person asks for another try."""
    name = rng.choice(list(world.clusters))
    world.clusters[name].refusals += rng.randint(1, 4)
    if (pipe := _pipe_to(world, name)) is not None:
        pipe.cut(near_notices=_soon(rng), far_notices=Duration(0))
    world.agenda.after(_duration(rng), lambda: world.koalad.log_in(name))


# ---- batch systems and nodes


def _batch_system_down(world: World, rng: Random) -> None:
    _cluster(world, rng).batch.down(_duration(rng))


def _node_lost(world: World, rng: Random) -> None:
    batch = _cluster(world, rng).batch
    node = rng.choice(batch.nodes)
    batch.lose(node)
    world.agenda.after(_duration(rng), lambda: batch.restore(node))


def _node_cut_off(world: World, rng: Random) -> None:
    batch = _cluster(world, rng).batch
    batch.cut(rng.choice(batch.nodes), _duration(rng))


def _job_restarted(world: World, rng: Random) -> None:
    _to_a_job(world, rng, (RUNNING,), lambda cluster, job: cluster.batch.restart(job))


def _job_killed(world: World, rng: Random) -> None:
    _to_a_job(world, rng, (RUNNING, QUEUED), lambda cluster, job: cluster.batch.kill(job))


def _job_vanishes(world: World, rng: Random) -> None:
    _to_a_job(world, rng, (RUNNING, QUEUED), lambda cluster, job: cluster.batch.vanish(job))


def _job_pending_for_ever(world: World, rng: Random) -> None:
    code = rng.choice(("", "", "never_runs"))
    _to_a_job(world, rng, (QUEUED,), lambda cluster, job: cluster.batch.stick(job, code))


def _job_held(world: World, rng: Random) -> None:
    _to_a_job(world, rng, (QUEUED,), lambda cluster, job: cluster.batch.hold(job))


def _barrier_never_reached(world: World, rng: Random) -> None:
    """The next node agent hangs while it prepares its program."""
    _cluster(world, rng).hang_next_agent()


# ---- shared directories


def _record_unreadable(world: World, rng: Random) -> None:
    _to_a_job(world, rng, (RUNNING,), lambda cluster, job: cluster.shared.spoil_record(job.name))


def _shared_slow(world: World, rng: Random) -> None:
    shared = _cluster(world, rng).shared
    shared.slow = rng.choice((5, 30, 100))
    world.agenda.after(_duration(rng), shared.mend)


def _shared_full(world: World, rng: Random) -> None:
    shared = _cluster(world, rng).shared
    shared.full = True
    world.agenda.after(_duration(rng), shared.mend)


def _shared_lost(world: World, rng: Random) -> None:
    """The server has crashed, or is only unreachable."""
    shared = _cluster(world, rng).shared
    shared.lose()
    if rng.random() < 0.5:
        shared.crash()
    world.agenda.after(_duration(rng), shared.mend)


def _link_unanswered(world: World, rng: Random) -> None:
    """A hard link is created, but reported as failed (NFS)."""
    _cluster(world, rng).shared.lose_next_link_reply()


def _files_interleaved(world: World, rng: Random) -> None:
    """Other processes act between two operations of one process on the shared directory."""
    _cluster(world, rng).shared.interleaved += rng.randint(10, 200)


def _relay_cut(world: World, rng: Random) -> None:
    _cluster(world, rng).cut_relay(_duration(rng))


# ---- clocks


def _clock_of_koalad_jumps(world: World, rng: Random) -> None:
    world.koalad.jump(Duration(rng.choice(_JUMPS)))


def _clock_of_head_jumps(world: World, rng: Random) -> None:
    _cluster(world, rng).head.skew = Duration(rng.choice(_JUMPS))


def _clock_of_node_jumps(world: World, rng: Random) -> None:
    rng.choice(_cluster(world, rng).batch.nodes).skew = Duration(rng.choice(_JUMPS))


# ---- koalad's host asleep


def _host_sleeps(world: World, rng: Random) -> None:
    """The host sleeps, mostly about as long as a barrier time-out. Many connections die, noticed later or never."""
    barrier = world.settings.barrier_timeout
    spans = (barrier * 7 // 10, barrier * 19 // 10) if rng.random() < 0.7 else (SECOND // 2, 8 * MINUTE)
    asleep = between(rng, Duration(spans[0]), Duration(spans[1]))
    dead = rng.choice((0.0, 0.8, 1.0))
    for name in world.clusters:
        noticed = Duration(asleep + between(rng, *_NOTICED)) if rng.random() < 0.8 else _NEVER
        far = rng.choice((Duration(0), _NEVER))
        if rng.random() < dead and (pipe := _pipe_to(world, name)) is not None:
            pipe.cut(near_notices=noticed, far_notices=far)
    world.koalad.sleep(asleep)


# ---- koalad's disk, and kills between any two steps


def _commit_fails(world: World, rng: Random) -> None:
    world.koalad.commits_to_fail += rng.randint(1, 4)


def _disk_full(world: World, rng: Random) -> None:
    koalad = world.koalad
    koalad.disk_full = True

    def mend() -> None:
        koalad.disk_full = False

    world.agenda.after(_duration(rng), mend)


def _koalad_killed(world: World, rng: Random) -> None:
    world.koalad.lossy = rng.random() < 0.5
    world.koalad.crash_point.left = rng.randint(1, _STEPS)


def _kcm_killed(world: World, rng: Random) -> None:
    _cluster(world, rng).environment.kcm_crash_point.left = rng.randint(1, _STEPS)


def _wrapper_killed(world: World, rng: Random) -> None:
    _cluster(world, rng).environment.wrapper_crash_point.left = rng.randint(1, _STEPS)


# ---- targets


def _cluster(world: World, rng: Random) -> SimCluster:
    return rng.choice(list(world.clusters.values()))


def _pipe(world: World, rng: Random) -> Pipe | None:
    return _pipe_to(world, rng.choice(list(world.clusters)))


def _pipe_to(world: World, cluster: str) -> Pipe | None:
    process = world.koalad.process
    link = process.links.get(cluster) if process is not None else None
    return None if link is None else link.pipe


def _to_a_job(
    world: World, rng: Random, states: tuple[str, ...], act: Callable[[SimCluster, SimBatchJob], None]
) -> None:
    """Apply `act` to one of koalapy's batch jobs in one of these states, if there is one."""
    ours = [
        (cluster, job)
        for cluster in world.clusters.values()
        for job in cluster.batch.jobs.values()
        if job.state in states and cluster.is_ours(job)
    ]
    if ours:
        act(*rng.choice(ours))


def _duration(rng: Random) -> Duration:
    """Most faults are short, so that work gets done; some outlast every time-out."""
    return between(rng, *(_LONG if rng.random() < 0.15 else _SHORT))


def _soon(rng: Random) -> Duration:
    return between(rng, MILLISECOND, Duration(30 * SECOND))


ALL: dict[str, tuple[Act, int]] = {
    "submit_refused": (_submit_refused, 3),
    "submit_unanswered": (_submit_unanswered, 3),
    "submit_hangs": (_submit_hangs, 3),
    "commands_fail": (_commands_fail, 3),
    "events_disturbed": (_events_disturbed, 6),
    "connection_stalls": (_connection_stalls, 2),
    "connection_cut": (_connection_cut, 3),
    "old_kcm_lives": (_old_kcm_lives, 3),
    "cluster_down": (_cluster_down, 2),
    "logins_refused": (_logins_refused, 2),
    "batch_system_down": (_batch_system_down, 2),
    "node_lost": (_node_lost, 2),
    "node_cut_off": (_node_cut_off, 2),
    "job_restarted": (_job_restarted, 4),
    "job_killed": (_job_killed, 4),
    "job_vanishes": (_job_vanishes, 3),
    "job_pending_for_ever": (_job_pending_for_ever, 2),
    "job_held": (_job_held, 1),
    "barrier_never_reached": (_barrier_never_reached, 3),
    "record_unreadable": (_record_unreadable, 3),
    "shared_slow": (_shared_slow, 2),
    "shared_full": (_shared_full, 2),
    "shared_lost": (_shared_lost, 2),
    "link_unanswered": (_link_unanswered, 3),
    "files_interleaved": (_files_interleaved, 3),
    "relay_cut": (_relay_cut, 2),
    "clock_of_koalad_jumps": (_clock_of_koalad_jumps, 2),
    "clock_of_head_jumps": (_clock_of_head_jumps, 1),
    "clock_of_node_jumps": (_clock_of_node_jumps, 1),
    "host_sleeps": (_host_sleeps, 3),
    "commit_fails": (_commit_fails, 3),
    "disk_full": (_disk_full, 1),
    "koalad_killed": (_koalad_killed, 4),
    "kcm_killed": (_kcm_killed, 4),
    "wrapper_killed": (_wrapper_killed, 4),
}
