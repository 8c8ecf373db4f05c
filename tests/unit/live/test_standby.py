"""Two koalad on one store in PostgreSQL, a state directory each: the second stands by, and takes over."""

import contextlib
import json
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import live
import pytest
from sqlalchemy import make_url

import koalapy
from koalapy.client.daemon import wait_for_end

Document = dict[str, Any]
PATIENCE_S = live.PATIENCE_S
GUARD = (
    "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory'"
    " AND database = (SELECT oid FROM pg_database WHERE datname = :name)"
)


class Pair:
    """One grid, two hosts: each its own state directory, both the clusters' shared directories and the store."""

    def __init__(self, place: Path, store: str) -> None:
        (place / "clusters").mkdir()
        clusters = live.embedded(place / "clusters")
        self.one, self.two = (live.Koala(place / name, clusters, store=store) for name in ("one", "two"))
        self.work = self.one.work

    def stop(self) -> None:
        """Stop the one that stands by first, so that it does not take over from the other, which ends the jobs."""
        both = sorted((self.one, self.two), key=lambda koala: state(koala) != "standing_by")
        for koala in both:
            if state(koala) == "standing_by":
                koala("down")
            koala.stop()


@pytest.fixture
def pair(place: Path, database: str) -> Iterator[Pair]:
    made = Pair(place, database)
    yield made
    made.stop()


def state(koala: Any) -> str | None:
    """Return the state; None if no koalad answers."""
    answer = koala("status", "--json")
    return None if answer.status == 3 else answer.document["state"]


def pid_of(koala: Any) -> int:
    return int(koala("status", "--json").document["pid"])


def start(pair: Pair, shell: Callable[..., Document]) -> tuple[int, Path, Path]:
    """The first koalad with a job that runs, and the second standing by: the job, its gate, and what it wrote."""
    assert pair.one("up").status == 0
    pair.one.known()
    gate, lines = pair.work / "gate", pair.work / "lines"
    program = shell(f"echo started >>{lines}; while [ ! -e {gate} ]; do sleep 0.1; done; echo ended >>{lines}")
    job = pair.one.submit(program)
    pair.one.until(lambda: pair.one.job(job)["state"] == "running" and lines.exists())
    answer = pair.two("up")
    assert answer.status == 0, answer
    assert "stands by for another" in answer.out
    return job, gate, lines


def log_of(koala: Any) -> list[Document]:
    lines = (koala.root / "state" / "koala" / "live" / "koalad.log").read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_the_second_koalad_stands_by_and_reports_it(pair: Pair, shell: Callable[..., Document]) -> None:
    job, gate, _ = start(pair, shell)
    status = pair.two("status")
    assert status.status == 0
    assert "standing_by" in status.out
    assert f"in use by koalad {os.uname().nodename} {pid_of(pair.one)}. " in status.out
    maintenance = (["maintenance", "list"], ["maintenance", "run", "check"])
    for command in (
        ["jobs"], ["cancel", job], ["clusters"], ["run", "-n", 1, "--", "true"], ["down", "--cancel"], *maintenance
    ):  # fmt: skip
        expected = 125 if command[0] == "run" else 3  # which is its program's
        pair.two(*command).refused(expected, "only stands by", f"koalad {os.uname().nodename} {pid_of(pair.one)}")
    assert pair.two("up").status == 0
    assert pair.two("down").status == 0
    pair.two("status").refused(3, "is not running")
    assert state(pair.one) == "ready"
    assert pair.two("up").status == 0
    assert pair.one("down").status == 0
    pair.two.until(lambda: state(pair.two) == "ready")
    gate.touch()
    assert pair.two.end(job)["state"] == "done"


def test_a_koalad_that_is_killed_is_replaced(pair: Pair, shell: Callable[..., Document]) -> None:
    job, gate, lines = start(pair, shell)
    first = pid_of(pair.one)
    os.kill(first, signal.SIGKILL)
    assert wait_for_end(first, PATIENCE_S)
    pair.two.until(lambda: state(pair.two) == "ready")
    assert pair.two.job(job)["state"] == "running"
    gate.touch()
    ended = pair.two.end(job)
    assert (ended["state"], ended["completion_failures"]) == ("done", 0)
    assert lines.read_text() == "started\nended\n"
    assert "koalad_takes_over" in [line["event"] for line in log_of(pair.two)]
    assert "stands by for another" in pair.one("up").out


