"""The real Launcher over its real Unix socket, with a KCM that the test plays: what it runs, and how it ends."""

import itertools
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters import layout, messages
from koalapy_adapters.host import descendants
from koalapy_adapters.launcher import journal
from koalapy_adapters.messages import relay as relay_messages
from koalapy_adapters.messages.launcher import (
    FeedParameters,
    LauncherTrusted,
    NodeSuspected,
    ParametersGivenUp,
    ParametersHeld,
    ProgressReported,
    PullParameters,
    ResultsCommitted,
    ResultsReported,
)
from koalapy_adapters.messages.relay import ToLauncher
from koalapy_adapters.ranges import numbers_of, ranges_of

Await = Callable[..., Any]
Processes = Callable[[bytes], list[int]]

PATIENCE_S = 120.0
IGNORES = "trap '' TERM; "
ESCAPES = "(setsid sh -c 'echo $$ >escaped.$KOALA_PARAMETER; exec sleep 600' </dev/null >/dev/null 2>&1 &) ; "
ESCAPED = "while [ ! -s escaped.$KOALA_PARAMETER ]; do sleep 0.01; done; "


class Launcher:
    """The program under test, and the end of its socket that a wrapper has."""

    def __init__(self, place: Path, command: list[str], program: str, wishes: dict[str, Any]) -> None:
        self.place, self.work = place, place / "work"
        self.work.mkdir(parents=True)
        (place / "output").mkdir()
        self._command = command
        self._write_component(program, wishes)
        self._connection: socket.socket | None = None
        self._printed: queue.Queue[Any] = queue.Queue()
        self._given = 0
        self.arrived: list[Any] = []
        self.listen()
        self.process = self._start()

    def listen(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.place / "socket"))
        self._listener.listen()

    def connect(self) -> ParametersHeld:
        """Accept its connection. Returns its first messages."""
        self._listener.settimeout(PATIENCE_S)
        self._connection, _ = self._listener.accept()
        self._given, self._printed = 0, queue.Queue()
        threading.Thread(target=self._receive, args=[self._connection, self._printed], daemon=True).start()
        held: ParametersHeld = self.until(ParametersHeld)
        return held

    def hang_up(self) -> None:
        assert self._connection is not None
        self._listener.close()
        (self.place / "socket").unlink()
        self._connection.shutdown(socket.SHUT_RDWR)

    def deliver(self, message: Any) -> None:
        assert self._connection is not None
        self._connection.sendall(json.dumps(messages.to_json(message)).encode() + b"\n")

    def give(self, *numbers: int) -> None:
        self._given += len(numbers)
        self.deliver(FeedParameters(ranges_of(sorted(numbers))))

    def until(
        self, kind: type[Any] | tuple[type[Any], ...], wanted: Callable[[Any], bool] = lambda message: True
    ) -> Any:
        """Wait for a message of this kind. Returns it with all messages before it."""
        while True:
            message = self._printed.get(timeout=PATIENCE_S)
            assert message is not None, f"it hung up; it had said {self.arrived[-5:]}; {self.errors()}"
            self.arrived.append(message)
            if isinstance(message, kind) and wanted(message):
                return message

    def results(self, count: int) -> dict[int, list[Any]]:
        """Wait for so many results. Returns them by number, after an acknowledgement to the Launcher."""
        while len(self._results()) < count:
            self.deliver(ResultsCommitted(self.until(ResultsReported).number))
        return self._results()

    def run(self, *numbers: int) -> dict[int, list[Any]]:
        """Give these numbers as the Launcher pulls, and wait for all results."""
        left = list(numbers)
        while len(self._results()) < len(numbers):
            message = self.until(object)
            if isinstance(message, PullParameters):
                free = self.free(message)
                now, left = left[:free], left[free:]
                if now:
                    self.give(*now)
            elif isinstance(message, ResultsReported):
                self.deliver(ResultsCommitted(message.number))
            elif isinstance(message, ParametersGivenUp):
                left += numbers_of(message.ranges)
        return self._results()

    def free(self, pull: PullParameters) -> int:
        """Return how many parameters it would take now."""
        return max(0, pull.wanted - (self._given - pull.given))

    def end(self) -> ParametersGivenUp:
        """Stop the Launcher. Returns its last messages."""
        self.process.terminate()
        while (message := self._printed.get(timeout=PATIENCE_S)) is not None:
            self.arrived.append(message)
        assert self.process.wait(PATIENCE_S) == 0, self.errors()
        assert isinstance(self.arrived[-1], ParametersGivenUp)
        return self.arrived[-1]

    def journal(self) -> list[int]:
        return [row[0] for row in journal.read(str(self.place))]

    def errors(self) -> str:
        return (self.place / "errors").read_text()

    def output(self, row: list[Any], kind: str = "out") -> bytes:
        """Return what the parameter of this result wrote."""
        at, size = row[7:9] if kind == "out" else row[9:11]
        return Path(layout.slot_file(str(self.place), row[4], kind)).read_bytes()[at : at + size]

    def slots(self) -> list[int]:
        pid = self.process.pid
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def close(self) -> None:
        self._listener.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def _results(self) -> dict[int, list[Any]]:
        rows = [row for message in self.arrived if isinstance(message, ResultsReported) for row in message.results]
        return {row[0]: row for row in rows}

    def _receive(self, connection: socket.socket, said: "queue.Queue[Any]") -> None:
        with connection, connection.makefile("rb") as lines:
            try:
                for line in lines:
                    said.put(messages.from_json(json.loads(line)))
            except OSError:
                pass
            said.put(None)

    def _start(self) -> "subprocess.Popen[bytes]":
        with open(self.place / "errors", "ab") as errors:
            return subprocess.Popen(
                [*self._command, "launcher", str(self.place), str(self.place / "socket"), "node1"],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                cwd=self.work,
                env={"PATH": os.environ["PATH"], "KOALA_JOB_ID": "7", "OWN": "{x}"},
                start_new_session=True,
            )

    def _write_component(self, program: str, wishes: dict[str, Any]) -> None:
        sweep = {"sweep": 7, "space": SPACE, "slots": wishes.pop("slots", 2)}
        sweep |= {name: wishes.pop(name, None) for name in ("limit_s", "output_limit", "drain_s")}
        fields: dict[str, Any] = {
            "executable": "/bin/sh",
            "arguments": ["-c", program, "{x}"],
            "environment": [["OWN", "{x}"]],
            "walltime": 3600.0,
            "grace": 4.0,
            "sweep": sweep,
        }
        orphan_timeout = wishes.pop("orphan_timeout", 600.0)
        component = {"program": fields | wishes, "orphan_timeout": orphan_timeout}
        (self.place / "component.json").write_text(json.dumps(component))


