"""Pilots that never start, start on nodes that cannot be used, are cut off, or end under their jobs."""

import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import live
import pytest
import yaml
from echoed import Echoed

Document = dict[str, Any]
SHORT = {"batch": "local", "connect": "local:", "poll": "200ms", "max_age": "1m"}
# A way to the head node that ends with everything on it, and cannot be opened again, while the file `cut` exists.
LINE = """
import os, subprocess, sys, threading, time
cut, command = sys.argv[1:]
if os.path.exists(cut):
    sys.exit("the line is cut")
far = subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def carry(source, target):
    while data := os.read(source, 1 << 16):
        while data:
            data = data[os.write(target, data):]
def up():
    carry(0, far.stdin.fileno())
    far.stdin.close()
def down():
    carry(far.stdout.fileno(), 1)
    os._exit(far.wait())
for each in (up, down):
    threading.Thread(target=each, daemon=True).start()
while not os.path.exists(cut):
    time.sleep(0.05)
os._exit(255)
"""
ODD_S = 1800 + os.getpid() % 1000  # a walltime that no other test's pilot has
ECHO = """
import socket
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
plug, _ = listening.accept()
while data := plug.recv(1 << 16):
    plug.sendall(data)
plug.close()
"""


@pytest.fixture(scope="module")
def grid() -> Iterator[Any]:
    """A grid of two clusters, with four processors each. The way to delft can be cut."""
    with tempfile.TemporaryDirectory(prefix="kl", dir="/tmp") as root:
        place = Path(root)
        (place / "line.py").write_text(LINE)
        line = f"command:{sys.executable} {place}/line.py {place}/cut"
        clusters = {
            "delft": SHORT | {"connect": line, "slots": 4, "shared": str(place / "delft")},
            "leiden": SHORT | {"slots": 4, "shared": str(place / "leiden")},
        }
        koala = live.Koala(place, clusters, queue_after="1h")
        assert koala("up").status == 0
        yield koala
        koala.stop()


@pytest.fixture
def idle(grid: Any) -> Iterator[Any]:
    """The grid, of which all is idle."""
    grid.until(lambda: [each["idle"] for each in clusters(grid)] == [4, 4])
    yield grid
    grid.clear()


def clusters(koala: Any) -> list[Document]:
    return list(koala("clusters", "--json").document["clusters"])


def pilots(koala: Any, *which: str) -> list[Document]:
    return list(koala("pilots", *which, "--json").document["pilots"])


def opened(koala: Any, *terms: str) -> str:
    answer = koala("pilots", "open", "delft", "-n", "2", "--walltime", "30m", *terms, "--json")
    assert answer.status == 0, answer
    return str(answer.document["pilot"]["name"])


def running(koala: Any, job: int) -> None:
    koala.until(lambda: koala.job(job)["state"] == "running")


def sh(script: str, cluster: str, processors: int = 1, **fields: Any) -> Document:
    return live.sh(script, processors, cluster=cluster, walltime="1m", **fields)


def test_one_that_never_starts_is_reported_and_taken_back(idle: Any) -> None:
    job = idle.submit(sh("sleep 50", "delft", 4))
    running(idle, job)
    submitted = idle("pilots", "open", "delft", "-n", "2", "--no-wait")
    assert (submitted.status, "is submitted to delft" in submitted.out) == (0, True)
    (pilot,) = pilots(idle)
    idle.until(lambda: "waits in the queue of delft" in (pilots(idle)[0]["reason"] or ""))
    assert f"{pilot['name']}: Its batch job waits in the queue of delft." in idle("pilots").out

    before = idle.grid_file.read_text()
    grid = yaml.safe_load(before)
    grid["clusters"]["utrecht"] = grid["clusters"].pop("delft")
    idle.write_grid(grid)
    idle("reload").refused(2, "delft cannot leave the grid", f"{pilot['job']}", "Nothing was changed")
    idle.grid_file.write_text(before)

    assert idle("pilots", "close", pilot["name"]).status == 0
    assert pilots(idle) == []
    (over,) = [each for each in pilots(idle, "--all") if each["name"] == pilot["name"]]
    assert (over["state"], over["reason"]) == ("ended", "It was closed by its user.")
    assert idle.job(job)["state"] == "running"
    idle("cancel", job)


