"""A byte stream between this machine and a compute node, beside `ssh -L` over the same head node, in the same rounds.

A server in a job on a node of real Slurm sends as much as a client wants. It counts what it gets, and sends that
back. The client reaches it by `koala forward` and by OpenSSH's forwarding. Each round measures both in random order:
bytes a second in each direction, and the round trip of 64 bytes. After that, jobs are released on the same cluster
while a stream is full, and while none is: the delay is from the barrier to the release, on the wrapper's clock.

    tests/bench/run streams [--rounds N] [--megabytes N] [--jobs N]
"""

import argparse
import os
import random
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from _grid import koalad_of, last_line, wait_until_measured

from koalapy import Grid, testgrid

CLUSTER, PORT = "alpha", 18474
THROUGHPUT_BOUND, ROUND_TRIP_BOUND, DELAY_BOUND_MS = 0.5, 1.5, 50.0
_PATIENCE_S = 120
_PINGS = 200
# One letter is the server's order: s (send so many bytes), r (receive so many, then report it), e (send back).
SERVER = f"""
import socket, threading
def serve(plug):
    plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with plug, plug.makefile("rb") as lines:
        what, count = lines.readline().split()
        left = int(count)
        if what == b"s":
            while left > 0:
                plug.sendall(bytes(min(left, 65536)))
                left -= 65536
        elif what == b"r":
            while left > 0:
                left -= len(lines.read(min(left, 65536)))
            plug.sendall(b"!")
        else:
            while True:
                data = lines.read(64)
                if not data:
                    return
                plug.sendall(data)
listening = socket.create_server(("", {PORT}))
while True:
    threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=64, help="in each direction of a round")
    parser.add_argument("--jobs", type=int, default=15, help="that are released with and without a full stream")
    args = parser.parse_args()
    with testgrid.reserved():
        grid = testgrid.up().grid(CLUSTER)
        testgrid.reset()
        with koalad_of(grid) as (koalad, _):
            wait_until_measured(koalad)
            component = {"processors": 1, "executable": "python3", "arguments": ["-c", SERVER], "cluster": CLUSTER}
            job = koalad.submit({"name": "server", "components": [component]}, directory="/tmp")
            node = node_of(koalad, job)
            with by_ssh(grid["clusters"][CLUSTER], node) as ssh, koalad.forward(job, PORT) as forwarding:
                ways = {"koala": forwarding.address, "ssh": ssh}
                for address in ways.values():
                    until(lambda: answers(address))  # noqa: B023
                figures = measure(ways, args.rounds, args.megabytes << 20)
                figures |= {"idle_ms": delays(koalad, args.jobs)}
                with full_stream(forwarding.address):
                    figures |= {"full_ms": delays(koalad, args.jobs)}
    report(figures)


def measure(ways: dict[str, tuple[str, int]], rounds: int, size: int) -> dict[str, Any]:
    """Bytes a second and seconds of a round trip, by way, one value a round."""
    found: dict[str, dict[str, list[float]]] = {name: {"down": [], "up": [], "ping": []} for name in ways}
    for number in range(rounds):
        for name, address in random.Random(number).sample(sorted(ways.items()), len(ways)):
            found[name]["down"].append(size / receive(address, size))
            found[name]["up"].append(size / send(address, size))
            found[name]["ping"].append(round_trip(address))
            print(number, name, {what: f"{values[-1]:.4g}" for what, values in found[name].items()}, flush=True)
    return found


def receive(address: tuple[str, int], size: int) -> float:
    with socket.create_connection(address, _PATIENCE_S) as plug:
        began = time.perf_counter()
        plug.sendall(b"s %d\n" % size)
        left = size
        while left > 0:
            left -= len(plug.recv(1 << 18)) or exit("the stream ended early")
        return time.perf_counter() - began


def send(address: tuple[str, int], size: int) -> float:
    data = bytes(1 << 18)
    with socket.create_connection(address, _PATIENCE_S) as plug:
        began = time.perf_counter()
        plug.sendall(b"r %d\n" % size)
        for start in range(0, size, len(data)):
            plug.sendall(data[: size - start])
        assert plug.recv(1) == b"!"
        return time.perf_counter() - began


def round_trip(address: tuple[str, int]) -> float:
    """Median seconds of 64 bytes to the node and back."""
    times = []
    with socket.create_connection(address, _PATIENCE_S) as plug:
        plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plug.sendall(b"e 0\n")
        for _ in range(_PINGS):
            began = time.perf_counter()
            plug.sendall(bytes(64))
            left = 64
            while left:
                left -= len(plug.recv(left)) or exit("the stream ended early")
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def delays(koalad: Grid, jobs: int) -> list[float]:
    """Milliseconds from the barrier to the release of jobs, one after the other."""
    found = []
    for _ in range(jobs):
        component = {"processors": 1, "executable": "/bin/true", "cluster": CLUSTER}
        job = koalad.submit({"name": "released", "components": [component]}, directory="/tmp")
        (ended,) = koalad.wait([job], _PATIENCE_S)
        (one,) = ended["components"]
        began, released = (datetime.fromisoformat(str(one[name])) for name in ("at_barrier_at", "released_at"))
        found.append((released - began).total_seconds() * 1e3)
    return found


@contextmanager
def full_stream(address: tuple[str, int]) -> Iterator[None]:
    """A stream that is as full as it can be, in both directions, read at both ends."""
    plugs = [socket.create_connection(address, _PATIENCE_S) for _ in range(2)]
    plugs[0].sendall(b"s %d\n" % (1 << 40))
    plugs[1].sendall(b"r %d\n" % (1 << 40))
    over = False

    def repeat(act: Callable[[], Any]) -> None:
        with suppress(OSError):
            while not over:
                act()

    acts = (lambda: plugs[0].recv(1 << 18), lambda: plugs[1].sendall(bytes(1 << 16)))
    threads = [threading.Thread(target=repeat, args=(act,), daemon=True) for act in acts]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over = True
        for plug in plugs:
            plug.shutdown(socket.SHUT_RDWR)
            plug.close()


@contextmanager
def by_ssh(cluster: dict[str, Any], node: str) -> Iterator[tuple[str, int]]:
    """OpenSSH's forwarding of a local port to the node, over the head node."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        local = taken.getsockname()[1]
    where = urlsplit(cluster["connect"])
    options = [f"-oUserKnownHostsFile={cluster['known_hosts']}", "-oBatchMode=yes", "-oControlPath=none", "-F/dev/null"]
    command = ["ssh", "-N", "-i", cluster["identity"], *options, f"-L127.0.0.1:{local}:{node}:{PORT}"]
    ssh = subprocess.Popen([*command, f"{where.username}@{where.hostname}"])
    try:
        yield "127.0.0.1", local
    finally:
        ssh.terminate()
        ssh.wait()