SPACE = {"axes": [{"count": 100000, "sources": [{"names": ["x"], "loop": ["101", "100100", "1"]}]}]}

Start = Callable[..., Launcher]


@pytest.fixture
def place() -> Iterator[Path]:
    """Make a short path, since it contains Unix sockets."""
    with tempfile.TemporaryDirectory(prefix="kl", dir="/tmp") as root:
        yield Path(root)


@pytest.fixture
def start(place: Path, pushed: Path, processes: Processes, await_that: Await) -> Iterator[Start]:
    """Start connected Launchers that run a line of sh for each parameter. In the end no process of them may be left."""
    started: list[Launcher] = []

    def start_(program: str, interpreter: list[str] | None = None, **wishes: Any) -> Launcher:
        command = [*(interpreter or [sys.executable, "-I", "-S"]), str(pushed)]
        made = Launcher(place / f"l{len(started)}", command, program, wishes)
        started.append(made)
        assert made.connect().ranges == []
        return made

    yield start_
    for each in started:
        each.close()
    await_that(lambda: not processes(str(place).encode()))


# ---- what it runs


def test_every_parameter_is_run_once_with_its_values(start: Start, interpreter: list[str]) -> None:
    launcher = start(
        'echo "$0 $OWN $KOALA_SWEEP $KOALA_PARAMETER $KOALA_SLOT $KOALA_JOB_ID"\n'
        "echo no >&2; exit $((KOALA_PARAMETER % 3))",
        interpreter,
    )
    rows = launcher.run(*range(1, 301))
    assert sorted(rows) == list(range(1, 301))
    for number, row in rows.items():
        assert row[1:5] == [number % 3, "exited", "node1", row[4]]
        assert launcher.output(row) == b"%d %d 7 %d %d 7\n" % (number + 100, number + 100, number, row[4])
        assert launcher.output(row, "err") == b"no\n"
        assert row[5] <= row[6]
    assert {row[4] for row in rows.values()} == {0, 1}
    assert sorted(launcher.journal()) == list(range(1, 301))
    assert launcher.end() == ParametersGivenUp([], [])