def test_a_koalad_that_froze_is_replaced_and_commits_no_more(
    pair: Pair, shell: Callable[..., Document], postgresql_server: Any, database: str
) -> None:
    job, gate, lines = start(pair, shell)
    first = pid_of(pair.one)
    os.kill(first, signal.SIGSTOP)
    assert postgresql_server.run(GUARD, name=make_url(database).database) == [(True,)]
    pair.two.until(lambda: state(pair.two) == "ready")
    second = pair.two.submit(shell("true"))
    assert pair.two.end(second)["state"] == "done"

    file = pair.one.write("late.yaml", {"name": "late", "components": [shell("true")]})
    late = pair.one.start("submit", file)
    stale = pair.one.start("cancel", job)
    os.kill(first, signal.SIGCONT)
    assert [process.wait(PATIENCE_S) for process in (late, stale)] != [0, 0]
    for process in (late, stale):
        assert process.returncode in (1, 3)
        process.communicate()
    assert wait_for_end(first, PATIENCE_S)
    taken = [line for line in log_of(pair.one) if line["event"] == "taken_over"]
    assert len(taken) == 1
    assert "Another koalad has taken over the store" in taken[0]["reason"]
    assert log_of(pair.one)[-1]["event"] == "koalad_ended"
    pair.one("status").refused(3, "is not running")

    assert state(pair.two) == "ready"
    assert pair.two.ids() == [job, second]
    assert pair.two.job(job)["state"] == "running"
    gate.touch()
    assert pair.two.end(job)["state"] == "done"
    assert lines.read_text() == "started\nended\n"


def test_a_server_that_restarts_is_waited_for(
    pair: Pair, shell: Callable[..., Document], postgresql_server: Any
) -> None:
    job, gate, lines = start(pair, shell)
    file = pair.one.write("late.yaml", {"name": "late", "components": [shell("true")]})
    postgresql_server.stop()
    try:
        pair.one.until(lambda: state(pair.one) == "store_failing")
        assert "Nothing new is taken up: postgresql://" in pair.one("status").out
        pair.one("submit", file).refused(1, "could not be used", "Check the server")
        assert state(pair.two) == "standing_by"
        gate.touch()  # it ends meanwhile, and that cannot be recorded yet
        pair.one.until(lambda: lines.read_text() == "started\nended\n")
    finally:
        postgresql_server.start()
    states = pair.one.until(lambda: (found := [state(pair.one), state(pair.two)]).count("ready") == 1 and found)
    serving = (pair.one, pair.two)[states.index("ready")]
    assert serving.end(job)["state"] == "done"
    assert serving.end(serving.submit(shell("true")))["state"] == "done"
    assert lines.read_text() == "started\nended\n"


class Wire:
    """The line between a koalad and its server: a socket that passes everything on, until it is cut."""

    def __init__(self, place: Path, server: Path) -> None:
        place.mkdir(mode=0o755)
        self._server = server
        self._ends: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._whole = True
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(place / server.name))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """The server gives the sessions up, as its keepalives have it; koalad gets no sign of that, nor anything."""
        with self._lock:
            self._whole = False
            for _, to_server in self._ends:
                _end(to_server)

    def heal(self) -> None:
        """Close what was open, as koalad notices now, and let it connect again."""
        with self._lock:
            self._whole = True
            for to_koalad, _ in self._ends:
                _end(to_koalad)
            self._ends.clear()

    def close(self) -> None:
        self.cut()
        self.heal()
        _end(self._listener)

    def _accept(self) -> None:
        while True:
            try:
                to_koalad, _ = self._listener.accept()
            except OSError:
                return
            to_server = socket.socket(socket.AF_UNIX)
            with self._lock:
                self._ends.append((to_koalad, to_server))
                if not self._whole:
                    continue  # connected, and never answered
                to_server.connect(str(self._server))
            for one, other in ((to_koalad, to_server), (to_server, to_koalad)):
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(65_536):
                other.sendall(data)
        except OSError:
            pass
        with self._lock:
            if self._whole:
                _end(one)
                _end(other)


def _end(end: socket.socket) -> None:
    """Wakes up whoever reads from it."""
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@pytest.fixture
def wire(place: Path, postgresql_server: Any) -> Iterator[Wire]:
    made = Wire(place / "wire", postgresql_server.place / ".s.PGSQL.5432")
    yield made
    made.close()


