"""Work spread over processes: in order, and ended at once."""

import os
import signal
import threading
import time
from collections.abc import Sequence
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest

from koalapy.experiments import workers
from koalapy.experiments.workers import leave_signals_to_parent, spread

MANY = range(200)


def double(number: int) -> int:
    return 2 * number


def wait_for(gate: Path) -> None:
    while not gate.exists():
        time.sleep(0.01)


def refuse(number: int) -> int:
    raise ValueError(f"{number} is refused")


@pytest.mark.parametrize("count", [1, 2])
def test_results_come_in_the_order_of_the_tasks(count: int) -> None:
    assert list(spread(double, MANY, count)) == [double(number) for number in MANY]


def test_an_exception_of_a_task_is_raised() -> None:
    with pytest.raises(ValueError, match="0 is refused"):
        list(spread(refuse, MANY, 2))
    ended()


def test_an_early_end_leaves_no_process_and_no_message(tmp_path: Path) -> None:
    """pytest reports an exception in a thread as an error of the test."""
    gates: Sequence[Path] = [tmp_path, *(tmp_path / f"never-{number}" for number in MANY)]
    for _ in range(5):
        results: Any = spread(wait_for, gates, 2)  # a generator
        next(results)
        results.close()
        ended()


def test_an_interrupt_at_the_start_of_a_process_is_handled_by_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        leave_signals_to_parent()

    monkeypatch.setattr(workers, "leave_signals_to_parent", interrupted)
    assert list(spread(double, MANY, 2)) == [double(number) for number in MANY]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


def ended() -> None:
    """Wait until the processes and the thread that watches them have ended."""
    while active_children() or any("Executor" in type(thread).__name__ for thread in threading.enumerate()):
        time.sleep(0.01)
