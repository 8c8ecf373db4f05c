"""`koala doctor` on a test grid that is well, and broken in many ways: each is named, and nothing else is."""

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from host_rule import input_rule

from koalapy import Grid
from koalapy.doctor.checks import CHECKS
from koalapy.testgrid import Containers, Running, repair

KOALA = [sys.executable, "-m", "koalapy.cli.main"]
HEADS = ("alpha", "beta", "gamma")
TIMEOUT_S = 400
Document = dict[str, Any]
Clusters = dict[str, Document]


def clusters_of(grid: Path) -> Clusters:
    return dict(yaml.safe_load(grid.read_text())["clusters"])


def written(directory: Path, clusters: Clusters) -> Path:
    path = directory / "grid.yaml"
    path.write_text(yaml.safe_dump({"grid": "examined", "clusters": clusters}, sort_keys=False))
    return path


def doctor(grid: Path, *arguments: str) -> tuple[int, Document]:
    """Its exit status, and what it found."""
    argv = [*KOALA, "doctor", *arguments, "--grid", str(grid), "--json"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def failures(document: Document) -> dict[str, list[tuple[str, str]]]:
    """(check, code) of all that failed, by cluster."""
    return {
        cluster["cluster"]: [
            (check["check"], check["failure"]["code"]) for check in cluster["checks"] if check["failure"] is not None
        ]
        for cluster in document["clusters"]
    }


def of(document: Document, cluster: str, check: str) -> Document:
    (found,) = (each for each in document["clusters"] if each["cluster"] == cluster)
    (described,) = (each for each in found["checks"] if each["check"] == check)
    return dict(described)


def shown_on(grid: Running, head: str) -> Counter[str]:
    """Batch jobs and processes of ours, and in the shared directories all but what was pushed."""
    script = """squeue -h -o %j 2>/dev/null || qstat
        ls -d ~/.koala*/*/ /shared/koala/*/ 2>/dev/null | grep -v '/bin/$'
        ps -u koala -o args= | grep '[.]pyz'; true"""
    return Counter(grid.exec(head, ["sh", "-c", script]).output.splitlines())


@contextmanager
def leaving_nothing(grid: Running) -> Iterator[None]:
    """Check that nothing new is left. The agents end when their logins do, which the heads notice a moment later."""
    before = {head: shown_on(grid, head) for head in HEADS}
    left: list[tuple[str, str]] = []

    def nothing_is_left() -> bool:
        left[:] = [(head, each) for head in HEADS for each in shown_on(grid, head) - before[head]]
        return not left

    yield
    try:
        grid.eventually(nothing_is_left, "all was removed")
    finally:
        assert not left


def test_a_grid_that_is_well_is_reported_as_such_and_nothing_is_left(
    testgrid: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    clusters = clusters_of(testgrid.grid_file)
    grid = written(tmp_path, clusters)
    with Grid(grid) as koalad:
        koalad.up()  # a person's koalad may run meanwhile
        try:
            status, found = doctor(grid)
            testgrid.eventually(
                lambda: all(each["connection"] == "up" for each in koalad.clusters()), "koalad is there"
            )
        finally:
            koalad.shutdown()
    assert failures(found) == {name: [] for name in clusters}
    assert (status, found["schema"], found["ok"], found["complete"]) == (0, "koala.doctor/1", True, True)
    statuses = {check["status"] for cluster in found["clusters"] for check in cluster["checks"]}
    assert statuses == {"ok", "not_applicable"}
    assert all(
        [reported["check"] for reported in cluster["checks"]] == [check.id for check in CHECKS]
        for cluster in found["clusters"]
    )
    for head in HEADS:
        assert len(of(found, head, "launch")["figures"]["nodes"]) == 2
        assert of(found, head, "canary")["figures"]["whole_s"] > 0
        shared = clusters[head].get("shared", "~/.koala")
        names = testgrid.exec(head, ["sh", "-c", f"ls {shared}"]).output.split()
        assert len([name for name in names if name != "bin"]) == 1, names  # koalad's own store


def test_a_shared_directory_that_may_not_be_written_stops_doctor_and_koalad_alike(
    testgrid: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    shared = "/home/koala/read-only"
    grid = written(tmp_path, {"alpha": clusters_of(testgrid.grid_file)["alpha"] | {"shared": shared}})
    testgrid.containers.check("alpha", ["su", "koala", "-c", f"install -d -m 0555 {shared}"])
    try:
        _, found = doctor(grid)
        reported = of(found, "alpha", "shared")["message"]
        with Grid(grid) as koalad:
            koalad.up()
            try:
                testgrid.eventually(lambda: reported in (koalad.clusters()[0]["reason"] or ""), "koalad says the same")
            finally:
                koalad.shutdown()
    finally:
        testgrid.containers.check("alpha", ["rmdir", shared])
    assert failures(found) == {"alpha": [("shared", "directory_not_writable")]}
    assert reported == f"{shared} cannot be written on {host_of(grid)}: Permission denied."


def host_of(grid: Path) -> str:
    (cluster,) = clusters_of(grid).values()
    return str(cluster["connect"]).rpartition("@")[2]


def test_each_mistake_in_a_grid_file_is_named_and_nothing_else(testgrid: Running, tmp_path: Path) -> None:
    mistakes, named = mistaken(clusters_of(testgrid.grid_file), tmp_path)
    with leaving_nothing(testgrid):
        status, found = doctor(written(tmp_path, mistakes))
    assert failures(found) == {name: [wrong] for name, wrong in named.items()}
    assert status == 1
    advised = {name: of(found, name, check)["failure"] for name, (check, _) in named.items()}
    assert {name: (each["key"], each["value"]) for name, each in advised.items() if each["value"]} == {
        "python-none": ("python", "/usr/bin/python3"),
        "queue-misspelt": ("queue", "batch"),
        "environment-misspelt": ("parallel_environment", "mpi"),
        "drmaa-missing": ("drmaa", "/usr/lib/gridengine-drmaa/lib/libdrmaa.so.1.0"),
        "drmaa-broken": ("drmaa", "off"),
    }
    assert all(each["cause"].endswith(".") and each["change"].endswith((".", "?")) for each in advised.values())
    assert advised["host-key-wrong"]["move"] == "administrator"
    assert advised["reservation-none"]["output"] == "allocation failure: Requested reservation is invalid"


def mistaken(well: Clusters, directory: Path) -> tuple[Clusters, dict[str, tuple[str, str]]]:
    """Clusters that are one of the grid's with one mistake each, and the (check, code) that it is to be named by."""
    other = Ed25519PrivateKey.generate()
    private = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    (directory / "key").write_bytes(other.private_bytes(serialization.Encoding.PEM, *private))
    (directory / "key").chmod(0o600)
    public = other.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    alpha, beta, gamma = (well[head] for head in HEADS)
    (directory / "hosts").write_text(f"{alpha['connect'].partition('@')[2]} {public.decode()}\n")
    (directory / "none").write_text("")
    described = {
        "host-key-wrong": (alpha, {"known_hosts": str(directory / "hosts")}, ("login", "wrong_host_key")),
        "host-key-unknown": (alpha, {"known_hosts": str(directory / "none")}, ("login", "unknown_host_key")),
        "key-refused": (alpha, {"identity": str(directory / "key")}, ("login", "authentication")),
        "python-none": (alpha, {"python": "python9"}, ("python", "no_python")),
        "queue-misspelt": (alpha, {"queue": "batsch"}, ("queue", "no_such_queue")),
        "reservation-none": (alpha, {"reservation": "mine"}, ("access", "no_such_reservation")),
        "batch-other": (login_of(gamma), {"batch": "slurm"}, ("batch", "command_missing")),
        "shared-not": (beta, {"shared": "~/.koala-home"}, ("node_shared", "shared_not_seen")),
        "environment-misspelt": (gamma, {"parallel_environment": "mpii"}, ("access", "no_such_parallel_environment")),
        "drmaa-missing": (gamma, {"drmaa": "/usr/lib/libdrmaa.so"}, ("drmaa", "no_drmaa_library")),
        "drmaa-broken": (gamma, {"drmaa": "/etc/passwd"}, ("drmaa", "no_drmaa_session")),
    }
    clusters = {
        name: {**base, "shared": f"~/.koala-{name}", **changed} for name, (base, changed, _) in described.items()
    }
    return clusters, {name: wrong for name, (_, _, wrong) in described.items()}


def login_of(cluster: Document) -> Document:
    return {key: cluster[key] for key in ("connect", "identity", "known_hosts")}


def dropped(containers: Containers, host: str, *rule: str) -> AbstractContextManager[None]:
    """Return the packets that the rule of the host's own firewall lets through no longer."""
    return input_rule(containers, host, "-p", "tcp", "--syn", *rule, "-j", "REJECT")


@contextmanager
def no_relay(grid: Running) -> Iterator[None]:
    """Alpha's nodes reach no unprivileged port of their head but Slurm's."""
    nodes = f"{grid.containers.prefix('cluster')}.0/24"
    with dropped(grid.containers, "alpha", "-s", nodes, "--dport", "10000:65535"):
        yield


def apart(head: str) -> Callable[[Running], Any]:
    """The cluster's nodes do not reach each other."""

    @contextmanager
    def broken(grid: Running) -> Iterator[None]:
        nodes = {host: grid.containers.expected_address(host, "cluster") for host in grid.containers.all()}
        own = {host: address for host, address in nodes.items() if host.startswith(f"{head}-")}
        with ExitStack() as stack:
            for host in own:
                others = ",".join(address for other, address in own.items() if other != host)
                stack.enter_context(dropped(grid.containers, host, "-s", others))
            yield

    return broken


@contextmanager
def partition_down(grid: Running) -> Iterator[None]:
    grid.containers.check("beta", ["scontrol", "update", "partitionname=batch", "state=down"])
    try:
        yield
    finally:
        grid.containers.check("beta", ["scontrol", "update", "partitionname=batch", "state=up"])


@contextmanager
def queue_disabled(grid: Running) -> Iterator[None]:
    grid.check("gamma", ["qmod", "-d", "all.q"], user="root")
    try:
        yield
    finally:
        grid.check("gamma", ["qmod", "-e", "all.q"], user="root")


@contextmanager
def controller_down(grid: Running) -> Iterator[None]:
    grid.containers.kill_process("alpha", "slurmctld")
    yield


@contextmanager
def master_down(grid: Running) -> Iterator[None]:
    grid.containers.kill_process("gamma", "sge_qmaster")
    yield


@contextmanager
def disk_full(grid: Running) -> Iterator[None]:
    repair.fill_disk(grid.containers)
    try:
        yield
    finally:
        repair.free_disk(grid.containers)


@contextmanager
def profile_broken(grid: Running) -> Iterator[None]:
    """Beta's login shell finds Python, and no command of Slurm's."""
    grid.shell("beta", 'mkdir ~/bin; ln -s /usr/bin/python3 ~/bin/; echo "PATH=~/bin" > ~/.bash_profile')
    try:
        yield
    finally:
        grid.containers.check("beta", ["rm", "/home/koala/.bash_profile"])


@contextmanager
def paused(grid: Running) -> Iterator[None]:
    grid.pause("gamma")
    try:
        yield
    finally:
        grid.unpause("gamma")


Fault = tuple[Callable[[Running], Any], tuple[str, str]]
FAULTS: dict[str, dict[str, Fault]] = {
    "servers": {
        "alpha": (controller_down, ("batch", "batch_system_unreachable")),
        "beta": (disk_full, ("shared", "directory_full")),
        "gamma": (master_down, ("batch", "batch_system_unreachable")),
    },
    "networks and queues": {
        "alpha": (no_relay, ("node_relay", "relay_blocked")),
        "beta": (partition_down, ("queue", "queue_closed")),
        "gamma": (apart("gamma"), ("launch", "agents_not_started")),
    },
    "hosts": {
        "alpha": (apart("alpha"), ("launch", "agents_not_started")),
        "beta": (profile_broken, ("batch", "command_missing")),
        "gamma": (queue_disabled, ("queue", "queue_closed")),
    },
    "silence": {"gamma": (paused, ("login", "unreachable"))},
}


SLOW = ("hosts", "silence")


@pytest.mark.parametrize(
    "broken",
    [pytest.param(FAULTS[name], id=name, marks=[pytest.mark.slow] if name in SLOW else []) for name in FAULTS],
)
def test_each_fault_of_a_site_is_named_and_nothing_else(
    testgrid: Running, tmp_path: Path, broken: dict[str, Fault]
) -> None:
    grid = written(tmp_path, clusters_of(testgrid.grid_file))
    with ExitStack() as stack:
        for fault, _ in broken.values():
            stack.enter_context(fault(testgrid))
        status, found = doctor(grid, *broken)
    assert failures(found) == {head: [wrong] for head, (_, wrong) in broken.items()}
    assert status == 1
    for head, (_, (check, _)) in broken.items():
        failure = of(found, head, check)["failure"]
        assert failure["cause"]
        assert failure["change"]
    assert not any(cluster["left_behind"] for cluster in found["clusters"])


def test_whoever_loses_patience_leaves_nothing_behind(testgrid: Running, tmp_path: Path) -> None:
    grid = written(tmp_path, clusters_of(testgrid.grid_file))
    argv, pipe = [*KOALA, "doctor", "--grid", str(grid)], subprocess.PIPE
    with (
        leaving_nothing(testgrid),
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        assert any("relay reached" in line for line in process.stdout)  # a canary is on its way on one cluster
        process.send_signal(signal.SIGINT)
        said, errors = process.stdout.read(), process.stderr.read()
        assert process.wait(TIMEOUT_S) == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert "not removed" not in errors
    assert "Nothing failed" not in said


def test_a_grid_file_that_was_written_by_looking_is_well(testgrid: Running, tmp_path: Path) -> None:
    """All heads and this machine; but for beta's shared directory, which nobody can see by looking, it is complete."""
    known = clusters_of(testgrid.grid_file)
    path = tmp_path / "init.yaml"
    options = ["--identity", known["alpha"]["identity"], "--known-hosts", known["alpha"]["known_hosts"]]
    named = [f"--cluster={head}={known[head]['connect']}" for head in HEADS]
    argv = [*KOALA, "init", "--yes", "--json", "--grid", str(path), *options, *named, "--cluster=here=local:"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    found = clusters_of(path)
    assert {head: found[head] for head in ("alpha", "gamma")} == {head: known[head] for head in ("alpha", "gamma")}
    assert found["beta"] == {key: value for key, value in known["beta"].items() if key != "shared"}
    assert found["here"]["batch"] == "local"
    assert "# queues: batch (default, 32 processors, up to 2h), short (32 processors, up to 5m)" in path.read_text()
    status, examined = doctor(path, "gamma")
    assert (status, failures(examined)) == (0, {"gamma": []})