def node_of(koalad: Grid, job: int) -> str:
    until(lambda: koalad.show(job)["job"]["state"] == "running")
    return str(koalad.show(job)["job"]["components"][0]["hosts"][0])


def answers(address: tuple[str, int]) -> bool:
    with suppress(OSError), socket.create_connection(address, 5) as plug:
        plug.sendall(b"s 1\n")
        return plug.recv(1) == b"\0"
    return False


def until(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not there():
        if time.monotonic() > deadline:
            raise SystemExit("the server does not answer")
        time.sleep(0.1)


def report(figures: dict[str, Any]) -> None:
    medians = {
        name: {what: statistics.median(values) for what, values in figures[name].items()} for name in ("koala", "ssh")
    }
    throughput = min(medians["koala"][way] / medians["ssh"][way] for way in ("down", "up"))
    trip = medians["koala"]["ping"] / medians["ssh"]["ping"]
    delay_ms = statistics.median(figures["full_ms"]) - statistics.median(figures["idle_ms"])
    holds = throughput >= THROUGHPUT_BOUND and trip <= ROUND_TRIP_BOUND and delay_ms <= DELAY_BOUND_MS
    detail = {"round_trip_ratio": trip, "delay_ms": delay_ms, "medians": medians, "load": os.getloadavg()}
    last_line("streams", round(throughput, 3), "of ssh's throughput", THROUGHPUT_BOUND, holds, detail | figures)


if __name__ == "__main__":
    main()