def test_a_program_that_does_not_exist_has_the_status_not_found(start: Start) -> None:
    launcher = start("", executable="./no-{x}", arguments=[])
    launcher.give(1)
    assert launcher.results(1)[1][1:3] == [127, "failed"]
    assert b"No such file" in launcher.output(launcher.results(1)[1], "err")


def test_a_program_that_may_not_be_executed_is_not_started(start: Start) -> None:
    launcher = start("", executable="/etc/passwd", arguments=[])
    launcher.give(1)
    assert launcher.results(1)[1][1:3] == [126, "failed"]


def test_a_long_parameter_is_pulled_alone(start: Start) -> None:
    launcher = start("sleep 0.4", slots=2)
    assert launcher.until(PullParameters) == PullParameters(2, 0)
    launcher.give(1, 2)
    launcher.results(2)
    pulls = [message.wanted for message in launcher.arrived if isinstance(message, PullParameters)]
    assert max(pulls) == 2


def test_many_short_parameters_are_pulled_at_a_time(start: Start) -> None:
    """On a busy machine some take long, so that the first pulls may be small."""
    launcher, numbers = start("", executable="/bin/true", arguments=[]), itertools.count(1)
    while (message := launcher.until((PullParameters, ResultsReported))) is not None:
        if isinstance(message, ResultsReported):
            launcher.deliver(ResultsCommitted(message.number))
        elif message.wanted > 10:
            return
        elif free := launcher.free(message):
            launcher.give(*itertools.islice(numbers, free))


def test_parameters_that_would_wait_long_behind_others_are_given_back(start: Start) -> None:
    launcher = start("[ $KOALA_PARAMETER -gt 100 ] && exec sleep 600; exit 0")
    launcher.run(*range(1, 100))
    launcher.give(101, 102, 103, 104)
    assert sorted(numbers_of(launcher.until(ParametersGivenUp).ranges)) == [103, 104]
    assert list(numbers_of(launcher.end().begun)) == [101, 102]


# ---- bad programs harm only themselves


def test_a_program_that_dies_by_a_signal_has_that_signal_as_its_result(start: Start) -> None:
    launcher = start("kill -9 $$")
    launcher.give(1)
    assert launcher.results(1)[1][1:3] == [137, "killed"]


def test_a_program_whose_child_was_killed_has_its_own_status(start: Start) -> None:
    launcher = start("exit 143")
    launcher.give(1)
    assert launcher.results(1)[1][1:3] == [143, "exited"]


def test_a_program_that_kills_its_process_group_harms_no_other(start: Start) -> None:
    launcher = start("[ $KOALA_PARAMETER = 1 ] && kill -9 0; exit 0")
    assert launcher.run(1, 2, 3)[1][1:3] == [137, "killed"]


def test_processes_that_a_program_forked_end_before_the_next_parameter(
    start: Start, processes: Processes, await_that: Await
) -> None:
    launcher = start(ESCAPES + ESCAPED + "echo $KOALA_PARAMETER", slots=1)
    rows = launcher.run(1, 2, 3)
    assert [launcher.output(rows[number]) for number in (1, 2, 3)] == [b"1\n", b"2\n", b"3\n"]
    for number in (1, 2, 3):
        assert not Path("/proc", (launcher.work / f"escaped.{number}").read_text().strip()).exists()