@pytest.mark.slow
@pytest.mark.skipif(os.system("unshare -rm true") != 0, reason="no user namespaces here")
def test_one_whose_nodes_do_not_have_the_shared_directory_fails_with_the_reason(idle: Any) -> None:
    before = yaml.safe_load(idle.grid_file.read_text())
    shared, python = idle.root / "other", idle.root / "python"
    hidden = f"unshare -rm /bin/sh -c 'mount -t tmpfs none {shared} && exec python3 \"$@\"' python3"
    python.write_text(f'#!/bin/sh\n[ -z "$KOALA_ALLOCATION_JOB" ] || exec {hidden} "$@"\nexec python3 "$@"\n')
    python.chmod(0o755)
    other = SHORT | {"slots": 2, "shared": str(shared), "python": str(python)}
    idle.write_grid(before | {"clusters": before["clusters"] | {"other": other}, "retries": {"submission": 0}})
    assert idle("reload").status == 0
    idle.until(lambda: all(each["idle"] is not None for each in clusters(idle)))
    answer = idle("pilots", "open", "other", "-n", "2")
    assert (answer.status, "is failed: other: The compute nodes do not see" in answer.err) == (1, True)
    assert str(shared) in answer.err
    assert pilots(idle) == []
    idle.write_grid(before)
    assert idle("reload").status == 0


def test_jobs_and_byte_streams_of_a_pilot_outlast_a_cut_connection(idle: Any) -> None:
    pilot = opened(idle)
    kept, go = idle.root / "kept", idle.root / "go"
    counted = idle.submit(sh(f"echo run >> {kept}; until test -e {go}; do sleep 0.1; done", pilot))
    echo = {"executable": sys.executable, "arguments": ["-c", ECHO]}
    echoing = idle.submit(echo | {"processors": 1, "cluster": pilot, "walltime": "5m"})
    with idle.client() as client:
        port = idle.until(lambda: idle.job(echoing)["state"] == "running" and b"".join(client.output(echoing)))
        failed: list[Exception] = []
        forwarded = client.forward(echoing, int(port), failed=failed.append)
        with forwarded as forwarding, socket.create_connection(forwarding.address) as plug:
            plug.settimeout(live.PATIENCE_S)
            echoed = Echoed(plug, 9_600)
            echoed.receive()
            (idle.root / "cut").touch()
            idle.until(lambda: connection_of(idle, "delft") != "up")
            go.touch()
            late = idle.submit(sh("exit 0", pilot))
            (idle.root / "cut").unlink()
            idle.until(lambda: connection_of(idle, "delft") == connection_of(idle, pilot) == "up")
            echoed.receive()
            assert echoed.comes_back_whole()
    assert failed == []
    assert {idle.end(job)["state"] for job in (counted, echoing, late)} == {"done"}
    assert kept.read_text() == "run\n"
    assert idle("pilots", "close", pilot, "--drain").status == 0


def connection_of(koala: Any, name: str) -> str:
    return next(str(each["connection"]) for each in clusters(koala) if each["name"] == name)


def test_one_whose_time_is_over_early_is_reported_and_its_job_runs_again_elsewhere(idle: Any) -> None:
    pilot = opened(idle, "--shared", "--walltime", f"{ODD_S}s")
    named = idle.submit(sh("sleep 50", pilot))
    again = idle.root / "again"
    with idle.client() as client:
        for name in ("delft", "leiden"):
            client.drain_cluster(name)
        job = idle.submit(live.sh(f"test -e {again} && exit 0; touch {again}; sleep 50", walltime="1m"))
        for each in (job, named):
            running(idle, each)
        client.resume_cluster("leiden")
        os.kill(process_of(f"sleep {ODD_S - 5}"), signal.SIGTERM)
        assert idle.end(job)["components"][0]["cluster"] == "leiden"
        lost = idle.end(named)
        client.resume_cluster("delft")
    assert (lost["state"], pilot in (lost["reason"] or "")) == ("failed", True)
    idle.until(lambda: not pilots(idle))
    (over,) = [each for each in pilots(idle, "--all") if each["name"] == pilot]
    assert (over["state"], "was killed: exit status 143" in over["reason"]) == ("failed", True)
    idle.until(lambda: not [each for each in idle.processes() if b"/allocations/" in b" ".join(words_of(each))])


def process_of(words: str) -> int:
    """The process with this command line, which ends before the pilot's walltime."""
    numbers = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    (found,) = [each for each in numbers if b" ".join(words_of(each)).strip().endswith(words.encode())]
    return found


def words_of(process: int) -> list[bytes]:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
