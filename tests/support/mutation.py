"""Mutation testing: draw small changes of the code, and see for each whether a test of the deciding side fails.

    tests/mutants --package P [--package Q] [--seed S] [--count N] [--workers W]

One process of pytest imports the tests once. It first runs them without a change, and records which lines each of them
executes. A child process judges one mutant: there the functions that it changes get their new code, and the tests that
execute its lines run until one fails. docs/mutation.md has the scores, and explains how to read a survivor.
"""

import argparse
import gc
import math
import os
import pickle
import random
import resource
import select
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import coverage
import pytest
import yaml
from mutants import Mutant, mutants_of

_TREE = Path(__file__).resolve().parents[2]
_PACKAGES = ("attempts", "coallocation", "scheduler", "broker", "scavenging", "pilots", "sites", "core", "policies")
_ROOMS = "attempts broker coallocation core driver engine model pilots policies scavenging scheduler sites views"
_TESTS = [f"tests/unit/{room}" for room in _ROOMS.split()]
_SET_ASIDE = _TREE / "tests/equivalent_mutants.yaml"
_MEMORY = 6 << 30  # bytes of a child: a mutant may fill a list for ever
_PATIENCE = 3, 2  # a child has 3 seconds of processor time, and twice what its tests took with coverage
_KILLED, _SURVIVED, _UNCHANGED, _TOO_LONG, _ASIDE = "killed", "survived", "unchanged", "too long", "set aside"


