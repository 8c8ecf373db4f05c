"""Which commands of a measurement are run, and which of their known answers still serve."""

import time
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from koalapy_adapters.errors import Result

STEADY = 5.0  # seconds for which other answers are valid while the list of jobs is the same


class _Known(NamedTuple):
    until: float
    result: Result


class QueryCache:
    """Cache of a dialect's queries, by its `JOB_LIST_QUERY` and `cache_seconds`. `run` runs one command."""

    def __init__(
        self, dialect: Any, run: Callable[[List[str]], Result], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run, self._clock = run, clock
        self._lead = getattr(dialect, "JOB_LIST_QUERY", None)
        self._keeps: Callable[[Result], float] = getattr(dialect, "cache_seconds", lambda result: 0.0)
        self._kept: Dict[Tuple[str, ...], _Known] = {}
        self._steady: Dict[Tuple[str, ...], _Known] = {}  # answers that are good while the list of jobs is the same
        self._renewed = False  # one of what is kept, by this measurement
        self.listing = ""  # all jobs, as they were listed last

    def ask(self, argvs: List[List[str]]) -> List[Result]:
        """Return the results of all queries, in order.

        Where the dialect names which command lists all jobs, the others wait until that list changes: a poll that sees
        nothing new costs one command. What is kept grows old together, and is renewed one by one: a measurement that
        costs several times as much as others is paid for by a time in which nobody looks.
        """
        self._renewed = False
        if self._lead is None:
            return [self._answer(argv) for argv in argvs]
        listing = self._answer(argvs[self._lead])
        if listing.exit_status != 0 or listing.stdout != self.listing:
            self._steady.clear()
        self.listing = listing.stdout
        return [listing if place == self._lead else self._beside(argv) for place, argv in enumerate(argvs)]

    def forget(self) -> None:
        """Run every command again at the next measurement: one of the answers could not be read."""
        self._kept.clear()
        self._steady.clear()

    def _beside(self, argv: List[str]) -> Result:
        known = self._steady.get(tuple(argv))
        if known is not None and self._clock() < known.until:
            return known.result
        result = self._answer(argv)
        self._steady[tuple(argv)] = _Known(self._clock() + STEADY, result)
        return result

    def _answer(self, argv: List[str]) -> Result:
        kept = self._kept.get(tuple(argv))
        if kept is not None and (self._renewed or self._clock() < kept.until):
            return kept.result
        self._renewed = self._renewed or kept is not None
        result = self._run(argv)
        self._keep(argv, result)
        return result

    def _keep(self, argv: List[str], result: Result) -> None:
        lasts = self._keeps(result)
        if lasts > 0.0:
            self._kept[tuple(argv)] = _Known(self._clock() + lasts, result)
        else:
            self._kept.pop(tuple(argv), None)
