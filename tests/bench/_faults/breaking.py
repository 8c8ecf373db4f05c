"""The faults: functions that inject each one, which return when its effect is complete, and that mend it."""

import time

from _faults.koalad import Koalad
from _faults.scene import Scene
from koalapy.testgrid import Running, layout, repair

TEMPTATION_S = 20


def kill_koalad(scene: Scene) -> None:
    scene.koalad.kill()


def koalad_up(scene: Scene) -> None:
    scene.koalad.up()


def kill_koalad_twice_in_release(scene: Scene) -> None:
    """The release is committed, but cannot reach the head that hangs: two koalad die over it."""
    koalad = scene.koalad
    koalad.until(lambda: koalad.component(scene.job, scene.cluster)["state"] == "at_barrier", "it is at its barrier")
    koalad.containers.pause(scene.cluster)
    scene.let_go()
    koalad.until(lambda: koalad.job(scene.job)["state"] == "running", "its release is committed")
    koalad.kill()
    koalad.up()
    koalad.kill()


def koalad_up_with_head(scene: Scene) -> None:
    scene.koalad.containers.unpause(scene.cluster)
    scene.koalad.up()


def kill_kcm(scene: Scene) -> None:
    repair.kill_command(scene.koalad.containers, scene.cluster, r"\.pyz kcm")


def kill_drmaa_helper(scene: Scene) -> None:
    repair.kill_command(scene.koalad.containers, scene.cluster, r"\.pyz drmaa-helper")


def kill_wrapper(scene: Scene) -> None:
    """Not its fork, the agent on its own node."""
    repair.kill_command(scene.koalad.containers, scene.hosts()[0], r"\.pyz wrapper", "oldest")


def kill_agent(scene: Scene) -> None:
    """Not its guard."""
    repair.kill_command(scene.koalad.containers, scene.hosts()[1], r"\.pyz agent", "newest")


def kill_slurmctld(scene: Scene) -> None:
    scene.koalad.containers.kill_process(scene.cluster, "slurmctld")
    _unanswered(scene)


def kill_qmaster(scene: Scene) -> None:
    scene.koalad.containers.kill_process(scene.cluster, "sge_qmaster")
    _unanswered(scene)


def start_head(scene: Scene) -> None:
    repair.start_services(scene.koalad.containers, scene.cluster)


def start_grid_engine(scene: Scene) -> None:
    """Its execds anew too, as their administrator must: of a job that had begun less than a second before its qmaster
    died they never inform the new one, which lists it for ever.
    """
    start_head(scene)
    for node in _nodes(scene.cluster):
        repair.start_services(scene.koalad.containers, node)


def kill_slurmd(scene: Scene) -> None:
    scene.node = scene.hosts()[0]
    scene.koalad.containers.kill_process(scene.node, "slurmd")
    _given_up(scene)
    _tempt(scene)


def kill_execd(scene: Scene) -> None:
    scene.node = scene.hosts()[0]
    scene.koalad.containers.kill_process(scene.node, "sge_execd")
    _given_up(scene)
    _tempt(scene)


def start_node(scene: Scene) -> None:
    repair.start_services(scene.koalad.containers, scene.node)


def pause_head(scene: Scene) -> None:
    scene.koalad.containers.pause(scene.cluster)
    _unreachable(scene)


def resume_head(scene: Scene) -> None:
    scene.koalad.containers.unpause(scene.cluster)


def unplug_head(scene: Scene) -> None:
    scene.koalad.containers.disconnect(scene.cluster, "access")
    _unreachable(scene)


def plug_head(scene: Scene) -> None:
    scene.koalad.containers.connect(scene.cluster, "access")


def unplug_node(scene: Scene) -> None:
    """The wrapper's: its program runs on, while the batch system already counts it as lost."""
    _unplug(scene, scene.hosts()[0])


def unplug_other_node(scene: Scene) -> None:
    """The wrapper is well, and cannot order the agent there to stop."""
    _unplug(scene, scene.hosts()[1])


def plug_node(scene: Scene) -> None:
    scene.koalad.containers.connect(scene.node)


def kill_node(scene: Scene) -> None:
    scene.node = scene.hosts()[0]
    scene.koalad.containers.kill(scene.node)
    _given_up(scene)
    _tempt(scene)


