"""The Poisson program: real processes and sockets, on one machine, as a job of one, two or three components."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import re
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

PROGRAM = Path(__file__).parents[2] / "configs" / "examples" / "poisson" / "poisson.py"
LIMIT_S = 60

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

    def start(self, *ranks: int) -> None:
        for rank in ranks:
            arguments = ["--output", str(self.directory / "result.npy"), *self.arguments]
            self.processes[rank] = subprocess.Popen(
                [sys.executable, str(PROGRAM), *arguments],
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

    def get(self, key: str) -> str:
        return subprocess.check_output([self.rendezvous, "get", key], text=True, timeout=LIMIT_S).strip()

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
