"""`koala forward`: connections of this machine that end in a program of a job."""

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import live
import pytest

from koalapy import Grid
from koalapy.client.forwarding import Forwarding
from koalapy.model.errors import KoalaError, RequestError

Document = dict[str, Any]

ECHO = """
import socket, threading
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
def serve(plug):
    with plug:
        while data := plug.recv(1 << 16):
            plug.sendall(data)
        plug.sendall(b"<end>")
while True:
    threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()
"""


@pytest.fixture
def grid(koala: Any) -> Iterator[Grid]:
    koala.known()
    with koala.client() as made:
        yield made
    koala.clear()


def serving(koala: Any, program: str = ECHO) -> tuple[int, int]:
    """Start a job with a program that prints its port. Returns job and port."""
    component = {"processors": 1, "executable": sys.executable, "arguments": ["-c", program]}
    job = koala.submit(component)
    with koala.client() as grid:

        def port() -> int:
            with suppress(KoalaError, ValueError):
                return int(b"".join(grid.output(job)).split()[0]) if grid.show(job)["job"]["state"] == "running" else 0
            return 0

        return job, koala.until(lambda: _quietly(port))


def _quietly(port: Callable[[], int]) -> int:
    with suppress(IndexError):
        return port()
    return 0


def exchange(forwarding: Forwarding, data: bytes) -> bytes:
    """Send the bytes, end this direction, and return all that comes back."""
    with socket.create_connection(forwarding.address) as plug:
        plug.settimeout(live.PATIENCE_S)

        def send() -> None:
            plug.sendall(data)
            plug.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=send)
        thread.start()
        got = bytearray()
        while piece := plug.recv(1 << 16):
            got += piece
        thread.join()
        return bytes(got)


def test_bytes_go_both_ways_and_each_end_by_itself(koala: Any, grid: Grid) -> None:
    job, port = serving(koala)
    failed: list[KoalaError] = []
    with grid.forward(job, port, failed=failed.append) as forwarding:
        assert exchange(forwarding, b"some words") == b"some words<end>"
        data = os.urandom(10_000_000)
        assert exchange(forwarding, data) == data + b"<end>"
        several = [socket.create_connection(forwarding.address) for _ in range(5)]
        for number, plug in enumerate(several):
            plug.sendall(b"%d" % number)
        for number, plug in enumerate(several):
            with plug:
                assert plug.recv(10) == b"%d" % number
    assert failed == []


def test_a_port_that_nothing_listens_on_closes_the_connection(koala: Any, grid: Grid) -> None:
    job, _ = serving(koala)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = int(taken.getsockname()[1])
    failed: list[KoalaError] = []
    with grid.forward(job, free, failed=failed.append) as forwarding:
        with socket.create_connection(forwarding.address) as plug:
            assert last_bytes(plug) is None
        koala.until(lambda: failed)
    assert failed[0].reason.code == "stream_refused"
    assert f"Nothing takes connections at port {free} of {os.uname().nodename}" in failed[0].reason.message


def test_what_cannot_be_reached_is_refused_in_words(koala: Any, grid: Grid) -> None:
    job, port = serving(koala)
    koala("forward", job, port, "--rank", 1).refused(2, "no rank 1")
    koala("forward", f"{job}:1", port).refused(2, "no component 1")
    koala("forward", "seven", port).refused(2, "neither ID nor ID:COMPONENT")
    koala("forward", job, port, "--listen", "0.0.0.0:0").refused(2, "loopback")
    koala("forward", job, port, "--listen", "a:b").refused(2, "[ADDRESS:]PORT")
    koala("forward", 999, port).refused(1, "There is no job 999")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        koala("forward", job, port, "--listen", taken.getsockname()[1]).refused(2, "cannot be used")
    grid.cancel(job)
    grid.wait([job], live.PATIENCE_S)
    koala("forward", job, port).refused(1, f"Component 0 of job {job} is cancelled, not running")
    with pytest.raises(RequestError, match="cancelled"):
        grid.forward(job, port)


def test_the_command_runs_until_the_job_ends(koala: Any, grid: Grid) -> None:
    job, port = serving(koala)
    running = koala.start("forward", f"{job}:0", port, "--json")
    text = b""
    while not text.rstrip().endswith(b"}"):
        text += running.stdout.readline()
    document = json.loads(text)
    assert document | {"address": "", "cluster": ""} == {
        "schema": "koala.forward/1", "id": job, "component": 0, "cluster": "", "rank": 0, "port": port, "address": "",
    }  # fmt: skip
    host, _, own = document["address"].rpartition(":")
    with socket.create_connection((host, int(own))) as plug:
        plug.settimeout(live.PATIENCE_S)
        plug.sendall(b"here")
        assert plug.recv(10) == b"here"
        grid.cancel(job)
        assert last_bytes(plug) in (None, b"")  # the program's end may be seen before the reset
    _, errors = running.communicate(timeout=live.PATIENCE_S)
    assert running.returncode == 0
    assert f"Job {job} is cancelled." in errors.decode()
    assert f"The program of job {job} has ended." in errors.decode()


