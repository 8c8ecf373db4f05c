"""The faults of sites: functions that inject each one into all leases of a round, and that mend it."""

import subprocess
import time
from collections.abc import Callable

from _faults.breaking import is_lost
from _faults.lease_scene import LeaseScene, Person
from koalapy.testgrid import repair

SHORT_CUT_S, LONG_CUT_S = 10.0, 600.0
_LATER_S = 5.0


def kill_lenders(scene: LeaseScene) -> None:
    for person in scene.lenders:
        person.kill()
    scene.evidence.let_go()


def lenders_up(scene: LeaseScene) -> None:
    for person in scene.lenders:
        person.grid.up()


def kill_borrower(scene: LeaseScene) -> None:
    scene.borrower.kill()
    scene.evidence.let_go()


def borrower_up(scene: LeaseScene) -> None:
    scene.borrower.grid.up()


def kill_between(scene: LeaseScene) -> None:
    _between(scene).kill()
    scene.evidence.let_go()


def between_up(scene: LeaseScene) -> None:
    _between(scene).grid.up()


def cut_for_ten_seconds(scene: LeaseScene) -> None:
    """Programs end meanwhile."""
    _cut(scene)
    scene.evidence.let_go()
    time.sleep(SHORT_CUT_S)


def cut_for_ten_minutes(scene: LeaseScene) -> None:
    began = time.monotonic()
    cut_until_lost(scene)
    time.sleep(max(0.0, began + LONG_CUT_S - time.monotonic()))


def cut_until_lost(scene: LeaseScene) -> None:
    """Until every lender has ended its leases, since it gets no message of the borrower."""
    _cut(scene)
    scene.until(lambda: not any(person.leases("lent") for person in scene.lenders), "the lenders end their leases")
    time.sleep(_LATER_S)


def join_links(scene: LeaseScene) -> None:
    for rule in _rules(scene):
        while subprocess.run(["iptables", "-w", "-D", *rule], capture_output=True, check=False).returncode == 0:
            pass


def cancel_pilots(scene: LeaseScene) -> None:
    """As an administrator of the lenders' clusters does it."""
    for pilot in scene.pilots:
        command = "qdel" if pilot.cluster == "gamma" else "scancel"
        scene.testgrid.check(pilot.cluster, [command, pilot.batch_id], "root")


def kill_nodes(scene: LeaseScene) -> None:
    """The first node of each lease, where its KCM is, until the batch systems have given them up."""
    scene.nodes = [pilot.hosts[0] for pilot in scene.pilots]
    for node in scene.nodes:
        scene.testgrid.containers.kill(node)
    for pilot in scene.pilots:
        is_given_up = _lost_of(scene, pilot.cluster, pilot.hosts[0])
        scene.until(is_given_up, f"{pilot.cluster} gives up {pilot.hosts[0]}")


def revive_nodes(scene: LeaseScene) -> None:
    for node in scene.nodes:
        scene.testgrid.containers.start(node)
    scene.evidence.begin(scene.nodes)
    scene.evidence.let_go(scene.nodes)


def fill_disk(scene: LeaseScene) -> None:
    """Until programs have ended on the nodes, and cannot record it."""
    (person,) = scene.lenders
    repair.fill_disk(scene.testgrid.containers, str(person.site.cluster))
    scene.evidence.let_go()
    time.sleep(SHORT_CUT_S)


def free_disk(scene: LeaseScene) -> None:
    (person,) = scene.lenders
    repair.free_disk(scene.testgrid.containers, str(person.site.cluster))


def rotate_keys(scene: LeaseScene) -> None:
    """Replace the keys of all lenders, then that of the borrower; each neighbour joins the new one."""
    for person in [*scene.lenders, scene.borrower]:
        for line in person.grid.rotate_site()["lines"]:
            scene.people[line["neighbour"]].grid.join_site(line["line"], replace=True)
    scene.evidence.let_go()


def _between(scene: LeaseScene) -> Person:
    assert scene.between is not None
    return scene.between


def _cut(scene: LeaseScene) -> None:
    """Drop all that goes over the links of the sites of this row, on this machine's loopback interface."""
    for rule in _rules(scene):
        subprocess.run(["iptables", "-w", "-I", *rule], check=True)


def _rules(scene: LeaseScene) -> list[list[str]]:
    ports = [str(person.port) for person in scene.involved]
    ends = [(end, port) for port in ports for end in ("--sport", "--dport")]
    return [["INPUT", "-i", "lo", "-p", "tcp", end, port, "-j", "DROP"] for end, port in ends]


def _lost_of(scene: LeaseScene, cluster: str, node: str) -> Callable[[], bool]:
    return lambda: is_lost(scene.testgrid, cluster, node)
