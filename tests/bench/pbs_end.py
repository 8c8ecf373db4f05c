"""How soon the processors of a PBS job whose nodes are not its server are free after its program, beside `qsub`.

A server and two nodes run in containers of their own. Their image has OpenPBS in /opt/pbs, as that of a test grid's
`epsilon` (docs/test-grid.md). They share a home directory, and have no way to copy a job's output to each other. The
program is the same on both ways: it sleeps, and stamps its last instruction. The figure is the time from then until
`qselect` on the server lists no job of the user any more. By hand it is `qsub -R oe`, which leaves no output to be
copied. The ways take turns in random order.

    tests/bench/run pbs-end [--image IMAGE] [--rounds N]
"""

import argparse
import os
import random
import statistics
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from _grid import koalad_of, last_line, wait_until_measured

from koalapy import Grid
from koalapy.testgrid import layout

BOUND = 1.2
SERVER, NODES = "koala-bench-pbs", ("koala-bench-pbs-1", "koala-bench-pbs-2")
HOSTS = (SERVER, *NODES)
STAMP, END = "/home/koala/stamp", "sleep 2; date +%s.%N >/home/koala/stamp"
_WAIT_S = 120
_SERVER_SETTINGS = ("flatuid = true", "scheduler_iteration = 600", "job_history_enable = true")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--image", default=layout.PBS_IMAGE, help="by default that of the test grid")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    if not arguments.image:
        raise SystemExit("Name an image of OpenPBS: --image, or KOALA_TESTGRID_PBS_IMAGE.")
    settings = {"batch": "pbs", "connect": f"docker://koala@{SERVER}", "shared": "/home/koala/.koala", "poll": "1s"}
    ends: dict[str, list[float]] = {"koalapy": [], "qsub": []}
    with pbs(arguments.image), koalad_of({"clusters": {"pbs": settings}}) as (koalad, _):
        wait_until_measured(koalad)
        ways: dict[str, Callable[[], None]] = {"koalapy": lambda: by_koalapy(koalad), "qsub": by_hand}
        for _ in range(arguments.rounds):
            for way in random.sample(sorted(ways), len(ways)):
                ends[way].append(end_of(ways[way]))
    ours, plain = (statistics.median(ends[way]) for way in ("koalapy", "qsub"))
    detail = {
        "koalapy_s": round(ours, 2), "qsub_s": round(plain, 2), "slowest_s": round(max(ends["koalapy"]), 2),
        "slowest_qsub_s": round(max(ends["qsub"]), 2), "rounds": arguments.rounds, "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    last_line("pbs-end", round(ours / plain, 2), "times", BOUND, ours <= BOUND * plain, detail)


@contextmanager
def pbs(image: str) -> Iterator[None]:
    """A server and two nodes of four processors each. In the end they are gone."""
    docker("network", "create", SERVER)
    try:
        docker("volume", "create", SERVER)
        for host in HOSTS:
            mount = ("--network", SERVER, "-v", f"{SERVER}:/home")
            docker("run", "-d", "--init", "--name", host, "--hostname", host, *mount, image, "sleep", "infinity")
            root(host, "useradd --uid 2000 --shell /bin/bash koala && mkdir -p /home/koala && chown koala: /home/koala")
            here = {"SERVER": host == SERVER, "SCHED": host == SERVER, "COMM": host == SERVER, "MOM": host != SERVER}
            edits = " ".join(f"-e 's/^PBS_START_{part}=.*/PBS_START_{part}={int(on)}/'" for part, on in here.items())
            root(host, f"sed -i -e 's/^PBS_SERVER=.*/PBS_SERVER={SERVER}/' {edits} /etc/pbs.conf")
            root(host, f"mkdir -p /var/spool/pbs/mom_priv; echo '$clienthost {SERVER}' >/var/spool/pbs/mom_priv/config")
            root(host, "/opt/pbs/libexec/pbs_init.d start")
        for setting in _SERVER_SETTINGS:
            root(SERVER, f"qmgr -c 'set server {setting}'")
        for node in NODES:
            root(SERVER, f"qmgr -c 'create node {node}'; qmgr -c 'set node {node} resources_available.ncpus = 4'")
        root(
            SERVER,
            "for i in $(seq 120); do pbsnodes -a | grep -c 'state = free' | grep -qx 2 && exit; sleep 1; done; exit 1",
        )
        yield
    finally:
        subprocess.run(["docker", "rm", "-f", *HOSTS], capture_output=True, check=False)
        subprocess.run(["docker", "volume", "rm", SERVER], capture_output=True, check=False)
        subprocess.run(["docker", "network", "rm", SERVER], capture_output=True, check=False)


def end_of(run: Callable[[], None]) -> float:
    """Run a job, and return the seconds from its program's end until the server lists no job any more."""
    koala(f"rm -f {STAMP}")
    run()
    look = f'until [ -s {STAMP} ] && [ -z "$(qselect -u koala -s EHQRW)" ]; do sleep 0.02; done; date +%s.%N'
    freed = float(koala(f"timeout {_WAIT_S} bash -c '{look}'"))
    return freed - float(koala(f"cat {STAMP}"))


def by_koalapy(koalad: Grid) -> None:
    program = {"executable": "/bin/sh", "arguments": ["-c", END]}
    component = {"processors": 1, "walltime": "5m", "cluster": "pbs", **program}
    koalad.submit({"name": "end", "components": [component]}, directory="/tmp")


def by_hand() -> None:
    koala(f"cd && qsub -R oe -l select=1:ncpus=1 -l walltime=300 -- /bin/sh -c '{END}'")


def koala(command: str) -> str:
    return docker("exec", "-u", "koala", SERVER, "bash", "-lc", command)


def root(host: str, command: str) -> str:
    return docker("exec", host, "bash", "-lc", command)


def docker(*arguments: str) -> str:
    """Return what a docker command prints. Raises CalledProcessError."""
    return subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
