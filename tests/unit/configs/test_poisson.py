"""The Poisson program: real processes and sockets, on one machine, as a job of one, two or three components."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from job_languages import read_native

PROGRAM = Path(__file__).parents[3] / "configs" / "examples" / "poisson" / "poisson.py"
LIMIT_S = 240

# The contract of KOALA_RENDEZVOUS: put, get (which waits) and barrier, over a directory beside the executable.
RENDEZVOUS = """\
    #!{python} -IS
    import os, sys, time, urllib.parse
    KEYS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keys")

    def path(key):
        return os.path.join(KEYS, urllib.parse.quote(key, safe=""))

    def put(key, value):
        with open(path(key) + "%" + str(os.getpid()), "w") as file:
            file.write(value)
        os.rename(file.name, path(key))

    def get(key):
        while not os.path.exists(path(key)):
            time.sleep(0.01)
        with open(path(key)) as file:
            print(file.read())

    def barrier(name, count):
        os.makedirs(path(name), exist_ok=True)
        open(os.path.join(path(name), str(os.getpid())), "w").close()
        while len(os.listdir(path(name))) < int(count):
            time.sleep(0.01)

    {{"put": put, "get": get, "barrier": barrier}}[sys.argv[1]](*sys.argv[2:])
"""


class Job:
    """An attempt's directory and its processes, of which none outlives the test."""

    def __init__(self, directory: Path, sizes: Sequence[int], arguments: Sequence[str]) -> None:
        self.directory, self.size, self.arguments = directory, sum(sizes), arguments
        self.processes: dict[int, subprocess.Popen[str]] = {}
        (directory / "keys").mkdir(parents=True)
        self.rendezvous = directory / "rendezvous"
        self.rendezvous.write_text(textwrap.dedent(RENDEZVOUS.format(python=sys.executable)))
        self.rendezvous.chmod(0o700)
        lines = [f"{component} 127.0.0.1\n" for component, size in enumerate(sizes) for _ in range(size)]
        (directory / "hosts").write_text("".join(lines))

    def start(self, *ranks: int, arguments: Sequence[str] = ()) -> None:
        """As the wrappers would: `arguments` are those of the job and these."""
        for rank in ranks:
            self.processes[rank] = subprocess.Popen(
                [sys.executable, PROGRAM, "--output", self.directory / "result.npy", *self.arguments, *arguments],
                env={**os.environ, **self.environment(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

    def environment(self, rank: int) -> dict[str, str]:
        return {
            "KOALA_RANK": str(rank),
            "KOALA_SIZE": str(self.size),
            "KOALA_HOSTS": str(self.directory / "hosts"),
            "KOALA_RENDEZVOUS": str(self.rendezvous),
        }

    def await_solving(self) -> None:
        """Wait until every rank has printed its line, which it does when it is connected."""
        for process in self.processes.values():
            assert process.stdout is not None
            assert process.stdout.readline().startswith("poisson: rank")

    def get(self, key: str) -> str:
        return subprocess.check_output([self.rendezvous, "get", key], text=True, timeout=LIMIT_S).strip()

    def put(self, key: str, value: str) -> None:
        subprocess.run([self.rendezvous, "put", key, value], check=True, timeout=LIMIT_S)

    def finish(self) -> dict[int, tuple[int, str, str]]:
        """(exit status, standard output, standard error) of every rank."""
        outputs = {rank: process.communicate(timeout=LIMIT_S) for rank, process in self.processes.items()}
        return {rank: (self.processes[rank].returncode, *outputs[rank]) for rank in outputs}

    def solution(self) -> np.ndarray[Any, Any]:
        return np.asarray(np.load(self.directory / "result.npy"))

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.communicate()


@contextlib.contextmanager
def job(directory: Path, sizes: Sequence[int], *arguments: str) -> Iterator[Job]:
    made = Job(directory, sizes, arguments)
    try:
        yield made
    finally:
        made.end()


def alone(directory: Path, *arguments: str) -> tuple[np.ndarray[Any, Any], str]:
    """The solution and the summary of the program run by hand: one process, no KOALA_ variable."""
    directory.mkdir(exist_ok=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KOALA_")}
    done = subprocess.run(
        [PROGRAM, *arguments], cwd=directory, env=clean, text=True, timeout=LIMIT_S, stdout=subprocess.PIPE, check=True
    )
    return np.load(directory / "result.npy"), done.stdout.splitlines()[-1]


def iterations_of(summary: str) -> int:
    found = re.search(r"converged in (\d+) iterations", summary)
    assert found, summary
    return int(found.group(1))


GRID = ("--grid", "37", "--omega", "1.7", "--tolerance", "1e-9", "--check-every", "7")


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> tuple[np.ndarray[Any, Any], str]:
    return alone(tmp_path_factory.mktemp("single"), *GRID)


@pytest.mark.parametrize(
    "sizes",
    [[4], [6], [2, 2], [1, 5], [3, 1, 2], [4, 4, 4]],
    ids=lambda sizes: "+".join(map(str, sizes)),
)
def test_a_job_finds_the_very_solution_of_a_single_process(
    tmp_path: Path, sizes: list[int], single: tuple[np.ndarray[Any, Any], str]
) -> None:
    solution, summary = single
    with job(tmp_path / "job", sizes, *GRID) as running:
        running.start(*range(sum(sizes)))
        ended = running.finish()
        assert [status for status, _, _ in ended.values()] == [0] * sum(sizes), ended
        assert abs(running.solution() - solution).max() <= 1e-10
        assert np.array_equal(running.solution(), solution), "the cut must not change a single bit"
        last = ended[0][1].splitlines()[-1]
    assert iterations_of(last) == iterations_of(summary)
    assert last.endswith(f"{sum(sizes)} processes, {len(sizes)} components")
    assert all(f"rank {rank} of {sum(sizes)}" in out for rank, (_, out, _) in ended.items())


def test_the_options_of_rank_0_hold_for_all(tmp_path: Path, single: tuple[np.ndarray[Any, Any], str]) -> None:
    with job(tmp_path / "job", [1, 1]) as running:
        running.start(0, arguments=GRID)
        running.start(1, arguments=["--grid", "5", "--max-iterations", "1"])
        ended = running.finish()
        assert [status for status, _, _ in ended.values()] == [0, 0], ended
        assert np.array_equal(running.solution(), single[0])


def g(grid: int) -> np.ndarray[Any, Any]:
    x = np.linspace(0, 1, grid + 2)[1:-1]
    return np.asarray(x - 2 * x**3 + x**4)


def test_the_error_falls_with_the_square_of_the_step(tmp_path: Path) -> None:
    errors = []
    for grid in (15, 31):
        solution, summary = alone(tmp_path, "--grid", str(grid), "--omega", "1.75", "--tolerance", "1e-13")
        errors.append(abs(solution - np.outer(g(grid), g(grid))).max())
        assert f"error {errors[-1]:.3e}" in summary
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.05)


def test_plain_gauss_seidel_solves_the_discrete_equations(tmp_path: Path) -> None:
    solution, _ = alone(tmp_path, "--grid", "12", "--tolerance", "1e-14")
    bend = 12 * np.linspace(0, 1, 14)[1:-1] * (1 - np.linspace(0, 1, 14)[1:-1])
    second = 2 * np.eye(12) - np.eye(12, k=1) - np.eye(12, k=-1)
    matrix = np.kron(second, np.eye(12)) + np.kron(np.eye(12), second)
    source = (np.outer(bend, g(12)) + np.outer(g(12), bend)) / 13**2
    assert abs(solution.ravel() - np.linalg.solve(matrix, source.ravel())).max() < 1e-12


ENDLESS = ("--grid", "300", "--tolerance", "0", "--max-iterations", "1000000000")


def test_all_end_when_one_is_killed(tmp_path: Path) -> None:
    with job(tmp_path / "job", [2, 3, 1], *ENDLESS) as running:
        running.start(*range(6))
        running.await_solving()
        running.processes[3].kill()
        ended = running.finish()
    assert ended.pop(3)[0] == -signal.SIGKILL
    for status, _, error in ended.values():
        assert status == 1
        assert re.fullmatch(r"poisson: rank \d: lost rank \d: .+\. Look at .+\.\n", error)
    assert any("lost rank 3" in error for _, _, error in ended.values())
    assert not (tmp_path / "job" / "result.npy").exists()


def test_strangers_at_the_door_do_no_harm(tmp_path: Path, single: tuple[np.ndarray[Any, Any], str]) -> None:
    garbage = [b"GET / HTTP/1.1\r\n\r\n", b"\0", bytes(32), os.urandom(100_000)]
    with job(tmp_path / "job", [1, 2], *GRID) as running, contextlib.ExitStack() as stack:
        running.start(0)
        host, port = running.get("poisson/0").split(":")
        silent, *loud = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=LIMIT_S)) for _ in range(5)
        ]
        for stranger, words in zip(loud, garbage, strict=True):
            with contextlib.suppress(ConnectionError):
                stranger.sendall(words)
            assert received_by(stranger) == b"", "a stranger is shown the door"
        running.start(1, 2)
        ended = running.finish()
        assert received_by(silent) == b""
        assert [status for status, _, _ in ended.values()] == [0, 0, 0], ended
        assert np.array_equal(running.solution(), single[0])