@dataclass
class Covered:
    """The outcome of a run: processor seconds of each test, and which tests, by number, execute a line of a file."""

    seconds: dict[int, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    lines: dict[str, dict[int, set[int]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))


@dataclass(frozen=True)
class Judged:
    """A mutant, what became of it, and how many tests execute its lines."""

    mutant: Mutant
    verdict: str
    tests: int
    why: str = ""  # the test that failed, or why it was set aside


def main(arguments: Sequence[str]) -> int:
    """Judge mutants of packages, and print a score for each. Returns an exit status: 2 if tests fail by themselves."""
    parser = argparse.ArgumentParser(prog="tests/mutants", description="Mutation testing; see docs/mutation.md.")
    parser.add_argument("--package", action="append", help=f"one of {', '.join(_PACKAGES)}; default: all of them")
    parser.add_argument("--seed", type=int, default=1, help="draws other mutants (default: 1)")
    parser.add_argument("--count", type=int, default=200, help="mutants of each package (default: 200)")
    parser.add_argument("--workers", type=int, default=2, help="children at a time (default: 2)")
    options = parser.parse_args(arguments)
    os.chdir(_TREE)
    packages = {name: _TREE / "koalapy" / name for name in options.package or _PACKAGES}
    if absent := [name for name, folder in packages.items() if not folder.is_dir()]:
        parser.error(f"there is no package {', '.join(absent)} in koalapy/")
    verdicts: dict[str, Counter[str]] = {name: Counter() for name in packages}

    def report(name: str, judged: Judged) -> None:
        verdicts[name][judged.verdict] += 1
        if judged.verdict == _SURVIVED:
            _print_survivor(judged)

    aside = equivalent_mutants(_SET_ASIDE)
    status = Judge(packages, _TESTS, report, options.seed, options.count, options.workers, aside).run()
    for name, counts in verdicts.items():
        print(_score(name, options.seed, counts))
    return status


def equivalent_mutants(path: Path) -> dict[tuple[str, str, str, str], str]:
    """Return why each mutant in a file changes no behaviour, by its file, function, and its line before and after."""
    listed = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None
    return {(each["file"], each["function"], each["before"], each["after"]): each["reason"] for each in listed or []}


class Judge:
    """A pytest plugin, in place of the loop that runs the tests: it judges mutants, and reports each package once.

    `tests` are paths below the working directory, and so is the path that a mutant has in `aside`.
    """

    def __init__(
        self,
        packages: dict[str, Path],
        tests: list[str],
        report: Callable[[str, Judged], None],
        seed: int,
        count: int,
        workers: int,
        aside: dict[tuple[str, str, str, str], str],
    ) -> None:
        self._packages = packages
        self._tests = tests
        self._report = report
        self._seed = seed
        self._count = count
        self._workers = workers
        self._aside = aside
        self._status = 0

    def run(self) -> int:
        """Return an exit status: 2 if a test fails without any mutant, else that of pytest."""
        quiet = ("-p", "no:terminal", "-p", "no:cacheprovider", "--capture=no", "-m", "not slow and not grid")
        os.environ.pop("PYTEST_ADDOPTS", None)  # of the tests that are run otherwise
        ended = pytest.main([*quiet, *self._tests], plugins=[self])
        return self._status or int(ended)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        covered = self._cover(session)
        if covered.failed:
            print("These tests fail without any mutant:", *covered.failed, sep="\n  ", file=sys.stderr)
            self._status = 2
            return True
        for name, folder in self._packages.items():
            for judged in self._judge(session, covered, name, folder):
                self._report(name, judged)
        return True

    def _cover(self, session: pytest.Session) -> Covered:
        """Run all tests, a share of the files in each worker."""
        files = sorted({item.path for item in session.items})
        shares = [set(files[number :: self._workers]) for number in range(self._workers)]
        children = [_Child(lambda share=share: self._cover_share(session, share)) for share in shares]  # type: ignore[misc]
        covered = Covered()
        for part in (child.result() for child in children):
            assert isinstance(part, Covered)
            covered.seconds.update(part.seconds)
            covered.failed.extend(part.failed)
            for file, lines in part.lines.items():
                for line, tests in lines.items():
                    covered.lines[file][line] |= tests
        return covered

    def _cover_share(self, session: pytest.Session, files: set[Path]) -> Covered:
        covered = Covered()
        folders = [str(folder) for folder in self._packages.values()]
        tracer = coverage.Coverage(data_file=None, config_file=False, source=folders, messages=False)
        tracer.start()
        numbers = [number for number, item in enumerate(session.items) if item.path in files]
        for number, item, following in _with_next(session, numbers):
            tracer.switch_context(str(number))
            began = time.process_time()
            failures = session.testsfailed
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            covered.seconds[number] = time.process_time() - began
            if session.testsfailed > failures:
                covered.failed.append(item.nodeid)
        tracer.stop()
        data = tracer.get_data()
        for file in data.measured_files():
            for line, contexts in data.contexts_by_lineno(file).items():
                covered.lines[file][line] = {int(context) for context in contexts if context}
        covered.lines = {file: dict(lines) for file, lines in covered.lines.items()}
        return covered

    def _judge(self, session: pytest.Session, covered: Covered, name: str, folder: Path) -> Iterator[Judged]:
        """Judge as many mutants of a package as were asked for, drawn one after the other."""
        makers = [make for path in sorted(folder.rglob("*.py")) for make in mutants_of(path)]
        random.Random(self._seed).shuffle(makers)
        own = f"/tests/unit/{name}/"
        speed = _speed_of_files(session, covered)
        running: list[tuple[Mutant, int, _Child]] = []
        pending = iter(makers)
        judged = 0
        while judged < self._count:
            while (
                judged + len(running) < self._count and len(running) < self._workers and (make := next(pending, None))
            ):
                mutant = make()
                at = covered.lines.get(str(mutant.path), {})
                tests = sorted(
                    set().union(*(at.get(line, set()) for line in mutant.lines)),
                    key=lambda number: (own not in str(session.items[number].path), speed[number], number),
                )
                if why := self._aside.get((mutant.file(), mutant.function, *mutant.difference())):
                    judged += 1
                    yield Judged(mutant, _ASIDE, len(tests), why)
                else:
                    limit = _PATIENCE[0] + _PATIENCE[1] * sum(covered.seconds[number] for number in tests)
                    child = _Child(lambda mutant=mutant, tests=tests: _try(session, mutant, tests), limit)  # type: ignore[misc]
                    running.append((mutant, len(tests), child))
            if not running:
                return
            mutant, count, child = running.pop(_first_ended([child for _, _, child in running]))
            verdict, why = child.result() or (_KILLED, _TOO_LONG)
            if verdict != _UNCHANGED:
                judged += 1
                yield Judged(mutant, verdict, count, why)


def _first_ended(children: Sequence["_Child"]) -> int:
    """Wait for one of the children to end. Returns its place among them."""
    ended, _, _ = select.select([child.pidfd for child in children], [], [])
    return next(place for place, child in enumerate(children) if child.pidfd in ended)


def _speed_of_files(session: pytest.Session, covered: Covered) -> dict[int, tuple[float, str]]:
    """Return for each test the mean seconds of the tests of its file, and the file, which keeps them together."""
    totals: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for number, item in enumerate(session.items):
        totals[str(item.path)] += covered.seconds[number]  # type: ignore[assignment]  # a Counter of seconds
        counts[str(item.path)] += 1
    return {
        number: (totals[str(item.path)] / counts[str(item.path)], str(item.path))
        for number, item in enumerate(session.items)
    }


def _with_next(
    session: pytest.Session, numbers: Sequence[int]
) -> Iterator[tuple[int, pytest.Item, pytest.Item | None]]:
    for index, number in enumerate(numbers):
        following = session.items[numbers[index + 1]] if index + 1 < len(numbers) else None
        yield number, session.items[number], following


def _try(session: pytest.Session, mutant: Mutant, tests: list[int]) -> tuple[str, str]:
    """Run tests with a mutant until one fails; in a child. Returns the verdict, and the test that failed."""
    if not put_in_place(mutant):
        return _UNCHANGED, ""
    for _, item, following in _with_next(session, tests):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return _KILLED, item.nodeid
    return _SURVIVED, ""


def put_in_place(mutant: Mutant) -> bool:
    """Give the functions of a mutant their changed code, in place. Returns False if nothing changes."""
    name = str(mutant.path)
    before = compile(mutant.path.read_text(encoding="utf-8"), name, "exec")
    try:
        after = compile(mutant.source, name, "exec")
    except SyntaxError:
        return False
    changed = {
        _place(old): new for old, new in _pairs(before, after) if old.co_code != new.co_code or _differ(old, new)
    }
    found = False
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename == name:
            new = changed.get(_place(function.__code__))
            if new is not None and new.co_freevars == function.__code__.co_freevars:
                function.__code__ = new
                found = True
    return found


def _pairs(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Yield the code of each function before and after; of those within one only if they are as many as before."""
    yield before, after
    old, new = ([each for each in code.co_consts if isinstance(each, CodeType)] for code in (before, after))
    if [each.co_name for each in old] == [each.co_name for each in new]:
        for pair in zip(old, new, strict=True):
            yield from _pairs(*pair)


def _differ(old: CodeType, new: CodeType) -> bool:
    """Return whether constants, names, or functions within differ: all but the places in the text."""
    if old.co_names != new.co_names or old.co_varnames != new.co_varnames or len(old.co_consts) != len(new.co_consts):
        return True
    for one, other in zip(old.co_consts, new.co_consts, strict=True):
        if isinstance(one, CodeType) and isinstance(other, CodeType):
            if one.co_code != other.co_code or _differ(one, other):
                return True
        elif (type(one), one) != (type(other), other):
            return True
    return False


def _place(code: CodeType) -> tuple[Any, ...]:
    return code.co_qualname, code.co_firstlineno, tuple(code.co_positions())


class _Child:
    """A function that runs in a child process, in its own session, without output. `limit`: processor seconds."""

    def __init__(self, function: Callable[[], Any], limit: float | None = None) -> None:
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115  # result() closes it
        self._pid = os.fork()
        if self._pid == 0:
            self._be(function, limit)
        self.pidfd = os.pidfd_open(self._pid)  # readable once it has ended

    def _be(self, function: Callable[[], Any], limit: float | None) -> None:
        try:
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(nothing, number)
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), math.ceil(limit)))
            pickle.dump(function(), self._answer)
            self._answer.flush()
        finally:
            os._exit(0)

    def result(self) -> Any:
        """Return what the function returned; None if its process died, of the limit or otherwise."""
        os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        os.killpg(
            self._pid, signal.SIGKILL
        )  # what it started ends too; the group is its own, since it is not reaped yet
        os.waitpid(self._pid, 0)
        os.close(self.pidfd)
        self._answer.seek(0)
        written = self._answer.read()
        self._answer.close()
        try:
            return pickle.loads(written)
        except (EOFError, pickle.UnpicklingError):
            return None


def _print_survivor(each: Judged) -> None:
    before, after = each.mutant.difference()
    print(f"{each.mutant.file()}:{each.mutant.lines[0]} {each.mutant.function}, executed by {each.tests} tests")
    print(f"  - {before}\n  + {after}", flush=True)


def _score(name: str, seed: int, counts: Counter[str]) -> str:
    tried = counts[_KILLED] + counts[_SURVIVED]
    score = f"{counts[_KILLED] / tried:.2f}" if tried else "none"
    return (
        f"{name}, seed {seed}: {counts.total()} drawn, {counts[_KILLED]} killed, {counts[_SURVIVED]} survived, "
        f"{counts[_ASIDE]} set aside as equivalent: score {score}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
