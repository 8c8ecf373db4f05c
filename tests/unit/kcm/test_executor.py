"""The number of commands that the KCM runs for its actions: few for many cancels."""

import asyncio
import threading
from pathlib import Path
from typing import Any

from koalapy_adapters.batch import slurm
from koalapy_adapters.batch.protocol import BatchSettings
from koalapy_adapters.errors import Result
from koalapy_adapters.kcm.execution.batch_system import BatchSystem
from koalapy_adapters.kcm.execution.executor import CANCELS, ActionExecutor
from koalapy_adapters.kcm.execution.operations import Operations
from koalapy_adapters.kcm.execution.subprocess_runner import Ran
from koalapy_adapters.kcm.shared_directory.attempt_dirs import Directories
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.messages.koalad import ClusterConfig


class Shell:
    """A runner that records commands and runs none; the first one ends only after `go`."""

    def __init__(self, stderr: str = "", status: int = 0) -> None:
        self.ran: list[list[str]] = []
        self.begun, self.go = threading.Event(), threading.Event()
        self._stderr, self._status = stderr, status

    def run(self, argv: list[str], timeout: float, handle: Any) -> Ran:
        self.ran.append(argv)
        self.begun.set()
        assert self.go.wait(120)
        return Ran(Result(argv, self._status, "", self._stderr), 0)


def executor_of(shell: Shell, root: Path) -> ActionExecutor:
    batch = BatchSystem(slurm, BatchSettings("someone"), runner=shell.run)
    return ActionExecutor(
        Operations(ClusterConfig("here", "slurm"), batch, Directories(str(root), "abcde", "here", 1), lambda: 0)
    )


def cancelled(shell: Shell, root: Path, count: int) -> list[do.JobCancelled]:
    async def cancel_all() -> list[do.JobCancelled]:
        executor = executor_of(shell, root)
        cancels = [asyncio.ensure_future(executor.perform(do.CancelJob(f"tag {n}", str(n)))) for n in range(count)]
        while not shell.begun.is_set():
            await asyncio.sleep(0)
        shell.go.set()
        done: list[do.JobCancelled] = await asyncio.gather(*cancels)
        return done

    return asyncio.run(cancel_all())


def test_waiting_cancels_are_made_by_one_command(tmp_path: Path) -> None:
    shell = Shell()
    outcomes = cancelled(shell, tmp_path, 40)
    assert outcomes == [do.JobCancelled(f"tag {n}") for n in range(40)]
    assert sorted(int(each) for argv in shell.ran for each in argv[1:]) == list(range(40))
    assert len(shell.ran) <= 2


def test_a_command_cancels_a_limited_number_of_jobs(tmp_path: Path) -> None:
    shell = Shell()
    assert len(cancelled(shell, tmp_path, 2 * CANCELS + 5)) == 2 * CANCELS + 5
    assert max(len(argv) - 1 for argv in shell.ran) <= CANCELS
    assert len(shell.ran) <= 4


def test_a_failed_command_is_an_error_of_each_of_its_cancels(tmp_path: Path) -> None:
    shell = Shell("scancel: error: Unable to contact slurm controller (connect failure)", 1)
    assert all(each.error is not None for each in cancelled(shell, tmp_path, 3))


def test_the_cost_of_a_measurement_includes_the_kcms_own(tmp_path: Path) -> None:
    """The commands of this runner cost nothing."""
    shell = Shell()
    shell.go.set()
    outcome = asyncio.run(executor_of(shell, tmp_path).perform(do.Measure()))
    assert len(shell.ran) > 0
    assert outcome.cost > 0
