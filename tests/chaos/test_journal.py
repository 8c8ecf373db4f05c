"""The journal of koalad in a world of chaos: dumped at random instants, it replays to the same commands."""

import gzip
import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from koalapy.chaos.run import run
from koalapy.engine import Engine
from koalapy.journal.journal import Journal, JournalState
from koalapy.journal.replay import Replayed, replay
from koalapy.journal.text import dump, load
from koalapy.model.commands import SubmitAttempt
from koalapy.model.events import Event
from koalapy.model.records import Step
from koalapy.model.settings import Settings
from koalapy.model.units import Instant
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.runtime.load_policies import policies, scavenging_policies
from koalapy.scheduler.schedule import Policies

EVENTS = 3_000
BATCHES = 300  # so few that many parts begin in one process of koalad


def policies_of(settings: Settings) -> tuple[Policies, ScavengingPolicies]:
    return policies(settings), scavenging_policies(settings)


class Dumping:
    """A journal of each koalad, written as a document from time to time."""

    def __init__(self, seed: int, one_in: int = 150) -> None:
        self.documents: list[str] = []
        self.longest = 0
        self._dice, self._one_in = Random(seed), one_in
        self._journal: Journal | None = None

    def begin(self, engine: Engine) -> None:
        self._journal = Journal(*policies_of(engine.settings), most_batches=BATCHES)
        self._journal.begin(engine)

    def handling(self, now: Instant, events: Sequence[Event]) -> None:
        assert self._journal is not None
        self._journal.handling(now, events)

    def handled(self, step: Step) -> None:
        assert self._journal is not None
        self._journal.handled(step)
        if self._dice.randrange(self._one_in) == 0:
            taken = self._journal.taken()
            self.longest = max(self.longest, len(taken.batches))
            self.documents.append(json.dumps(dump(taken, "1.0")))

    def failed(self, error: Exception) -> None:
        raise error


def taken_of(text: str) -> JournalState:
    return load(json.loads(text), policies_of)


def replayed(text: str) -> Replayed:
    return replay(taken_of(text))


@pytest.mark.parametrize("seed", [*range(1, 8), 9])  # seed 8 kills koalad too early
def test_a_replay_makes_the_same_decisions(seed: int) -> None:
    dumping = Dumping(seed)
    result = run(seed, EVENTS, recorder=dumping)
    assert result.violation is None
    found = [replayed(text) for text in dumping.documents]
    assert [each.difference for each in found] == [None] * len(found)
    assert sum(each.commands for each in found) > 20
    assert BATCHES // 2 < dumping.longest <= max(BATCHES, 8 * 200)


def test_a_replay_with_another_engine_finds_the_first_batch_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that drops a field of a component differs in the first batch with a submit."""
    dumping = Dumping(3)
    run(3, EVENTS, recorder=dumping)
    texts = [text for text in dumping.documents if any(map(_submits, taken_of(text).batches))]
    assert texts
    original = Engine.handle

    def mutant(engine: Engine, now: Instant, events: Sequence[Event]) -> Any:
        step = original(engine, now, events)
        step.commands = tuple(c for c in step.commands if not isinstance(c, SubmitAttempt))
        return step

    first = [next(n for n, batch in enumerate(taken_of(text).batches, 1) if _submits(batch)) for text in texts]
    monkeypatch.setattr(Engine, "handle", mutant)
    found = [replayed(text).difference for text in texts]
    assert [each and each.batch for each in found] == first
    assert all(each is not None and each.expected.startswith("SubmitAttempt(") for each in found)


def _submits(batch: Any) -> bool:
    return any(isinstance(each, SubmitAttempt) for each in batch.commands)


def test_a_journal_document_is_small_enough_for_a_report() -> None:
    dumping = Dumping(5)
    run(5, EVENTS, recorder=dumping)
    for text in dumping.documents:
        assert len(gzip.compress(text.encode())) < 400_000