def received_by(stranger: socket.socket) -> bytes:
    try:
        return stranger.recv(1)
    except ConnectionError:
        return b""


def test_whoever_answers_in_place_of_a_rank_is_found_out(tmp_path: Path) -> None:
    with job(tmp_path / "job", [1, 1]) as running, socket.create_server(("127.0.0.1", 0)) as impostor:
        running.put("poisson/job", json.dumps({"grid": 8, "key": "0" * 32}))
        running.put("poisson/0", f"127.0.0.1:{impostor.getsockname()[1]}")
        running.start(1)
        connection, _ = impostor.accept()
        with connection:
            connection.sendall(connection.recv(32, socket.MSG_WAITALL))
            status, _, error = running.finish()[1]
    assert status == 1
    assert "something else answers at the address of rank 0" in error


def test_every_process_records_its_first_instruction(tmp_path: Path) -> None:
    with job(tmp_path / "job", [1, 1], "--grid", "8", "--times", str(tmp_path / "times")) as running:
        before = time.time()
        running.start(0, 1)
        ended = running.finish()
        assert [status for status, _, _ in ended.values()] == [0, 0], ended
    starts = [float((tmp_path / "times" / f"start.{rank}").read_text()) for rank in (0, 1)]
    assert all(before - 0.001 < start < time.time() for start in starts)


