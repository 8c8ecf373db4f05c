"""The test grid as a fixture (see tests/conftest.py): reset before each test that changes it."""

from pathlib import Path

import pytest

from koalapy.testgrid import Running, repair

TEST_TIMEOUT_S = 600  # at least: a machine that is busy with other things may be slow


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.grid)
            # The fixture may build images or wait for another run; only the test itself is bounded.
            said = item.get_closest_marker("timeout")
            seconds = max(TEST_TIMEOUT_S, said.args[0] if said else 0)
            item.add_marker(pytest.mark.timeout(seconds, func_only=True), append=False)


@pytest.fixture
def testgrid(testgrid_session: Running) -> Running:
    """The test grid with everything running and nothing on it."""
    testgrid_session.reset()
    return testgrid_session


@pytest.fixture
def standing_testgrid(testgrid_session: Running) -> Running:
    """The test grid with everything running and whatever is on it, for tests that only look."""
    repair.mend(testgrid_session.containers)
    return testgrid_session