def test_a_program_with_thousands_of_dead_children_harms_no_other(start: Start) -> None:
    """The process that inherits them gets all of them at once."""
    forks = "import os; all(os.fork() or os._exit(0) for _ in range(1500)); os.waitid(os.P_ALL, 0, os.WEXITED); "
    ends = "last = os.fork() or os._exit(0); os.waitid(os.P_PID, last, os.WEXITED | os.WNOWAIT)"
    launcher = start(f"[ $0 -ne 101 ] || {sys.executable} -I -S -c '{forks}{ends}'", slots=1)
    assert {number: row[1:3] for number, row in launcher.run(1, 2).items()} == {1: [0, "exited"], 2: [0, "exited"]}
    assert launcher.errors() == ""


def test_a_program_that_ignores_sigterm_is_killed_at_its_walltime(start: Start) -> None:
    launcher, row, limit_s = at_its_walltime(start, IGNORES + "echo on; while :; do sleep 0.1; done", grace=0.4)
    assert row[1:3] == [137, "walltime"]
    assert launcher.output(row) == b"on\n"
    reported = f"parameter 1: it took longer than its walltime, {limit_s:g} s, and was ended"
    assert reported.encode() in launcher.output(row, "err")


def test_a_program_that_ends_at_the_sigterm_of_its_walltime_has_its_own_status(start: Start) -> None:
    _, row, _ = at_its_walltime(start, "trap 'exit 5' TERM; echo on; while :; do sleep 0.01; done", grace=60.0)
    assert row[1:3] == [5, "walltime"]


def at_its_walltime(start: Start, script: str, **wishes: Any) -> tuple[Launcher, list[Any], float]:
    """Return the result of a program that was ready for its walltime before it came."""
    for limit_s in (0.3, 3.0, 30.0):
        launcher = start(script, limit_s=limit_s, **wishes)
        launcher.give(1)
        row = launcher.results(1)[1]
        if launcher.output(row):
            break
    return launcher, row, limit_s


def test_a_program_that_floods_its_output_is_ended(start: Start) -> None:
    launcher = start("[ $KOALA_PARAMETER = 1 ] && exec cat /dev/zero; echo fine", slots=1, output_limit=1 << 20)
    rows = launcher.run(1, 2)
    assert rows[1][2] == "output"
    assert launcher.output(rows[1]) == bytes(1 << 20)
    assert (
        launcher.output(rows[1], "err")
        == b"koala: parameter 1: it wrote more than 1048576 bytes; the rest is cut off\n"
    )
    assert launcher.output(rows[2]) == b"fine\n"
    assert Path(layout.slot_file(str(launcher.place), 0)).stat().st_size == (1 << 20) + 5


def test_a_program_that_clears_its_directory_leaves_the_outputs_of_others(start: Start) -> None:
    launcher = start("echo $KOALA_PARAMETER; touch scratch; rm -rf ./* ./.[!.]*; ls -A", slots=1)
    rows = launcher.run(1, 2, 3)
    assert [launcher.output(rows[number]) for number in (1, 2, 3)] == [b"1\n", b"2\n", b"3\n"]


def test_a_program_that_truncates_its_output_leaves_that_of_the_next(start: Start) -> None:
    empties = "[ $0 -ne 102 ] || : >/proc/self/fd/1"
    launcher = start(f"[ $0 -ne 101 ] || printf %100s; {empties}; echo $0", slots=1)
    rows = launcher.run(1, 2, 3)
    assert [launcher.output(rows[number]) for number in (2, 3)] == [b"", b"103\n"]
    assert rows[2][7:9] == [len("102\n"), 0]


def test_a_program_that_kills_its_slot_has_failed_the_second_time(start: Start) -> None:
    launcher = start("[ $KOALA_PARAMETER = 1 ] && kill -9 $PPID && sleep 600; exit 0", slots=2)
    rows = launcher.run(*range(1, 21))
    assert rows[1][1:3] == [137, "killed"]
    assert all(rows[number][1] == 0 for number in range(2, 21))
    assert sorted(launcher.journal()) == list(range(1, 21))