def revive_node(scene: Scene) -> None:
    scene.koalad.containers.start(scene.node)


def fill_disk(scene: Scene) -> None:
    """Until programs have ended, so that their ends are to be recorded on the full disk."""
    repair.fill_disk(scene.koalad.containers, scene.cluster)
    scene.let_go()
    koalad = scene.koalad
    koalad.until(lambda: _ends_or_fails(koalad, scene.job), "the job ends, or fails to start")


def free_disk(scene: Scene) -> None:
    repair.free_disk(scene.koalad.containers, scene.cluster)


def scancel(scene: Scene) -> None:
    scene.koalad.containers.check(scene.cluster, ["scancel", scene.batch_id()])


def qdel(scene: Scene) -> None:
    scene.koalad.testgrid.check(scene.cluster, ["qdel", scene.batch_id()], "root")


def requeue(scene: Scene) -> None:
    """A job that is not to be requeued is refused; an administrator can change that."""
    batch_id, containers = scene.batch_id(), scene.koalad.containers
    status, words = containers.exec(scene.cluster, ["scontrol", "requeue", batch_id])
    assert status != 0, words
    containers.check(scene.cluster, ["scontrol", "update", f"JobId={batch_id}", "Requeue=1"])
    containers.check(scene.cluster, ["scontrol", "requeue", batch_id])


def rerun(scene: Scene) -> None:
    """A job that is not rerunnable is refused; an administrator can force it."""
    batch_id, testgrid = scene.batch_id(), scene.koalad.testgrid
    assert "not restartable" in testgrid.check(scene.cluster, ["qmod", "-rj", batch_id], "root")
    testgrid.check(scene.cluster, ["qmod", "-f", "-rj", batch_id], "root")
    _tempt(scene)


def delete_by_force(scene: Scene) -> None:
    """Delete by force, as the administrator must: a job that was given to its former node is never delivered."""
    scene.koalad.testgrid.exec(scene.cluster, ["qdel", "-f", scene.batch_id()], "root")


def is_lost(testgrid: Running, cluster: str, node: str) -> bool:
    """Return whether the batch system counts the node as lost."""
    if cluster == "gamma":
        line = testgrid.check(cluster, ["qstat", "-f", "-q", f"all.q@{node}"]).splitlines()[2].split()
        return len(line) > 5 and "u" in line[5]
    return "down" in testgrid.check(cluster, ["sinfo", "-h", "-N", "-n", node, "-p", "batch", "-o", "%T"])


def _unplug(scene: Scene, node: str) -> None:
    scene.node = node
    scene.koalad.containers.disconnect(node)
    _given_up(scene)
    _tempt(scene)


def _nodes(cluster: str) -> tuple[str, ...]:
    return next(each.nodes for each in layout.CLUSTERS if each.name == cluster)


def _unanswered(scene: Scene) -> None:
    """Until koalad has noticed that the batch system does not answer; programs end meanwhile."""
    scene.let_go()
    koalad = scene.koalad
    koalad.until(lambda: koalad.cluster(scene.cluster)["reason"], "koalad says what the batch system lacks")


def _unreachable(scene: Scene) -> None:
    """Until koalad has noticed; programs end meanwhile."""
    scene.let_go()
    koalad, cluster = scene.koalad, scene.cluster
    koalad.until(lambda: koalad.cluster(cluster)["connection"] != "up", f"{cluster} is out of reach")


def _given_up(scene: Scene) -> None:
    """Until the batch system itself counts the node as lost."""
    testgrid, cluster, node = scene.koalad.testgrid, scene.cluster, scene.node
    scene.koalad.until(lambda: is_lost(testgrid, cluster, node), f"{cluster} gives up {node}")


def _tempt(scene: Scene) -> None:
    """Time enough for koalad to start another try, if it thinks that it may."""
    deadline = time.monotonic() + TEMPTATION_S
    scene.koalad.until(lambda: time.monotonic() > deadline or _tries(scene) > 1, "time passes")


def _tries(scene: Scene) -> int:
    return max(each["attempt"] for each in scene.koalad.job(scene.job)["components"])


def _ends_or_fails(koalad: Koalad, job: int) -> bool:
    found = koalad.job(job)
    ended = any(each["ended_at"] for each in found["components"])
    return bool(found["submission_failures"] or found["completion_failures"] or ended or found["finished_at"])
