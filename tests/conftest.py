"""For every test: no deadline by the clock, no luck, no trace of who started the run; what a run has one of.

That is a PostgreSQL server, the test grid, a last word. `--hypothesis-profile=explore` draws examples anew.
"""

import os
import shutil
import signal
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import postgresql
import pytest
import pytest_timeout
from programs import LEFT_OUT

_NOT_OF_THE_MACHINE = [hypothesis.HealthCheck.too_slow]  # how long an example takes is its affair alone
hypothesis.settings.register_profile("explore", deadline=None, suppress_health_check=_NOT_OF_THE_MACHINE)
hypothesis.settings.register_profile("koalapy", hypothesis.settings.get_profile("explore"), derandomize=True)
hypothesis.settings.load_profile("koalapy")

# As in a terminal: whoever starts a run in the background, or with nohup, has its children ignore what tests send them.
signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(_number, signal.SIG_DFL)
os.umask(0o022)
for _name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "TTY_COMPATIBLE", "GITHUB_ACTIONS"):
    os.environ.pop(_name, None)

# A home of their own: what login shells do in a person's, and leave there as tests kill them, is nobody's concern. An
# example: pyenv's lock, for which every later login of that person waits a minute.
_PERSON = Path.home()
for _name, _place in (
    ("XDG_STATE_HOME", ".local/state"),  # where the test grid has its keys
    ("MPLCONFIGDIR", ".cache/matplotlib"),  # which takes long to make
    ("PYENV_ROOT", ".pyenv"),  # where older Pythons may be found
):
    os.environ.setdefault(_name, str(_PERSON / _place))
_HOME = os.environ["HOME"] = tempfile.mkdtemp(prefix="koala-home-")

_SECONDS: dict[str, float] = defaultdict(float)
_SECONDS_OF_FILE: dict[str, float] = defaultdict(float)
_LONGEST = 30

_ON_THE_GRID = ("tests/grid/", "tests/contract/test_batch_live.py")
_ON_THIS_MACHINE = ("[local", "[allocation")  # rows of those that need no test grid
_TEST_GRIDS = 2

# Simulated time has no pace: what fails there has failed. All else may start processes and wait for what comes of them,
# on a machine that may be busy, and has a second try in a complete run.
_ONE_TRY = ("tests/chaos/", "tests/world/", "tests/golden/", "tests/experiments/")

# Worker 0 has the test grid that a person has; worker 1 has another one. Modules read its name when they are imported.
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
if _WORKER == "gw1":
    os.environ["KOALA_TESTGRID"] = os.environ.get("KOALA_TESTGRID", "testgrid") + "-2"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        for item in items:
            if not item.nodeid.startswith(_ONE_TRY):
                item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_unconfigure() -> None:
    shutil.rmtree(_HOME, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give whole files to workers, and those that need a test grid only to the workers that have one."""
    from xdist.scheduler import LoadScopeScheduling
    from xdist.workermanage import WorkerController

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist carries no types
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return f"{file} on a test grid" if _needs_a_grid(nodeid) else file

        def _assign_work_unit(self, node: WorkerController) -> None:
            number = int(node.gateway.id.removeprefix("gw"))
            fitting = (scope for scope in self.workqueue if _needs_a_grid(scope) == (number < _TEST_GRIDS))
            scope = next(fitting, None)
            if scope is None and number in range(_TEST_GRIDS, self.numnodes):
                node.shutdown()  # what is left is for the workers with a test grid
                return
            if scope is not None:
                self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

    return ByFile(config, log)


def _needs_a_grid(name: str) -> bool:
    """Return whether this is a test, or the name of a scope, that needs a test grid."""
    return (
        name.startswith(_ON_THE_GRID) and not name.endswith(".py") and not any(row in name for row in _ON_THIS_MACHINE)
    )


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Any]:
    """See tests/support/postgresql.py."""
    with postgresql.server() as server:
        yield server


@pytest.fixture(scope="session")
def testgrid_session() -> Iterator[Any]:
    """The test grid, up, and nobody else's until the session ends."""
    from koalapy import testgrid as dockerised  # late: most runs need none

    with dockerised.reserved():
        running = dockerised.up()
        yield running
        running.reset()


@pytest.fixture
def database(postgresql_server: Any) -> Iterator[str]:
    """The URL of an empty database, for as long as the test runs."""
    url = postgresql_server.database()
    yield url
    postgresql_server.drop(url)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give a second try a time limit of its own: pytest-timeout sets one for both, and it has gone off if one hung."""
    if getattr(item, "execution_count", 1) > 1:
        limits = item.config.pluginmanager.hook
        limits.pytest_timeout_cancel_timer(item=item)
        limits.pytest_timeout_set_timer(item=item, settings=pytest_timeout._get_item_settings(item))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    path = Path(report.nodeid.partition("::")[0])
    _SECONDS[path.parts[1] if len(path.parts) > 1 else "."] += report.duration
    _SECONDS_OF_FILE[str(path)] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    left_out = {words for each in terminalreporter.getreports("skipped") if LEFT_OUT in (words := _words(each))}
    if left_out:
        terminalreporter.section("LEFT OUT", sep="!", bold=True, red=True)
    for words in sorted(left_out):
        terminalreporter.write_line(words.removeprefix("Skipped: "))
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"FAILED AT THE FIRST TRY: {report.nodeid}", sep="!", bold=True, red=True)
        terminalreporter.write_line(report.longreprtext)
        for title, words in report.sections:
            terminalreporter.write_line(f"--- {title} ---\n{words}")
    terminalreporter.section("minutes per folder")
    for folder, seconds in sorted(_SECONDS.items()):
        terminalreporter.write_line(f"{seconds / 60:6.1f}  tests/{folder}")
    terminalreporter.section(f"minutes of the {_LONGEST} longest files")
    for file in sorted(_SECONDS_OF_FILE, key=lambda file: -_SECONDS_OF_FILE[file])[:_LONGEST]:
        terminalreporter.write_line(f"{_SECONDS_OF_FILE[file] / 60:6.1f}  {file}")


def _words(report: pytest.TestReport) -> str:
    """Why it was skipped."""
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