# ---- its end


OF_ITS_CHILD = "sleep 600 & echo $! >pid.new; mv pid.new pid; wait $!; exit $?"  # ends with the status of its child


def test_a_program_that_stops_its_slot_delays_no_other(start: Start) -> None:
    launcher = start("[ $0 -ne 101 ] || kill -STOP $PPID", slots=1)
    assert {number: row[1:3] for number, row in launcher.run(1, 2).items()} == {1: [0, "exited"], 2: [0, "exited"]}


def test_a_stopped_launcher_stops_its_programs_and_gives_them_back(start: Start, await_that: Await) -> None:
    launcher = start("trap 'echo saved >saved.$0; exit 0' TERM; touch on.$0; while :; do sleep 0.01; done")
    launcher.give(4, 5)
    await_that(lambda: len(list(launcher.work.glob("on.*"))) == 2)
    assert launcher.end() == ParametersGivenUp([[4, 5]], [[4, 5]])
    assert {path.name for path in launcher.work.glob("saved.*")} == {"saved.104", "saved.105"}
    assert launcher.journal() == []


@pytest.mark.parametrize("script", ["echo $$ >pid.new; mv pid.new pid; exec sleep 600", OF_ITS_CHILD])
def test_a_program_that_a_cancel_reaches_before_its_launcher_is_not_done(
    start: Start, await_that: Await, script: str
) -> None:
    """A batch system's cancel signals the program, its processes and the Launcher in any order."""
    launcher = start(script, slots=1)
    launcher.give(4)
    await_that((launcher.work / "pid").exists)
    os.kill(int((launcher.work / "pid").read_text()), signal.SIGTERM)
    assert launcher.end() == ParametersGivenUp([[4, 4]], [[4, 4]])
    assert launcher.journal() == []


def test_a_program_that_ignores_the_stop_is_killed_after_the_grace(start: Start, await_that: Await) -> None:
    launcher = start(IGNORES + ESCAPES + ESCAPED + "touch on; while :; do sleep 0.1; done", slots=1, grace=0.4)
    launcher.give(4)
    await_that((launcher.work / "on").exists)
    assert launcher.end() == ParametersGivenUp([[4, 4]], [[4, 4]])


def test_parameters_that_no_slot_has_begun_are_given_back_too(start: Start, await_that: Await) -> None:
    launcher = start("touch on; exec sleep 600", slots=1)
    launcher.give(4, 5, 6)
    await_that((launcher.work / "on").exists)
    assert launcher.end().begun == [[4, 4]]
    backs = [message.ranges for message in launcher.arrived if isinstance(message, ParametersGivenUp)]
    assert sorted(number for back in backs for number in numbers_of(back)) == [4, 5, 6]


def test_a_launcher_ends_by_itself_before_its_walltime(start: Start) -> None:
    launcher = start("exec sleep 600", slots=1, walltime=12.0, grace=0.4, drain_s=1.0)
    launcher.give(4)
    assert launcher.until(ParametersGivenUp) == ParametersGivenUp([[4, 4]], [[4, 4]])
    assert launcher.process.wait(PATIENCE_S) == 0


def test_a_launcher_begins_no_parameter_that_would_outlast_its_walltime(start: Start) -> None:
    launcher = start("sleep 5", slots=1, walltime=16.0, grace=0.4, drain_s=0.0)
    rows = launcher.run(1)
    back = launcher.until(ParametersGivenUp)
    assert (back, rows[1][1]) == (ParametersGivenUp([], []), 0)
    assert launcher.process.wait(PATIENCE_S) == 0


def test_a_launcher_without_a_connection_for_long_ends(start: Start, await_that: Await) -> None:
    launcher = start("exec sleep 600", slots=1, orphan_timeout=1.0, grace=0.4)
    launcher.give(4)
    launcher.hang_up()
    assert launcher.process.wait(PATIENCE_S) == 0
    assert launcher.journal() == []


# ---- connections