def test_ctrl_c_ends_the_command(koala: Any, grid: Grid) -> None:
    job, port = serving(koala)
    running = koala.start("forward", job, port)
    assert f"is port {port} of job {job}, component 0." in running.stdout.readline().decode()
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=live.PATIENCE_S)
    assert (running.returncode, errors) == (0, b"")


def test_no_byte_is_lost_or_repeated_while_the_kcm_is_killed(koala: Any, grid: Grid) -> None:
    job, port = serving(koala)
    failed: list[KoalaError] = []
    data = os.urandom(30_000_000)
    with grid.forward(job, port, failed=failed.append) as forwarding:
        got: list[bytes] = []
        exchanging = threading.Thread(target=lambda: got.append(exchange(forwarding, data)))
        exchanging.start()
        killed = 0
        while exchanging.is_alive() and killed < 3:
            exchanging.join(0.7)
            for kcm in kcms(koala, grid, job):
                os.kill(kcm, signal.SIGKILL)
                killed += 1
        exchanging.join(live.PATIENCE_S)
    assert killed >= 1
    assert [each.reason for each in failed] == []
    assert got == [data + b"<end>"]


def test_a_killed_wrapper_resets_its_connections(koala: Any, grid: Grid) -> None:
    job, port = serving(koala)
    failed: list[KoalaError] = []
    with grid.forward(job, port, failed=failed.append) as forwarding:
        with socket.create_connection(forwarding.address) as plug:
            plug.settimeout(live.PATIENCE_S)
            plug.sendall(b"x")
            assert plug.recv(10) == b"x"
            for process in koala.processes():
                if b"wrapper" in words_of(process):
                    os.kill(process, signal.SIGKILL)
            assert last_bytes(plug) is None
        koala.until(lambda: failed)


def test_a_program_that_does_not_read_stops_the_writer_and_delays_nothing_else(koala: Any, grid: Grid) -> None:
    deaf = """
import socket, time
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
kept = [listening.accept() for _ in range(4)]
time.sleep(1000)
"""
    job, port = serving(koala, deaf)
    before = {process: memory_of(process) for process in koala.processes()}
    with grid.forward(job, port) as forwarding:
        plugs = [socket.create_connection(forwarding.address) for _ in range(4)]
        for plug in plugs:
            plug.settimeout(3)
            assert sent_before_a_pause(plug) < 100_000_000
        other = koala.submit(live.sh("true"))
        assert grid.wait([other], live.PATIENCE_S)[0]["state"] == "done"
        after = {process: memory_of(process) for process in koala.processes()}
        for plug in plugs:
            plug.close()
    grown = {process: after[process] - size for process, size in before.items() if process in after}
    assert max(grown.values()) < 60_000_000, grown


def test_bytes_go_by_files_where_nodes_cannot_connect(place: Path) -> None:
    cluster = live.embedded(place)["amsterdam"] | {"relay": "files"}
    koala = live.Koala(place, {"amsterdam": cluster})
    try:
        assert koala("up").status == 0
        with koala.client() as grid:
            job, port = serving(koala)
            failed: list[KoalaError] = []
            data = os.urandom(1_500_000)
            with grid.forward(job, port, failed=failed.append) as forwarding:
                assert exchange(forwarding, data) == data + b"<end>"
            assert failed == []
    finally:
        koala.stop()


def last_bytes(plug: socket.socket) -> bytes | None:
    """Return the bytes before the connection ends; None if it is reset."""
    plug.settimeout(live.PATIENCE_S)
    got = b""
    try:
        while piece := plug.recv(1 << 16):
            got += piece
    except ConnectionResetError:
        return None
    return got


def sent_before_a_pause(plug: socket.socket, most: int = 200_000_000) -> int:
    """Send until nothing is taken for a while, since all buffers on the way are full. Returns the bytes."""
    plug.settimeout(2)
    sent = 0
    with suppress(TimeoutError):
        while sent < most:
            sent += plug.send(bytes(1_000_000))
    return sent


def kcms(koala: Any, grid: Grid, job: int) -> list[int]:
    """The KCMs of the job's cluster."""
    cluster = grid.show(job)["job"]["components"][0]["cluster"]
    return [
        process
        for process in koala.processes()
        if b"kcm" in words_of(process) and os.fsencode(f"{koala.root}/{cluster}") in b" ".join(words_of(process))
    ]


def words_of(process: int) -> list[bytes]:
    with suppress(OSError), open(f"/proc/{process}/cmdline", "rb") as file:
        return file.read().split(b"\0")
    return []


def memory_of(process: int) -> int:
    """Bytes in memory that are the process's own."""
    with suppress(OSError), open(f"/proc/{process}/status") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon"))
    return 0
