"""Every index of the engine is right after each batch of a chaos run, and no pass leaves anything to be decided."""

import os
from collections.abc import Sequence

import indices
import pytest

from koalapy.chaos.run import run
from koalapy.engine import Engine
from koalapy.model.events import Event
from koalapy.model.records import Step
from koalapy.model.units import Instant

EVENTS = 1_000
SEEDS = int(os.environ.get("KOALA_INDEX_SEEDS", "12"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_indices_are_right_after_every_batch(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    handle, checked = Engine.handle, 0

    def handle_and_check(self: Engine, now: Instant, events: Sequence[Event]) -> Step:
        nonlocal checked
        step = handle(self, now, events)
        indices.check(self, self._policies, now)
        checked += 1
        return step

    monkeypatch.setattr(Engine, "handle", handle_and_check)
    result = run(seed, EVENTS)
    assert result.violation is None, f"koala sim chaos --seed {seed} --events {EVENTS}: {result.violation}"
    assert checked > 100
