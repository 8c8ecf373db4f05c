"""The latency that koalapy adds to the batch systems' own when it starts one job on three clusters at once.

In each round, in random order and after random pauses: a job of three components through koalapy, and sbatch, sbatch
and qsub of the same size at one instant over open connections. Start is the first instruction of the program.
"""

import argparse
import random
import shlex
import statistics
import threading
import time
from datetime import datetime
from pathlib import Path

import paramiko
import yaml
from _grid import bootstrap, koalad_on_test_grid, last_line, wait_until_measured

from koalapy import Grid

PROCESSORS = 4
BOUND_S = 0.5
SPREAD_BOUND_S = 0.25
SUBMIT = {
    "alpha": "sbatch --parsable --output=/dev/null --ntasks={n} {script}",
    "beta": "sbatch --parsable --output=/dev/null --ntasks={n} {script}",
    "gamma": "qsub -terse -o /dev/null -j y -pe mpi {n} {script}",
}


_SCRIPT = """#!/bin/bash
echo $EPOCHREALTIME > {place}/plain.start.tmp
mv {place}/plain.start.tmp {place}/plain.start
"""


class Shell:
    """A login shell on a head, open all the time, so that a command costs no login."""

    def __init__(self, client: paramiko.SSHClient) -> None:
        self._in, self._out, _ = client.exec_command("exec bash -l", timeout=60)

    def run(self, command: str) -> str:
        """The command's output. A status other than 0 ends the bench."""
        self._in.write(f"{command}; echo koala-bench-over $?\n")
        self._in.flush()
        lines = []
        while not (line := self._out.readline()).startswith("koala-bench-over"):
            if not line:
                raise SystemExit(f"the shell ended at: {command}")
            lines.append(line)
        if line.split()[1] != "0":
            raise SystemExit(f"{command}: {''.join(lines)}")
        return "".join(lines)


class Plain:
    """Open shells on the three heads, each with a script that notes the time of its first instruction."""

    def __init__(self, grid_file: Path) -> None:
        clusters = yaml.safe_load(grid_file.read_text())["clusters"]
        self._clients = [_connect(cluster) for cluster in clusters.values()]
        self.shells = {name: Shell(client) for name, client in zip(clusters, self._clients, strict=True)}
        self.places = {name: cluster.get("shared", "/home/koala") for name, cluster in clusters.items()}
        for name, place in self.places.items():
            script = shlex.quote(_SCRIPT.format(place=place))
            self.shells[name].run(f"mkdir -p {place} && printf %s {script} > {place}/plain.sh")

    def round(self) -> float:
        """Seconds from the submit at one instant to the last script's first instruction."""
        for name, place in self.places.items():
            self.shells[name].run(f"rm -f {place}/plain.start")
        barrier = threading.Barrier(len(self.shells) + 1)
        threads = [threading.Thread(target=self._submit, args=(name, barrier)) for name in self.shells]
        for thread in threads:
            thread.start()
        barrier.wait()
        submitted = time.time()
        for thread in threads:
            thread.join()
        return max(self._start(name) for name in self.shells) - submitted

    def _submit(self, name: str, barrier: threading.Barrier) -> None:
        command = SUBMIT[name].format(n=PROCESSORS, script=f"{self.places[name]}/plain.sh")
        barrier.wait()
        self.shells[name].run(command)

    def _start(self, name: str) -> float:
        start = f"{self.places[name]}/plain.start"
        return float(self.shells[name].run(f"until [ -s {start} ]; do sleep 0.05; done; cat {start}"))


def _connect(cluster: dict[str, str]) -> paramiko.SSHClient:
    user, host = cluster["connect"].removeprefix("ssh://").split("@")
    client = paramiko.SSHClient()
    client.load_host_keys(cluster["known_hosts"])
    client.connect(host, username=user, key_filename=cluster["identity"], allow_agent=False, look_for_keys=False)
    return client


def koalapy_round(koalad: Grid) -> tuple[float, float, float]:
    """(submit to last process started, spread of the starts, last process ended to done), in seconds."""
    component = {
        "processors": PROCESSORS,
        "executable": "/bin/bash",
        "arguments": ["-c", "echo $EPOCHREALTIME"],
        "walltime": "2m",
    }
    request = {"name": "bench", "components": [component] * 3}
    submitted = time.time()
    job = koalad.submit(request, directory="/tmp")
    found = koalad.wait([job], 120)[0]
    if found["state"] != "done":
        raise SystemExit(f"job {job} is {found['state']}: {found['reason']}")
    starts = [float(line) for line in b"".join(koalad.output(job)).split()]
    ended = max(datetime.fromisoformat(each["ended_at"] or "").timestamp() for each in found["components"])
    finished = datetime.fromisoformat(found["finished_at"] or "").timestamp()
    return max(starts) - submitted, max(starts) - min(starts), finished - ended


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    added, spreads, ends, plains, ours = [], [], [], [], []
    with koalad_on_test_grid() as (koalad, grid_file):
        plain = Plain(grid_file)
        for number in range(arguments.rounds):
            wait_until_measured(koalad)
            measured: dict[str, float] = {}
            for kind in chance.sample(["koalapy", "plain"], 2):
                time.sleep(chance.random())
                if kind == "plain":
                    measured["plain"] = plain.round()
                else:
                    measured["koalapy"], spread, end = koalapy_round(koalad)
                    spreads.append(spread)
                    ends.append(end)
            added.append(measured["koalapy"] - measured["plain"])
            plains.append(measured["plain"])
            ours.append(measured["koalapy"])
            print(f"round {number + 1}: koalapy {ours[-1]:.3f} s, plain {plains[-1]:.3f} s, spread {spreads[-1]:.3f} s")
    median, spread = statistics.median(added), statistics.median(spreads)
    low, high = bootstrap(added)
    detail = {
        "rounds": arguments.rounds,
        "interval_s": [round(low, 3), round(high, 3)],
        "koalapy_s": round(statistics.median(ours), 3),
        "plain_s": round(statistics.median(plains), 3),
        "spread_s": round(spread, 3),
        "spread_bound_s": SPREAD_BOUND_S,
        "ended_to_done_s": round(statistics.median(ends), 3),
    }
    holds = median <= BOUND_S and spread <= SPREAD_BOUND_S
    last_line("coallocation", round(median, 3), "s", BOUND_S, holds, detail)


if __name__ == "__main__":
    main()
