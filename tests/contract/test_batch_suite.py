"""The contract suite itself: what it means for an installed koalapy, and how its lanes run."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.connections.pack import packed
from koalapy_adapters.contract.kcm import Kcm
from koalapy_adapters.contract.live import Live
from koalapy_adapters.contract.parallel_runs import ParallelRuns, Trial
from koalapy_adapters.contract.target import Target, login
from koalapy_adapters.contract.test_recorded import within

from koalapy.model.errors import RequestError
from koalapy.model.identity import Tag, attempt_of


def target(name: str, head: str) -> Target:
    return Target(name=name, head=head, settings=dict)


class Stage:
    """A stand-in for Live that records its calls."""

    def __init__(self, of: Target, notes: list[str]) -> None:
        self._row, self._notes = of, notes

    def tidy(self) -> None:
        self._notes.append(f"{self._row.name} tidied")

    def close(self) -> None:
        self._notes.append(f"{self._row.name} closed")
        if self._row.name == "stubborn":
            raise OSError("its jobs do not end")


def lanes(*trials: tuple[Target, Callable[[Any], None]]) -> tuple[list[Trial], ParallelRuns, list[str]]:
    notes: list[str] = []
    made = [Trial(of, check) for of, check in trials]
    return made, ParallelRuns(made, lambda of: Stage(of, notes)), notes  # type: ignore[arg-type, return-value]


def test_rows_of_one_head_follow_each_other_and_are_tidied() -> None:
    a, b = target("a", "one"), target("b", "one")
    trials, made, notes = lanes(
        (a, lambda live: notes.append("a1")),
        (b, lambda live: notes.append("b1")),
        (a, lambda live: notes.append("a2")),
    )
    for trial in trials:
        made.outcome(trial)
    assert notes == ["a1", "a tidied", "a2", "a closed", "b1", "b closed"]


def test_rows_of_two_heads_run_side_by_side() -> None:
    """The row of each head waits for that of the other."""
    meeting = threading.Barrier(2, timeout=120)

    def meet(live: Any) -> None:
        meeting.wait()

    trials, made, _ = lanes((target("a", "one"), meet), (target("b", "two"), meet))
    waiting = threading.Thread(target=made.outcome, args=(trials[0],))
    waiting.start()
    made.outcome(trials[1])
    waiting.join()


def test_a_failure_affects_its_own_test_only() -> None:
    def fail(live: Any) -> None:
        raise AssertionError("as it must")

    here = target("a", "one")
    trials, made, _ = lanes((here, fail), (here, lambda live: None))
    with pytest.raises(AssertionError, match="as it must"):
        made.outcome(trials[0])
    made.outcome(trials[1])


def test_a_row_whose_jobs_do_not_end_fails() -> None:
    trials, made, _ = lanes((target("stubborn", "one"), lambda live: None))
    with pytest.raises(OSError, match="do not end"):
        made.outcome(trials[0])


def test_a_stopped_run_begins_no_trial_and_tidies_up() -> None:
    begun, go = threading.Event(), threading.Event()
    here = target("a", "one")

    def first(live: Any) -> None:
        begun.set()
        assert go.wait(120)

    trials, made, notes = lanes((here, first), (here, lambda live: notes.append("never")))
    waiting = threading.Thread(target=made.outcome, args=(trials[0],))
    waiting.start()
    begun.wait()
    closing = threading.Thread(target=made.close)
    closing.start()
    go.set()
    closing.join()
    waiting.join()
    assert "a closed" in notes


@pytest.mark.parametrize("asked", [False, True], ids=["kcm_only", "batch_system_too"])
def test_a_closed_row_has_removed_the_directories_of_its_instances_and_no_others(tmp_path: Path, asked: bool) -> None:
    shared = tmp_path / "shared"
    settings = {"batch": "local", "connect": "local:", "slots": 1, "shared": str(shared), "python": sys.executable}
    here = Target(name="local", head="here", settings=lambda: settings)
    live = Live(here)
    stranger = live.strangers()
    other = Kcm(login(here), stranger)
    other.hello()
    other.close()
    (shared / "abcde").mkdir()
    tag = live.tag()
    if asked:
        live.batch.write(f"{shared}/{tag_instance(tag)}/{tag}/script", "")
    assert live.kcm.errors == []
    made = {stranger, live.instance, *([tag_instance(tag)] if asked else [])}
    assert made <= set(os.listdir(shared))
    live.close()
    assert made.isdisjoint(os.listdir(shared))
    assert "abcde" in os.listdir(shared)


def tag_instance(tag: str) -> str:
    return attempt_of(Tag(tag))[0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"batch": "local", "connect": "local:", "slotz": 4}, "slotz"), ({"batch": "none", "connect": "local:"}, "none")],
    ids=["key", "batch"],
)
def test_a_rows_settings_are_a_grid_files(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        login(Target(name="x", head="x", settings=lambda: settings))


def test_nothing_of_koalapy_imports_pytest_or_the_suite() -> None:
    program = """
import pkgutil, importlib, sys, koalapy_adapters
for found in pkgutil.walk_packages(koalapy_adapters.__path__, "koalapy_adapters."):
    if not found.name.startswith("koalapy_adapters.contract"):
        importlib.import_module(found.name)
import koalapy.cli.main
print(sorted(name for name in sys.modules if name == "pytest" or name.startswith("koalapy_adapters.contract.")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_plugin_costs_a_pytest_run_next_to_nothing() -> None:
    program = (
        "import sys, koalapy_adapters.contract.plugin; print([n for n in sys.modules if n.split('.')[0] == 'koalapy'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_suite_is_not_in_the_pushed_file() -> None:
    assert b"koalapy_adapters/contract" not in packed().data


IDLE = {"total": 8, "idle": 4, "ours": 0, "allocated": [], "pending": [], "statuses": {"1": {"state": "queued"}}}


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ({"value": IDLE}, True),
        ({"value": {**IDLE, "idle": 2, "total": 4, "statuses": {}}}, True),
        ({"value": {**IDLE, "idle": 5}}, False),
        ({"value": {**IDLE, "statuses": {"1": {"state": "ended"}}}}, False),
        ({"value": {**IDLE, "statuses": {"2": {"state": "queued"}}}}, False),
        ({"error": {"code": "unreadable_answer"}}, True),
        ({"error": {"code": "dialect_broken"}}, False),
    ],
)
def test_an_answer_that_was_cut_off_is_unreadable_or_part_of_the_whole(answer: dict[str, Any], right: bool) -> None:
    assert within(answer, {"value": IDLE}) is right
