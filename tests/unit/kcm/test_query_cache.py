"""The cache of a measurement's queries: which commands run again, and which answers are kept."""

from types import SimpleNamespace

import pytest
from koalapy_adapters.errors import Result
from koalapy_adapters.kcm.execution.query_cache import STEADY, QueryCache

KEPT = 60.0
ARGVS = [["jobs"], ["queues"], ["limits"], ["used"]]


class Cluster:
    """A cluster that answers each command with its text."""

    def __init__(self) -> None:
        self.texts = {argv[0]: "" for argv in ARGVS}
        self.failing: set[str] = set()
        self.asked: list[str] = []
        self.time = 0.0
        dialect = SimpleNamespace(JOB_LIST_QUERY=0, cache_seconds=self._cache_seconds)
        self._asking = QueryCache(dialect, self._run, lambda: self.time)

    def measure(self) -> list[str]:
        """Measure once. Returns the commands that ran."""
        del self.asked[:]
        answers = self._asking.ask(ARGVS)
        assert [answer.argv for answer in answers] == ARGVS
        return list(self.asked)

    def forget(self) -> None:
        self._asking.forget()

    def _run(self, argv: list[str]) -> Result:
        self.asked.append(argv[0])
        return Result(argv, int(argv[0] in self.failing), self.texts[argv[0]], "")

    def _cache_seconds(self, result: Result) -> float:
        return KEPT if result.argv[0] in ("queues", "limits") and result.exit_status == 0 else 0.0


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_query_that_depends_on_the_jobs_runs_again_once_they_have_changed(cluster: Cluster) -> None:
    assert cluster.measure() == ["jobs", "queues", "limits", "used"]
    assert cluster.measure() == ["jobs"]
    cluster.texts["jobs"] = "one more"
    assert cluster.measure() == ["jobs", "used"]
    cluster.time += STEADY
    assert cluster.measure() == ["jobs", "used"]


def test_kept_answers_are_renewed_one_by_one(cluster: Cluster) -> None:
    """All answers are equally old, and one measurement that renewed all would cost several times as much as others."""
    cluster.measure()
    cluster.time += KEPT
    assert cluster.measure() == ["jobs", "queues", "used"]
    cluster.time += STEADY
    assert cluster.measure() == ["jobs", "limits", "used"]
    cluster.time += STEADY
    assert cluster.measure() == ["jobs", "used"]


def test_a_failed_answer_is_not_kept(cluster: Cluster) -> None:
    cluster.measure()
    cluster.time += KEPT
    cluster.failing.add("queues")
    assert cluster.measure() == ["jobs", "queues", "used"]
    cluster.time += STEADY
    assert cluster.measure() == ["jobs", "queues", "limits", "used"]
    cluster.failing.clear()
    cluster.time += STEADY
    assert cluster.measure() == ["jobs", "queues", "used"]
    cluster.time += STEADY
    assert cluster.measure() == ["jobs", "used"]


def test_after_an_answer_that_cannot_be_read_all_commands_run_again(cluster: Cluster) -> None:
    cluster.measure()
    cluster.forget()
    assert cluster.measure() == ["jobs", "queues", "limits", "used"]
