"""Commands of the batch system run in the C locale, for a limited time, and leave no process behind."""

import os
import random
import select
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from koalapy_adapters.batch.protocol import BatchJob, BatchSettings
from koalapy_adapters.errors import BatchError, ClusterError, RequestError, TransientError, UnreadableError
from koalapy_adapters.kcm.execution.batch_system import BatchSystem, SubmitDoubt, failure_of, guarded, load
from koalapy_adapters.kcm.execution.subprocess_runner import Handle, run

JOB = BatchJob("kabcde000000001", "/tmp/a", ["true"], 1, 60)


def sh(script: str, timeout: float = 60.0, handle: Handle | None = None) -> tuple[int | None, str, str]:
    result = run(["/bin/sh", "-c", script], timeout, handle).result
    return result.exit_status, result.stdout, result.stderr


def test_a_command_returns_its_streams_and_status_and_runs_in_the_c_locale() -> None:
    assert sh("echo out; echo err >&2; exit 3") == (3, "out\n", "err\n")
    assert sh("echo $LC_ALL; cat") == (0, "C\n", "")


def test_a_users_profile_does_not_change_slurms_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile can change squeue's format, the partition of sbatch, and how srun passes on output."""
    bent = (
        "SQUEUE_STATES",
        "SINFO_PARTITION",
        "SCANCEL_INTERACTIVE",
        "SLURM_CLUSTERS",
        "SLURM_LABELIO",
        "SBATCH_ACCOUNT",
        "SBATCH_PARTITION",
        "SBATCH_TIMELIMIT",
        "SBATCH_OUTPUT",
        "SBATCH_WAIT",
        "SBATCH_ARRAY_INX",
    )
    for name in (*bent, "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"):
        monkeypatch.setenv(name, "x")
    left = "SLURM_CONF=x\nSLURM_CONF_SERVER=x\nSLURM_JWT=x\n"
    assert sh("env | grep -E '^(SQUEUE|SINFO|SCANCEL|SLURM|SBATCH)_' | sort") == (0, left, "")


def test_arguments_are_never_interpreted_by_a_shell() -> None:
    assert run(["printf", "%s", "$(id) *"], 60.0).result.stdout == "$(id) *"


def test_output_that_is_not_text_is_no_error() -> None:
    assert sh(r"printf '\377ok'")[1].endswith("ok")


def test_much_output_on_both_streams_is_read() -> None:
    script = "import sys; sys.stdout.write('x' * 3000000); sys.stderr.write('y' * 3000000)"
    result = run([sys.executable, "-c", script], 60.0).result
    assert (len(result.stdout), len(result.stderr)) == (3_000_000, 3_000_000)


class LosesTheProcessor(selectors.DefaultSelector):
    """A selector whose thread, once nothing was ready, runs on `late` seconds after the command has exited."""

    late = 0.0
    others: frozenset[str] = frozenset()  # children of this thread that are no command of the test

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(timeout)
        if not ready:
            for child in children_of_this_thread() - self.others:
                os.waitid(os.P_PID, int(child), os.WEXITED | os.WNOWAIT)
            time.sleep(self.late)
        return ready


