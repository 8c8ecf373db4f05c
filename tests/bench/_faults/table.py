"""The table of faults: what breaks, how, at which moment of which work, and how it is mended."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from _faults import breaking as b
from _faults.scene import Scene

Moment = Literal["claiming", "barrier", "running"]
Act = Callable[[Scene], None]

ALL, PAIR = ("alpha", "beta", "gamma"), ("alpha", "gamma")


@dataclass(frozen=True, slots=True)
class Row:
    """One fault.

    It strikes `cluster` when the co-allocated job, over the clusters `over`, has come to `moment`; `inject` returns
    when the fault has done its worst, `mend` when all is repaired. `seconds`: how long the programs run after that.
    """

    name: str
    fault: str
    moment: Moment
    cluster: str
    inject: Act
    mend: Act | None = None
    over: tuple[str, ...] = PAIR
    seconds: float = 8
    quick: bool = False  # one of those that every run of the tests takes


ROWS = (
    Row("koalad-claiming", "kill -9 of koalad", "claiming", "gamma", b.kill_koalad, b.koalad_up, over=ALL, quick=True),
    Row("koalad-barrier", "kill -9 of koalad", "barrier", "gamma", b.kill_koalad, b.koalad_up, over=ALL),
    Row("koalad-running", "kill -9 of koalad", "running", "gamma", b.kill_koalad, b.koalad_up, over=ALL),
    Row(
        "koalad-twice-in-release",
        "two koalad killed in a row while a release is under way, one head out of reach",
        "barrier",
        "gamma",
        b.kill_koalad_twice_in_release,
        b.koalad_up_with_head,
        over=ALL,
        quick=True,
    ),
    Row("kcm", "kill -9 of the KCM on a head node", "running", "gamma", b.kill_kcm),
    Row("kcm-claiming", "kill -9 of the KCM on a head node", "claiming", "alpha", b.kill_kcm),
    Row("drmaa-helper", "kill -9 of the DRMAA helper", "running", "gamma", b.kill_drmaa_helper),
    Row("wrapper", "kill -9 of a wrapper, on its first node", "running", "alpha", b.kill_wrapper, quick=True),
    Row("wrapper-sge", "kill -9 of a wrapper, on its first node", "running", "gamma", b.kill_wrapper),
    Row("agent", "kill -9 of a node agent, on another node", "running", "gamma", b.kill_agent),
    Row("agent-slurm", "kill -9 of a node agent, on another node", "running", "alpha", b.kill_agent),
    Row("slurmctld", "kill -9 of slurmctld, started again", "running", "alpha", b.kill_slurmctld, b.start_head),
    Row(
        "slurmctld-claiming",
        "kill -9 of slurmctld right after a submit, started again",
        "claiming",
        "alpha",
        b.kill_slurmctld,
        b.start_head,
    ),
    Row(
        "sge_qmaster", "kill -9 of sge_qmaster, started again", "running", "gamma", b.kill_qmaster, b.start_grid_engine
    ),
    Row(
        "sge_qmaster-claiming",
        "kill -9 of sge_qmaster right after a submit, started again",
        "claiming",
        "gamma",
        b.kill_qmaster,
        b.start_grid_engine,
    ),
    Row(
        "slurmd",
        "kill -9 of a slurmd, until its node is down",
        "running",
        "alpha",
        b.kill_slurmd,
        b.start_node,
    ),
    Row(
        "sge_execd",
        "kill -9 of an sge_execd, until its node is reported down",
        "running",
        "gamma",
        b.kill_execd,
        b.start_node,
    ),
    Row("head-paused", "head node paused, then resumed", "running", "gamma", b.pause_head, b.resume_head),
    Row(
        "head-paused-claiming",
        "head node paused, then resumed",
        "claiming",
        "beta",
        b.pause_head,
        b.resume_head,
        over=ALL,
    ),
    Row("network-head", "network cut between koalad and a head", "running", "alpha", b.unplug_head, b.plug_head),
    Row(
        "network-node",
        "network cut between head and compute node, until the batch system gives up the node",
        "running",
        "alpha",
        b.unplug_node,
        b.plug_node,
    ),
    Row(
        "network-node-sge",
        "network cut between head and compute node, until the batch system gives up the node",
        "running",
        "gamma",
        b.unplug_node,
        b.plug_node,
    ),
    Row(
        "network-other-node",
        "a compute node without the wrapper is cut off, until the batch system gives it up",
        "running",
        "alpha",
        b.unplug_other_node,
        b.plug_node,
    ),
    Row(
        "network-other-node-sge",
        "a compute node without the wrapper is cut off, until the batch system gives it up",
        "running",
        "gamma",
        b.unplug_other_node,
        b.plug_node,
    ),
    Row(
        "disk-full",
        "shared directory full, then freed",
        "running",
        "beta",
        b.fill_disk,
        b.free_disk,
        over=("alpha", "beta"),
        quick=True,
    ),
    Row(
        "disk-full-claiming",
        "shared directory full, then freed",
        "claiming",
        "beta",
        b.fill_disk,
        b.free_disk,
        over=("alpha", "beta"),
    ),
    Row("scancel", "administrator's scancel", "running", "alpha", b.scancel, quick=True),
    Row("qdel", "administrator's qdel", "running", "gamma", b.qdel),
    Row("requeue", "requeue by Slurm, forced (scontrol)", "running", "alpha", b.requeue),
    Row("rerun", "rerun by Grid Engine, forced (qmod -f -rj)", "running", "gamma", b.rerun, b.delete_by_force),
    Row(
        "node-lost",
        "a compute node loses its power, and comes back",
        "running",
        "beta",
        b.kill_node,
        b.revive_node,
        over=("alpha", "beta"),
    ),
    Row(
        "node-lost-sge",
        "a compute node loses its power, and comes back",
        "running",
        "gamma",
        b.kill_node,
        b.revive_node,
    ),
)


def row(name: str) -> Row:
    """Raises KeyError for a name that is none."""
    return {each.name: each for each in ROWS}[name]
