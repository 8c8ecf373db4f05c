"""The places where the test grid's batch systems take nodes back by themselves, for benches and tests of sweeps."""

from collections.abc import Iterator
from contextlib import contextmanager

from koalapy.testgrid import Containers, layout

QUEUES = {"alpha": "low", "gamma": "scavenge.q"}  # Slurm's partition is there, and preempted by `batch`
_SLOTS = 4


@contextmanager
def taken_back(containers: Containers, cluster: str) -> Iterator[str]:
    """The queue whose jobs have to go for others', while it lasts."""
    if cluster == "gamma":
        with _subordinate_queue(containers, QUEUES[cluster]) as queue:
            yield queue
    else:
        yield QUEUES[cluster]


@contextmanager
def _subordinate_queue(containers: Containers, queue: str) -> Iterator[str]:
    """One whose jobs are suspended on a host as soon as one of all.q's is there; the host has slots for both."""
    hosts = next(cluster.nodes for cluster in layout.CLUSTERS if cluster.name == "gamma")

    def run(text: str) -> None:
        containers.check("gamma", ["bash", "-ec", text], user="root", login=True)

    def set_slots(count: int) -> str:
        return "; ".join(f"qconf -mattr exechost complex_values slots={count} {host}" for host in hosts)

    changes = f"s/^qname .*/qname {queue}/; s/^priority .*/priority 19/"
    run(f"qconf -sq all.q | sed '{changes}' > /tmp/queue; qconf -Aq /tmp/queue")
    try:
        run(set_slots(2 * _SLOTS))
        run(f"qconf -mattr queue subordinate_list {queue}=1 all.q")
        yield queue
    finally:
        run("qconf -rattr queue subordinate_list NONE all.q; qdel -f -u '*' > /dev/null 2>&1 || true")
        run(set_slots(_SLOTS))
        run(f"for n in $(seq 50); do qconf -dq {queue} && exit; sleep 0.2; done; exit 1")
