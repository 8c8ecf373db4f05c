"""Claims: of any number that want an attempt at once, exactly one gets it, and all agree on who."""

import multiprocessing
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.start_lock import StartLock, held_by, take


def test_the_first_has_it_and_the_others_learn_it(tmp_path: Path) -> None:
    first, second = StartLock("taken", "a wrapper"), StartLock("void", "a KCM")
    assert held_by(str(tmp_path)) is None
    assert take(str(tmp_path), first) == first
    assert take(str(tmp_path), second) == first
    assert held_by(str(tmp_path)) == first
    assert os.listdir(tmp_path) == ["start-lock"]


def test_one_who_asks_again_still_has_it(tmp_path: Path) -> None:
    claim = StartLock("taken", "a wrapper whose first answer was lost")
    assert take(str(tmp_path), claim) == take(str(tmp_path), claim) == claim


def test_of_many_at_once_one_wins(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for round_ in range(20):
        attempt = tmp_path / str(round_)
        attempt.mkdir()
        answers, start = context.SimpleQueue(), context.Barrier(8)
        racers = [context.Process(target=_race, args=(str(attempt), str(n), start, answers)) for n in range(8)]
        for racer in racers:
            racer.start()
        seen = [answers.get() for _ in racers]
        for racer in racers:
            racer.join()
        assert len(Counter(winner for _, winner in seen)) == 1
        assert [name for name, winner in seen if name == winner] == [seen[0][1]]


def test_what_the_link_call_returned_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On NFS the reply may be lost and the call sent again: it fails though the link is there (open(2), O_EXCL)."""
    link = os.link

    def link_twice(source: str, target: str) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", link_twice)
    claim = StartLock("taken", "a wrapper")
    assert take(str(tmp_path), claim) is claim


def test_where_nothing_can_be_written_nothing_is_assumed(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        take(str(tmp_path / "gone"), StartLock("taken", "x"))


def _race(attempt: str, name: str, start: Any, answers: Any) -> None:
    start.wait()
    answers.put((name, take(attempt, StartLock("taken", name)).by))
