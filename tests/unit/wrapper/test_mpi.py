"""MPI programs on several nodes: a real mpirun, whose daemons and ranks the node agents start; and its parts."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.host import mpirun
from koalapy_adapters.host.mpirun import Mpirun
from koalapy_adapters.wrapper.events import Node
from koalapy_adapters.wrapper.program import mpi
from koalapy_adapters.wrapper.program.executable import NoExecutable
from programs import need

Processes = Callable[[bytes], list[int]]
Await = Callable[..., Any]

HOSTS = "one:2 two:2 three:1"
ROOT = [["OMPI_ALLOW_RUN_AS_ROOT", "1"], ["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"]]
WHERE = 'echo "$KOALA_RANK/$KOALA_SIZE $KOALA_LOCAL_RANK $SLURMD_NODENAME ${TMPDIR-none}" "$@"'
AT_WORK = "trap 'echo term; exit 0' TERM; echo $$ >pid.$KOALA_RANK; while :; do sleep 0.05; done"


@pytest.fixture(params=["openmpi", "mpich"])
def flavour(request: pytest.FixtureRequest) -> str:
    need(f"mpirun.{request.param}")
    return str(request.param)


def start(world: Any, program: str, flavour: str | None, **wishes: Any) -> tuple[Any, Any]:
    fields = {"hosts": HOSTS, "processors": 5, "launch": "mpi", "mpi": flavour, "environment": ROOT, **wishes}
    relay, attempt = world.relay(), world.attempt(program, batch="nodes", **fields)
    private(attempt).mkdir()
    attempt.start(SLURMD_NODENAME="one", TMPDIR=str(private(attempt)))
    return relay, attempt


def private(attempt: Any) -> Path:
    """Return the directory in which each node has its private one."""
    return Path(attempt.path.parent.parent / "tmp")


def at_work(attempt: Any) -> int:
    """Return the number of ranks that have written their pid."""
    return sum(path.stat().st_size > 0 for path in attempt.path.glob("work/pid.*"))


def test_mpirun_starts_the_ranks_on_all_nodes_with_the_users_words(world: Any, flavour: str) -> None:
    words = ["a b", ":", "-n", "$HOME", "it's", "ü\nx"]
    relay, attempt = start(world, f"{WHERE}; $KOALA_RENDEZVOUS barrier b 5", flavour, arguments=words)
    relay.release(attempt, first_rank=4, hosts=[[0, "10.0.0.1", 4], [1, "10.0.0.2", 5]])
    assert attempt.wait() == 0, attempt.output(4, "err")
    places = ["0 one", "1 one", "0 two", "1 two", "0 three"]
    expected = [f"{4 + rank}/9 {place} {private(attempt)} {' '.join(words)}\n" for rank, place in enumerate(places)]
    assert [attempt.output(rank) for rank in range(4, 9)] == expected
    assert attempt.words() == ""
    assert [count for _, _, count in relay.report(attempt, "at_barrier")["nodes"]] == [2, 2, 1]
    assert os.listdir(private(attempt)) == []


def test_the_exit_status_of_a_rank_is_that_of_the_component(world: Any, flavour: str) -> None:
    relay, attempt = start(world, "[ $KOALA_RANK != 4 ] || exit 9", flavour)
    relay.release(attempt)
    assert attempt.wait() == 9
    assert (attempt.record()["ending"], attempt.record()["exit_status"]) == ("exited", 9)


@pytest.mark.slow
def test_a_rank_that_is_killed_ends_all_nodes(world: Any, flavour: str, processes: Processes) -> None:
    relay, attempt = start(world, "[ $KOALA_RANK != 4 ] || kill -9 $$; sleep 600", flavour)
    relay.release(attempt)
    assert attempt.wait() != 0
    assert attempt.record()["ending"] == "exited"
    assert processes(str(attempt.path).encode()) == []


def test_no_rank_survives_a_killed_mpirun(world: Any, flavour: str, await_that: Await, processes: Processes) -> None:
    relay, attempt = start(world, AT_WORK, flavour, grace=60.0)
    relay.release(attempt)
    await_that(lambda: at_work(attempt) == 5)
    (killed,) = (pid for pid in children(attempt.children()[0]) if b"mpi-hosts" in words_of(pid))
    os.kill(killed, signal.SIGKILL)
    attempt.wait()
    assert attempt.record()["ending"] == "killed"
    assert processes(str(attempt.path).encode()) == []
    assert "term" not in attempt.output(4)
    assert os.listdir(private(attempt)) == []


def test_every_rank_gets_sigterm_and_the_grace(
    world: Any, flavour: str, await_that: Await, processes: Processes
) -> None:
    relay, attempt = start(world, AT_WORK, flavour)
    relay.release(attempt)
    await_that(lambda: at_work(attempt) == 5)
    relay.stop(attempt)
    attempt.wait()
    assert attempt.record()["ending"] == "cancelled"
    assert [attempt.output(rank) for rank in range(5)] == ["term\n"] * 5
    assert processes(str(attempt.path).encode()) == []


@pytest.mark.slow
def test_no_rank_survives_a_killed_wrapper(world: Any, flavour: str, await_that: Await, processes: Processes) -> None:
    relay, attempt = start(world, AT_WORK.replace("echo term; exit 0", ""), flavour, grace=0.2)
    relay.release(attempt)
    await_that(lambda: at_work(attempt) == 5)
    attempt.wrapper.kill()
    attempt.wait()
    await_that(lambda: processes(str(attempt.path).encode()) == [])


@pytest.mark.parametrize("wanted", [None, "mpich"])
def test_without_an_mpirun_the_component_fails_before_its_barrier(world: Any, wanted: str | None) -> None:
    _, attempt = start(world, "echo ran", wanted, setup=["PATH=/nowhere"])
    attempt.wait()
    error = attempt.record()["error"]
    assert (error["code"], error["whose"]) == ("no_mpi", "request")
    assert ("MPICH is" if wanted else "Open MPI or MPICH is") in error["message"]
    assert attempt.record()["at_barrier_at"] is None


def test_an_mpirun_of_another_flavour_is_named(tmp_path: Path) -> None:
    command(tmp_path / "mpirun", "mpirun (Open MPI) 5.0.7")
    with pytest.raises(NoExecutable, match=r"No mpirun of MPICH is .*, but one of Open MPI is"):
        mpi.find({"PATH": str(tmp_path)}, "mpich")


def test_the_first_mpirun_on_the_path_counts_unless_a_flavour_is_named(tmp_path: Path) -> None:
    command(tmp_path / "mpirun", "mpirun (Open MPI) 5.0.7")
    command(tmp_path / "mpiexec.hydra", "HYDRA build details:\n    Version: 4.0.2")
    command(tmp_path / "mpiexec", "Intel(R) MPI Library for Linux")
    environment = {"PATH": f"relative:{tmp_path}"}
    assert mpi.find(environment, None) == Mpirun("openmpi", str(tmp_path / "mpirun"))
    assert mpi.find(environment, "mpich") == Mpirun("mpich", str(tmp_path / "mpiexec.hydra"))
    assert mpirun.flavours(environment) == ["mpich", "openmpi"]
    assert mpirun.flavours({"PATH": "/nowhere"}) == []


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("mpirun (Open MPI) 4.1.4", "openmpi"),
        ("mpirun.openmpi (OpenRTE) 4.1.4", "openmpi"),
        ("HYDRA build details:", "mpich"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.9", None),
        ("", None),
    ],
)
def test_the_version_shows_the_flavour(version: str, expected: str | None) -> None:
    assert mpirun.flavour_of(version) == expected


def test_the_host_file_names_the_nodes_that_have_ranks() -> None:
    nodes = [Node("one", 2), Node("two", 0), Node("three", 1)]
    assert mpi.host_file(Mpirun("openmpi", "/m"), nodes) == "one slots=2\nthree slots=1\n"
    assert mpi.host_file(Mpirun("mpich", "/m"), nodes) == "one:2\nthree:1\n"


def command(path: Path, said: str) -> None:
    path.write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{said}\nEND\n")
    path.chmod(0o755)


def words_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
