"""The round trip of a key in the terminal of a job on a compute node, beside plain `ssh -t`, in the same rounds.

A program on a node of real Slurm puts its terminal into raw mode and sends back each byte that it reads. It runs as
`koala run --interactive`; by `ssh -t` on the head node, since the nodes of the test grid have no SSH server; and by
`srun --pty` over that. All three have real terminals here. Each round measures all of them in random order. The bound
is compared with `ssh -t`, which has the shorter way.

    tests/bench/run interactive [--rounds N] [--keys N]
"""

import argparse
import os
import random
import shlex
import statistics
import sys
import time
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pexpect
from _grid import KOALA, koalad_of, last_line, wait_until_measured

from koalapy import testgrid

CLUSTER = "alpha"
BOUND_MS = 30.0
PATIENCE_S = 120
READY = "ready-to-send-back"
PROGRAM = f"stty raw -echo; printf %s {READY}; exec cat"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--keys", type=int, default=50, help="of each round and way")
    args = parser.parse_args()
    with testgrid.reserved():
        grid = testgrid.up().grid(CLUSTER)
        testgrid.reset()
        with koalad_of(grid) as (koalad, grid_file), ExitStack() as stack:
            wait_until_measured(koalad)
            run = [*KOALA, "run", "--grid", str(grid_file), "-i", "-n", "1", "--on", CLUSTER, "-t", "10m"]
            ssh = plain_ssh(grid["clusters"][CLUSTER])
            commands = {
                "koala": [*run, "--", "/bin/sh", "-c", PROGRAM],
                "ssh": [*ssh, PROGRAM],
                "srun": [*ssh, f"bash -lc {shlex.quote('srun -n 1 --pty sh -c ' + shlex.quote(PROGRAM))}"],
            }
            terminals = {name: terminal(stack, command) for name, command in commands.items()}
            figures = measure(terminals, args.rounds, args.keys)
    report(figures)


def plain_ssh(cluster: dict[str, Any]) -> list[str]:
    where = urlsplit(cluster["connect"])
    options = [f"-oUserKnownHostsFile={cluster['known_hosts']}", "-oBatchMode=yes", "-oControlPath=none", "-F/dev/null"]
    return ["ssh", "-t", "-i", cluster["identity"], *options, f"{where.username}@{where.hostname}"]


def terminal(stack: ExitStack, command: list[str]) -> Any:
    """Return a terminal in which the program waits for keys."""
    child = pexpect.spawn(command[0], command[1:], timeout=PATIENCE_S, cwd="/tmp")
    stack.callback(child.close, force=True)
    child.delaybeforesend = None
    child.expect_exact(READY)
    return child


def measure(terminals: dict[str, Any], rounds: int, keys: int) -> dict[str, list[float]]:
    """Return milliseconds from a key to its echo, by way."""
    found: dict[str, list[float]] = {name: [] for name in terminals}
    for number in range(rounds):
        for name, child in random.Random(number).sample(sorted(terminals.items()), len(terminals)):
            found[name] += [round_trip_ms(child) for _ in range(keys)]
            print(number, name, f"{statistics.median(found[name][-keys:]):.2f} ms", file=sys.stderr, flush=True)
    return found


def round_trip_ms(child: Any) -> float:
    began = time.perf_counter()
    child.send(b"k")
    shown = child.read_nonblocking(1, PATIENCE_S)
    if shown != b"k":
        raise SystemExit(f"the terminal shows {shown!r} in place of the key")
    return (time.perf_counter() - began) * 1e3


def report(figures: dict[str, list[float]]) -> None:
    medians = {name: statistics.median(values) for name, values in figures.items()}
    more = medians["koala"] - medians["ssh"]
    detail = {"medians_ms": medians, "keys": {name: len(values) for name, values in figures.items()}}
    detail |= {"load": os.getloadavg(), "slowest_ms": {name: max(values) for name, values in figures.items()}}
    last_line("interactive", round(more, 2), "ms over ssh -t", BOUND_MS, more <= BOUND_MS, detail)


if __name__ == "__main__":
    main()
