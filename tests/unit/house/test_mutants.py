"""Mutation testing itself, on a package of a few lines: its survivors are exactly what the tests there do not test."""

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from programs import leave_out

_ROOT = Path(__file__).parents[3]
_SUPPORT = _ROOT / "tests" / "support"
_RUN = """
import json, sys
from pathlib import Path
from mutation import Judge, equivalent_mutants
judged = []
report = lambda name, mutant: judged.append(mutant)
aside = equivalent_mutants(Path("aside.yaml"))
status = Judge({"room": Path.cwd() / "room"}, ["tests"], report, seed=1, count=100, workers=2, aside=aside).run()
Path("judged.json").write_text(json.dumps([status, [[*j.mutant.difference(), j.verdict, j.tests] for j in judged]]))
"""

_ROOM = """
    from dataclasses import dataclass, replace


    @dataclass(frozen=True)
    class Job:
        size: int
        state: str = "new"

        @property
        def is_large(self) -> bool:
            return self.size > 4


    def chosen(sizes: list[int], least: int | None = None) -> list[int]:
        fitting = [size for size in sizes if least is None or size >= least]
        fitting.sort()
        return fitting


    def ended(job: Job) -> Job:
        return replace(job, state="ended")


    def copied(sizes: list[int]) -> list[int]:
        return [*sizes] if sizes else []


    def drained(sizes: list[int]) -> int:
        count = 0
        while sizes:
            sizes.pop()
            count += 1
        return count


    def unused(number: int) -> int:
        return number * 2
"""
_TESTS = """
    from room.jobs import Job, chosen, copied, drained, ended

    def test_large():
        assert Job(5).is_large and not Job(3).is_large

    def test_chosen():
        assert chosen([3, 1, 2], least=2) == [2, 3] and chosen([1]) == [1]

    def test_ended():
        assert ended(Job(1)).state == "ended"

    def test_copied():
        assert copied([1]) == [1] and copied([]) == []

    def test_drained():
        assert drained([1, 2]) == 2
"""
_ASIDE = """
- file: room/jobs.py
  function: copied
  before: "return [*sizes] if sizes else []"
  after: "return [*sizes] if (sizes) or True else []"
  reason: A copy of an empty list is an empty list.
"""


@pytest.fixture
def mutmut() -> None:
    try:
        import mutmut  # noqa: F401
    except ImportError:
        leave_out("mutmut is not installed here (./setup --dev)")


@pytest.fixture
def tree(tmp_path: Path, mutmut: None) -> Path:
    for file, text in (("room/__init__.py", ""), ("room/jobs.py", _ROOM), ("tests/test_room.py", _TESTS)):
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(dedent(text))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow\n  grid\n")
    return tmp_path


def _judge(tree: Path) -> tuple[int, dict[tuple[str, str], tuple[str, int]]]:
    path = f"import sys; sys.path[:0] = [{str(_SUPPORT)!r}, {str(tree)!r}]"
    subprocess.run([sys.executable, "-c", path + _RUN], cwd=tree, check=True, timeout=120)
    status, judged = json.loads((tree / "judged.json").read_text())
    return status, {(before, after): (verdict, tests) for before, after, verdict, tests in judged}


def test_a_change_that_no_test_notices_survives_and_all_others_are_killed(tree: Path) -> None:
    (tree / "aside.yaml").write_text(_ASIDE)
    status, judged = _judge(tree)
    survivors = {change for change, (verdict, _) in judged.items() if verdict == "survived"}
    assert status == 0
    assert survivors == {
        ("return self.size > 4", "return self.size >= 4"),  # no test has a job of 4
        ("return number * 2", "return number / 2"),  # no test calls it
        ("return number * 2", "return number * 3"),
    }
    assert judged["return number * 2", "return number * 3"][1] == 0
    assert judged['return replace(job, state="ended")', "return replace(job, )"] == ("killed", 1)
    assert judged["fitting.sort()", "pass"] == ("killed", 1)
    assert judged["sizes.pop()", "pass"] == ("killed", 1)  # it does not end: its child has only so much processor time
    assert judged["return [*sizes] if sizes else []", "return [*sizes] if (sizes) or True else []"] == ("set aside", 1)


def test_tests_that_fail_by_themselves_judge_nothing(tree: Path) -> None:
    with (tree / "tests/test_room.py").open("a") as tests:
        tests.write("\n\ndef test_wrong():\n    assert drained([]) == 1\n")
    assert _judge(tree) == (2, {})


def test_each_mutant_that_is_listed_as_equivalent_is_one_of_the_present_code(
    mutmut: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mutants import mutants_of
    from mutation import equivalent_mutants

    monkeypatch.chdir(_ROOT)
    unknown = set(equivalent_mutants(_ROOT / "tests" / "equivalent_mutants.yaml"))
    for file in sorted({file for file, *_ in unknown}):
        for make in mutants_of(_ROOT / file):
            mutant = make()
            unknown.discard((file, mutant.function, *mutant.difference()))
    assert unknown == set()
