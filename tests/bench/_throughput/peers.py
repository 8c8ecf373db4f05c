"""Runs on a node: one peer, kept warm, that runs a round of tasks whenever it is asked. `peers.py NAME PLACE TASKS`.

A byte in the pipe PLACE/asked asks for a round; the seconds that it took are then in PLACE/took.N, N from 1.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable

PROGRAM = "/bin/true"
WORKERS = 8
Round = Callable[[int], object]


def hyperqueue() -> Round:
    """Server and two workers of four cores in this process, as its package has them; a job of so many programs."""
    from hyperqueue import Job
    from hyperqueue.cluster import LocalCluster, WorkerConfig

    cluster = LocalCluster()
    for _ in range(2):
        cluster.start_worker(WorkerConfig(cores=WORKERS // 2))
    client = cluster.client()

    def run(tasks: int) -> object:
        job = Job()
        for _ in range(tasks):
            job.program([PROGRAM])
        return client.wait_for_jobs([client.submit(job)]), cluster

    return run


def parsl() -> Round:
    """A high-throughput executor here; what starts its workers, four a node, is in ./worker.sh."""
    import parsl
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor
    from parsl.providers import LocalProvider

    executor = HighThroughputExecutor(
        label="htex",
        address=socket.gethostbyname(socket.gethostname()),
        max_workers_per_node=WORKERS // 2,
        cores_per_worker=0.01,
        provider=LocalProvider(init_blocks=0, max_blocks=0),
        encrypted=False,
    )
    parsl.load(Config(executors=[executor], strategy="none", initialize_logging=False))
    with open("worker.sh.new", "w") as script:
        script.write(f"exec {executor._get_launch_command('0')}\n")
    os.rename("worker.sh.new", "worker.sh")
    while sum(each["worker_count"] for each in executor.connected_managers()) < WORKERS:
        time.sleep(0.2)

    @parsl.bash_app  # type: ignore[untyped-decorator]
    def program() -> str:
        return "/bin/true"

    return lambda tasks: [future.result() for future in [program() for _ in range(tasks)]]


def dask() -> Round:
    """A client; scheduler and workers run beside it."""
    from distributed import Client

    while not os.path.exists("scheduler.json"):
        time.sleep(0.1)
    client = Client(scheduler_file="scheduler.json")
    client.wait_for_workers(WORKERS, timeout=120)
    return lambda tasks: client.gather(client.map(run_program, range(tasks), pure=False))


def run_program(number: int) -> int:
    return subprocess.run([PROGRAM], check=True).returncode


def main() -> None:
    name, place, tasks = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.chdir(place)
    run = {"hyperqueue": hyperqueue, "parsl": parsl, "dask": dask}[name]()
    run(WORKERS)  # warm
    os.mkfifo("asked")
    asked = os.open("asked", os.O_RDWR)
    number = 0
    while os.read(asked, 1):
        number += 1
        began = time.monotonic()
        run(tasks)
        with open("took.new", "w") as took:
            took.write(str(time.monotonic() - began))
        os.rename("took.new", f"took.{number}")


if __name__ == "__main__":
    main()