def test_what_did_not_converge_is_reported(tmp_path: Path) -> None:
    _, summary = alone(tmp_path, "--max-iterations", "13")
    assert summary.startswith("poisson: did not converge in 13 iterations, change")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--grid", "0"],
        ["--omega", "2"],
        ["--omega", "nan"],
        ["--tolerance", "-1"],
        ["--check-every", "0"],
        ["--grid", "x"],
    ],
    ids=" ".join,
)
def test_bad_options_are_refused(arguments: list[str]) -> None:
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_too_many_processes_for_the_grid_are_refused(tmp_path: Path) -> None:
    with job(tmp_path / "job", [3], "--grid", "1") as running:
        running.start(0, 1, 2)
        ended = running.finish()
    for status, _, error in ended.values():
        assert status == 1
        assert re.search(r"1 x 1 points are too few for 3 processes. Give a larger --grid.\n$", error)


@pytest.mark.parametrize(
    "change",
    [
        {"KOALA_SIZE": "3"},
        {"KOALA_RANK": "2"},
        {"KOALA_RANK": "x"},
        {"KOALA_HOSTS": "/nowhere"},
        {"KOALA_HOSTS": "/dev/null"},
    ],
    ids=str,
)
def test_a_wrong_environment_is_one_sentence(tmp_path: Path, change: dict[str, str]) -> None:
    with job(tmp_path / "job", [1, 1]) as running:
        environment = {**os.environ, **running.environment(0), **change}
        done = subprocess.run([PROGRAM], env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 1
    assert re.fullmatch(r"poisson: rank .: the KOALA_ environment is wrong: .+\n", done.stderr)


def test_the_nodes_oldest_python_can_read_it() -> None:
    ast.parse(PROGRAM.read_text(), feature_version=(3, 6))


@pytest.mark.parametrize(("name", "clusters"), [("poisson", {None}), ("ordered", {"alpha", "beta", "gamma"})])
def test_the_example_jobs_are_good(name: str, clusters: set[str | None]) -> None:
    file = PROGRAM.parent / f"{name}.yaml"
    request = read_native(file.read_text(), file.name, str(file.parent))
    assert [component.processors for component in request.components] == [4, 4, 4]
    assert {component.cluster for component in request.components} == clusters
    assert os.access(PROGRAM, os.X_OK)
