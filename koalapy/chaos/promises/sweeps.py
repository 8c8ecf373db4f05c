"""Promises about the parameters of sweeps: each has one result, and none that is done runs again."""

from collections.abc import Callable, Iterable

from koalapy.chaos.violation import Promise, promise
from koalapy.model.change import Change
from koalapy.model.identity import JobId
from koalapy.model.intervals import Intervals
from koalapy.model.parameters import ResultBatch
from koalapy.model.states import JobState
from koalapy.model.sweep import Sweep
from koalapy.store.contract import Store
from koalapy.world.program_log import ParameterLog, Try

_Key = tuple[int, int]  # sweep, number


class Sweeps:
    """The checker of parameters, called for every start of one and for every commit."""

    def __init__(self, log: ParameterLog, given_up: Callable[[str], bool]) -> None:
        """`given_up`: whether the attempt of this tag may run on, since a person gave its cluster up."""
        self._log, self._given_up = log, given_up
        self._tries: dict[_Key, list[Try]] = {}
        self._recorded: dict[JobId, set[int]] = {}

    def began(self, attempt: Try) -> None:
        """A program has started for a parameter."""
        key = attempt.sweep, attempt.number
        tries = self._tries.setdefault(key, [])
        tries.append(attempt)
        if self._given_up(attempt.tag):
            return
        before = [each for each in tries[:-1] if not self._given_up(each.tag)]
        done = any(each.done for each in before)
        promise(not done, Promise.REPEATED, "parameter", attempt.number, "of", attempt.sweep, "is done, but starts")
        recorded = attempt.number in self._recorded.get(JobId(attempt.sweep), ())
        promise(not recorded, Promise.REPEATED, "parameter", attempt.number, "of", attempt.sweep, "has its result")
        alone = all(each.ended is not None for each in before)
        promise(
            alone, Promise.ALONE, "parameter", attempt.number, "of", attempt.sweep, "starts while it runs elsewhere"
        )

    def committed(self, change: Change) -> None:
        for batch in change.results:
            self._record(batch)
        for sweep in change.sweeps:
            self._check_counts(sweep)

    def _record(self, batch: ResultBatch) -> None:
        known = self._recorded.setdefault(batch.sweep, set())
        for result in batch.results:
            again = result.number in known
            promise(not again, Promise.RECORDED, "parameter", result.number, "of", batch.sweep, "has a result already")
            tries = self._tries.get((batch.sweep, result.number), ())
            ran = any(each.ended is not None for each in tries)
            promise(ran, Promise.AGREE, "parameter", result.number, "of", batch.sweep, "has a result, but did not end")
            known.add(result.number)

    def _check_counts(self, sweep: Sweep) -> None:
        """Check that a sweep's done parameters are those recorded, and that a final sweep has all or was ended."""
        known, done = self._recorded.get(sweep.id, set()), sweep.done
        promise(len(done) == len(known), Promise.RECORDED, "sweep", sweep.id, len(done), "done", len(known), "recorded")
        whole = sweep.state is not JobState.DONE or not sweep.remaining
        promise(whole, Promise.RECORDED, "sweep", sweep.id, "is done, but for", sweep.remaining)

    def quiescent(self, sweeps: Iterable[Sweep], store: Store) -> None:
        """Check that the store has each recorded result once, and that no parameter runs on."""
        for sweep in sweeps:
            kept = [result.number for _, batch in store.results(sweep.id) for result in batch.results]
            promise(len(kept) == len(set(kept)), Promise.RECORDED, "sweep", sweep.id, "keeps results twice")
            promise(Intervals.numbers(kept) == sweep.done, Promise.AGREE, "sweep", sweep.id, "keeps", len(kept))
        for each in self._log.tries:
            promise(each.ended is not None, Promise.OUTLIVED, "parameter", each.number, "of", each.sweep, "runs on")