def test_a_koalad_that_is_cut_off_is_replaced_and_ends(
    place: Path, database: str, wire: Wire, shell: Callable[..., Document]
) -> None:
    pair = Pair(place, database)
    through = make_url(database).set(query={"host": str(place / "wire")}).render_as_string()
    pair.one.write_grid({"grid": "live", "clusters": live.embedded(place / "clusters"), "store": through})
    try:
        job, gate, lines = start(pair, shell)
        first = pid_of(pair.one)
        wire.cut()
        pair.two.until(lambda: state(pair.two) == "ready")
        second = pair.two.submit(shell("true"))
        assert pair.two.end(second)["state"] == "done"
        late = pair.one.start("submit", pair.one.write("late.yaml", {"name": "late", "components": [shell("true")]}))
        wire.heal()
        assert wait_for_end(first, PATIENCE_S)
        assert late.wait(PATIENCE_S) != 0
        late.communicate()
        assert [line["event"] for line in log_of(pair.one)].count("taken_over") == 1
        assert pair.two.ids() == [job, second]
        gate.touch()
        assert pair.two.end(job)["state"] == "done"
        assert lines.read_text() == "started\nended\n"
    finally:
        pair.stop()


def test_a_new_release_is_rolled_out_while_jobs_run(pair: Pair, place: Path, shell: Callable[..., Document]) -> None:
    """Host by host: the new one stands by, the old one ends, the new one goes on; then the other host's, back again."""
    shutil.copytree(Path(koalapy.__file__).parent, place / "new" / "koalapy")
    release = place / "new" / "koalapy" / "__init__.py"
    release.write_text(release.read_text() + '\n__version__ = "99.1"\n')
    pair.two.environment["PYTHONPATH"] = str(place / "new")
    job, gate, lines = start(pair, shell)
    waiting = pair.one.submit(live.sh("true", 4, cluster="amsterdam"), live.sh("true", 4, cluster="delft"))
    assert pair.two("status", "--json").document["version"] == "99.1"
    assert pair.one("down").status == 0
    pair.two.until(lambda: state(pair.two) == "ready")
    assert pair.two.job(job)["state"] == "running"
    pair.one.environment["PYTHONPATH"] = str(place / "new")
    assert "stands by for another" in pair.one("up").out
    assert pair.two("down").status == 0
    pair.one.until(lambda: state(pair.one) == "ready")
    assert pair.one("status", "--json").document["version"] == "99.1"
    assert pair.one.job(job)["state"] == "running"
    gate.touch()
    for each in (job, waiting):
        ended = pair.one.end(each)
        assert (ended["state"], ended["completion_failures"]) == ("done", 0)
    assert lines.read_text() == "started\nended\n"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_koalad_that_is_frozen_at_any_moment_is_replaced_within_90_s(
    pair: Pair, shell: Callable[..., Document], seed: int
) -> None:
    """It is stopped while several clients submit jobs. Every job that they know of runs once."""
    assert pair.one("up").status == 0
    pair.one.known()
    assert pair.two("up").status == 0
    lines, known, ended = pair.work / "lines", list[str](), threading.Event()

    def submit(client: int) -> None:
        for number in count():
            if ended.is_set():
                return
            name = f"{client}.{number}"
            job = pair.one.write(f"{name}.yaml", {"components": [shell(f"echo {name} >>{lines}")]})
            if pair.one("submit", job, "--json").status == 0:
                known.append(name)

    clients = [threading.Thread(target=submit, args=(each,), daemon=True) for each in range(3)]
    first = pid_of(pair.one)
    for each in clients:
        each.start()
    pair.one.until(lambda: len(known) >= 3)
    time.sleep(Random(seed).uniform(0, 2))
    os.kill(first, signal.SIGSTOP)
    try:
        ended.set()
        pair.two.until(lambda: state(pair.two) == "ready", 90.0)
    finally:
        os.kill(first, signal.SIGCONT)
    assert wait_for_end(first, PATIENCE_S)
    for each in clients:
        each.join(PATIENCE_S)
    with pair.two.client() as grid:
        grid.wait([job["id"] for job in grid.jobs()], PATIENCE_S)
        assert {job["state"] for job in grid.jobs()} == {"done"}
    ran = lines.read_text().split()
    assert len(ran) == len(set(ran)), "nothing runs twice"
    assert {*known} <= {*ran}
