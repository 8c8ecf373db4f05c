"""The time from the restoration of a cut connection to the first event after it, on the test grid.

Two kinds of cuts, in turn: the network of the head is unplugged, unnoticed by both ends; or its SSH server ends with
all its sessions. Each is mended after ten seconds. Beforehand a job is started that ends meanwhile: the first event is
whatever koalad records first after the mending, and the job must come to a good end in its first attempt.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from _grid import koalad_on_test_grid, last_line, wait_until_measured

from koalapy import Grid
from koalapy.testgrid import Containers, layout

BOUND_S = 3.0
CUT_S = 10.0
CLUSTER = "alpha"
_PATIENCE_S = 60.0


def unplug(containers: Containers) -> Callable[[], float]:
    """Off the network that koalad reaches the head over; what plugs it in again, and returns the instant."""
    containers.disconnect(CLUSTER, "access")

    def plug_in() -> float:
        network = containers.client.networks.get(layout.network_name("access"))
        address = containers.expected_address(CLUSTER, "access")
        network.connect(layout.container_name(CLUSTER), ipv4_address=address, aliases=[CLUSTER])
        return time.time()

    return plug_in


def kill_sshd(containers: Containers) -> Callable[[], float]:
    """Listener and sessions; what starts it again, and returns the instant."""
    containers.check(CLUSTER, ["pkill", "-KILL", "--exact", "sshd"])

    def start() -> float:
        containers.check(CLUSTER, ["/usr/sbin/sshd"])
        return time.time()

    return start


CUTS: dict[str, Callable[[Containers], Callable[[], float]]] = {"network": unplug, "sshd": kill_sshd}


def round_of(koalad: Grid, containers: Containers, log: Path, kind: str, chance: random.Random) -> float:
    """Seconds from the mending to the first event of the cluster."""
    wait_until_measured(koalad)
    time.sleep(chance.uniform(0, 5))  # anywhere between two signs of life
    component = {"processors": 1, "executable": "sleep", "arguments": ["4"], "walltime": "2m", "cluster": CLUSTER}
    job = koalad.submit({"name": "bench", "components": [component]}, directory="/tmp")
    until(lambda: koalad.jobs(ids=[job])[0]["started_at"], "the job started")
    mend = CUTS[kind](containers)
    time.sleep(CUT_S)
    mended = mend()
    try:
        ended = koalad.wait([job], _PATIENCE_S)[0]
        if (ended["state"], ended["components"][0]["attempt"]) != ("done", 1):
            raise SystemExit(f"job {job} is {ended['state']}: {ended['reason']}")
        return first_event(log, job, mended) - mended
    finally:
        if kind == "network":
            containers.check(CLUSTER, ["/opt/testgrid/name-hosts", *containers.names(CLUSTER)])


def first_event(log: Path, job: int, after: float) -> float:
    """When koalad connected the cluster again, or took something of its job in, whatever came first."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    about = [line for line in lines if line.get("cluster") == CLUSTER or line.get("job") == job]
    taken = [line for line in about if line["event"] in _TAKEN]
    return min(at for line in taken if (at := datetime.fromisoformat(line["timestamp"]).timestamp()) > after)


_TAKEN = ("cluster_connected", "attempt_ended", "component_seen", "work_done")


def until(found: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not found():
        if time.monotonic() > deadline:
            raise SystemExit(f"within {_PATIENCE_S:.0f} s it did not happen that {what}")
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance, containers = random.Random(arguments.seed), Containers()
    found: dict[str, list[float]] = {kind: [] for kind in CUTS}
    with koalad_on_test_grid() as (koalad, _):
        for number in range(arguments.rounds):
            for kind in CUTS:
                found[kind].append(round_of(koalad, containers, koalad.locations.log, kind, chance))
                print(f"round {number + 1}, {kind}: {found[kind][-1]:.2f} s")
    everything = [seconds for each in found.values() for seconds in each]
    median = statistics.median(everything)
    detail: dict[str, Any] = {"rounds": arguments.rounds, "cut_s": CUT_S, "worst_s": round(max(everything), 2)}
    for kind, seconds in found.items():
        detail[kind] = {"median_s": round(statistics.median(seconds), 2), "worst_s": round(max(seconds), 2)}
    last_line("reconnect", round(median, 2), "s", BOUND_S, median <= BOUND_S, detail)


if __name__ == "__main__":
    main()