def children_of_this_thread() -> frozenset[str]:
    return frozenset(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


@pytest.mark.parametrize("late", [0.0, 1.0], ids=["in time", "after its time"])
def test_what_a_command_prints_just_before_its_end_is_read(late: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """It prints and exits while the thread that waits for it is off the processor."""
    monkeypatch.setattr(LosesTheProcessor, "late", late)
    monkeypatch.setattr(LosesTheProcessor, "others", children_of_this_thread())
    monkeypatch.setattr(selectors, "DefaultSelector", LosesTheProcessor)
    timeout = 60.0 if late == 0.0 else 0.9
    assert sh("sleep 0.2; echo 4711", timeout) == (0, "4711\n", "")
    assert sh("sleep 0.2; echo no such job >&2; exit 1", timeout) == (1, "", "no such job\n")
    assert sh("setsid sleep 5 & sleep 0.2; echo 4711", timeout) == (0, "4711\n", "")


def test_a_command_that_is_over_its_time_has_no_status_even_if_it_exits_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its output was read to the end of its time only: an exit status would make a part of it an answer."""

    class ExitsThen(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> Any:
            ready = super().select(timeout)
            if not ready:
                time.sleep(0.3)
            return ready

        def __exit__(self, *args: object) -> None:
            time.sleep(1.0)
            super().__exit__(*args)

    monkeypatch.setattr(selectors, "DefaultSelector", ExitsThen)
    assert sh("sleep 0.8; echo 4711", 0.2)[0] is None


def lost_answers(count: int) -> list[object]:
    """Run commands that print and exit at random moments, on a busy machine. Returns the wrong answers."""
    chance = random.Random(count)

    def lost(number: int, pause: float) -> list[object]:
        stream, status = number % 2 + 1, number % 3
        found = sh(f"sleep {pause:.4f}; echo {number} >&{stream}; exit {status}")
        expected = (status, f"{number}\n", "") if stream == 1 else (status, "", f"{number}\n")
        return [] if found == expected else [found]

    with busy_machine(), ThreadPoolExecutor(16) as pool:
        answers = pool.map(lost, range(count), [chance.uniform(0.03, 0.07) for _ in range(count)])
        return [each for answer in answers for each in answer]


@contextmanager
def busy_machine() -> Iterator[None]:
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def test_no_answer_of_some_hundred_commands_is_lost() -> None:
    assert lost_answers(400) == []


@pytest.mark.slow
def test_no_answer_of_ten_thousand_commands_is_lost() -> None:
    assert lost_answers(10_000) == []


def test_a_command_that_takes_too_long_is_ended_with_its_process_group() -> None:
    for timeout in (0.3, 3.0, 30.0):  # whichever stream it writes to meanwhile
        status, out, _ = sh("sleep 600 & echo $!; wait", timeout)
        if out:
            break
    assert status is None
    await_death(int(out))


def test_a_process_that_a_command_leaves_behind_does_not_delay_its_result() -> None:
    status, out, _ = sh("setsid sleep 600 & echo $!")
    assert status == 0
    os.kill(int(out), 9)


def test_the_cpu_time_of_a_command_includes_its_children() -> None:
    burn = f"{sys.executable} -c 'sum(i * i for i in range(2_000_000))'"
    assert run(["/bin/sh", "-c", burn + "; true"], 60.0).cost > 20_000


def test_a_missing_command_is_the_clusters_fault() -> None:
    with pytest.raises(ClusterError, match="qsub-of-nowhere"):
        run(["qsub-of-nowhere"], 1.0)


def test_a_command_that_was_ended_before_it_began_never_runs(tmp_path: Path) -> None:
    handle = Handle()
    handle.end()
    assert sh(f"touch {tmp_path}/ran", handle=handle) == (None, "", "")
    assert not handle.started
    assert list(tmp_path.iterdir()) == []


def test_a_running_command_can_be_ended_from_another_thread(tmp_path: Path) -> None:
    handle, fifo = Handle(), tmp_path / "fifo"
    os.mkfifo(fifo)

    def end_when_it_runs() -> None:
        fifo.read_text()
        handle.end()

    ender = threading.Thread(target=end_when_it_runs)
    ender.start()
    assert sh(f"echo > {fifo}; sleep 600", handle=handle)[0] is None
    ender.join()


def dialect(script: str, error: BatchError | None = None) -> SimpleNamespace:
    def parse_submit(result: object) -> str:
        if error is not None:
            raise error
        return "1"

    return SimpleNamespace(submit_argv=lambda job, path: ["/bin/sh", "-c", script], parse_submit=parse_submit)


@pytest.mark.parametrize("error", [TransientError("busy", "Busy."), UnreadableError("odd", "Odd.")], ids=type)
def test_a_submit_without_a_clear_answer_is_in_doubt(error: BatchError) -> None:
    with pytest.raises(SubmitDoubt):
        BatchSystem(dialect("true", error), BatchSettings("me")).submit(JOB, "script", Handle())


@pytest.mark.parametrize("error", [ClusterError("down", "Down."), RequestError("no_queue", "No.")], ids=type)
def test_a_refused_submit_is_not_in_doubt(error: BatchError) -> None:
    with pytest.raises(type(error)):
        BatchSystem(dialect("true", error), BatchSettings("me")).submit(JOB, "script", Handle())


def test_a_submit_that_takes_too_long_is_in_doubt() -> None:
    with pytest.raises(SubmitDoubt) as doubt:
        BatchSystem(dialect("sleep 600"), BatchSettings("me"), timeout=0.2).submit(JOB, "script", Handle())
    assert doubt.value.error.code == "command_timeout"


def printing(text: str) -> BatchSystem:
    dialect = SimpleNamespace(status_argv=lambda ids: ["printf", "%s", text], parse_status=lambda result: result.stdout)
    return BatchSystem(dialect, BatchSettings("me"))


def test_a_document_that_ends_with_its_brace_is_complete() -> None:
    """OpenPBS 23.06.06 prints this if there is no job."""
    empty = '{\n    "timestamp":1795387803,\n    "pbs_version":"23.06.06",\n    "pbs_server":"phead"\n}'
    checked: object = printing(empty).check([])
    assert checked == empty


@pytest.mark.parametrize("text", ["17 run", '{\n    "Jobs":{\n    }', '{\n    "a":1\n'[:-1]])
def test_an_answer_that_ends_in_the_middle_of_a_line_is_incomplete(text: str) -> None:
    with pytest.raises(UnreadableError, match="cut off"):
        printing(text).check([])


def test_errors_contain_the_command_and_its_own_words() -> None:
    result = run(["/bin/sh", "-c", "echo no such queue >&2; exit 1"], 60.0).result
    failure = failure_of(RequestError("no_such_queue", "There is none.", "Name another.", result))
    assert (failure["exit_status"], failure["words"], failure["whose"]) == (1, "no such queue", "request")
    assert failure["command"].startswith("/bin/sh -c")


def test_an_exception_in_a_dialect_is_koalapys_fault() -> None:
    with pytest.raises(UnreadableError, match="KeyError"):
        guarded(lambda: dict[str, str]()["jobs"])


def test_an_unknown_batch_system_is_named_in_the_error() -> None:
    with pytest.raises(ClusterError, match="condor"):
        load("condor")


def await_death(pid: int) -> None:
    """Wait for the death of a process that was sent SIGKILL: it dies soon after kill(2) returns."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], 60.0)[0], f"process {pid} lives"
    finally:
        os.close(descriptor)