def test_after_a_lost_connection_a_launcher_reports_what_it_holds_and_repeats_uncommitted_results(
    start: Start, await_that: Await
) -> None:
    launcher = start("[ $KOALA_PARAMETER = 9 ] && exec sleep 600; exit 0")
    launcher.give(1, 9)
    first = launcher.until(ResultsReported)
    launcher.hang_up()
    launcher.listen()
    assert launcher.connect() == ParametersHeld([[9, 9]], 2)
    assert launcher.until(ResultsReported) == first
    launcher.deliver(ResultsCommitted(first.number))
    launcher.hang_up()
    launcher.listen()
    assert launcher.connect() == ParametersHeld([[9, 9]], 2)
    assert isinstance(launcher.until(object), PullParameters)
    assert launcher.end() == ParametersGivenUp([[9, 9]], [[9, 9]])


def test_a_launcher_works_on_without_a_connection(start: Start, await_that: Await) -> None:
    launcher = start("while [ ! -e go ]; do sleep 0.01; done; exit 0")
    launcher.give(1, 2)
    launcher.hang_up()
    (launcher.work / "go").touch()
    await_that(lambda: sorted(launcher.journal()) == [1, 2])
    launcher.listen()
    assert launcher.connect() == ParametersHeld([], 2)
    assert sorted(launcher.results(2)) == [1, 2]


# ---- killed


def test_a_slot_that_is_killed_is_replaced_and_its_parameter_run_again(start: Start, await_that: Await) -> None:
    launcher = start("echo $$ >>pids.$KOALA_PARAMETER; while [ ! -e go ]; do sleep 0.01; done; exit 0", slots=2)
    launcher.give(1, 2)
    await_that(lambda: sum(path.stat().st_size > 0 for path in launcher.work.glob("pids.*")) == 2)
    os.kill(launcher.slots()[0], signal.SIGKILL)
    again = await_that(lambda: [path for path in launcher.work.glob("pids.*") if path.read_text().count("\n") == 2])
    first = again[0].read_text().split()[0]
    await_that(lambda: not Path("/proc", first).exists())
    (launcher.work / "go").touch()
    assert [row[1] for row in launcher.results(2).values()] == [0, 0]


def test_a_killed_launcher_leaves_no_process_and_all_results_in_its_journal(
    start: Start, await_that: Await, processes: Processes
) -> None:
    launcher = start("echo $KOALA_PARAMETER >>done; exit 0")
    rows: set[int] = set()
    launcher.give(*range(1, 2001))
    while len(rows) < 300:
        message = launcher.until((ResultsReported, ParametersGivenUp))
        if isinstance(message, ResultsReported):
            rows |= {row[0] for row in message.results}
        else:  # what waits for long, on a busy machine
            launcher.give(*numbers_of(message.ranges))
    launcher.process.kill()
    launcher.process.wait()
    await_that(lambda: not processes(str(launcher.place).encode()))
    written = [int(line) for line in (launcher.work / "done").read_text().split()]
    assert rows <= set(launcher.journal()) <= set(written)
    assert len(written) == len(set(written))
    assert len(set(written) - set(launcher.journal())) <= 2  # those that were running


# ---- black holes


def test_a_launcher_whose_parameters_all_fail_at_once_suspects_its_node_and_holds_the_results(start: Start) -> None:
    launcher = suspicious(start)
    assert launcher.arrived[-1] == NodeSuspected("node1")
    assert launcher.journal() == []
    assert launcher.end() == ParametersGivenUp([[1, 8]], [])
    assert not [message for message in launcher.arrived if isinstance(message, ResultsReported)]


def suspicious(start: Start) -> Launcher:
    """Return a Launcher whose first parameters all failed at once; another one tries if one took longer."""
    while True:
        launcher = start("exit 1")
        launcher.give(*range(1, 9))
        if isinstance(launcher.until((NodeSuspected, ResultsReported, ParametersGivenUp)), NodeSuspected):
            return launcher


