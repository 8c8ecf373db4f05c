"""Run the tests of several targets side by side: each lane is a thread, and pytest's items wait for its results.

Most of a live test is waiting for a batch system, and targets of different head nodes do not disturb each other. A lane
starts when pytest comes to the first of its tests. It runs all tests of it that pytest has selected, in their order.
"""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field

from koalapy_adapters.contract.live import Live
from koalapy_adapters.contract.target import Target

Check = Callable[[Live], None]
_JOIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Trial:
    """One test on one target."""

    target: Target
    check: Check
    outcome: "Future[None]" = field(default_factory=lambda: Future())


class ParallelRuns:
    """The trials of all targets; one thread for each head node runs the trials of its targets.

    `open_target` opens what the checks of a target share. It is closed after the target's last trial, which fails if
    the closing fails.
    """

    def __init__(self, trials: Iterable[Trial], open_target: Callable[[Target], Live]) -> None:
        self._open_target = open_target
        self._stopping = threading.Event()
        self._trials: dict[str, list[Trial]] = {}
        self._threads: dict[str, threading.Thread] = {}
        for trial in trials:
            self._trials.setdefault(trial.target.head, []).append(trial)

    def outcome(self, trial: Trial) -> None:
        """Block until the trial has ended. Raises the error of its check, or of opening or tidying up its target."""
        lane = trial.target.head
        if lane not in self._threads:
            self._threads[lane] = threading.Thread(target=self._run, args=(lane,), name=f"lane {lane}", daemon=True)
            self._threads[lane].start()
        trial.outcome.result()

    def close(self) -> None:
        """Begin no further trial, and wait until those that run have ended and tidied up."""
        self._stopping.set()
        for thread in self._threads.values():
            thread.join(_JOIN_S)

    def _run(self, lane: str) -> None:
        """Run the trials of a lane target by target, whatever their order."""
        for target in dict.fromkeys(trial.target.name for trial in self._trials[lane]):
            self._try([trial for trial in self._trials[lane] if trial.target.name == target])

    def _try(self, trials: list[Trial]) -> None:
        try:
            live = self._open_target(trials[0].target)
        except BaseException as error:
            for trial in trials:
                trial.outcome.set_exception(error)
            return
        for trial in trials[:-1]:
            self._settle(trial, live)
        self._settle(trials[-1], live, last=True)

    def _settle(self, trial: Trial, live: Live, last: bool = False) -> None:
        error = _raised(lambda: trial.check(live)) if not self._stopping.is_set() else _Stopped()
        left = _raised(live.close if last else live.tidy)
        if error or left:
            trial.outcome.set_exception(error or left)
        else:
            trial.outcome.set_result(None)


class _Stopped(Exception):
    """The test run ended before this trial."""


def _raised(call: Callable[[], None]) -> BaseException | None:
    try:
        call()
    except BaseException as error:
        return error
    return None