def test_a_trusted_launcher_reports_its_failures(start: Start) -> None:
    launcher = suspicious(start)
    launcher.deliver(LauncherTrusted())
    assert {row[1] for row in launcher.run(*range(1, 21)).values()} == {1}
    assert sorted(launcher.journal()) == list(range(1, 21))


def test_one_parameter_that_ends_well_clears_the_node(start: Start) -> None:
    launcher = start("[ $KOALA_PARAMETER = 3 ]")
    rows = launcher.run(*range(1, 21))  # suspected or not: the good one may be slow
    assert sum(row[1] for row in rows.values()) == 19


# ---- under a real wrapper


def test_the_wrapper_passes_the_messages_of_a_launcher_over_its_relay(world: Any, await_that: Await) -> None:
    relay = world.relay()
    attempt = world.attempt(
        executable="/bin/sh",
        arguments=["-c", "trap 'echo saved >saved' TERM; [ $KOALA_PARAMETER = 3 ] && touch on && sleep 600; exit 0"],
        launch="once",
        sweep={"sweep": 7, "space": SPACE, "slots": 2},
    )
    attempt.start()
    relay.release(attempt)
    from_launcher(relay, attempt, "parameters_held")
    relay.send(attempt.tag, ToLauncher(messages.to_json(FeedParameters([[1, 2]]))))
    done = from_launcher(relay, attempt, "results_reported")["results"]
    assert done[0][1:4] == [0, "exited", "here"]
    await_that(lambda: len(journal.read(str(attempt.path))) == 2)
    relay.send(attempt.tag, ToLauncher(messages.to_json(FeedParameters([[3, 3]]))))
    await_that((attempt.path / "work" / "on").exists)
    relay.stop(attempt)
    attempt.wait()
    assert from_launcher(relay, attempt, "parameters_given_up")["begun"] == [[3, 3]]
    assert sorted(row[0] for row in journal.read(str(attempt.path))) == [1, 2]
    assert (attempt.record()["ending"], attempt.record()["exit_status"]) == ("cancelled", 0)


def test_the_programs_of_a_launcher_are_suspended_with_their_batch_job(world: Any, await_that: Await) -> None:
    """A batch system may suspend only the process group of the batch job."""
    relay = world.relay()
    script = "while :; do echo x >>ticks; sleep 0.02; done"
    sweep = {"sweep": 7, "space": SPACE, "slots": 1}
    attempt = world.attempt(executable="/bin/sh", arguments=["-c", script], launch="once", sweep=sweep)
    attempt.start()
    relay.release(attempt)
    from_launcher(relay, attempt, "parameters_held")
    relay.send(attempt.tag, ToLauncher(messages.to_json(FeedParameters([[1, 1]]))))
    ticks = attempt.path / "work" / "ticks"
    await_that(ticks.exists)
    wrapper = attempt.wrapper.pid
    below = [(pid, os.getpgid(pid)) for pid in descendants.descendants(wrapper)]
    batch_job = [wrapper, *(pid for pid, group in below if group == os.getpgid(wrapper))]
    launcher = next(pid for pid, group in below if group == pid)
    descendants.send(batch_job, signal.SIGSTOP)
    await_that(lambda: all(map(stands_still, descendants.descendants(launcher))))
    before = ticks.stat().st_size
    descendants.send(batch_job, signal.SIGCONT)
    await_that(lambda: ticks.stat().st_size > before + 10)
    relay.stop(attempt)
    attempt.wait()


def stands_still(pid: int) -> bool:
    """One that had ended before it was stopped stays a zombie: its parent, which would reap it, stands still."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "Z")
    except (FileNotFoundError, ProcessLookupError):
        return False


def from_launcher(relay: Any, attempt: Any, kind: str) -> dict[str, Any]:
    def wanted(said: Any) -> bool:
        return isinstance(said, relay_messages.FromLauncher) and said.body["type"] == kind

    return dict(relay.await_message(attempt.tag, wanted).body)


def test_progress_is_reported_when_it_changes(start: Start) -> None:
    launcher = start("exec sleep 600", slots=1)
    launcher.give(1)
    assert launcher.until(ProgressReported).running == 1
